"""How fast text becomes stored tokens: MB of UTF-8 (both sides) per second of one core, on real and on hostile text.

Run `python -m bench.prepare DATA`, where DATA holds multi30k/train.{en,de}.gz and europarl-en-de/train.500k.tsv.xz.
The tokenizer is learnt first, on at most 20,000 lines a side; reading, encoding, writing and checksums are timed.
"""

import argparse
import os

os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import random
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer as Library

from saccade.data.files import Counts, Pair, Parallel, pairs
from saccade.data.store import write_store
from saccade.text import BpeText, ByteText, CharText, TextConfig, TextPair, UnigramText, WordText, train_tokenizers

KINDS: tuple[TextConfig, ...] = (BpeText(size=8000), UnigramText(), WordText(), CharText(), ByteText())
HOSTILE_KINDS: tuple[TextConfig, ...] = (BpeText(size=8000), UnigramText())
SAMPLE = 20_000
HOSTILE = ("a", "spaces", "^", "emoji families", "combining marks", "random letters", "a  b \\t")
SIZES = (100_000, 1_000_000, 10_000_000)


def corpora(data: Path, lines: int) -> dict[str, Iterator[Pair]]:
    multi30k = Parallel(source=("train.en.gz",), target=("train.de.gz",))
    europarl = Parallel(tsv=("train.500k.tsv.xz",))
    return {
        "Multi30k": pairs(multi30k, base=data / "multi30k", counts=Counts()),
        f"Europarl, {lines:,} lines": islice(pairs(europarl, base=data / "europarl-en-de", counts=Counts()), lines),
    }


def seconds_to_store(rows: list[tuple[str, str]], text: TextPair) -> float:
    """Seconds of processor time for encoding and writing."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        write_store(
            Path(folder, "store"), rows, text.source, text.target, max_length=10**9, on_long="cut", counts=Counts()
        )
        return time.process_time() - begun


def megabytes(rows: list[tuple[str, str]]) -> float:
    return sum(len(side.encode()) for row in rows for side in row) / 1e6


def hostile(name: str, size: int) -> str:
    """A line of `size` bytes."""
    match name:
        case "random letters":
            return "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=size))
        case "emoji families":
            unit = "👩\u200d👩\u200d👧\u200d"
        case "combining marks":
            unit = "e" + "\u0301\u0302\u0323" * 3
        case "spaces":
            unit = " "
        case "a  b \\t":
            unit = "a  b \t"
        case _:
            unit = name
    return unit * (size // len(unit.encode()))


def real(data: Path, lines: int) -> list[tuple[str, str]]:
    """Prints a table of the corpora; the pairs of the last."""
    for name, read in corpora(data, lines).items():
        begun = time.process_time()
        rows = [(pair.source, pair.target) for pair in read]
        reading = time.process_time() - begun
        size = megabytes(rows)
        print(f"{name}: {len(rows):,} pairs, {size:.1f} MB; read at {size / reading:.1f} MB/s")
        for config in KINDS:
            begun = time.process_time()
            text = learnt(config, rows)
            learning = time.process_time() - begun
            alone = seconds_of_library(rows, text)
            took = seconds_to_store(rows, text)
            print(
                f"  {config.kind:8} {size / (reading + took):5.1f} MB/s; {size / (reading + alone):5.1f} MB/s by the "
                f"library, each line as a whole, not stored; learnt in {learning:.1f} s",
                flush=True,
            )
    return rows


def learnt(config: TextConfig, rows: list[tuple[str, str]]) -> TextPair:
    return train_tokenizers(config, [s for s, _ in rows[:SAMPLE]], [t for _, t in rows[:SAMPLE]], seed=0)


def seconds_of_library(rows: list[tuple[str, str]], text: TextPair) -> float:
    """Processor time of the library for whole lines, as far as lists of ids."""
    tokenizer = Library.from_str(text.source.to_json())
    begun = time.process_time()
    for side in (0, 1):
        for some in range(0, len(rows), 10_000):
            lines = [row[side] for row in rows[some : some + 10_000]]
            _ = [encoding.ids for encoding in tokenizer.encode_batch_fast(lines, add_special_tokens=False)]
    return time.process_time() - begun


def endless(rows: list[tuple[str, str]]) -> None:
    """Prints what lines without end cost, to encode and to learn from."""
    print("One line without end, MB/s at 0.1, 1 and 10 MB, and the first to the last:")
    for config in HOSTILE_KINDS:
        text = learnt(config, rows)
        for name in HOSTILE:
            lines = [hostile(name, size) for size in SIZES]
            speeds = [len(line.encode()) / 1e6 / seconds_to_store([(line, "x")], text) for line in (lines[0], *lines)][
                1:
            ]
            told = " ".join(f"{speed:6.2f}" for speed in speeds)
            print(f"  {config.kind:8} {name:16} {told}   {speeds[0] / speeds[-1]:.2f}", flush=True)
    print("BPE learnt from a line of 10 MB beside the 20,000 others:")
    for name in HOSTILE:
        begun = time.process_time()
        train_tokenizers(BpeText(size=8000), [*[s for s, _ in rows[:SAMPLE]], hostile(name, SIZES[-1])], [], seed=0)
        print(f"  {name:16} {time.process_time() - begun:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--lines", type=int, default=100_000, help="of Europarl")
    arguments = parser.parse_args()
    endless(real(arguments.data, arguments.lines))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
