"""A relay: a destination connector in the place of tables.

1. The records of a source are staged, cut into loads at its states, announced and promoted as those of any sync.
2. To commit a part of a load is to deliver it: the staged rows are a sealed plan, as those of a push are, and
   `sync/push` delivers it. The store has how far that is acknowledged, so a load goes on where a dead run left it.
3. A destination cannot be asked for a load. The store is its witness: what was announced and not acknowledged is
   unknown.
"""
