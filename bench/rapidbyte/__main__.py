"""`python -m bench.rapidbyte`."""

from bench.rapidbyte.figures import main

main()
