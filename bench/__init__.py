"""Measures this package beside what else could do the work. `python -m bench --help` says how."""
