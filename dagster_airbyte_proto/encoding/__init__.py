"""Arrow batches to the record lines of each protocol: the hot path of a push. Pure: no file, no clock, no process."""
