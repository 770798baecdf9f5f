"""What a classifier looked at: every attention weight of one example, from the readable path.

Shapes: L layers, H heads, n sequences of the example, W their tokens, all in a row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.classify import Engine
from saccade.errors import UsageError
from saccade.nn.watch import Watch
from saccade.types import Trace

Weights = np.ndarray[Any, np.dtype[np.float32]]
OF_A_WHOLE = "text"
"""What a row of weights is called that belongs to no label."""
JOINT = "\u00a0"
"""A blank that pictures do not show as a token's."""


@torch.inference_mode()
def classification_trace(engine: Engine, line: str | tuple[str, ...]) -> Trace:
    """`pooling` is (1, 1, rows, tokens): the last row is what the label was made of.

    Before it, where the text was read as several sequences, stands one row each, with the weights within it.
    """
    texts = engine.read(line)
    (row,), _ = engine.reading.rows([texts], engine.text.encode_batch)
    (answer,) = engine.classify([texts])
    watch = Watch()
    engine.model(engine.reading.tokens([row]).to(engine.device), watch)
    pieces = [engine.text.pieces(ids) for ids in row]
    label = f"{answer.label} ({answer.probability:.0%})".replace(" ", JOINT)
    target, attention = (
        _of_texts(watch, pieces, label) if engine.reading.layout != "document" else _of_document(watch, pieces, label)
    )
    if not attention:
        raise UsageError(
            "this model looks at nothing that could be shown: its pooling is not attention, and its encoder has none. "
            "Train one with model.pooling: attention, or with a Transformer."
        )
    source = tuple(piece for each in pieces for piece in each)
    title = f"{' / '.join(texts)} → {answer.label} ({answer.probability:.0%})"
    return Trace(source, target, attention, title=title, cut=answer.cut)


def _of_texts(watch: Watch, pieces: Sequence[Sequence[str]], label: str) -> tuple[tuple[str, ...], dict[str, Weights]]:
    """One text, or two that were read apart, each with weights of its own."""
    target = (label,) if len(pieces) == 1 else tuple(f"{OF_A_WHOLE}{JOINT}{i}" for i in range(1, len(pieces) + 1))
    attention = {}
    if "pooling" in watch.attention:
        attention["pooling"] = _rows(watch.attention["pooling"][0], pieces)[None, None]
    if "encoder" in watch.attention:
        attention["encoder"] = np.stack([_squares(each, pieces) for each in watch.attention["encoder"]])
    return target, attention


def _of_document(
    watch: Watch, pieces: Sequence[Sequence[str]], label: str
) -> tuple[tuple[str, ...], dict[str, Weights]]:
    """α_it of each sentence, and α_i α_it: what of the whole lies on a word. A mean weighs all words alike."""
    words = watch.attention.get("words.pooling")
    sentences = watch.attention.get("sentences.pooling")
    target, rows = [], []
    if not pieces:
        return (label,), {}
    each_nW = _even(pieces) if words is None else _rows(words[0], pieces)
    shares_n = None if sentences is None else _array(sentences[0])[0, 0, 0, : len(pieces)]
    if words is not None:
        shown = [""] * len(pieces) if shares_n is None else [f"{JOINT}({share:.0%})" for share in shares_n]
        target += [f"sentence{JOINT}{i}{share}" for i, share in enumerate(shown, start=1)]
        rows += list(each_nW)
    if shares_n is not None:
        target.append(label)
        rows.append(shares_n @ each_nW)
    return tuple(target), {"pooling": np.stack(rows)[None, None]} if rows else {}


def _rows(weights_n11S: Tensor, pieces: Sequence[Sequence[str]]) -> Weights:
    """Each sequence's weights in a row of its own, (n, W): 0 on what is no part of it."""
    rows = np.zeros((len(pieces), sum(map(len, pieces))), dtype=np.float32)
    for i, (begin, own) in enumerate(_placed(pieces)):
        rows[i, begin : begin + own] = _array(weights_n11S)[i, 0, 0, :own]
    return rows


def _even(pieces: Sequence[Sequence[str]]) -> Weights:
    rows = np.zeros((len(pieces), sum(map(len, pieces))), dtype=np.float32)
    for i, (begin, own) in enumerate(_placed(pieces)):
        rows[i, begin : begin + own] = 1 / max(1, own)
    return rows


def _squares(weights_nHSS: Tensor, pieces: Sequence[Sequence[str]]) -> Weights:
    """Self-attention within each sequence, along the diagonal of one matrix: (H, W, W)."""
    whole = sum(map(len, pieces))
    squares = np.zeros((weights_nHSS.shape[1], whole, whole), dtype=np.float32)
    for i, (begin, own) in enumerate(_placed(pieces)):
        squares[:, begin : begin + own, begin : begin + own] = _array(weights_nHSS)[i, :, :own, :own]
    return squares


def _placed(pieces: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Where each sequence begins, and how long it is."""
    lengths = [len(each) for each in pieces]
    return [(sum(lengths[:i]), length) for i, length in enumerate(lengths)]


def _array(weights: Tensor) -> Weights:
    return weights.float().cpu().numpy()
