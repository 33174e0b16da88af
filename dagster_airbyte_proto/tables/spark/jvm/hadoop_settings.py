"""Reads the settings of object stores from Hadoop's whole configuration (Java's), which files of the user's may set."""

from collections.abc import Iterator
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.object_stores.known import HADOOP_SETTINGS
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items


def hadoop_settings(session: SparkSession) -> dict[str, str]:
    """Returns the settings of object stores."""
    hadoop = session._jsparkSession.sessionState().newHadoopConf()
    return {name: str(value) for name, value in _settings(hadoop) if value}


def _settings(hadoop: Any) -> Iterator[tuple[str, Any]]:
    for name in HADOOP_SETTINGS:
        if not name.endswith("."):
            yield name, hadoop.get(name)
            continue
        for entry in java_items(hadoop.getPropsWithPrefix(name).entrySet()):
            yield name + str(entry.getKey()), entry.getValue()
