"""A push: rows of a table or query go to a destination connector, and a table of ours remembers what it has.

1. *plan*: Spark finds out which rows are new, and writes them down (`planning.py`). From then on the plan is sealed: a
   run that dies is continued in it.
2. *deliver*: batch by batch the rows are announced in the store, sent, and acknowledged by the destination
   (`delivery.py`). Rows to write come first, removals after all of them.
3. *fold*: what was acknowledged goes into the delivered table, as a load like any other, and the state moves with it
   (`delivered_table.py`).
"""
