"""`verify`: whether the files of a run folder are as they were saved."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from saccade.cli.options import WholeRun
from saccade.cli.streams import count, say, tell, to_json
from saccade.errors import SaccadeError


def verify(
    run: WholeRun,
    format_: Annotated[
        Literal["text", "json"], typer.Option("--format", "-f", help="How the result is written.")
    ] = "text",
) -> None:
    """Check every file of a run against its checksum.

    Model, tokenizers, settings, recipe, log, token stores and all checkpoints; exit status 1 where a file is damaged
    or missing. Nothing is changed.
    """
    from saccade.api import verify as verify_run

    found = verify_run(run)
    if format_ == "json":
        files = [asdict(file) for file in found.files]
        say(to_json({"run": str(run), "ok": found.ok, "files": files}, indent=2))
    else:
        width = max((len(file.name) for file in found.files), default=0)
        for file in found.files:
            say(f"{file.state:8}{file.name:{width}}  {file.why}".rstrip())
    if not found.ok:
        raise SaccadeError(f"{run}: {len(found.wrong)} of {count(len(found.files), 'file')} damaged or missing.")
    tell(f"{run}: {count(len(found.files), 'file')} as they were saved")
