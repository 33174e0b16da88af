"""Follows the versions of a tap's streams (Singer's ACTIVATE_VERSION): rows of other versions are obsolete.

- A stream that is read whole lands with the version, in the place of all older rows. It is complete if its version came
  after its last record, however other streams ended. One without records is left out: the version may come first.
- A stream that is read incrementally keeps the rows of older versions, and its readers have to know: pipelinewise's tap
  for PostgreSQL begins a version where the source truncates a table, and says nothing else of the rows that are gone.
  Taps keep the version in the stream's bookmark, so one of an earlier run is known too.
"""

from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.model import ReadMode, StreamId
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.sync.plan.stream_plan import replaces_table
from dagster_airbyte_proto.sync.stream_run import StreamRun


class StreamVersions:
    """The versions that the streams of one reading have activated. Belongs to the reading thread.

    Without `states` the connector starts over, and no version of an earlier run counts.
    """

    def __init__(self, states: StateCodec | None) -> None:
        self._states = states
        self._newest: dict[StreamId, int] = {}
        self._records_at_version: dict[StreamId, int] = {}

    def activate(self, run: StreamRun, version: int, records: int) -> str | None:
        """Notes a version that came after so many records. Returns a warning if rows of an older one stay."""
        stream = run.planned.id
        before = self._newest.get(stream, self._version_before(run))
        self._newest[stream], self._records_at_version[stream] = version, records
        keeps_rows = run.planned.read is ReadMode.INCREMENTAL and not replaces_table(run.planned)
        if before in (None, version) or not keeps_rows:
            return None
        return (
            f"stream {stream}: its source began version {version}, as after a TRUNCATE, and rows of version {before}"
            f" stay: `sync --refresh --streams {shell_word(stream)}` replaces them"
        )

    def is_whole(self, stream: StreamId, records: int) -> bool:
        """True if the version of the stream came after all of its records, and it has some."""
        return records > 0 and self._records_at_version.get(stream) == records

    def _version_before(self, run: StreamRun) -> int | None:
        if self._states is None or run.state_before is None:
            return None
        bookmark = (self._states.parts(run.state_before) or {}).get(run.planned.id)
        version = bookmark.get("version") if isinstance(bookmark, dict) else None
        return version if isinstance(version, int) else None
