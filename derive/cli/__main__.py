"""`python -m derive.cli`: the same as `derive`."""

from derive.cli import main

main()
