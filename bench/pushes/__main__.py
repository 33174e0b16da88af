"""`python -m bench.pushes`."""

from bench.pushes.figures import main

main()
