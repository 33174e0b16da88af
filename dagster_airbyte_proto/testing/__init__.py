"""Fake connectors for tests: our own, and those of whoever tests a pipeline. The engine imports nothing of it."""
