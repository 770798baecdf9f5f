"""`python -m saccade.cli` is the `saccade` command."""

from saccade.cli.entry import main

main()
