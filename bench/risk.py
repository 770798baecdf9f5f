"""Searched, drawn, or chosen by minimum Bayes risk: what becomes of a run's outputs, and what it costs.

`python -m bench.risk RUN SOURCE REFERENCE --metrics chrf,exact_match --lines 500`
"""

import argparse
import time
from pathlib import Path
from typing import cast

import saccade
from saccade.data.files import File, raw_lines
from saccade.decode.asked import Translating
from saccade.metrics.measure import measure
from saccade.metrics.names import TextMetric

WAYS: dict[str, Translating] = {
    "greedy": {"beam": 1},
    "beam 5": {"beam": 5},
    "beam 20": {"beam": 20},
    "one sample": {"samples": 1},
    "one sample, min-p 0.1": {"samples": 1, "min_p": 0.1},
    "MBR chrF, 10 samples": {"samples": 10, "mbr": "chrf"},
    "MBR chrF, 30 samples": {"samples": 30, "mbr": "chrf"},
    "MBR chrF, 100 samples": {"samples": 100, "mbr": "chrf"},
    "MBR BLEU, 100 samples": {"samples": 100, "mbr": "bleu"},
    "MBR chrF, 100 samples, min-p 0.1": {"samples": 100, "mbr": "chrf", "min_p": 0.1},
    "MBR chrF, 100 samples judge a beam of 5": {
        "samples": 100,
        "mbr": "chrf",
        "beam": 5,
        "settings": ["mbr.candidates=beam"],
    },
}


def lines(path: Path) -> list[str]:
    return [line.decode().rstrip("\n") for line in raw_lines(File(str(path), path.absolute()))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--metrics", default="bleu,chrf")
    parser.add_argument("--lines", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    model = saccade.load(given.run, given.device)
    sources, references = lines(given.source)[: given.lines], lines(given.reference)[: given.lines]
    names = [cast(TextMetric, name) for name in given.metrics.split(",")]
    print(f"{len(sources):,} lines; of what is drawn, the mean of {given.seeds} seeds and the spread between them")
    print(f"| | {' | '.join(names)} | ms a line |\n|---|{'---:|' * (len(names) + 1)}")
    for way, settings in WAYS.items():
        seeds = range(1, 1 + (given.seeds if "samples" in settings else 1))
        found: list[list[float]] = []
        begun = time.perf_counter()
        for seed in seeds:
            asked: Translating = {**settings, "seed": seed} if "samples" in settings else settings
            outputs = [each.text for each in model.engine.translate(sources, model.decoding(**asked))]
            found.append([measure(name, outputs, references, confidence=False).value for name in names])
        cost = 1000 * (time.perf_counter() - begun) / len(seeds) / len(sources)
        print(
            f"| {way} | {' | '.join(_shown(column) for column in zip(*found, strict=True))} | {cost:.1f} |", flush=True
        )


def _shown(values: tuple[float, ...]) -> str:
    mean = sum(values) / len(values)
    spread = f" ± {(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
    return f"{mean:.1f}{spread}"


if __name__ == "__main__":
    main()
