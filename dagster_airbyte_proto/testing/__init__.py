"""Fake connectors, failing calls, crash points and folder tables, for tests. The engine imports none of it."""
