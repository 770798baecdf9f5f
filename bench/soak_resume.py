"""Kill trainings with SIGKILL again and again, and compare what comes out with a run that was left alone.

    OMP_NUM_THREADS=1 python -m bench.soak_resume --kills 50
    python -m bench.soak_resume --device cuda --kills 10 --set train.deterministic=true

LSTM and Transformer, each with 0 and 2 workers, 1 and 3 batches an update, early stopping on. Half of the kills come at
random moments, half at a flush, rename or removal while something is saved; in runs of their own, others come when the
update before the end of an epoch, the one that ends it, and the one after are saved. Every update's weights and loss,
every validation, the counters of patience, the best model and the last checkpoint must agree to the bit. Prints one
line of JSON; the exit status is 1 where anything differs.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

import saccade
from saccade.data.batching import Plan
from saccade.data.store import Store
from saccade.recipe import Recipe
from tests.support.killing import Kills, leftovers, logged, trace, train_with_kills, train_with_kills_at
from tests.support.tiny import recipe, write_corpus

MODELS = {
    # A rate this high soon makes validation worse: it is cut, and the run ends for want of patience.
    "lstm": ("train.schedule={kind: plateau, patience: 0}", "train.optimizer.rate=0.3", "train.patience=8"),
    "transformer": ("text={kind: bpe, size: 290, dropout: 0.2}", "train.average=3", "train.metric=exact_match"),
}
WORKERS, ACCUMULATE = (0, 2), (1, 3)
EVERY = ("train.save_every=7", "train.validate_every=20", "train.optimizer.rate=3e-3", "train.patience=12")


@dataclass(frozen=True)
class Cell:
    """One setting of the matrix."""

    model: str
    workers: int
    accumulate: int

    @property
    def name(self) -> str:
        return f"{self.model}, workers {self.workers}, accumulate {self.accumulate}"

    @property
    def settings(self) -> tuple[str, ...]:
        given = (f"train.workers={self.workers}", f"train.accumulate={self.accumulate}")
        return (*EVERY, *MODELS[self.model], *given)


def soak(chosen: Recipe, folder: Path, *, kills: int, draw: random.Random, device: str) -> dict[str, Any]:
    """Runs of one recipe, killed that often in all."""
    began = time.monotonic()
    finished = saccade.train(chosen, folder / "alone", device=device).finished
    seconds_alone = finished.seconds
    total, runs, different = Kills(0, 0), 0, []
    while (left := kills - total.by_clock - total.in_saves) > 0:
        out = folder / f"killed-{runs}"
        longest = max(0.3, seconds_alone / 10)
        made = train_with_kills(chosen, out, draw=draw, kills=left, longest=longest, device=device)
        total, runs = Kills(total.by_clock + made.by_clock, total.in_saves + made.in_saves), runs + 1
        different += differences(out, folder / "alone")
    return {
        "updates": finished.update,
        "ended by": finished.reason,
        "runs": runs,
        "kills": {"by_clock": total.by_clock, "in_saves": total.in_saves},
        "different": different,
        "seconds": round(time.monotonic() - began, 1),
    }


def around_the_epoch(chosen: Recipe, folder: Path, size: int, device: str) -> dict[str, Any]:
    """Killed when the update before, on and after the end of an epoch is saved, in one run."""
    batches = in_an_epoch(folder / "alone", size, chosen.seed)
    last = batches // chosen.train.accumulate
    at = [last - 1, last, last + 1]
    each = ("train.save_every=1", "train.patience=null", f"train.updates={last + 4}", "train.validate_every=3")
    tree = saccade.recipe(folder / "alone" / "train.yaml", *each)
    saccade.train(tree, folder / "epoch-alone", device=device)
    train_with_kills_at(tree, folder / "epoch-killed", updates=at, device=device)
    ends_it = batches % chosen.train.accumulate == 0
    return {
        "batches of an epoch": batches,
        "killed at updates": at,
        "the second ends it": ends_it,
        "different": differences(folder / "epoch-killed", folder / "epoch-alone"),
    }


def differences(killed: Path, alone: Path) -> list[str]:
    expected, found = trace(alone), trace(killed)
    wrong = [f"{killed.name}: {name}" for name in expected if found[name] != expected[name]]
    wrong += [f"{killed.name}: log"] * (logged(killed) != logged(alone))
    wrong += [f"{killed.name}: {name} is left over" for name in leftovers(killed)]
    return wrong


def in_an_epoch(run: Path, size: int, seed: int) -> int:
    return len(Plan(Store.open(run / "data" / "train").lengths, size, seed).epoch(0))


def divisible(corpus: Path, cell: Cell) -> int:
    """A batch size with which an update of three batches ends together with the first epoch."""
    with tempfile.TemporaryDirectory() as name:
        probe, run = recipe(corpus, cell.model, *cell.settings, "train.updates=1"), Path(name) / "probe"
        saccade.train(probe, run, device="cpu")
        return next(size for size in range(128, 512) if in_an_epoch(run, size, probe.seed) % 3 == 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="kills of each architecture (default: 50)")
    parser.add_argument("--updates", type=int, default=300, help="updates of each run (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments the kills come at (default: 1)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a setting")
    parser.add_argument("--only", choices=sorted(MODELS), help="one architecture alone")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=WORKERS, help="threads that read ahead (default: 0 2)"
    )
    parser.add_argument(
        "--accumulate", type=int, nargs="+", default=ACCUMULATE, help="batches an update (default: 1 3)"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    torch.set_num_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products need it before CUDA begins
    result: dict[str, Any] = {"bench": "soak_resume", "seed": arguments.seed, "torch": torch.__version__}
    result |= {"device": arguments.device, "set": arguments.set}
    models = [arguments.only] if arguments.only else list(MODELS)
    cells = [Cell(*each) for each in product(models, arguments.workers, arguments.accumulate)]
    share = -(-arguments.kills * len(models) // len(cells))
    with tempfile.TemporaryDirectory() as name:
        corpus = write_corpus(Path(name) / "corpus", train=600)
        for cell in cells:
            size = divisible(corpus, cell)
            given = (f"train.updates={arguments.updates}", f"train.batch_tokens={size}", *cell.settings, *arguments.set)
            chosen = recipe(corpus, cell.model, *given)
            folder, draw = Path(name) / cell.name, random.Random(f"{arguments.seed} {cell.name}")
            result[cell.name] = soak(chosen, folder, kills=share, draw=draw, device=arguments.device)
            result[cell.name]["epoch"] = around_the_epoch(chosen, folder, size, arguments.device)
            sys.stderr.write(f"{cell.name}: {json.dumps(result[cell.name])}\n")
    found = [result[cell.name] for cell in cells]
    result["ok"] = not any(each["different"] or each["epoch"]["different"] for each in found)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
