"""Multi30k English → German in pieces of one joint BPE of 8,000, the same for every peer; runs where sentencepiece is.

python pieces.py FOLDER_OF_MULTI30K OUT
"""

import gzip
import importlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAD, UNK, START, END = range(4)


def main() -> None:
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    lines = {(split, side): _lines(data, split, side) for split in ("train", "val") for side in ("en", "de")}
    model = io.BytesIO()
    sentencepiece: Any = importlib.import_module("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines["train", "en"] + lines["train", "de"]),
        model_writer=model,
        model_type="bpe",
        vocab_size=8000,
        character_coverage=1.0,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=START,
        eos_id=END,
        minloglevel=2,
    )
    (out / "bpe.model").write_bytes(model.getvalue())
    bpe = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    counts: Counter[str] = Counter()
    tokens = {"lines": len(lines["train", "en"])}
    for (split, side), texts in lines.items():
        pieces = [bpe.encode(text, out_type=str) for text in texts]
        _write(out / f"{split}.{side}", (" ".join(each) for each in pieces))
        _write(out / f"raw.{split}.{side}", texts)  # for JoeyNMT, which cuts the text itself
        if split == "train":
            counts.update(piece for each in pieces for piece in each)
            tokens[side] = sum(map(len, pieces)) + len(pieces)  # ends included
    _write(out / "vocabulary.txt", (piece for piece, _ in counts.most_common()))
    _write(out / "vocabulary.tsv", (f"{piece}\t{count}" for piece, count in counts.most_common()))
    (out / "tokens.json").write_text(json.dumps(tokens), encoding="utf-8")
    print(f"train: {tokens}; {len(counts):,} different pieces")


def _lines(data: Path, split: str, side: str) -> list[str]:
    plain, packed = data / f"{split}.{side}", data / f"{split}.{side}.gz"
    raw = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    return [line.strip() for line in raw.decode("utf-8").split("\n") if line.strip()]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
