"""The state server: it has the values that a Syncmaven connector keeps between runs, over HTTP."""
