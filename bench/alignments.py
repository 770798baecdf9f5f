"""How well attention aligns words: models trained on Europarl de-en, their alignments scored against gold.

    python -m bench.alignments --prepare $SACCADE_DATA/europarl-align     # once; needs SACCADE_DATA with europarl-en-de
    python -m bench.alignments --minutes 5 --out docs/results             # trains all models at once, scores, writes

The gold pairs (word-alignments/de-en.europarl-bicici.tsv) are lower-cased and cut into words at white space, with
punctuation by itself. The training text is brought into the same form, and pairs that share a side with gold are left
out, whatever their case, punctuation and white space. Every training is a process of its own: they share the GPU.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.trial import commit

if TYPE_CHECKING:
    from saccade.align import AlignConfig
    from saccade.metrics.links import Gold
    from saccade.model import Model

Pair = tuple[str, str]
GOLD = "word-alignments/de-en.europarl-bicici.tsv"
LINES, VALID, SCORED = 160_000, 1_000, 200
THRESHOLDS = (0.1, 0.2, 0.3, 0.5)
_WORDS = re.compile(r"'s(?!\w)|[^\W\d_]+(?:-\w+)*|\d+(?:[.,:/-]\w+)*|[^\w\s]|_+\w*")
_RATES = {"lstm": ("2e-3", 400), "transformer": ("2e-3", 1000)}
MODELS: dict[str, dict[str, Any]] = {
    "lstm": {
        "encoder": {"kind": "lstm", "layers": 2, "width": 512, "embedding": 256, "dropout": 0.2},
        "decoder": {
            "kind": "lstm", "layers": 2, "width": 512, "embedding": 512, "dropout": 0.2,
            "attention": {"score": "general"},
        },
        "tie": "output",
    },
    "transformer": {
        "encoder": {"kind": "transformer", "layers": 6, "width": 256, "heads": 4, "feedforward": 1024, "dropout": 0.1},
        "decoder": {"kind": "transformer", "layers": 6, "width": 256, "heads": 4, "feedforward": 1024, "dropout": 0.1},
        "tie": "all",
    },
}  # fmt: skip
NAMES = {"lstm": "LSTM 2+2×512, general attention", "transformer": "Transformer 6+6×256"}
DIRECTIONS = ("de-en", "en-de")


def main() -> None:
    options = _options()
    if options.prepare is not None:
        print(json.dumps(prepare(options.prepare, options.lines), indent=2))
        return
    if options.one:
        print(json.dumps(_one(options)))
        return
    folder = _prepared(options)
    runs = Path(options.runs or tempfile.mkdtemp(prefix="alignments-"))
    jobs = [(model, direction) for model in options.models for direction in DIRECTIONS]
    with ThreadPoolExecutor(options.jobs) as pool:
        trained = list(pool.map(lambda job: _spawn(options, folder, runs, *job), jobs))
    content = {
        "prepared": json.loads((folder / "prepared.json").read_text(encoding="utf-8")),
        "minutes": options.minutes,
        "settings": options.set,
        "jobs": options.jobs,
        "trained": trained,
        "rows": list(scores(options, folder, runs)),
        "commit": commit(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "alignments.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    page = render(content)
    (options.out / "alignments.md").write_text(page, encoding="utf-8")
    print(page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.alignments")
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="write the data there, and end")
    parser.add_argument("--lines", type=int, default=LINES, help="of the training data, to prepare")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each training")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--data", type=Path, help="what --prepare wrote; else $SACCADE_DATA/europarl-align")
    parser.add_argument(
        "--runs", type=Path, help="keep the run folders here; one that is finished is not trained again"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--jobs", type=int, default=4, help="trainings at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for every training")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "DIRECTION"), help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- data


def words(text: str) -> str:
    """Text as gold has it: lower case, white space around every word and mark."""
    return " ".join(_WORDS.findall(text.lower().replace("’", "'")))


def key(text: str) -> str:
    """What two sentences have in common that differ in case, punctuation and white space alone."""
    return re.sub(r"[\W_]+", "", text.lower())


def without_gold(pairs: Iterator[Pair], gold: list[Pair], found: list[int]) -> Iterator[Pair]:
    """Pairs that share neither side with gold; `found` counts the others: by German, by English, by both."""
    german, english = ({key(pair[side]) for pair in gold} for side in (0, 1))
    for pair in pairs:
        shares = key(pair[0]) in german, key(pair[1]) in english
        if any(shares):
            found[{(True, False): 0, (False, True): 1, (True, True): 2}[shares]] += 1
        else:
            yield pair


def prepare(folder: Path, lines: int) -> dict[str, Any]:
    """train.tsv.gz, valid.tsv.gz (German, tab, English), gold.tsv, and what was done to them, as prepared.json."""
    from saccade.data.files import Counts, Parallel, pairs

    data = _data()
    rows = [line.split("\t") for line in (data / GOLD).read_text(encoding="utf-8").splitlines()]
    gold = [(row[0], row[1]) for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"gold_pairs": len(gold), "gold_links": sum(len(row[2].split()) for row in rows)}
    for split, name, most in (("train", "train.500k.tsv.xz", lines), ("valid", "valid.tsv.gz", VALID)):
        counts = Counts()
        read = pairs(Parallel(tsv=(name,), columns=(2, 1)), base=data / "europarl-en-de", counts=counts)
        shared, kept = [0, 0, 0], 0
        with gzip.GzipFile(folder / f"{split}.tsv.gz", "wb", compresslevel=9, mtime=0) as file:
            of_split = ((pair.source, pair.target) for pair in islice(read, most))
            for german, english in without_gold(of_split, gold, shared):
                both = words(german), words(english)
                if all(both):
                    file.write("\t".join(both).encode() + b"\n")
                    kept += 1
        told[split] = {"kept": kept, "shared_german": shared[0], "shared_english": shared[1], "shared_both": shared[2]}
    (folder / "gold.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "prepared.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


def _data() -> Path:
    given = os.environ.get("SACCADE_DATA")
    if not given:
        sys.exit("SACCADE_DATA is not set: it must name the folder with europarl-en-de and word-alignments.")
    return Path(given)


def _prepared(options: argparse.Namespace) -> Path:
    folder: Path = options.data or _data() / "europarl-align"
    if (folder / "prepared.json").is_file():
        return folder
    made = Path(tempfile.mkdtemp(prefix="europarl-align-"))
    print(f"{folder}: is not there; preparing {made}", file=sys.stderr, flush=True)
    prepare(made, options.lines)
    return made


# ---- training


def _recipe(model: str, direction: str, folder: Path, minutes: float) -> dict[str, Any]:
    columns = (1, 2) if direction == "de-en" else (2, 1)
    rate, warmup = _RATES[model]
    return {
        "task": "translate",
        "data": {
            "kind": "files",
            "on_bad": "repair",
            **{
                split: {"tsv": str((folder / f"{split}.tsv.gz").resolve()), "columns": columns}
                for split in ("train", "valid")
            },
        },
        "text": {"kind": "bpe", "size": 10_000, "shared": True},
        "model": MODELS[model],
        "train": {
            "updates": 1_000_000,
            "minutes": minutes,
            "batch_tokens": 8192,
            "optimizer": {"kind": "adamw", "rate": float(rate), "decay": 1e-4},
            "schedule": {"kind": "inverse-sqrt", "warmup": warmup},
            "smoothing": 0.1,
            "validate_every": 1000,
            "metric": "loss",
            "precision": "bf16",
        },
        "decode": {"beam": 5, "length": "average"},
    }


def _spawn(options: argparse.Namespace, folder: Path, runs: Path, model: str, direction: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.alignments", "--one", model, direction, "--data", str(folder)]
    command += ["--runs", str(runs), "--minutes", str(options.minutes), "--device", options.device]
    for each in options.set:
        command += ["--set", each]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        sys.exit(f"{model} {direction}: failed with status {finished.returncode}")
    told: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    print(f"{model} {direction}: {told['updates']:,} updates", file=sys.stderr, flush=True)
    return told


def _one(options: argparse.Namespace) -> dict[str, Any]:
    import saccade
    from saccade import config
    from saccade.recipe import parse_recipe
    from saccade.train.environment import environment
    from saccade.train.events import Event, Finished

    model, direction = options.one
    run = options.runs / f"{model}-{direction}"
    note = run.with_suffix(".json")
    if note.is_file():
        kept: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        return kept
    tree = _recipe(model, direction, options.data, options.minutes)
    for setting in options.set:
        tree = config.override(tree, setting)

    def listen(event: Event) -> None:
        if not isinstance(event, Finished):
            print(f"{model} {direction}: {event}", file=sys.stderr, flush=True)

    done = saccade.train(parse_recipe(tree), run, device=options.device, overwrite=True, on_event=listen)
    found = done.load(options.device)
    with gzip.open(options.data / "valid.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in islice(file, SCORED)]
    columns = (0, 1) if direction == "de-en" else (1, 0)
    sides = [[row[column] for row in rows] for column in columns]
    bleu = found.evaluate(*sides, metrics=["bleu"], decode=found.decoding(beam=1))["bleu"]
    told = {
        "model": model,
        "direction": direction,
        "parameters": found.parameters,
        "updates": done.finished.update,
        "seconds": done.finished.seconds,
        "target_tokens": done.finished.tokens,
        "valid": done.finished.best,
        "bleu": bleu.value,
        "environment": environment(),
    }
    note.write_text(json.dumps(told), encoding="utf-8")
    return told


# ---- scores


def scores(options: argparse.Namespace, folder: Path, runs: Path) -> Iterator[dict[str, Any]]:
    """Every way to read an alignment, of every model; links are always German-English."""
    from saccade import load
    from saccade.align import AlignConfig
    from saccade.metrics.links import read_gold

    rows = [line.split("\t") for line in (folder / "gold.tsv").read_text(encoding="utf-8").splitlines()]
    gold = [read_gold(row[2], f"gold.tsv line {number}") for number, row in enumerate(rows, start=1)]
    texts = {"de-en": [row[0] for row in rows], "en-de": [row[1] for row in rows]}
    for name in options.models:
        models = {direction: load(runs / f"{name}-{direction}", options.device) for direction in DIRECTIONS}
        layers = int(MODELS[name]["decoder"]["layers"]) if name == "transformer" else 1
        for setting in options.set:  # a smaller model, to try this out
            layers = int(setting.partition("=")[2]) if setting.startswith("model.decoder.layers=") else layers
        layers = layers if name == "transformer" else 1
        for layer in range(1, layers + 1):
            for step in ("output", "input"):
                place = {"layer": layer, "step": step}
                for direction in DIRECTIONS:
                    every = [AlignConfig.model_validate(place | {"method": m}) for m in ("argmax", "intersection")]
                    every += [AlignConfig.model_validate(place | {"method": m}) for m in ("union", "grow-diag")]
                    every += [
                        AlignConfig.model_validate(place | {"method": "threshold", "threshold": least})
                        for least in THRESHOLDS
                    ]
                    for config in every:
                        yield _row(models, name, direction, config, texts, gold)
                for method in ("intersection", "union", "grow-diag"):
                    config = AlignConfig.model_validate(place | {"method": method})
                    yield _row(models, name, "both", config, texts, gold)


def _row(
    models: "dict[str, Model]",
    name: str,
    direction: str,
    config: "AlignConfig",
    texts: dict[str, list[str]],
    gold: "list[Gold]",
) -> dict[str, Any]:
    from saccade.align import Aligner
    from saccade.metrics.links import alignment_scores

    forwards, backwards = ("en-de", "de-en") if direction == "en-de" else ("de-en", "en-de")
    reverse = models[backwards].engine if direction == "both" else None
    found = Aligner(models[forwards].engine, config, reverse=reverse).align(texts[forwards], texts[backwards])
    right = [each.swapped() for each in gold] if forwards == "en-de" else gold
    scored = alignment_scores([each.links for each in found], right)
    settings = config.model_dump(exclude_none=True, exclude={"unit"})
    return {"model": name, "direction": direction, **settings} | {k: s.to_dict() for k, s in scored.items()}


# ---- page


def render(content: dict[str, Any]) -> str:
    trained, rows, told = content["trained"], content["rows"], content["prepared"]
    machine = trained[0]["environment"]
    kept, left = (
        told["train"]["kept"],
        {name: told["train"][f"shared_{name}"] for name in ("german", "english", "both")},
    )
    lines = [
        "# Alignments from attention: German-English Europarl, 100 gold pairs",
        "",
        f"Gold: {told['gold_pairs']} pairs with {told['gold_links']:,} sure links, lower-cased and tokenised.",
        f"Training: {kept:,} pairs of Europarl, lower-cased and cut into words like gold. Pairs with a sentence of",
        f"gold, case, punctuation and white space aside, were left out: {left['both']} with both sides in gold,",
        f"{left['german']} with the German and {left['english']} with the English one alone. Every model was trained",
        f"for {content['minutes']:g} minutes, {content['jobs']} at a time on one device. Heads are averaged; words are",
        "what white space separates. Less AER is better; with sure links alone it is 1 − F1. Intervals are 95 %,",
        "bootstrap over pairs; the best of many rows on 100 pairs looks better than it is. How it is done: see",
        "[alignments](../alignments.md).",
        "",
        *_trained(trained),
        "",
        "## Layer and step, argmax",
        "",
        *_layers(rows),
        "",
        "## Methods, at the best layer and step of each model and direction",
        "",
        *_methods(rows),
        "",
        f"- command: `python -m bench.alignments --minutes {content['minutes']:g}`"
        + "".join(f" `--set {each}`" for each in content["settings"]),
        f"- commit: {content['commit']}",
        f"- machine: {machine['gpu'] or machine['processor']}, torch {machine['packages']['torch']}, "
        f"Python {machine['python']}",
        "",
    ]
    return "\n".join(lines)


def _trained(trained: list[dict[str, Any]]) -> list[str]:
    from saccade.view.table import markdown

    rows = [
        {
            "model": NAMES[each["model"]],
            "direction": each["direction"],
            "parameters": f"{each['parameters'] / 1e6:.1f}M",
            "updates": f"{each['updates']:,}",
            "target tokens": f"{each['target_tokens'] / 1e6:.1f}M",
            f"BLEU, {SCORED} valid lines, greedy": f"{each['bleu']:.1f}",
        }
        for each in trained
    ]
    return [markdown(rows, list(rows[0]))]


def _layers(rows: list[dict[str, Any]]) -> list[str]:
    from saccade.view.table import markdown

    shown: dict[tuple[str, str, int], dict[str, str]] = {}
    for row in rows:
        if row["method"] != "argmax":
            continue
        place = (row["model"], row["direction"], row["layer"])
        cells = {"model": NAMES[row["model"]], "direction": row["direction"], "layer": str(row["layer"])}
        shown.setdefault(place, cells)[f"AER, step {row['step']}"] = f"{row['aer']['value']:.1f}"
    every = [shown[place] for place in sorted(shown)]
    return [markdown(every, list(every[0]))]


def _methods(rows: list[dict[str, Any]]) -> list[str]:
    from saccade.view.table import markdown

    shown: list[dict[str, str]] = []
    for model in dict.fromkeys(row["model"] for row in rows):
        for direction in (*DIRECTIONS, "both"):
            mine = [row for row in rows if (row["model"], row["direction"]) == (model, direction)]
            judge = "argmax" if direction != "both" else "grow-diag"
            best = min((row for row in mine if row["method"] == judge), key=lambda row: row["aer"]["value"])
            for row in mine:
                if (row["layer"], row["step"]) == (best["layer"], best["step"]):
                    method = row["method"] + (f" {row['threshold']:g}" if "threshold" in row else "")
                    aer = row["aer"]
                    shown.append(
                        {
                            "model": NAMES[model],
                            "direction": direction,
                            "layer": str(row["layer"]),
                            "step": row["step"],
                            "method": method,
                            "AER": f"{aer['value']:.1f} [{aer['low']:.1f}, {aer['high']:.1f}]",
                            "precision": f"{row['precision']['value']:.1f}",
                            "recall": f"{row['recall']['value']:.1f}",
                        }
                    )
    return [markdown(shown, list(shown[0]))]


if __name__ == "__main__":
    main()
