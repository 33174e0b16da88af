"""The log of a run: lines of a connector can be told from ours."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.sync.run_log import RunLog


def test_no_connector_writes_a_line_that_looks_like_ours(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []
    with RunLog(tmp_path, "run", on_line=lambda level, text: shown.append((level, text))) as log:
        log.write("INFO", "done\n2026-11-26T05:00:00.000000 ERROR the disk is gone\r\nand more\rover")
        log.write("INFO", "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \u202e\u2028 tab\tand é stay\x00")
    first, second, third, fourth = log.path.read_text().splitlines()
    assert first.endswith(" INFO  done")
    assert second == "    2026-11-26T05:00:00.000000 ERROR the disk is gone"
    assert third == "    and more\\rover"
    assert fourth.endswith(r" INFO  red \x1b]0;title\x07 \x9b2J \u202e\u2028 tab" + "\tand é stay" + r"\x00")
    assert "\x1b" not in "".join(text for _, text in shown)


def test_it_ends_with_how_the_run_ended(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []
    with RunLog(tmp_path, "run", max_bytes=1, on_line=lambda level, text: shown.append((level, text))) as log:
        log.write("INFO", "reading")
        log.write("INFO", "past the limit")
        log.note_end("partial", ["users: the disk is full"])
    lines = [line.partition(" ")[2] for line in log.path.read_text().splitlines()]
    assert lines[:3] == ["INFO  reading", "ERROR users: the disk is full", "INFO  the run ended: partial"]
    assert [text for _, text in shown] == ["reading", "past the limit"]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ValueError("no such host"), ["ERROR no such host", "INFO  the run ended: failed"]),
        (KeyboardInterrupt(), ["INFO  the run ended: cancelled"]),
    ],
)
def test_it_has_the_error_that_ends_a_run_before_its_report(
    tmp_path: Path, error: BaseException, lines: list[str]
) -> None:
    with pytest.raises(type(error)), RunLog(tmp_path, "run") as log:
        raise error
    assert [line.partition(" ")[2] for line in log.path.read_text().splitlines()] == lines
