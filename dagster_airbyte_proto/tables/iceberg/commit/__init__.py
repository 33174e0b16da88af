"""The commit of a load to an Iceberg table: one attempt, the files that it leaves, and its result."""
