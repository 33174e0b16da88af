"""The room that the log of a component has: one that logs without end must not fill a disk.

Warnings and errors have a room of their own. They are few, mostly the last, and say why a run failed.
"""

_ROOM = {False: 64 << 20, True: 16 << 20}
"""Characters of the log of one stream: without the urgent lines, and of these."""
_LINE_CHARACTERS = 64
"""A line takes so many more: its time, its level, its end."""
_WARNING = 1


class LogRoom:
    """The room for the lines of one stream after the other. `left_out` counts those, of all streams, that had none."""

    def __init__(self) -> None:
        self.left_out = 0
        self.renew()

    def renew(self) -> None:
        """Gives the log of the next stream its whole room."""
        self._left = dict(_ROOM)

    def takes(self, level: int, text: str) -> bool:
        """Takes room for a line. False, and counts it, if there is none."""
        is_urgent = level <= _WARNING
        left = self._left[is_urgent] - len(text) - _LINE_CHARACTERS
        if left < 0:
            self.left_out += 1
            return False
        self._left[is_urgent] = left
        return True
