"""The state server: what a Syncmaven connector keeps between runs, over HTTP."""
