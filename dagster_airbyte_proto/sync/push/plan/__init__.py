"""The rows of a plan: those of a partition, the columns that their fields come from, and the files that have them."""
