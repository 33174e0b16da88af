"""The Dagster surface: streams as assets, tables through an IO manager, syncs as steps.

Only this folder imports `dagster`.
"""
