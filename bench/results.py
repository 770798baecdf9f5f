"""Train a row of the results table, score it, write one JSON per setting and a page that shows them.

    python -m bench.results ROW [--out docs/results] [--jobs 2] [--device auto] [--set train.updates=100]…

Every training is a process of its own, so that several small ones share one GPU.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from saccade.api import Model
    from saccade.metrics.names import MetricName
    from saccade.metrics.score import Score
    from saccade.recipe import Recipe

HERE = Path(__file__).parent


def main() -> None:
    options = _options()
    if options.one:
        print(json.dumps(_one(options)))
        return
    row = _row(options.row)
    jobs = [(setting, seed) for setting in row["settings"] for seed in setting["seeds"]]
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda job: _spawn(options, *job), jobs))
    options.out.mkdir(parents=True, exist_ok=True)
    settings = []
    for setting in row["settings"]:
        runs = [run for (each, _), run in zip(jobs, done, strict=True) if each is setting]
        about = {
            "row": options.row,
            "setting": setting["name"],
            "year": setting.get("year"),
            "recipe": setting["recipe"],
        }
        content = about | {"runs": runs}
        name = f"{options.row}-{_slug(setting['name'])}.json"
        (options.out / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        settings.append(content)
    page = render(options.row, row["title"], settings, options.jobs, row.get("anchor", ""))
    (options.out / f"{options.row}.md").write_text(page, encoding="utf-8")
    print(page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.results")
    parser.add_argument("row", help="a name in bench/rows.yaml")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for every training")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recipe", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def _row(name: str) -> dict[str, Any]:
    rows = yaml.safe_load((HERE / "rows.yaml").read_text(encoding="utf-8"))
    if name not in rows:
        sys.exit(f"ROW is {name!r}; bench/rows.yaml has {', '.join(rows)}.")
    found: dict[str, Any] = rows[name]
    return found


def _spawn(options: argparse.Namespace, setting: dict[str, Any], seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.results", options.row, "--one", "--recipe", setting["recipe"]]
    command += ["--seed", str(seed), "--device", options.device]
    for each in (*_row(options.row).get("set", ()), *setting.get("set", ()), *options.set):
        command += ["--set", each]
    print(f"{setting['name']}, seed {seed}: begins", file=sys.stderr, flush=True)
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        sys.exit(f"{setting['name']}, seed {seed}: failed with status {finished.returncode}")
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    best = ", ".join(f"{score['name']} {score['value']:.2f}" for score in result["scores"])
    print(f"{setting['name']}, seed {seed}: {best}, {result['seconds']:.0f} s", file=sys.stderr, flush=True)
    return result


def _one(options: argparse.Namespace) -> dict[str, Any]:
    """Train and score one setting with one seed, in this process."""
    import torch

    import saccade
    from saccade.recipe import load_recipe
    from saccade.train.environment import environment
    from saccade.train.events import Event, Finished, Logged

    recipe, base = load_recipe(options.recipe, (*options.set, f"seed={options.seed}"))
    speeds: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, Logged):
            speeds.append(event.tokens_per_second)
        if not isinstance(event, Finished):
            print(f"{options.recipe} {options.seed}: {event}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        run = saccade.train(recipe, Path(folder) / "run", device=options.device, on_event=listen)
        model = run.load(options.device)
        row = _row(options.row)
        scores = _scores(recipe, model, base, row.get("metrics"))
        tests = {name: _file_scores(model, files, row.get("metrics")) for name, files in row.get("tests", {}).items()}
    cuda = torch.cuda.is_available() and options.device != "cpu"
    return {
        "scores": [score.to_dict() for score in scores],
        "tests": {name: [score.to_dict() for score in found] for name, found in tests.items()},
        "seed": options.seed,
        "settings": options.set,
        "parameters": model.parameters,
        "updates": run.finished.update,
        "best_update": run.finished.best_update,
        "averaged": run.finished.averaged,
        "target_tokens_per_second": statistics.median(speeds) if speeds else None,
        "seconds": run.finished.seconds,
        "peak_memory_bytes": torch.cuda.max_memory_allocated()
        if cuda
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "environment": environment(),
        "commit": _commit(),
    }


def _scores(recipe: "Recipe", model: "Model", base: Path, metrics: "list[MetricName] | None") -> "list[Score]":
    """On the recipe's test data: of translations as `Model.evaluate` makes them, of other tasks as `evaluate` does."""
    from saccade.data.files import Counts
    from saccade.data.splits import grouped, groups, split_pairs
    from saccade.tasks.translate import TranslateRecipe

    if not isinstance(recipe, TranslateRecipe):
        return list(recipe.scores(model.loaded, [], "test", base).values())
    pairs = list(split_pairs(recipe.data, "test", base=base, counts=Counts()))
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    both = grouped(sources, targets) if groups(recipe.data) else (sources, targets)
    return list(model.evaluate(*both, metrics=metrics).scores)


