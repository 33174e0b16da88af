"""The kit to write a Rapidbyte connector: skeletons in three languages, and what makes components of them."""
