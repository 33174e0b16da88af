"""The benchmark of pushes."""
