"""Measures this package beside other programs that do the same work: `python -m bench --help`."""
