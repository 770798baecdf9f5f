"""The page of a row: the settings with their chosen points, every seed, the whole grid, and how they were made."""

import re
import statistics
from typing import Any

from bench.ledger import Job, Ledger
from bench.row import Ensemble, Row, Setting
from saccade.view.table import markdown

Done = list[tuple[Setting | Ensemble, list[dict[str, Any]]]]
"""What was trained, and what came of each of its seeds."""


def page(ledger: Ledger) -> str | None:
    """None where nothing is trained to its end yet."""
    row = ledger.row
    every: Done = [(setting, ledger.runs(setting)) for setting in row.settings]
    every += [(ensemble, ledger.joint_runs(ensemble)) for ensemble in row.ensembles]
    every = [(each, runs) for each, runs in every if runs]
    if not every:
        return None
    parts = [f"# {row.title}", _summary(ledger, every)]
    parts += [f"Not trained to the end yet: {', '.join(missing)}."] if (missing := ledger.missing()) else []
    parts += (
        [f"Diverged before any validation, with every seed: {', '.join(lost)}."] if (lost := ledger.hopeless()) else []
    )
    parts += [f"For comparison: {row.anchor.strip()}"] if row.anchor else []
    parts += [f"## What was found\n\n{row.findings.strip()}"] if row.findings else []
    parts += [f"## Further scores\n\n{further}"] if (further := _further(row, every)) else []
    parts += [f"## Every seed\n\n{_seeds(every)}\n\n{_INTERVALS}"]
    parts += [_HELD] if any("held_memory_bytes" in run for _, runs in every for run in runs) else []
    parts += [f"## On the way\n\n{course}"] if (course := _course(every)) else []
    parts += [_grid(ledger)] if any(len(setting.points) > 1 for setting in row.settings) else []
    parts += [f"## How it was made\n\n{_made(ledger, every)}"]
    return "\n\n".join(parts) + "\n"


_INTERVALS = """\
Intervals are 95 %: bootstrap over the test lines, or Wilson's of a share of them. They do not cover the choice of the
training seed, which is why seeds stand as rows of their own. tokens/s: non-padding target tokens in training, median
over the log (of classifiers the tokens read), while other trainings shared the machine; alone: the later 300 of 600
updates with the machine to itself, without what was trained before (masked pre-training). Peak memory: on a GPU of
tensors, on a CPU of the whole process."""
_HELD = "Held: what the process reserved on the card, captured graphs included."


def _summary(ledger: Ledger, every: Done) -> str:
    """One line a setting: its score beside what was published, and what it took."""
    means, columns = _means(every)
    shown, rows = _shown(ledger.row, columns), []
    for (each, runs), values in zip(every, means, strict=True):
        cells = {"setting": each.name, "year": str(each.year or ""), "seeds": str(len(runs))}
        cells |= {"parameters": _millions(runs[0]["parameters"])} | {name: values.get(name, "") for name in shown}
        rows.append(cells | (_setting_cells(ledger, each, runs) if isinstance(each, Setting) else {}))
    heads = ["setting", shown[0], "published", *shown[1:], *_COSTS]
    return markdown(rows, [name for name in heads if any(cells.get(name) for cells in rows)])


_FEW = 4
"""So many scores fit into the first table; where there are more, it has the first and what the row wants beside it."""
_COSTS = ("year", "seeds", "parameters", "updates", "tokens/s alone", "minutes alone", "chosen")


def _shown(row: Row, columns: list[str]) -> list[str]:
    """What of the scores stands in the first table."""
    return columns if len(columns) <= _FEW else [columns[0], *(name for name in row.beside if name in columns)]


def _further(row: Row, every: Done) -> str:
    """The other scores, where they do not fit into the first table."""
    means, columns = _means(every)
    shown = _shown(row, columns)
    others = [name for name in columns if name not in shown]
    lines = [{"setting": each.name} | values for (each, _), values in zip(every, means, strict=True)]
    return markdown(lines, ["setting", *others]) if others else ""


