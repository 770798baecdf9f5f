"""Train one setting of a row with one seed, score it, and print what came out as one line of JSON.

    python -m bench.trial --row multi30k --recipe multi30k-lstm --seed 1 [--set NAME=VALUE]… [--folder runs/one]

A process of its own, so that several small trainings share one GPU. With `--first` another recipe is trained before
it, and `{first}` in the changes becomes that run's folder. With `--members` nothing is trained: the runs named there
translate together. With `--speed` the training is cut after so many updates and nothing is scored; the rate is that of
the later half, when sizes of batches come again (on a GPU they are captured when they come a second time).
`--prepared` takes tokens from there, and makes them there first if they are missing (`bench.prepared`).
"""

import argparse
import json
import math
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.row import Row, read_row
from bench.test_sets import read_sides

if TYPE_CHECKING:
    from saccade.api import TrainedRun
    from saccade.metrics.names import MetricName
    from saccade.metrics.score import Score
    from saccade.model import Model
    from saccade.recipe import Recipe
    from saccade.train.events import Validated


def main() -> None:
    from saccade.errors import SaccadeError

    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that scratch folders go
    try:
        _main(options)
    except SaccadeError as error:  # its words are enough
        sys.exit(str(error))


def _main(options: argparse.Namespace) -> None:
    if options.members:
        print(json.dumps(_together(options)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        # What stands in --folder is whole: a training that was ended leaves nothing that looks like a run there.
        unfinished = options.folder.with_name(f"{options.folder.name}.new") if options.folder else None
        try:
            told = _trial(options, unfinished or Path(scratch) / "run", Path(scratch) / "first")
        except BaseException:
            if unfinished:
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        if unfinished:
            shutil.rmtree(options.folder, ignore_errors=True)
            unfinished.rename(options.folder)
    print(json.dumps(told))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.trial")
    parser.add_argument("--row", required=True, help="its metrics and further test sets are scored")
    parser.add_argument("--recipe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--folder", type=Path, help="where the run stays; without it nothing stays")
    parser.add_argument("--first", help="a recipe to train before")
    parser.add_argument("--first-set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--members", nargs="+", type=Path, help="runs of an ensemble")
    parser.add_argument("--speed", type=int, metavar="UPDATES", help="tell the rate alone")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="where tokens are kept for all that read them")
    return parser.parse_args()


def _trial(options: argparse.Namespace, folder: Path, first: Path) -> dict[str, Any]:
    from bench.prepared import made_by

    told: dict[str, Any] = {}
    changes = list(options.set)
    if options.first:
        pretrained, _, _ = _train(options.first, options.first_set, options, first)
        told["first"] = {"recipe": options.first, "settings": options.first_set} | _costs(pretrained)
        changes = [each.replace("{first}", str(first)) for each in changes]
    run, recipe, course = _train(options.recipe, changes, options, folder)
    rates = course.rates[len(course.rates) // 2 :] if options.speed else course.rates
    told |= {"seed": options.seed, "settings": options.set} | _costs(run)
    told |= {"target_tokens_per_second": statistics.median(rates) if rates else None}
    told |= {**peak_memory(options.device), **made_with(), **made_by(run.path)}
    told |= {"valid": run.finished.best, "metric": recipe.train.metric, "best_update": run.finished.best_update}
    told |= {"course": course.told(recipe.train.metric)}
    if options.speed or not run.finished.best:  # without a best it diverged before the first validation
        return told | {"parameters": None, "scores": [], "tests": {}}
    row, model = read_row(options.row), run.load(options.device)
    told |= {"parameters": model.parameters}
    told |= {"averaged": run.finished.averaged, "scores": _told(_scores(recipe, model, _base(options.recipe), row))}
    return told | {"tests": _tests(model, row)}


def _train(
    name: str, changes: list[str], options: argparse.Namespace, folder: Path
) -> "tuple[TrainedRun, Recipe, Course]":
    import saccade
    from bench.prepared import prepared
    from saccade.recipe import load_recipe
    from saccade.train.events import Event, Finished

    if options.speed:
        # A model that has learnt nothing writes to the limit, so that nothing is to be translated at the end.
        changes = [*changes, f"train.updates={options.speed}", f"train.log_every={max(1, options.speed // 10)}"]
        changes += [f"train.validate_every={options.speed}", "train.metric=loss"]
    recipe, base = load_recipe(name, (*changes, f"seed={options.seed}"))
    tokens = prepared(recipe, base, options.prepared) if options.prepared else None
    course = Course()

    def listen(event: Event) -> None:
        course.note(event)
        if not isinstance(event, Finished):
            print(f"{name} {options.seed}: {event}", file=sys.stderr, flush=True)

    run = saccade.train(recipe, folder, overwrite=True, device=options.device, prepared=tokens, on_event=listen)
    return run, recipe, course


class Course:
    """What a training told on its way: its rates, and at every validation what it had reached."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self._last = 0
        self._loss, self._updates = 0.0, 0  # since the last validation
        self._validated: list[tuple[Validated, float | None]] = []

    def note(self, event: object) -> None:
        from saccade.train.events import Logged, Validated

        match event:
            case Logged():
                self.rates.append(event.tokens_per_second)
                if updates := event.update - self._last - event.skipped:  # of those skipped there is no loss
                    self._loss, self._updates = self._loss + updates * event.loss, self._updates + updates
                self._last = event.update
            case Validated(averaged=0):  # the mean of checkpoints is no step of the way
                self._validated.append((event, self._loss / self._updates if self._updates else None))
                self._loss, self._updates = 0.0, 0

    def told(self, metric: str) -> list[dict[str, Any]]:
        """`loss`: in training since the validation before, with its dropout and smoothing."""
        return [
            {"update": event.update, "value": _number(event.values[metric]), "loss": _number(loss)}
            for event, loss in self._validated
        ]


def _number(value: float | None) -> float | None:
    """As JSON has them: NaN is none."""
    return value if value is not None and math.isfinite(value) else None


def _base(recipe: str) -> Path:
    from saccade.recipe import load_recipe

    return load_recipe(recipe, ())[1]


def _together(options: argparse.Namespace) -> dict[str, Any]:
    """Several runs as one model, on the test data of the first."""
    import saccade
    from saccade.recipe import load_recipe

    row = read_row(options.row)
    models = [saccade.load(member, device=options.device) for member in options.members]
    model = saccade.ensemble(models)
    recipe, base = load_recipe(options.recipe, (*options.set, f"seed={options.seed}"))
    told = {"seed": options.seed, "parameters": sum(each.parameters for each in models), **made_with()}
    return told | {"scores": _told(_scores(recipe, model, base, row)), "tests": _tests(model, row)}


def _costs(run: "TrainedRun") -> dict[str, Any]:
    finished = run.finished
    return {"updates": finished.update, "tokens": finished.tokens, "seconds": finished.seconds}


def peak_memory(device: str) -> dict[str, int]:
    """Of tensors, and what the process held of a card for them: captured graphs keep more than is in use at a time."""
    import torch

    if torch.cuda.is_available() and device != "cpu":
        held = torch.cuda.max_memory_reserved()
        return {"peak_memory_bytes": torch.cuda.max_memory_allocated(), "held_memory_bytes": held}
    return {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def made_with() -> dict[str, Any]:
    from saccade.train.environment import environment

    return {"environment": environment(), "commit": commit()}


def commit() -> str:
    """Of the checkout; SACCADE_COMMIT where the code was copied to a machine without its history."""
    if given := os.environ.get("SACCADE_COMMIT"):
        return given
    told = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _scores(recipe: "Recipe", model: "Model", base: Path, row: Row) -> "list[Score]":
    """On the recipe's test data: of translations as `Model.evaluate` makes them, of other tasks as `evaluate` does."""
    from saccade.data.files import Counts
    from saccade.data.splits import grouped, groups, split_pairs
    from saccade.tasks.translate import TranslateRecipe

    if not isinstance(recipe, TranslateRecipe):
        return list(recipe.scores(model.loaded, [], "test", base).values())
    pairs = list(split_pairs(recipe.data, "test", base=base, counts=Counts()))
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    both = grouped(sources, targets) if groups(recipe.data) else (sources, targets)
    return list(model.evaluate(*both, metrics=_metrics(row)).scores)


def _tests(model: "Model", row: Row) -> dict[str, list[dict[str, Any]]]:
    """On further test sets: a file of sources and one of references, line by line."""
    told = {}
    for name, files in row.tests.items():
        told[name] = _told(list(model.evaluate(*read_sides(files), metrics=_metrics(row)).scores))
    return told


def _metrics(row: Row) -> "list[MetricName] | None":
    return list(row.metrics) if row.metrics else None  # type: ignore[arg-type]  # a test knows that they are names


def _told(scores: "list[Score]") -> list[dict[str, Any]]:
    return [score.to_dict() for score in scores]


if __name__ == "__main__":
    main()
