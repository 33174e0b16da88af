"""The `types` option, for a connection and for a single stream, which overrides it."""

from dagster_airbyte_proto.connection.validation import StrictModel
from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, TypeChoices


class TypeOptions(StrictModel):
    """The column types where there is a choice. None means the connection's choice, or else the default."""

    objects: ObjectsAs | None = None
    integers: IntegersAs | None = None
    numbers: NumbersAs | None = None

    def over(self, others: TypeChoices) -> TypeChoices:
        """Returns these choices, with the others for those that are left out."""
        return TypeChoices(
            objects=self.objects or others.objects,
            integers=self.integers or others.integers,
            numbers=self.numbers or others.numbers,
        )
