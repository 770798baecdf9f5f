"""`runs list` and `info`: what is in run folders and on this machine. Run folders are read without torch."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from saccade.cli.streams import say, tell, to_json
from saccade.cli.words import amount, duration, metric
from saccade.compare.facts import parts_of
from saccade.errors import UsageError
from saccade.run_paths import RECIPE, is_run, no_run

METRICS, MODEL = "metrics.jsonl", "model.safetensors"


@dataclass(frozen=True)
class Summary:
    """A run in one line."""

    name: str
    path: str
    task: str
    model: str
    """Its parts in a few words."""
    update: int
    updates: int
    finished: bool
    best_update: int | None
    best: dict[str, float]
    metric: str
    age_seconds: float
    """Since the last line of its log."""


def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that holds the run folders.")] = Path(
        "runs"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the runs in a folder, the latest first."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder. Runs are in runs/ unless --out said otherwise.")
    runs = sorted(_summaries(folder), key=lambda run: run.age_seconds)
    if as_json:
        say(to_json([asdict(run) for run in runs], indent=2))
        return
    if not runs:
        tell(f"{folder}: holds no runs. `saccade train dates` makes one.")
        return
    from saccade.view import table

    rows = [
        {
            "run": run.path,
            "task": run.task,
            "model": run.model,
            "updates": f"{run.update:,}/{run.updates:,}",
            "best valid": _best(run),
            "state": "finished" if run.finished else "unfinished",
            "age": duration(run.age_seconds) if run.age_seconds < 48 * 3600 else f"{run.age_seconds / 86400:.0f} days",
        }
        for run in runs
    ]
    say(table.render(rows, list(rows[0])))


def _best(run: Summary) -> str:
    if run.best_update is None:
        return "–"
    shown = metric(run.metric, run.best[run.metric]) if run.metric in run.best else ""
    return shown if run.metric == "loss" else f"{shown} ({metric('loss', run.best['loss'])})"


def _summaries(folder: Path) -> Iterator[Summary]:
    for path in sorted(folder.iterdir()):
        if is_run(path):
            try:
                yield summary(path)
            except UsageError as error:
                tell(str(error))


def summary(path: Path) -> Summary:
    try:
        return _summary(path)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"{path}: its {RECIPE} or {METRICS} is not as a training writes it: {type(error).__name__}: {error}."
        ) from None


def _summary(path: Path) -> Summary:
    from saccade import config

    recipe = config.read(path / RECIPE)
    model, train = recipe["model"], recipe["train"]
    notes = list(_notes(path))
    stale = 0
    best: dict[str, Any] = {}
    for note in notes:
        if note["kind"] in ("validated", "averaged"):
            best = note if note["best"] else best
            stale = 0 if note["best"] else stale + 1
    log = path / METRICS
    changed = (log if log.exists() else path / RECIPE).stat().st_mtime
    return Summary(
        name=path.absolute().name,
        path=str(path),
        task=recipe["task"],
        model=parts_of(model),
        update=max((note.get("update", 0) for note in notes), default=0),
        updates=train["updates"],
        finished=_finished(train, notes, stale=stale),
        best_update=best.get("update"),
        best={key: value for key, value in best.items() if key not in ("kind", "update", "best", "checkpoints")},
        metric=train["metric"],
        age_seconds=max(0.0, time.time() - changed),
    )


def _finished(train: dict[str, Any], notes: list[dict[str, Any]], *, stale: int) -> bool:
    """The three ways a training ends by itself, seen from its log."""
    update = max((note["update"] for note in notes if note["kind"] == "validated"), default=0)
    seconds = max((note["seconds"] for note in notes if note["kind"] == "trained"), default=0.0)
    out_of_time = train["minutes"] is not None and seconds >= 60 * train["minutes"]
    out_of_patience = train["patience"] is not None and stale >= train["patience"]
    return update >= train["updates"] or out_of_time or out_of_patience


def _notes(path: Path) -> Iterator[dict[str, Any]]:
    """The log, line by line; a last line that is still being written is passed over."""
    try:
        with (path / METRICS).open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
    except FileNotFoundError:
        return


def info(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run folder. Default: this machine.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Tell about a run, or about this machine.

    Of a run: settings, data, layers with their shapes. Of the machine: versions and device.
    """
    from saccade import config

    if run is None:
        from saccade.train.environment import environment

        facts = environment()
        say(to_json(facts, indent=2) if as_json else "\n".join(_lines(config.flatten(facts))))
        return
    if not is_run(run):
        raise no_run(run, f"it lacks {RECIPE} or checkpoints/")
    about: dict[str, Any] = {"run": asdict(summary(run)), "recipe": config.read(run / RECIPE)}
    about |= {"data": _stores(run), "parameters": _layers(run)}
    if as_json:
        say(to_json(about, indent=2))
        return
    _tell_run(run, about)


def _tell_run(run: Path, about: dict[str, Any]) -> None:
    from saccade import config
    from saccade.view import table

    one = summary(run)
    state = "finished" if one.finished else "unfinished"
    say(f"{run}: {one.task}, {one.model}, {state} at update {one.update:,} of {one.updates:,}")
    if one.best_update is not None:
        say("best valid: " + ", ".join(metric(k, v) for k, v in one.best.items()) + f" at update {one.best_update:,}")
    for split, counts in about["data"].items():
        tokens = " and ".join(f"{size:,} {column}" for column, size in counts["tokens"].items())
        say(f"{split}: {counts['rows']:,} {counts['unit']}, {tokens} tokens")
    say("\nsettings")
    for line in _lines(config.flatten(about["recipe"])):
        say(f"  {line}")
    layers = about["parameters"]
    if not layers:
        say("\nno model yet")
        return
    total = sum(layer["parameters"] for layer in layers)
    rows = [
        {
            "weights": layer["name"],
            "shape": " × ".join(map(str, layer["shape"])),
            "parameters": f"{layer['parameters']:,}",
        }
        for layer in layers
    ]
    say(f"\n{amount(total)} parameters")
    say(table.render([*rows, {"weights": "all", "shape": "", "parameters": f"{total:,}"}], list(rows[0])))


def _lines(flat: dict[str, Any]) -> list[str]:
    width = max(map(len, flat), default=0)
    return [f"{name:{width}}  {'–' if value is None else value}" for name, value in flat.items()]


def _layers(run: Path) -> list[dict[str, Any]]:
    """Names and shapes from the head of the weights' file; weights that are shared stand there once."""
    from safetensors import SafetensorError, safe_open

    if not (run / MODEL).is_file():
        return []
    try:
        with safe_open(run / MODEL, framework="numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 it is no mapping
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{run / MODEL}: cannot be read: {error}.") from None
    return [{"name": name, "shape": shape, "parameters": _product(shape)} for name, shape in shapes.items()]


def _product(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _stores(run: Path) -> dict[str, Any]:
    from saccade.data.columns import Columns

    found = {}
    for split in ("train", "valid"):
        if (run / "data" / split / "store.json").is_file():
            facts = Columns.open(run / "data" / split).facts
            known = {"rows": facts["rows"], "unit": facts["unit"], "tokens": facts["tokens"]}
            found[split] = known | {"read": facts["counts"]}
    return found
