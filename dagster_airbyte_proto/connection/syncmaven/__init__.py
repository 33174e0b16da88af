"""Push files from a Syncmaven project."""
