"""Kill trainings with SIGKILL again and again, and compare what comes out with a run that was left alone.

    OMP_NUM_THREADS=1 python -m bench.soak_resume --kills 50

Half of the kills come at random moments, half inside a flush or a rename while something is saved. Every update's
weights and loss, every validation, the best model and the last checkpoint must agree to the bit. Prints one line of
JSON; the exit status is 1 where anything differs.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import saccade
from saccade.recipe import Recipe
from tests.support.killing import Kills, leftovers, logged, trace, train_with_kills
from tests.support.tiny import recipe, write_corpus

RUNS = {
    "lstm": ("train.workers=2", "train.accumulate=3", "train.schedule={kind: plateau, patience: 0}"),
    "transformer": ("text={kind: bpe, size: 290, dropout: 0.2}", "train.average=3", "train.metric=exact_match"),
}


def soak(chosen: Recipe, folder: Path, *, kills: int, draw: random.Random) -> dict[str, Any]:
    """Runs of one recipe, killed that often in all."""
    began = time.monotonic()
    saccade.train(chosen, folder / "alone", device="cpu")
    seconds_alone = time.monotonic() - began
    expected = trace(folder / "alone")
    total, runs, different = Kills(0, 0), 0, []
    while (left := kills - total.by_clock - total.in_saves) > 0:
        out = folder / f"killed-{runs}"
        made = train_with_kills(chosen, out, draw=draw, kills=left, longest=max(0.3, seconds_alone / 10))
        total, runs = Kills(total.by_clock + made.by_clock, total.in_saves + made.in_saves), runs + 1
        found = trace(out)
        different += [f"{out.name}: {name}" for name in expected if found[name] != expected[name]]
        different += [f"{out.name}: log"] * (logged(out) != logged(folder / "alone"))
        different += [f"{out.name}: {name} is left over" for name in leftovers(out)]
    return {
        "updates": len(expected["updates"]),
        "runs": runs,
        "kills": {"by_clock": total.by_clock, "in_saves": total.in_saves},
        "different": different,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="kills of each architecture (default: 50)")
    parser.add_argument("--updates", type=int, default=300, help="updates of each run (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments the kills come at (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"bench": "soak_resume", "seed": arguments.seed, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as name:
        corpus = write_corpus(Path(name) / "corpus", train=600)
        for model, settings in RUNS.items():
            every = ("train.save_every=7", "train.validate_every=20", "train.optimizer.rate=3e-3")
            chosen = recipe(corpus, model, f"train.updates={arguments.updates}", *every, *settings)
            draw = random.Random(f"{arguments.seed} {model}")
            result[model] = soak(chosen, Path(name) / model, kills=arguments.kills, draw=draw)
    result["ok"] = not any(result[model]["different"] for model in RUNS)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
