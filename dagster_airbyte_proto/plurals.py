"""A number with its noun, as messages have it."""


def counted(number: int, noun: str, ending: str = "s") -> str:
    """`1 load`, `2,000 loads`; with the ending `es` also `2 prefixes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{ending}"
