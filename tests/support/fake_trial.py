"""Stands for a training in tests of the results' runner: answers at once, as `bench.trial` does.

Changes say how: `score=3` is what it reaches on validation and test data, `fails=1` ends it with an error,
`diverges=1` before any validation, `mumbles=1` with something else, `waits=SECONDS` late; `held=1` tells of a card,
`metric=NAME` is what the score is called, `also=NAME and NAME` others, and with `way=VALUE` seeds from the second on
tell of three validations. `--prepared` is told as `prepared`.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--device")
    parser.add_argument("--speed")
    parser.add_argument("--prepared")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    given = dict(change.split("=") for change in options.set)
    if "log" in given:
        with Path(given["log"]).open("a", encoding="utf-8") as log:
            log.write(f"{options.set} {options.seed}\n")
    if "waits" in given:
        sys.stderr.write(f"pid {os.getpid()}\n")
        time.sleep(float(given["waits"]))
    if "fails" in given:
        sys.exit("it was told to fail")
    if "mumbles" in given:
        sys.stdout.write("well\n")
        return
    reached = float(given.get("score", 0)) + options.seed / 10
    metric = given.get("metric", "BLEU")
    score = {"name": metric, "value": reached, "low": reached - 1, "high": reached + 1, "signature": "s", "count": 9}
    told = {
        "seed": options.seed,
        "settings": options.set,
        "parameters": 1_000_000,
        "updates": 100,
        "tokens": 60_000,
        "seconds": 30.0,
        "best_update": 50,
        "averaged": 0,
        "target_tokens_per_second": 1000.0,
        "peak_memory_bytes": 2**30,
        "environment": {"gpu": None, "processor": "a processor", "packages": {"torch": "2"}, "python": "3"},
        "commit": "abc",
        "metric": "bleu",
        "valid": {} if "diverges" in given else {"bleu": reached, "loss": 1.0},
        "scores": [] if "diverges" in given else [score],
        "tests": {} if "diverges" in given else {"elsewhere": [score]},
    }
    if options.prepared:
        told["prepared"] = options.prepared
    if "held" in given:
        told["held_memory_bytes"] = 3 * 2**30
    if "also" in given:
        told["scores"] += [score | {"name": name} for name in given["also"].split(" and ")]
    if "way" in given and options.seed > 1:
        reached = float(given["way"])
        steps = {40: reached + 0.4, 80: reached + 0.8, 100: None}
        told["course"] = [{"update": update, "value": value, "loss": 0.5} for update, value in steps.items()]
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
