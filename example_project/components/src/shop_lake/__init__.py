"""The example with components: what `definitions.py` beside `components` says in Python, most of it in YAML."""
