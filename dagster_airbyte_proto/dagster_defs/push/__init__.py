"""Pushes as Dagster assets: each pushed stream is an asset downstream of the table that it reads."""
