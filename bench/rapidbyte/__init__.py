"""The benchmark of Rapidbyte's components."""
