"""The line that says what went wrong, found between the stack traces of connectors as they are."""

import pytest

from dagster_airbyte_proto.stack_traces import first_words, last_words, without_stack_traces

PYTHON = """\
INFO starting
CRITICAL 'count'
Traceback (most recent call last):
  File "/venv/bin/tap-shop", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/venv/lib/tap_shop/__init__.py", line 40, in main
    config["count"]

KeyError: 'count\'"""
CHAINED = f"""\
{PYTHON}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/venv/lib/tap_shop/__init__.py", line 44, in main
    raise ConfigError("count is missing") from error
tap_shop.ConfigError: count is missing
look at the docs"""
CUT_AT_ITS_BEGINNING = """\
    self.sync()
  File "/venv/lib/tap_shop/__init__.py", line 40, in sync
    raise ValueError("boom")
ValueError: boom"""
RICH = """\
╭──────── Traceback (most recent call last) ────────╮
│ /venv/lib/tap_shop/__init__.py:40 in main         │
│ ❱ 40     config["count"]                          │
╰───────────────────────────────────────────────────╯
KeyError: 'count\'"""
JAVA = """\
Exception in thread "main" java.lang.RuntimeException: no way in
\tat io.airbyte.Source.main(Source.java:12)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/java.net.Socket.connect(Socket.java:633)
\t... 7 more"""
JAVA_WORDS = """\
Exception in thread "main" java.lang.RuntimeException: no way in
Caused by: java.net.ConnectException: Connection refused"""
NODE = """\
Error: connect ECONNREFUSED 127.0.0.1:5432
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1555:16)"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PYTHON, "KeyError: 'count'"),
        (CHAINED, "tap_shop.ConfigError: count is missing\nlook at the docs"),
        (CUT_AT_ITS_BEGINNING, "ValueError: boom"),
        (RICH, "KeyError: 'count'"),
        (JAVA, JAVA_WORDS),
        (NODE, "Error: connect ECONNREFUSED 127.0.0.1:5432"),
        ("\n".join(f"line {number}" for number in range(9)), "line 4\nline 5\nline 6\nline 7\nline 8"),
        ("", ""),
    ],
)
def test_the_last_words_are_the_error(text: str, words: str) -> None:
    assert last_words(text.splitlines()) == words


def test_the_first_words_are_the_error_and_not_what_it_had_tried() -> None:
    tried = "\n".join(f"line {number} of the SQL" for number in range(9))
    words = first_words(f'(psycopg2.errors.UndefinedTable) relation "contacts" does not exist\n{tried}')
    assert words.splitlines()[0] == '(psycopg2.errors.UndefinedTable) relation "contacts" does not exist'
    assert len(words.splitlines()) == 5
    assert first_words(PYTHON) == "KeyError: 'count'"
    assert first_words("") == ""


def test_what_stands_before_a_stack_trace_stays() -> None:
    assert without_stack_traces(PYTHON) == "INFO starting\nCRITICAL 'count'\nKeyError: 'count'"
    assert without_stack_traces("all is well") == "all is well"
