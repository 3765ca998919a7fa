"""`python -m derive`: the same as `derive`."""

from derive.cli import main

main()
