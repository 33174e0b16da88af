"""`import`: connection files from projects of other programs."""
