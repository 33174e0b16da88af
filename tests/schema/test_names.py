"""Names that a table can tell apart."""

from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.schema.names import unique_names


@given(st.lists(st.text(alphabet="aAbß_", max_size=3)), st.lists(st.text(alphabet="aAb", max_size=2)))
def test_no_two_names_are_equal_ignoring_case(names: list[str], taken: list[str]) -> None:
    unique = [name.casefold() for name in unique_names(((name, name) for name in names), taken=taken)]
    assert len(set(unique)) == len(unique) == len(names)
    assert not {name.casefold() for name in taken} & set(unique)


def test_a_name_that_came_later_never_renames_an_earlier_one() -> None:
    assert unique_names([("foo", "1"), ("FOO", "2")])[0] == "foo"
    assert unique_names([("foo", "1"), ("FOO", "2"), ("Foo", "3")])[:2] == unique_names([("foo", "1"), ("FOO", "2")])
