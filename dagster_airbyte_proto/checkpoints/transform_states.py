"""The states of transforms, as the store has them among the values of their stream.

| key | is |
|---|---|
| transform, NAME, generation | the generation of the rows that the state is about |
| transform, NAME, checkpoint | the last checkpoint, as text |
| transform, NAME, values, KEY | a value that the transform keeps |
| transform, NAME, branch, … | the same of rows on a branch of the table, which readers do not see yet |

They move with the load that has the rows. Where a sync replaces the rows of a table, the state of the old ones says
nothing of the new ones: the transforms start with none, unless the sync goes on with an unfinished generation. As long
as that is on its branch, the states of the table's own rows stay beside it: rows may be appended to these in its place.
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
    found = _of_generation(generation, shown) | _of_generation(generation, on_branch)
    return tuple(_state(name, parts) for name, parts in found.items())


def transform_changes(
    before: Mapping[Key, bytes],
    states: Iterable[TransformState],
    generation: int,
    *,
    position: BranchPosition | None = None,
    replaces: bool = False,
) -> ValueChanges:
    """Returns the changes by which a store that has these values comes to have the states after rows that have landed,
    at the `position` if that is on a branch. States of other transforms stay, unless the rows take the place of all
    that readers saw."""
    if position is not None and not position.publishes:
        return _changes(before, _with_states(before, states, generation, is_hidden=True))
    # A generation that is on its branch ends here: it is shown, or rows came in its place.
    changed: dict[Key, bytes | None] = {key: None for key in before if _is_on_branch(key)}
    if position is not None:
        # The last part may have no rows, and so no states.
        on_branch = _of_generation(generation, _by_name(before)[1])
        published = {name: _state(name, parts) for name, parts in on_branch.items()}
        states = {**published, **{state.transform: state for state in states}}.values()
    if position is not None or replaces:
        kept = _of_generation(generation, _by_name(before)[0])
        changed |= {key: None for key in before if _is_shown(key) and key[1] not in kept}
    return _changes(before, changed | _with_states(before, states, generation, is_hidden=False))


def _changes(before: Mapping[Key, bytes], wanted: Mapping[Key, bytes | None]) -> ValueChanges:
    return ValueChanges({key: value for key, value in wanted.items() if before.get(key) != value})


def _with_states(
    before: Mapping[Key, bytes], states: Iterable[TransformState], generation: int, *, is_hidden: bool
) -> dict[Key, bytes | None]:
    """Returns the values that the store is to have with these states, and None for those of theirs that are to go."""
    changed: dict[Key, bytes | None] = {}
    is_there = _is_on_branch if is_hidden else _is_shown
    for state in states:
        prefix = (TRANSFORMS, state.transform, *((_BRANCH,) if is_hidden else ()))
        now = {(*prefix, *key): value for key, value in _parts(state, generation).items()}
        gone = {key for key in before if key[1:2] == (state.transform,) and is_there(key)} - now.keys()
        changed |= {**dict.fromkeys(gone), **now}
    return changed


def _is_on_branch(key: Key) -> bool:
    return key[2:3] == (_BRANCH,)


def _is_shown(key: Key) -> bool:
    # A destination could keep a shorter key here, before it was refused.
    return len(key) > 2 and not _is_on_branch(key)


def _by_name(values: Mapping[Key, bytes]) -> tuple[dict[str, dict[Key, bytes]], dict[str, dict[Key, bytes]]]:
    """Returns the parts of the states by the transforms' names: of rows that readers see, and of those on a branch."""
    shown: dict[str, dict[Key, bytes]] = {}
    on_branch: dict[str, dict[Key, bytes]] = {}
    for key, value in values.items():
        if _is_on_branch(key):
            on_branch.setdefault(key[1], {})[key[3:]] = value
        elif _is_shown(key):
            shown.setdefault(key[1], {})[key[2:]] = value
    return shown, on_branch


def _of_generation(generation: int, states: Mapping[str, Mapping[Key, bytes]]) -> dict[str, Mapping[Key, bytes]]:
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
