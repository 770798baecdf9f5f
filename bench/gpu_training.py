"""Training speed on one GPU, beside its peers in the same run and beside the floor.

    python -m bench.gpu_training --store RUN/data/train [--rows base,small,…] [--no-peers] [--profile base] [--out FILE]

Every row trains on the same real batches (a token store that `saccade train` has prepared) in bfloat16 and counts
non-padding target tokens a second; a row's contenders take turns, so that a ratio is of one run. Utilisation is what
the matrix products of the model alone would take at the rate measured for a large product, in the same run.
Prints a line of JSON a contender and a table last. Peers of the Transformer need Hugging Face's transformers.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch

from bench.gpu_contenders import LanguageModelShape, LstmShape, TransformerShape, Workshop
from bench.gpu_page import Conditions, page, table
from bench.gpu_timing import Contest, Measured, forget, race
from saccade.data.store import Store
from saccade.train.profile import matrix_rate

ROWS = ("base", "small", "tiny", "big", "lstm", "feeding", "lm")
BESIDE_TRANSFORMERS = {"base", "small", "tiny"}
NAIVE_SHARE = 4
"""A loop in Python is slow: it gets one in so many of a round's batches, and the fast path those, as often."""


@dataclass(frozen=True)
class Sizes:
    """What the rows train, and in batches of how many tokens."""

    large: int
    fed: int
    small: int
    base: TransformerShape
    big: TransformerShape
    tiny: TransformerShape
    lstm: LstmShape
    feeding: LstmShape
    lm: LanguageModelShape
    product: int
    """Rows of the large product."""


def usual(batch_tokens: int) -> Sizes:
    return Sizes(
        large=batch_tokens,
        fed=8192,
        small=4096,
        base=TransformerShape(6, 512, 8, 2048, dropout=0.1),
        big=TransformerShape(6, 1024, 16, 4096, dropout=0.3),
        tiny=TransformerShape(3, 256, 4, 1024, dropout=0.3),
        lstm=LstmShape(4, 1024, feed_input=False),
        feeding=LstmShape(2, 512, feed_input=True),
        lm=LanguageModelShape(layers=2, width=1024, rows=128, steps=64, dropout=0.2),
        product=8192,
    )


def smallest() -> Sizes:
    """To try the bench itself, where there is no GPU."""
    transformer, lstm = TransformerShape(1, 32, 4, 64, dropout=0.1), LstmShape(1, 32, feed_input=False)
    feeding, lm = LstmShape(2, 32, feed_input=True), LanguageModelShape(2, 32, rows=4, steps=8, dropout=0.2)
    return Sizes(512, 256, 256, transformer, transformer, transformer, lstm, feeding, lm, product=512)


def contests(workshop: Workshop, sizes: Sizes, row: str) -> Iterator[Contest]:
    match row:
        case "base":
            yield _transformers(workshop, row, sizes.base, sizes.large, eager=True, compiled=True)
        case "small":
            yield _transformers(workshop, row, sizes.base, sizes.small, eager=True, compiled=False)
        case "tiny":
            yield _transformers(workshop, row, sizes.tiny, sizes.small, eager=True, compiled=False)
        case "big":
            yield _transformers(workshop, row, sizes.big, sizes.large, eager=False, compiled=False)
        case "lstm":
            some = workshop.batches(sizes.large)
            yield Contest(row, sizes.large, [partial(workshop.saccade, sizes.lstm, sizes.large, some)])
        case "feeding":
            yield _feeding(workshop, row, sizes.feeding, sizes.large)
            yield _feeding(workshop, row, sizes.feeding, sizes.fed)
        case "lm":
            ours = partial(workshop.language_model, sizes.lm)
            bare = [partial(workshop.bare_language_model, sizes.lm, half=half) for half in (False, True)]
            yield Contest(row, sizes.lm.rows * sizes.lm.steps, [ours, *bare])


def _transformers(
    workshop: Workshop, row: str, shape: TransformerShape, budget: int, *, eager: bool, compiled: bool
) -> Contest:
    some = workshop.batches(budget)
    wanted = [is_compiled for is_compiled, want in ((False, eager), (True, compiled)) if want]
    peers = [partial(workshop.marian, shape, some, compiled=each) for each in wanted]
    launched = [partial(workshop.saccade, shape, budget, some, captured=False)] if peers else []
    return Contest(row, budget, [partial(workshop.saccade, shape, budget, some), *launched, *peers])


def _feeding(workshop: Workshop, row: str, shape: LstmShape, budget: int) -> Contest:
    some = workshop.batches(budget, max(1, workshop.updates // NAIVE_SHARE))
    ours = partial(workshop.saccade, shape, budget, some * NAIVE_SHARE)
    return Contest(row, budget, [ours, partial(workshop.naive_feeding, shape, some)])


def measured(workshop: Workshop, sizes: Sizes, rate: float, arguments: argparse.Namespace) -> Iterator[Measured]:
    for row in arguments.rows:
        for contest in contests(workshop, sizes, row):
            builders = contest.builders if arguments.peers else contest.builders[:1]
            began = time.perf_counter()
            yield from race(
                Contest(row, contest.batch_tokens, builders),
                workshop.device,
                rounds=arguments.rounds,
                rate=rate,
                profile=row in arguments.profile,
            )
            forget(workshop.device)
            took = time.perf_counter() - began
            print(f"{row} at {contest.batch_tokens:,}: took {took:.0f} s", file=sys.stderr, flush=True)


def _row_list(text: str) -> list[str]:
    named = text.split(",")
    unknown = [row for row in named if row not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return named


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="a prepared token store: RUN/data/train")
    parser.add_argument("--rows", type=_row_list, default=list(ROWS), help=",".join(ROWS))
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="or ours alone")
    parser.add_argument("--batch-tokens", type=int, default=65_536, help="of base, big, lstm and feeding")
    parser.add_argument("--updates", type=int, default=12, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=4, help="that count, after two that do not")
    parser.add_argument("--profile", type=_row_list, default=[], metavar="ROW", help="print the kernels of these, too")
    parser.add_argument("--out", type=Path, help="write the result as a page of Markdown")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peers and BESIDE_TRANSFORMERS & set(arguments.rows) and find_spec("transformers") is None:
        parser.error("transformers, the peer of base, small and tiny, is not installed: install it, or say --no-peers")
    return arguments


def _command(arguments: argparse.Namespace) -> str:
    """How to do it again, wherever the store lies there."""
    parts = ["python -m bench.gpu_training --store RUN/data/train", f"--rows {','.join(arguments.rows)}"]
    parts += [f"--batch-tokens {arguments.batch_tokens} --updates {arguments.updates} --rounds {arguments.rounds}"]
    return " ".join(parts if arguments.peers else [*parts, "--no-peers"])


def main() -> int:
    arguments = _options()
    device = torch.device(arguments.device)
    sizes = smallest() if arguments.tiny else usual(arguments.batch_tokens)
    store = Store.open(arguments.store)
    vocabulary = max(store.facts["vocabulary"].values())
    workshop = Workshop(store, vocabulary, device, arguments.updates)
    rate = matrix_rate(device, torch.bfloat16, sizes.product)
    found = []
    for each in measured(workshop, sizes, rate, arguments):
        print(json.dumps(asdict(each)), flush=True)
        found.append(each)
    conditions = Conditions.now(device, rate, arguments.rounds, arguments.updates, _command(arguments))
    print(f"\n{conditions.line()}\n{table(found)}")
    if arguments.out is not None:
        arguments.out.write_text(page(found, conditions), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
