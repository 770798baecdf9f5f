"""`python -m saccade.cli` is the `saccade` command."""

from saccade.cli.main import main

main()