def _means(every: Done) -> tuple[list[dict[str, str]], list[str]]:
    """Of every metric the mean over the seeds, and their standard deviation; and the metrics' names in their order."""
    shared, rows = _in_one_column([set(_values(runs)) for _, runs in every]), []
    for _, runs in every:
        cells = {}
        for told, values in _values(runs).items():
            places = _places(told)
            spread = f" ± {statistics.stdev(values):.{places}f}" if len(values) > 1 else ""
            cells[shared[told]] = f"{statistics.mean(values):.{places}f}{spread}"
        rows.append(cells)
    return rows, list(dict.fromkeys(name for cells in rows for name in cells))


_COUNT = re.compile(r"\b\d[\d,]*(?= )")


def _in_one_column(told: list[set[str]]) -> dict[str, str]:
    """One name with both counts for those that differ in a count alone: "accuracy, 3,847 or 4,454 unseen words".

    Not where one setting has both, as of two years' test sets.
    """
    plain = {name: _COUNT.sub("", name) for names in told for name in names}
    alike = {short: sorted(name for name in plain if plain[name] == short) for short in plain.values()}
    shared = {name: name for name in plain}
    for names in alike.values():
        if len(names) > 1 >= max(len(each.intersection(names)) for each in told):
            counts = sorted({_COUNT.findall(name)[0] for name in names}, key=lambda count: int(count.replace(",", "")))
            shared |= {name: _COUNT.sub(" or ".join(counts), name, count=1) for name in names}
    return shared


def _places(name: str) -> int:
    """Digits behind the point: more of what is a bit or so."""
    return 4 if name.startswith(("bits", "nats")) or "per byte" in name else 2


