"""Staged files as files of Delta tables: their entries in the log, their statistics and their deleted rows."""
