"""`state` and `config`: what connectors keep between runs, shown and changed by hand."""
