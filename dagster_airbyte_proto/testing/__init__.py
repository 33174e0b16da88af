"""Fake connectors, crash points and folder tables, for tests of ours and of users. The engine imports none of it."""
