"""A load comes back from the store as it went in: a run that recovers it knows all that the dead one did."""

from dagster_airbyte_proto.checkpoints.sql.load_json import load_from_json, load_to_json
from dagster_airbyte_proto.loads.load import Load
from tests.samples import made


def test_a_load_has_every_field_in_its_json() -> None:
    load = made(Load)
    assert load_from_json(load_to_json(load)) == load
