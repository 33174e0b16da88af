"""The care of Iceberg tables: facts, history, compaction, expiry, orphan files and rewinds."""