def _values(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Of every metric on the test part, and of the first metric on the other sets: its value with each seed."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for score in run["scores"]:
            found.setdefault(score["name"], []).append(score["value"])
        for test, scores in run["tests"].items():
            for score in scores[:1]:
                found.setdefault(f"{score['name']}, {test}", []).append(score["value"])
    return found


def _setting_cells(ledger: Ledger, setting: Setting, runs: list[dict[str, Any]]) -> dict[str, str]:
    cells = {"published": setting.published, "updates": f"{statistics.median(run['updates'] for run in runs):,.0f}"}
    if diverged := ledger.diverged(setting):
        cells["seeds"] = f"{len(runs)}, {diverged} diverged"
    if len(setting.points) > 1:
        choice = ledger.chosen(setting)
        cells["chosen"] = "" if choice is None else f"point {setting.points.index(choice) + 1}"
    if alone := ledger.alone(setting):
        rate = alone["target_tokens_per_second"]
        cells["tokens/s alone"] = f"{rate:,.0f}"
        cells["minutes alone"] = f"{minutes_alone(runs, rate):.1f}"
    return cells


def minutes_alone(runs: list[dict[str, Any]], rate: float) -> float:
    """How long the training itself would take with the machine to itself; a run before it is not counted."""
    return float(statistics.median(run["tokens"] for run in runs)) / rate / 60


def _seeds(every: Done) -> str:
    rows, columns = [], ["setting", "seed"]
    several = len({_machine(run) for _, runs in every for run in runs}) > 1
    for each, runs in every:
        for run in runs:
            cells = {"setting": each.name, "seed": str(run["seed"])}
            for score in run["scores"]:
                places = _places(score["name"])
                interval = "" if score["low"] is None else f" [{score['low']:.{places}f}, {score['high']:.{places}f}]"
                cells[score["name"]] = f"{score['value']:.{places}f}{interval}"
                columns += [score["name"]] if score["name"] not in columns else []
            rows.append(cells | _costs(run) | ({"machine": _machine(run)} if several else {}))
    optional = [name for name in ("held", "machine") if any(name in row for row in rows)]
    return markdown(rows, [*columns, "best update", "tokens/s", "time", "peak memory", *optional])


def _machine(run: dict[str, Any]) -> str:
    made: dict[str, Any] = run["environment"]
    return str(made["gpu"] or made["processor"])


def _course(every: Done) -> str:
    """What one seed had reached on validation data after each quarter: the first that recorded its way."""
    rows = []
    for each, runs in every:
        if recorded := [run for run in runs if run.get("course")]:
            run, course = recorded[0], recorded[0]["course"]
            cells = {"setting": each.name, "seed": str(run["seed"]), "by": run["metric"]}
            for quarter in _QUARTERS:
                due = run["updates"] * quarter / 100
                nearest = min((abs(step["update"] - due), number) for number, step in enumerate(course))[1]
                cells[f"{quarter} %"] = _three_places(course[nearest]["value"])
            cells["best after"] = f"{100 * run['best_update'] / run['updates']:.0f} %"
            rows.append(cells | {"training loss": _three_places(course[-1]["loss"])})
    if not rows:
        return ""
    quarters = [f"{quarter} %" for quarter in _QUARTERS]
    return f"{_COURSE}\n\n{markdown(rows, ['setting', 'seed', 'by', *quarters, 'best after', 'training loss'])}"


_QUARTERS = (25, 50, 75, 100)
_COURSE = """\
What one seed had reached on the validation data after each quarter of its updates, at the validation nearest to it.
Training loss: the mean between the last two validations, with dropout and smoothing."""


def _three_places(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _costs(run: dict[str, Any]) -> dict[str, str]:
    if "seconds" not in run:  # an ensemble was not trained
        return {}
    before = run.get("first", {}).get("seconds", 0.0)
    rate = run["target_tokens_per_second"]
    held = {"held": f"{run['held_memory_bytes'] / 2**30:.2f} GiB"} if "held_memory_bytes" in run else {}
    return held | {
        "best update": f"{run['best_update']:,}" + (f" (mean of {run['averaged']})" if run.get("averaged") else ""),
        "tokens/s": "" if rate is None else f"{rate:,.0f}",
        "time": f"{(run['seconds'] + before) / 60:.1f} min",
        "peak memory": f"{run['peak_memory_bytes'] / 2**30:.2f} GiB",
    }


def _grid(ledger: Ledger) -> str:
    """What every point reached on the validation data, and which one was taken."""
    row = ledger.row
    points = row.settings[0].points
    rows = []
    for setting in row.settings:
        cells, choice = {"setting": setting.name}, ledger.chosen(setting)
        for number, point in enumerate(points, 1):
            trial = ledger.first_trial(Job(setting, point, setting.seeds[0]))
            if trial is not None:
                value = f"{trial['valid'][trial['metric']]:.3f}" if trial["valid"] else "diverged"
                cells[f"point {number}"] = f"**{value}**" if point == choice else value
                cells["by"] = trial["metric"]
        rows.append(cells)
    told = [f"{number}. {', '.join(f'`{each}`' for each in point)}" for number, point in enumerate(points, 1)]
    table = markdown(rows, ["setting", "by", *(f"point {number}" for number in range(1, len(points) + 1))])
    heading = "## The grid\n\nThe same points for every setting, with the first seed, on the validation data alone:"
    return "\n\n".join((heading, "\n".join(told), table))


def _made(ledger: Ledger, every: Done) -> str:
    runs = [run for _, found in every for run in found]
    signatures = dict.fromkeys(s["signature"] for run in runs for s in run["scores"] if s["signature"])
    commits = dict.fromkeys(run["commit"] for run in runs)
    machines = dict.fromkeys(
        f"{_machine(run)}, torch {run['environment']['packages']['torch']}, Python {run['environment']['python']}"
        for run in runs
    )
    lines = [f"- signature: `{signature}`" for signature in signatures]
    jobs = dict.fromkeys(run["jobs"] for run in runs)
    changes = "".join(f" --set {change}" for change in ledger.extra)
    commands = ", ".join(f"`python -m bench.results {ledger.row.name} --jobs {each}{changes}`" for each in jobs)
    lines += [f"- command: {commands}", f"- commit: {', '.join(commits)}", f"- machine: {'; '.join(machines)}"]
    return "\n".join(lines)


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f}M"
