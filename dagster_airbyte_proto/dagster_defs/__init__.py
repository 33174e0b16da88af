"""The Dagster surface: streams as assets, tables through an IO manager, syncs as steps. Only here is it imported."""
