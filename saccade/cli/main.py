"""The `saccade` command: its commands, how errors are told, and the status it ends with.

0 done · 1 the run failed · 2 the command, the recipe or the data is not as it must be · 3 a gate failed
(--fail-under) · 129 stopped by the end of its terminal · 130 by Ctrl-C · 143 by SIGTERM.
"""

import errno
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from saccade.cli import (
    align,
    classify,
    compare,
    data,
    demo,
    doctor,
    explain,
    fill,
    generate,
    look,
    measure,
    prepare,
    recipes,
    score,
    scores,
    search_report,
    tag,
    train,
    translate,
    verify,
)
from saccade.cli.streams import speak_utf8, tell
from saccade.errors import SaccadeError

_NAMES = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS)
_GPU_IS_FULL = "OutOfMemoryError"
"""torch's, by its name: torch need not be imported to tell."""
_FULL = re.compile("can't allocate memory|bad_alloc")
_LOWER = "Lower --batch-tokens, or train.batch_tokens when training, or take a smaller model."
_DISK = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EIO: "the device fails"}


class _Guarded(TyperGroup):
    """Every command runs in here: what goes wrong becomes a message and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            speak_utf8()
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (Exception, KeyboardInterrupt) as error:
            if (status := told(error)) is None:
                raise
            raise typer.Exit(status) from None


def told(error: BaseException) -> int | None:
    """Tell what went wrong; the status to end with. None: a mistake of this program, whose traceback is wanted."""
    match error:
        case SaccadeError():
            tell(str(error))
            return error.exit_code
        case KeyboardInterrupt():
            tell("interrupted")
            return 130
        case BrokenPipeError():
            # The reader has seen enough. Python would try to write the rest on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError() if error.errno in _DISK:
            tell(f"the output cannot be written: {_DISK[error.errno]}.")
            return 1
        case OSError() if error.filename is not None:
            tell(f"{error.filename}: {error.strerror or error}.")
            return 2 if error.errno in _NAMES else 1
        case RuntimeError() if type(error).__name__ == _GPU_IS_FULL:
            tell(f"the GPU's memory is full: {error}\n{_LOWER}")
            return 1
        case RuntimeError() if _FULL.search(str(error)):
            tell(f"the memory is full: {error}\n{_LOWER}")
            return 1
        case MemoryError():
            tell(f"the memory is full.\n{_LOWER}")
            return 1
    return None


app = typer.Typer(
    cls=_Guarded,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
runs_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
data_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


def _help(told: str, *examples: str) -> str:
    """Examples first."""
    # A backspace before a paragraph says that its lines are not to be joined.
    return "\b\n" + "\n".join(examples) + f"\n\n{told}"


def _version(asked: bool) -> None:
    if asked:
        from saccade import __version__

        typer.echo(f"saccade {__version__}")
        raise typer.Exit


@app.callback(
    help=_help(
        "Sequence models you can see through.", "saccade train dates", 'saccade translate runs/dates "3 mars 1999"'
    )
)
def saccade(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _add(to: typer.Typer, name: str, command: Callable[..., None], *examples: str) -> None:
    """A command whose help begins with examples that run as they stand."""
    told = inspect.cleandoc(command.__doc__ or "")
    to.command(name, help=_help(told, *examples), short_help=told.partition("\n")[0].rstrip("."))(command)


_add(app, "demo", demo.demo, "saccade demo", "saccade demo --seconds 20 --out runs/short-demo")
_add(app, "init", recipes.init, "saccade init", "saccade init dates -o dates.yaml")
_add(
    app,
    "train",
    train.train,
    "saccade train dates",
    "saccade train train.yaml --set model.decoder.attention.score=dot --out runs/dot",
)
_add(
    app,
    "translate",
    translate.translate,
    'saccade translate runs/dates "3 mars 1999" "on May 5th, 2021"',
    "saccade translate runs/dates -i dates.txt -o iso.txt --beam 5",
)
_add(
    app,
    "tag",
    tag.tag,
    'saccade tag runs/ner-notices "Ada Dunmor of Velton AG spoke in Port Balwin ."',
    "saccade tag runs/ner-notices -i text.txt -o tags.jsonl -f jsonl",
)
_add(
    app,
    "fill",
    fill.fill,
    'saccade fill runs/blanks "The queen [MASK] herself."',
    "saccade fill runs/blanks -i blanks.txt -f jsonl --top 3",
)
_add(
    app,
    "classify",
    classify.classify,
    'saccade classify runs/reviews "The plot is not good, but the music is great."',
    "saccade classify runs/reviews -i reviews.txt -o labels.tsv --format tsv --scores",
)
_add(
    app,
    "generate",
    generate.generate,
    'saccade generate runs/char-lm "The king" --seed 7',
    'saccade generate runs/char-lm "The king" "The queens" --samples 3 --top-p 0.9 -f jsonl',
)
_add(
    app,
    "evaluate",
    scores.evaluate,
    "saccade evaluate runs/dates",
    "saccade evaluate runs/dates test.src test.tgt --metrics bleu,chrf --fail-under bleu=0",
)
_add(
    app,
    "compare",
    compare.compare,
    "saccade compare runs/dates runs/dates --names one,other",
    "saccade compare runs/dates test.tgt --source test.src --reference test.tgt --metrics chrf -o compare.html",
)
_add(
    app,
    "measure",
    measure.measure,
    "saccade measure test.src test.tgt",
    "saccade measure test.src test.tgt --metrics bleu,bleu:none:lc,chrf++,ter -f latex",
)
_add(
    app,
    "score",
    score.score,
    "saccade score runs/dates test.src test.tgt",
    "saccade score runs/char-lm --contrast agreement",
)
_add(
    app,
    "search-report",
    search_report.search_report,
    "saccade search-report runs/dates --lines 2 --beams 1,2,5",
    "saccade search-report runs/dates test.src test.tgt --lines 2 --beams 1,4 --lengths none,average -o search.png",
)
_add(
    app,
    "explain",
    explain.explain,
    'saccade explain runs/dates "3 mars 1999" -o attention.html',
    'saccade explain runs/dates "3 mars 1999" --target 1999-03-03 -o attention.png',
)
_add(
    app,
    "align",
    align.align,
    "saccade align runs/dates test.src test.tgt",
    "saccade align runs/dates pairs.tsv --gold pairs.tsv --method intersection",
)
_add(app, "settings", recipes.settings, "saccade settings", "saccade settings model.decoder")
_add(app, "info", look.info, "saccade info", "saccade info runs/dates --json")
_add(app, "verify", verify.verify, "saccade verify runs/dates", "saccade verify runs/dates -f json")
_add(app, "doctor", doctor.doctor, "saccade doctor", "saccade doctor --device cpu")
_add(runs_app, "list", look.list_runs, "saccade runs list", "saccade runs list runs --json")
_add(data_app, "check", data.check, "saccade data check train.yaml", "saccade data check train.yaml --trim --json")
_add(
    data_app,
    "prepare",
    prepare.prepare,
    "saccade data prepare train.yaml --out prepared/train",
    "saccade data prepare train.yaml --out prepared/bytes --set text='{kind: byte}'",
)
_add(data_app, "list", data.list_sets, "saccade data list", "saccade data list --json")
_add(data_app, "get", data.get, "saccade data get multi30k", "saccade data get ptb scan --to data")
app.add_typer(
    runs_app,
    name="runs",
    help=_help("Run folders: what was trained.", "saccade runs list", "saccade runs list runs --json"),
    short_help="Run folders: what was trained",
)
app.add_typer(
    data_app,
    name="data",
    help=_help("Training data.", "saccade data check train.yaml", "saccade data get multi30k"),
    short_help="Training data: what is in it, and where to get some",
)
