"""The log of a run: lines of a connector can be told from ours."""

from pathlib import Path

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
