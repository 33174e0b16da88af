"""What values land as where there is a choice, as a user writes it: for a connection, and for a stream over that."""

from dagster_airbyte_proto.connection.validation import Written
from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, TypeChoices


class TypeOptions(Written):
    """None means: as the connection says, and where it says nothing, as the table of types has it."""

    objects: ObjectsAs | None = None
    integers: IntegersAs | None = None
    numbers: NumbersAs | None = None

    def over(self, others: TypeChoices) -> TypeChoices:
        """These choices, and the others where nothing is chosen."""
        return TypeChoices(
            objects=self.objects or others.objects,
            integers=self.integers or others.integers,
            numbers=self.numbers or others.numbers,
        )
