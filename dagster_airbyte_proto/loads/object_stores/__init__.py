"""The object stores that tables may lie in, as pyarrow opens them with the settings that Iceberg and Hadoop have.

The settings are asked for by commands that need no pyarrow: it is imported when a store is opened.
"""
