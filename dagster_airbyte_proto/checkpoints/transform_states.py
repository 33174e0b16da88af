"""The states of transforms, as the store has them among the values of their stream.

| key | is |
|---|---|
| transform, NAME, generation | the generation of the rows that the state is about |
| transform, NAME, checkpoint | the last checkpoint, as text |
| transform, NAME, values, KEY | a value that the transform keeps |

They move with the load that has the rows. Where a sync replaces the rows of a table, the state of the old ones says
nothing of the new ones: the transforms start with none, unless the sync goes on with an unfinished generation.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dagster_airbyte_proto.checkpoints.kept_values import Asset, Key, ValueChanges, ValueStore
from dagster_airbyte_proto.loads.load import TransformState

TRANSFORMS = "transform"
_GENERATION, _CHECKPOINT, _VALUES = "generation", "checkpoint", "values"
_TEXT, _NUMBER = msgspec.json.Decoder(str), msgspec.json.Decoder(int)


def stored_transform_states(
    store: ValueStore, asset: Asset, generation: int | None = None
) -> tuple[TransformState, ...]:
    """Returns the states of the transforms of a stream; with a `generation` only those that are of it."""
    found: dict[str, dict[Key, bytes]] = {}
    for each in store.kept_values(asset, (TRANSFORMS,)):
        found.setdefault(each.key[1], {})[each.key[2:]] = each.value
    return tuple(
        _state(name, parts)
        for name, parts in found.items()
        if generation is None or _NUMBER.decode(parts.get((_GENERATION,), b"0")) == generation
    )


def transform_changes(before: Mapping[Key, bytes], states: Iterable[TransformState], generation: int) -> ValueChanges:
    """Returns the changes by which a store that has these values comes to have the states. States of other transforms
    stay."""
    changed: dict[Key, bytes | None] = {}
    for state in states:
        prefix = (TRANSFORMS, state.transform)
        now = {(*prefix, *key): value for key, value in _parts(state, generation).items()}
        changed |= {key: None for key in before if key[:2] == prefix and key not in now}
        changed |= {key: value for key, value in now.items() if before.get(key) != value}
    return ValueChanges(changed)


def _state(name: str, parts: Mapping[Key, bytes]) -> TransformState:
    values = {key[1]: _TEXT.decode(value) for key, value in parts.items() if key[0] == _VALUES}
    return TransformState(name, _TEXT.decode(parts.get((_CHECKPOINT,), b'""')), values)


def _parts(state: TransformState, generation: int) -> Mapping[Key, bytes]:
    if not state.checkpoint and not state.values:
        return {}
    parts: dict[Key, bytes] = {(_GENERATION,): msgspec.json.encode(generation)}
    if state.checkpoint:
        parts[(_CHECKPOINT,)] = msgspec.json.encode(state.checkpoint)
    return parts | {(_VALUES, key): msgspec.json.encode(text) for key, text in state.values.items()}
