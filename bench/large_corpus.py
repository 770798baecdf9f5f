"""Millions of pairs through the real path, from files to batches, within bounded memory.

Run `python -m bench.large_corpus --pairs 5000000`. Two files are made up in a temporary folder, read, tokenised,
written to a token store and batched, all as `saccade train` does; speed and the highest memory use are printed.
"""

import argparse
import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from saccade.config import parse, plain
from saccade.data.batching import Plan, batches, padding_share
from saccade.data.files import Counts, FilesData, Parallel, pairs
from saccade.data.store import Store
from saccade.tasks.translate import TranslateRecipe, TranslateTask

BLOCK = 20_000  # pairs made up at a time
LEXICON = 20_000
VALID = 1000  # pairs to validate on


def make_up(folder: Path, count: int) -> Parallel:
    """Two files of `count` lines: words drawn by Zipf's law, each with a fixed translation; the same every time."""
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxzäöüß"))
    source_words, target_words = (
        np.array(["".join(random.choice(letters, random.integers(2, 11))) for _ in range(LEXICON)], dtype=object)
        for _ in range(2)
    )
    share = 1.0 / np.arange(1, LEXICON + 1)
    up_to = np.cumsum(share / share.sum())
    with (folder / "train.en").open("wb") as source, (folder / "train.de").open("wb") as target:
        for begin in range(0, count, BLOCK):
            lengths = random.integers(3, 30, min(BLOCK, count - begin))
            words = np.minimum(np.searchsorted(up_to, random.random(lengths.sum())), LEXICON - 1)
            sentences = np.split(words, np.cumsum(lengths)[:-1])
            source.write("".join(" ".join(source_words[each]) + "\n" for each in sentences).encode())
            target.write("".join(" ".join(target_words[each][::-1]) + "\n" for each in sentences).encode())
    for name in ("en", "de"):
        with (folder / f"train.{name}").open("rb") as all_lines, (folder / f"valid.{name}").open("wb") as some:
            some.writelines(itertools.islice(all_lines, VALID))
    return Parallel(source=("train.en",), target=("train.de",))


def read_batches(store: Store, plan: Plan, count: int) -> int:
    """Make the first `count` batches as training does; how many tokens they hold."""
    made = (batch for _, batch in itertools.islice(batches(store, plan), count))
    return sum(int(batch.source.count) + int(batch.target.count) for batch in made)


def peak_mib() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def mapped_mib() -> float:
    """How much of the memory in use is pages of mapped files, which the system takes back when it needs them."""
    status = Path("/proc/self/status")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines()) if status.exists() else {}
    return int(fields.get("RssFile", "0 kB").split()[0]) / 1024


class Clock:
    """Prints what each stage took."""

    def __init__(self) -> None:
        self.begun = self.last = time.perf_counter()

    def lap(self, what: str, *, megabytes: float = 0.0, rows: int = 0) -> None:
        now = time.perf_counter()
        took, self.last = now - self.last, now
        speed = f"{rows / took:12,.0f} lines/s" if rows else " " * 20
        speed += f" {megabytes / took:8.1f} MB/s" if megabytes else " " * 14
        print(f"{what:32} {took:8.2f} s {speed}   peak {peak_mib():7.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    arguments = parser.parse_args()
    print(f"{arguments.pairs:,} pairs; peak after the imports {peak_mib():.0f} MiB", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), Clock()
        split = make_up(folder, arguments.pairs)
        megabytes = sum((folder / each).stat().st_size for each in ("train.en", "train.de")) / 1e6
        clock.lap("files made up", megabytes=megabytes, rows=arguments.pairs)

        for _ in pairs(split, base=folder, counts=Counts()):
            pass
        clock.lap("files read", megabytes=megabytes, rows=arguments.pairs)

        data = FilesData(train=split, valid=Parallel(source=("valid.en",), target=("valid.de",)))
        sides = {side: {"kind": "gru", "width": 32} for side in ("encoder", "decoder")}
        tree = {"data": plain(data), "text": {"kind": "bpe", "size": 8000}, "model": sides}
        task = TranslateTask(parse(TranslateRecipe, tree), folder)
        task.learn(folder)
        clock.lap("tokenizer learnt on a sample", megabytes=2 * megabytes, rows=2 * arguments.pairs)

        task.write(folder)
        store = task.open(folder).stores["train"]
        counts = store.counts
        clock.lap("read, tokenised, stored", megabytes=megabytes, rows=arguments.pairs)

        plan = Plan(store.lengths, arguments.batch_tokens, seed=0)
        count = len(plan.epoch(0))
        clock.lap("epoch planned", rows=len(store))
        padding = padding_share(store.lengths, plan, 0)
        store.release()
        tokens = read_batches(store, plan, 1000)
        clock.lap("1,000 batches made")

        print(" ".join(counts.sentences()))
        print(f"{count:,} batches an epoch; {tokens:,} tokens in 1,000 of them; {padding:.1%} padding")
        print(
            f"all in all {time.perf_counter() - clock.begun:.1f} s, peak {peak_mib():.0f} MiB, "
            f"of which {mapped_mib():.0f} MiB are pages of mapped files"
        )


if __name__ == "__main__":
    main()
