"""The states of transforms, as the store has them among the values of their stream.

| key | is |
|---|---|
| transform, NAME, generation | the generation of the rows that the state is about |
| transform, NAME, checkpoint | the last checkpoint, as text |
| transform, NAME, values, KEY | a value that the transform keeps |
| transform, NAME, branch, … | the same of rows on a branch of the table, which readers do not see yet |

They move with the load that has the rows. Where a sync replaces the rows of a table, the state of the old ones says
nothing of the new ones: the transforms start with none, unless the sync goes on with an unfinished generation. As long
as that is on its branch, the states of the table's own rows stay beside it: rows may be appended to these before the
generation goes on, or in its place.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dagster_airbyte_proto.checkpoints.kept_values import Asset, Key, ValueChanges, ValueStore
from dagster_airbyte_proto.loads.load import BranchPosition, TransformState

TRANSFORMS = "transform"
_GENERATION, _CHECKPOINT, _VALUES, _BRANCH = "generation", "checkpoint", "values", "branch"
_TEXT, _NUMBER = msgspec.json.Decoder(str), msgspec.json.Decoder(int)


def stored_transform_states(
    store: ValueStore, asset: Asset, generation: int | None = None
) -> tuple[TransformState, ...]:
    """Returns the states of the transforms of a stream after the rows that readers see. With a `generation`, those
    after its rows, wherever they are; none of another one."""
    shown, on_branch = _by_name({each.key: each.value for each in store.kept_values(asset, (TRANSFORMS,))})
    if generation is None:
        return tuple(_state(name, parts) for name, parts in shown.items())
    return tuple(_state(name, parts) for name, parts in (_of(generation, shown) | _of(generation, on_branch)).items())


def transform_changes(
    before: Mapping[Key, bytes],
    states: Iterable[TransformState],
    generation: int,
    position: BranchPosition | None = None,
) -> ValueChanges:
    """Returns the changes by which a store that has these values comes to have the states after rows that have landed,
    at the `position` if that is on a branch. States of other transforms stay."""
    changed: dict[Key, bytes | None] = {}
    if position is not None and position.publishes:
        _, on_branch = _by_name(before)
        # The last part may have no rows, and so no states.
        published = {name: _state(name, parts) for name, parts in _of(generation, on_branch).items()}
        states = {**published, **{state.transform: state for state in states}}.values()
        changed |= {key: None for key in before if _is_on_branch(key)}
    is_hidden = position is not None and not position.publishes
    for state in states:
        prefix = (TRANSFORMS, state.transform, *((_BRANCH,) if is_hidden else ()))
        now = {(*prefix, *key): value for key, value in _parts(state, generation).items()}
        there = [key for key in before if key[:2] == prefix[:2] and _is_on_branch(key) is is_hidden]
        changed |= {key: None for key in there if key not in now}
        changed |= {key: value for key, value in now.items() if before.get(key) != value}
    return ValueChanges(changed)


def _is_on_branch(key: Key) -> bool:
    return key[2] == _BRANCH


def _by_name(values: Mapping[Key, bytes]) -> tuple[dict[str, dict[Key, bytes]], dict[str, dict[Key, bytes]]]:
    """Returns the parts of the states by the transforms' names: of rows that readers see, and of those on a branch."""
    shown: dict[str, dict[Key, bytes]] = {}
    on_branch: dict[str, dict[Key, bytes]] = {}
    for key, value in values.items():
        place, parts = (on_branch, key[3:]) if _is_on_branch(key) else (shown, key[2:])
        place.setdefault(key[1], {})[parts] = value
    return shown, on_branch


def _of(generation: int, states: Mapping[str, Mapping[Key, bytes]]) -> dict[str, Mapping[Key, bytes]]:
    return {
        name: parts for name, parts in states.items() if _NUMBER.decode(parts.get((_GENERATION,), b"0")) == generation
    }


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
