"""The forms of the texts of keys and cursors that a profile remembers."""

from dagster_airbyte_proto.schema.evolution import ColumnMismatch
from dagster_airbyte_proto.schema.stream_profile import NO_ROWS, either_form, has_text_form, retyped_columns


def test_any_form_fits_a_table_without_rows_and_the_form_before_is_known() -> None:
    assert retyped_columns({"key": NO_ROWS}, {"key": "JSON text"}) == ()
    assert retyped_columns({"key": "string"}, {"key": NO_ROWS}) == (ColumnMismatch(("key",), "string", NO_ROWS),)
    assert has_text_form(NO_ROWS)
    # While a table moves it has the rows of the one form, or none.
    assert either_form("string", NO_ROWS) == either_form(NO_ROWS, "string") == "string"
