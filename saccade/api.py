"""Load, train, measure, compare, verify, read recipes, fetch data: what `import saccade` gives."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade import checkpoint, config
from saccade.checkpoint import RunFolder
from saccade.compare.run import compare as compare
from saccade.data.fetch import fetch as fetch_files
from saccade.device import pick_device
from saccade.errors import UsageError
from saccade.integrity import Verified, verify_run
from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References
from saccade.metrics.measure import measure as measure_text
from saccade.metrics.names import TEXT_USUAL, TextMetric
from saccade.metrics.score import Score
from saccade.model import Model as Model
from saccade.recipe import Recipe, load_recipe, parse_recipe
from saccade.train.events import Event, Finished
from saccade.train.prepared import PreparedTokens
from saccade.train.ready import prepare as prepare_job
from saccade.train.run import run as run_job

PathLike = str | os.PathLike[str]
FREE_TO_CHANGE = ("train.updates", "train.minutes", "train.patience", "train.workers", "train.keep", "train.log_every")
"""Settings that a resumed run may have otherwise than the run it continues."""


def load(path: PathLike, device: str = "auto") -> Model:
    """The model of a run folder, or of a checkpoint in one; every file is checked first, and nothing in it can run."""
    return Model(checkpoint.load(Path(path), pick_device(device)))


def verify(path: PathLike) -> Verified:
    """Which files of a run folder are as they were saved, which are damaged, and which are missing."""
    return verify_run(Path(path))


def measure(
    outputs: Sequence[str],
    references: References,
    metrics: Sequence[TextMetric] = TEXT_USUAL,
    *,
    confidence: Confidence = True,
) -> dict[str, Score]:
    """Outputs against what is right for them, whoever wrote them; each has one reference or a list of several.

    `confidence`: whether each score has an interval, or the resamples and the seed that it is made of.
    """
    return {name: measure_text(name, outputs, references, confidence=confidence) for name in metrics}


def fetch(name: str, to: PathLike = "data", *, offline: bool = False) -> Path:
    """Bring a data set of the catalogue into a folder of its own below `to`, and check it; the folder.

    From the folder that SACCADE_DATA names where it has it, else from its public address, unless `offline`.
    """
    for _ in fetch_files(name, Path(to), offline=offline):
        pass
    return Path(to) / name


def recipe(name_or_path: PathLike, *settings: str) -> Recipe:
    """A recipe file, or one that comes with Saccade, with `dotted.name=value` settings applied."""
    return load_recipe(os.fspath(name_or_path), settings)[0]


@dataclass(frozen=True)
class PreparedData:
    """Tokenizers and tokens in a folder."""

    path: Path
    examples: int
    """How many there are to train on."""
    unit: str
    """What they are, as in `pairs`."""
    vocabularies: dict[str, int]
    """How many ids there are, of what."""
    remarks: tuple[str, ...]
    """What was done to the data, in sentences."""


def prepare(what: Recipe | PathLike, out: PathLike, *, base: PathLike | None = None) -> PreparedData:
    """Make tokenizers and tokens of a recipe's data in the folder `out`, once, for `train(…, prepared=out)`.

    `base` is where relative paths in the recipe are seen from: the recipe's own folder, or the working directory.
    """
    chosen, folder_of_recipe = _read(what)
    path = Path(out)
    ready = prepare_job(chosen.job(Path(base) if base is not None else folder_of_recipe), path)
    examples, unit = ready.examples
    return PreparedData(path, examples, unit, dict(ready.told), ready.remarks)


@dataclass(frozen=True)
class TrainedRun:
    """What a training came to."""

    path: Path
    finished: Finished

    @property
    def best(self) -> dict[str, float]:
        return self.finished.best

    def load(self, device: str = "auto") -> Model:
        return load(self.path, device)


def train(
    what: Recipe | PathLike,
    out: PathLike | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    base: PathLike | None = None,
    prepared: PathLike | None = None,
    profile: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> TrainedRun:
    """Train a recipe to its end into the folder `out`; `on_event` hears of everything on the way.

    Without `out` the folder is runs/ and the recipe's name, or its models' where it has none.
    `base` is where relative paths in the recipe are seen from: the recipe's own folder, or the working directory.
    `prepared`: a folder that `prepare` made, or a run, whose tokenizers and tokens are taken; refused unless they were
    made of the same data in the same way.
    `profile` tells where the time went, by an event `Profiled` at the end.
    """
    finished: Finished | None = None
    for event in training(
        what,
        out,
        resume=resume,
        overwrite=overwrite,
        device=device,
        base=base,
        prepared=prepared,
        profile=profile,
    ):
        if on_event is not None:
            on_event(event)
        if isinstance(event, Finished):
            finished = event
    assert finished is not None  # a training that does not finish raises
    return TrainedRun(finished.path, finished)


def training(
    what: Recipe | PathLike,
    out: PathLike | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    base: PathLike | None = None,
    prepared: PathLike | None = None,
    stop: Callable[[], bool] = lambda: False,
    profile: bool = False,
) -> Iterator[Event]:
    """As `train`, one event at a time; it goes on when the next one is asked for. `stop` ends it after an update."""
    if resume and prepared is not None:
        raise UsageError("--resume goes on with the tokens that the run has; leave out --prepared.")
    chosen, folder_of_recipe = _read(what)
    on = pick_device(device)
    path = Path(out) if out is not None else Path("runs") / _name(what)
    tokens = None if prepared is None else PreparedTokens(Path(prepared))
    if tokens is not None:
        tokens.refuse_as_run(path)
    folder = _reopened(path, chosen) if resume else RunFolder.create(path, overwrite=overwrite)
    job = replace(chosen.job(Path(base) if base is not None else folder_of_recipe), prepared=tokens)
    yield from run_job(job, folder, device=on, stop=stop, profile=profile)


def _read(what: Recipe | PathLike) -> tuple[Recipe, Path]:
    """The recipe, and where relative paths in it are seen from."""
    return (what, Path.cwd()) if isinstance(what, Recipe) else load_recipe(os.fspath(what))


def _name(what: Recipe | PathLike) -> str:
    if isinstance(what, Recipe):
        parts = (getattr(what.model, side, None) for side in ("encoder", "decoder"))
        return "-".join([what.task, *(part.kind for part in parts if part is not None)])
    return Path(what).stem


def _reopened(path: Path, chosen: Recipe) -> RunFolder:
    if not (path / checkpoint.RECIPE).is_file():
        raise UsageError(f"{path}: there is no run to resume. Leave out --resume to begin one.")
    RunFolder(path).verify_recipe()
    saved = parse_recipe(config.read(path / checkpoint.RECIPE), str(path / checkpoint.RECIPE))
    changed = config.difference(config.plain(saved), config.plain(chosen))
    fixed: dict[str, tuple[Any, Any]] = {name: two for name, two in changed.items() if name not in FREE_TO_CHANGE}
    if fixed:
        told = "\n".join(f"  {name}: {before!r} there, {now!r} here" for name, (before, now) in fixed.items())
        raise UsageError(f"{path}: was begun with other settings:\n{told}\nResume with those, or begin anew in --out.")
    return RunFolder(path)
