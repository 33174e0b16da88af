"""A home for each table format as the previous release left it, and the proof that today's code continues it."""
