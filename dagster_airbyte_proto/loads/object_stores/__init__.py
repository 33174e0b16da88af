"""The object stores that tables may lie in, as pyarrow opens them with the settings that Iceberg and Hadoop have."""
