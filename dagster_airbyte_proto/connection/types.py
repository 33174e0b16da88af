"""What values land as where there is a choice, as a user writes it: for a connection, and for a stream over that."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from dagster_airbyte_proto.connection.validation import Written
from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, TypeChoices


def _not_variant(objects: Any) -> Any:
    if objects == "variant":
        raise ValueError(
            "cannot be variant: no writer of Parquet files here makes Iceberg's VARIANT. Use json, and parse_json(…) "
            "when reading, or struct"
        )
    return objects


class TypeOptions(Written):
    """None means: as the connection says, and where it says nothing, as the table of types has it."""

    objects: Annotated[ObjectsAs, BeforeValidator(_not_variant)] | None = None
    integers: IntegersAs | None = None
    numbers: NumbersAs | None = None

    def over(self, others: TypeChoices) -> TypeChoices:
        """These choices, and the others where nothing is chosen."""
        return TypeChoices(
            objects=self.objects or others.objects,
            integers=self.integers or others.integers,
            numbers=self.numbers or others.numbers,
        )
