"""Names that a table can have and tell apart."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.model import NamingPolicy
from dagster_airbyte_proto.schema.names import case_folded, column_name, snake_name, table_name, unique_names

NAMES = st.lists(st.text(alphabet="aAbßıİſ_", max_size=3))


@given(NAMES, st.lists(st.text(alphabet="aAb", max_size=2)), st.sampled_from([None, 12]))
def test_no_two_names_are_equal_ignoring_case(names: list[str], taken: list[str], longest: int | None) -> None:
    unique = [
        case_folded(name) for name in unique_names(((name, name) for name in names), taken=taken, max_bytes=longest)
    ]
    assert len(set(unique)) == len(unique) == len(names)
    assert not set(map(case_folded, taken)) & set(unique)


def test_a_name_that_came_later_never_renames_an_earlier_one() -> None:
    assert unique_names([("foo", "1"), ("FOO", "2")])[0] == "foo"
    assert unique_names([("foo", "1"), ("FOO", "2"), ("Foo", "3")])[:2] == unique_names([("foo", "1"), ("FOO", "2")])


@given(st.lists(st.text(alphabet="aAß/", max_size=2), unique=True), st.randoms(use_true_random=False))
def test_a_name_that_was_given_once_stays(fields: list[str], chance: Random) -> None:
    kept: dict[str, str] = {}
    for number in range(1, len(fields) + 1):
        present = chance.sample(fields[:number], chance.randint(1, number))
        names = dict(zip(present, unique_names(((each, each) for each in present), assigned=kept), strict=True))
        assert all(names[field] == kept[field] for field in present if field in kept)
        kept |= names
        assert len(set(map(case_folded, kept.values()))) == len(kept)


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("public-users", "public_users"),
        ("createdAt", "created_at"),
        ("HTTPServer2Name", "http_server2_name"),
        ("Mixed Case (EUR)", "mixed_case_eur_"),
        ("_sdc_batched_at", "_sdc_batched_at"),
        ("2fa", "_2fa"),
        ("Größe", "gro_e"),
        ("crème", "creme"),
        ("名前", "_"),
        ("", ""),
    ],
)
def test_snake_names_need_no_quotes(name: str, snake: str) -> None:
    assert column_name(name, NamingPolicy.SNAKE) == snake
    assert snake_name(snake) == snake


def test_a_field_that_changes_in_case_alone_goes_on_in_its_column() -> None:
    kept = {"Email": "Email", "id": "id"}
    assert unique_names([("email", "email")], assigned=kept, follow_case_changes=True) == ("Email",)
    assert unique_names([("Email", "Email"), ("email", "email")], assigned=kept, follow_case_changes=True)[0] == "Email"
    both = unique_names([("Email", "Email"), ("email", "email")], assigned={**kept, "email": "Email"})
    assert (both[0], case_folded(both[1])[:6]) == ("Email", "email_")
    assert unique_names([("email", "email")], assigned=kept)[0] != "Email"


def test_names_that_java_takes_for_equal_are_told_apart() -> None:
    for one, other in (("ı", "i"), ("İ", "i"), ("ſ", "s"), ("ΟΔΟΣ", "οδος"), ("K", "k")):
        assert case_folded(one) == case_folded(other)


@given(st.text(max_size=24), st.integers(10, 20))
def test_a_long_name_is_cut_and_marked(name: str, longest: int) -> None:
    [cut] = unique_names([(column_name(name), name)], max_bytes=longest)
    assert len(cut.encode()) <= longest
    assert cut == (column_name(name) or "_") or len(column_name(name).encode()) > longest


def test_what_a_name_may_not_hold_becomes_a_line() -> None:
    assert column_name("a.b`c/d e\n\0\ud800f") == "a.b`c/d e___f"
    assert table_name(" a.b`c/d:e\\f?\n ") == "a.b`c_d_e_f__"
    assert (table_name(".."), table_name("a..b"), table_name("用户")) == ("__", "a..b", "用户")
