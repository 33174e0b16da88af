"""The files that Iceberg deletes after a commit, kept until we know whether the commit landed.

Iceberg deletes the manifests of a commit that was refused. But what it takes for a refusal may have landed. Then the
table's newest snapshot would name manifests that are gone, and nobody could read it any more:

- A JDBC catalog whose connection breaks before the database has answered sends its UPDATE once more over a new
  connection. It changes no row where the first one did, and that counts as a refusal.
- A proxy before a REST server that repeats a request gets a conflict with the first one.
"""

from contextlib import suppress
from typing import Any, NamedTuple

from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items


class CommitLeftovers(NamedTuple):
    """The paths (Java's list) that Iceberg would have deleted after a commit."""

    paths: Any

    def delete(self, table: Any) -> None:
        """Deletes them from a table (Java's). One that stays takes some kilobytes in its metadata, and does no harm."""
        with suppress(*CALL_ERRORS):
            if self.paths.isEmpty():
                return
            io = table.io()
            for path in java_items(self.paths):
                with suppress(*CALL_ERRORS):
                    io.deleteFile(path)


class LeftoverKeeper:
    """Makes changes keep the files that Iceberg would delete.

    Iceberg takes a callback for them, and py4j can give it none without a server in Python. So the callback is the
    `add` of a list of Java.
    """

    def __init__(self, jvm: Any) -> None:
        invoke, classes = jvm.java.lang.invoke, jvm.java.lang.Class
        self._lists, self._proxies = jvm.java.util.ArrayList, invoke.MethodHandleProxies
        self._consumer = classes.forName("java.util.function.Consumer")
        self._lookup = invoke.MethodHandles.publicLookup()
        self._add = invoke.MethodType.methodType(jvm.java.lang.Boolean.TYPE, classes.forName("java.lang.Object"))

    def keep(self, change: Any) -> CommitLeftovers:
        """To be called before the change is committed."""
        paths = self._lists()
        add = self._lookup.bind(paths, "add", self._add)
        change.deleteWith(self._proxies.asInterfaceInstance(self._consumer, add))
        return CommitLeftovers(paths)
