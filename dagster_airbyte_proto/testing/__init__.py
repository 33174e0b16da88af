"""Fake connectors and crash points, for our tests and for those of users' pipelines. The engine imports none of it."""
