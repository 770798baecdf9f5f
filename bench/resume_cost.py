"""How long a resumed run takes to its first batch, near the beginning and near the end of a large epoch.

    OMP_NUM_THREADS=1 python -m bench.resume_cost --rows 1000000

The position of a run is (epoch, batch), and an epoch's plan is a function of (seed, epoch): nothing that was read
before is read again. Prints one line of JSON: the seconds from nothing to the first batch at 1 % and at 99 % of an
epoch.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from saccade.data.batching import Cursor, Plan, batches
from saccade.data.columns import Columns, Ragged
from saccade.data.store import Store
from saccade.types import END


def generated(rows: int, seed: int) -> Store:
    """Pairs of random tokens, 2 to 60 a side, in memory: what is timed is the way to a position, not the disk."""
    random = np.random.default_rng(seed)

    def side() -> Ragged:
        lengths = random.integers(2, 61, rows)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        values = random.integers(4, 32_000, int(offsets[-1]), dtype=np.uint16)
        values[offsets[1:] - 1] = END
        return Ragged(values, offsets)

    columns = Columns(Path("generated"), {"max_length": 60})
    columns.__dict__["columns"] = {"source": side(), "target": side()}  # in place of files
    return Store(columns)


def seconds_to_first_batch(store: Store, batch_tokens: int, cursor: Cursor) -> float:
    began = time.perf_counter()
    stream = batches(store, Plan(store.lengths, batch_tokens, seed=1), cursor=cursor)
    next(stream)
    taken = time.perf_counter() - began
    stream.close()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="pairs of an epoch (default: 1,000,000)")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="of a batch (default: 4096)")
    parser.add_argument("--repeats", type=int, default=5, help="times each position is measured (default: 5)")
    arguments = parser.parse_args()
    store = generated(arguments.rows, seed=0)
    whole = len(Plan(store.lengths, arguments.batch_tokens, seed=1).epoch(3))
    positions = {f"{share:.0%}": Cursor(3, int(share * whole)) for share in (0.01, 0.99)}
    taken: dict[str, list[float]] = {name: [] for name in positions}
    for _ in range(arguments.repeats):  # in turn, so that a busy machine slows both
        for name, cursor in positions.items():
            taken[name].append(seconds_to_first_batch(store, arguments.batch_tokens, cursor))
    result = {
        "bench": "resume_cost",
        "torch": torch.__version__,
        "rows": arguments.rows,
        "batches": whole,
        "seconds_to_first_batch": {name: round(median(times), 4) for name, times in taken.items()},
        "spread": {name: [round(min(times), 4), round(max(times), 4)] for name, times in taken.items()},
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