def _file_scores(model: "Model", files: list[str], metrics: "list[MetricName] | None") -> "list[Score]":
    """On another test set: a file of sources and one of references, line by line."""
    from saccade.data.files import lines, locate

    both = []
    for name in files:
        with locate(name, Path()).path.open("rb") as file:
            both.append([line.text for line in lines(file)])
    return list(model.evaluate(both[0], both[1], metrics=metrics).scores)


def _commit() -> str:
    """Of the checkout; SACCADE_COMMIT where the code was copied to a machine without its history."""
    if given := os.environ.get("SACCADE_COMMIT"):
        return given
    told = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def render(row: str, title: str, settings: list[dict[str, Any]], jobs: int, anchor: str = "") -> str:
    from saccade.view.table import markdown

    rows, columns = [], ["setting", "seed"]
    for setting in settings:
        for run in setting["runs"]:
            cells = {"setting": setting["setting"], "seed": str(run["seed"])}
            for score in run["scores"]:
                interval = "" if score["low"] is None else f" [{score['low']:.2f}, {score['high']:.2f}]"
                cells[score["name"]] = f"{score['value']:.2f}{interval}"
                columns += [score["name"]] if score["name"] not in columns else []
            for test, scores in run.get("tests", {}).items():
                for score in scores[:1]:  # the first metric tells enough of the other sets
                    name = f"{score['name']}, {test}"
                    cells[name] = f"{score['value']:.2f}"
                    columns += [name] if name not in columns else []
            rows.append(cells | _costs(run))
    columns += ["parameters", "updates", "tokens/s", "time", "peak memory"]
    first = settings[0]["runs"][0]
    machine = first["environment"]
    signatures = list(dict.fromkeys(score["signature"] for score in first["scores"] if score["signature"]))
    lines = [
        f"# {title}",
        "",
        markdown(rows, columns),
        "",
        "Intervals are 95 %: bootstrap over the test lines, or Wilson's of a share of them. They do not cover the",
        "choice of the training seed, which is why seeds stand as rows of their own. tokens/s: non-padding target",
        f"tokens in training, median over the log, with up to {jobs} trainings sharing the machine.",
        "",
        *((f"For comparison: {anchor}", "") if anchor else ()),
        *(f"- signature: `{signature}`" for signature in signatures),
        f"- command: `make results ROW={row} JOBS={jobs}`",
        f"- commit: {first['commit']}",
        f"- machine: {machine['gpu'] or machine['processor']}, torch {machine['packages']['torch']}, "
        f"Python {machine['python']}",
        "",
    ]
    return "\n".join(lines)


def _costs(run: dict[str, Any]) -> dict[str, str]:
    return {
        "parameters": f"{run['parameters'] / 1e6:.2f}M",
        "updates": f"{run['updates']:,}",
        "tokens/s": f"{run['target_tokens_per_second']:,.0f}",
        "time": f"{run['seconds'] / 60:.1f} min",
        "peak memory": f"{run['peak_memory_bytes'] / 2**30:.2f} GiB",
    }


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("×", "x")).strip("-")


if __name__ == "__main__":
    main()
