"""`python -m safestitch`."""

from safestitch.cli import main

main()
