"""Fake connectors, failing calls, crash points and folder tables, for tests. The engine imports none of it.

`fake_source` and `fake_tap` follow a scenario. Keys of the scenario, all optional:
    state           "stream" (default), "global", "legacy" (one object for all streams, no type) or "none"
    state_every     records between two states, of a stream, or of the sync where state is shared; the last state always
                    comes. Default 10
    interleave      true: record by record in turn; false (default): one stream after the other
    statuses        false: no STREAM_STATUS at all
    late_states     true: a stream's last state comes after its COMPLETE, as the CDK does it
    counts          false: no sourceStats; `miscount` is added to each count that is sent
    exit_code       its exit code. Default 0
    lines, stderr   lists of lines that are printed unchanged, before any stream
    new_config      a config that it sends in a CONTROL message, before any stream
    answers         {"check": {"lines": […], "exit_code": 1}}: printed in the place of a verb's own answer
    failure         {"kind": …, "after": N}: happens when N records of this run are out, everything before it flushed:
                    "exit" (`code`, default 1), "error" (a TRACE ERROR with `message`, `failure_type`, `stream`, then
                    exit 1), "hang" (lives on and sends nothing), "ignore_sigterm" (the same, and SIGTERM does not end
                    it), "signal" (dies of `signal`, default 9), "close" (closes stdout and lives on), "cut" (half a
                    record, then exit 1). With `once`, a path, it happens only while that file does not exist, and
                    makes it
Keys of a stream, all optional but `records` or `rows`:
    records         how many the source has: their ids are 0 to records - 1
    rows            the records themselves: each an object, or [emitted_at in milliseconds, object]. Their schema is
                    `properties` and nothing else
    primary_key, cursor
                    paths that the source declares, in the place of its own
    namespace       default none
    incremental     false: full refresh only
    resumable       true: a full refresh has states too (of the stream, never shared), and goes on from one
    keys            number of distinct keys: `key` is id % keys, and it is the primary key in the place of `id`
    deleted_every   each n-th record is a deletion (`_ab_cdc_deleted_at`)
    pad             a text of that many characters in each record; with `noise` true, one that hardly compresses
    values          fields that each record gets in addition; `properties` is their JSON schema
    incomplete_at   the stream fails with an error and INCOMPLETE before this id, and the others go on;
                    `state_after_incomplete` true: with the meaningless state that the CDK sends then

A record is {"id": 3, "key": 3, "name": "users 3", "updated_at": a time that grows with the id}; its `emitted_at` is the
same in each run. The state of a stream is {"next": the id that comes next}. An incremental read goes on from there; a
full refresh sends everything and, unless it is resumable, no state. A GLOBAL state has the positions of all selected
incremental streams.
"""
