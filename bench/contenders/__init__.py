"""One program for each contender. The runner starts it with a task; it lands the records and reports the cost."""
