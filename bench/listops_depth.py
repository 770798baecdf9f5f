"""How deep one has to read ListOps: what is right when operators below a depth are left out of their lists.

    python -m bench.listops_depth [--train 96000] [--keep runs/generated]

At depth 0 only the outermost operator is known, at depth 1 its digits as well but no list among its arguments, and so
on. The answer is the value that training data most often have with what is known (the operator, and the value of what
is left of the expression). No model is trained: it is what `docs/results/listops.md` measures models by.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence

from saccade.data.listops import CLOSE, OPERATORS, ListOpsData, applied, examples
from saccade.view.table import render

Known = tuple[str, int | None]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.listops_depth")
    parser.add_argument("--train", type=int, default=96_000)
    parser.add_argument("--keep", help="where the expressions are kept, as data.keep")
    options = parser.parse_args()
    data = ListOpsData(train=options.train, keep=options.keep)
    train, test = ([(each.text.split(), each.label) for each in examples(data, split)] for split in ("train", "test"))
    lines = []
    for depth in range(data.depth):
        seen: defaultdict[Known, Counter[str]] = defaultdict(Counter)
        for tokens, label in train:
            seen[known(tokens, depth)][label] += 1
        right = sum(_answer(seen, known(tokens, depth)) == label for tokens, label in test)
        lines.append({"depth": str(depth), "accuracy": f"{100 * right / len(test):.2f}"})
    print(render(lines, ["depth", "accuracy"]))


def _answer(seen: "defaultdict[Known, Counter[str]]", what: Known) -> str | None:
    return seen[what].most_common(1)[0][0] if what in seen else None


def known(tokens: Sequence[str], depth: int) -> Known:
    """The outermost operator, and what the expression comes to without the lists that stand deeper; None of nothing."""
    waiting: list[tuple[str, list[int]]] = [("", [])]
    for token in tokens:
        if token in OPERATORS:
            waiting.append((token, []))
        elif token == CLOSE:
            operator, values = waiting.pop()
            if values:
                waiting[-1][1].append(applied(operator, values))
        elif len(waiting) - 1 <= depth:
            waiting[-1][1].append(int(token))
    values = waiting[0][1]
    return tokens[0], values[0] if values else None


if __name__ == "__main__":
    main()
