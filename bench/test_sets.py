"""A test set beside the recipe's own: a file of sources and one of references, packed or not, line by line.

`FILE:2` is the second column of a tab-separated file, so that one file may hold both sides.
"""

import re
from contextlib import closing
from pathlib import Path

from saccade.data.files import locate, mended, raw_lines


def read_sides(files: tuple[str, ...]) -> tuple[list[str], list[str]]:
    sources, references = (_side(name) for name in files)
    if len(sources) != len(references):
        raise SystemExit(f"{files[0]} has {len(sources):,} lines and {files[1]} has {len(references):,}.")
    return sources, references


def _side(name: str) -> list[str]:
    column = re.search(r":([1-9]\d*)$", name)
    with closing(raw_lines(locate(name[: column.start()] if column else name, Path()))) as raw:
        texts = [mended(line, number == 0)[0].decode("utf-8") for number, line in enumerate(raw)]
    return [text.split("\t")[int(column[1]) - 1] for text in texts] if column else texts
