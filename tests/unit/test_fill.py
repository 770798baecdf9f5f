"""Blanks in lines: what fills them, how lines are put together again, and that one line in is one line out."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade import fill as engine
from saccade.config import parse
from saccade.data.masking import MASK
from saccade.errors import UsageError
from saccade.fill import BLANK, Filler
from saccade.models.build import build_masked
from saccade.models.masked import MaskedConfig, MaskedModel
from saccade.text import BpeText, CharText, TextConfig, Tokenizer, WordText, train_tokenizers
from saccade.types import END, Tokens

LINES = ["The cat sat on the mat.", "A dog sat on the rug, and the cat ran.", "the cats can unfold", "The end"] * 5
KINDS: dict[str, TextConfig] = {"word": WordText(size=60), "bpe": BpeText(size=300), "char": CharText(size=300)}
CPU = torch.device("cpu")


@cache
def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizers(KINDS[kind], LINES, [], 1).source


class Scripted:
    """In the place of a model: token i at place t has the score `wish[token]`, whatever stands around it.

    It notes what it was given to read.
    """

    def __init__(self, size: int, wishes: dict[int, float]) -> None:
        self.scores_V = torch.full((size,), -20.0)
        for token, wish in wishes.items():
            self.scores_V[token] = wish
        self.seen: list[list[int]] = []

    def read(self, source: Tokens) -> Tensor:
        pairs = zip(source.ids.tolist(), source.layout.lengths_B.tolist(), strict=True)
        self.seen += [row[:length] for row, length in pairs]
        return source.ids.flatten()[:, None].float()

    def scores(self, memory_ND: Tensor, places_K: Tensor) -> Tensor:
        assert (memory_ND[places_K] == MASK).all()
        return self.scores_V.expand(len(places_K), -1)


def filler(kind: str = "word", **wishes: float) -> tuple[Filler, Scripted]:
    """Wishes for tokens by their text; `_cat` is " cat"."""
    text = tokenizer(kind)
    ids = {text.decode([each]): each for each in range(4, text.size)}
    model: Any = Scripted(text.size, {ids[name.replace("_", " ")]: wish for name, wish in wishes.items()})
    return Filler(model, text, CPU), model


def test_the_best_stands_in_the_line_and_all_beside_it() -> None:
    machine, model = filler(_cat=2.0, _dog=1.0, The=5.0)
    (filled,) = machine.fill(["The [MASK] sat"], top=2)
    assert filled.text == "The cat sat"
    assert [each.text for each in filled.blanks[0]] == ["cat", "dog"]
    chances = model.scores_V.softmax(-1)
    assert [each.probability for each in filled.blanks[0]] == pytest.approx(
        [float(chances[each.token]) for each in filled.blanks[0]]
    )
    text = machine.tokenizer
    assert model.seen == [[*text.encode("The"), MASK, *text.encode(" sat"), END]]


def test_a_blank_without_a_space_before_it_takes_what_has_none() -> None:
    machine, _ = filler(_cat=2.0, the=1.0, The=0.5)
    assert [each.text for each in machine.fill(["[MASK] cat sat", "(the[MASK]"], top=1)] == ["the cat sat", "(thethe"]
    machine, model = filler("bpe", _cat=2.0, s=1.0)
    assert machine.fill(["two cat[MASK] sat"])[0].text == "two cats sat"
    assert model.seen[0][model.seen[0].index(MASK) :] == [MASK, *machine.tokenizer.encode(" sat"), END]


def test_characters_are_filled_one_by_one() -> None:
    """Where the space is a token of its own, a blank behind it is filled by a letter."""
    machine, model = filler("char", c=1.0)
    (filled,) = machine.fill(["The [MASK]at[MASK]"], top=1)
    assert filled.text == "The catc"
    assert model.seen[0] == [*machine.tokenizer.encode("The "), MASK, *machine.tokenizer.encode("at"), MASK, END]


def test_several_blanks_and_several_lines() -> None:
    machine, model = filler(_cat=2.0, _sat=1.0)
    lines = ["A [MASK]", "", "no blank", "The [MASK] and the [MASK] on the [MASK].", "[MASK]"]
    filled = machine.fill(lines, top=2, batch_tokens=8)
    assert [each.source for each in filled] == lines
    assert [each.text for each in filled[:4]] == ["A cat", "", "no blank", "The cat and the cat on the cat."]
    assert [len(each.blanks) for each in filled] == [1, 0, 0, 3, 1]
    assert all(len(blank) == 2 for each in filled for blank in each.blanks)
    assert len(model.seen) == 3
    together = machine.fill(lines, top=2)
    assert together == filled


def test_another_mark_for_blanks() -> None:
    machine, _ = filler(_cat=2.0)
    assert machine.fill(["The ___ [MASK]"], blank="___", top=1)[0].text == "The cat [MASK]"
    for blank in ("", " "):
        with pytest.raises(UsageError, match="visible"):
            machine.fill(["x"], blank=blank)
    with pytest.raises(UsageError, match="top is 0"):
        machine.fill(["x"], top=0)


def test_what_lies_beyond_the_end_stays() -> None:
    machine, model = filler(_cat=2.0)
    short = Filler(machine.model, machine.tokenizer, CPU, max_tokens=4)
    (filled,) = short.fill(["The [MASK] sat [MASK] sat [MASK] sat"], top=1)
    assert filled.text == "The cat sat cat sat [MASK] sat"
    assert [len(each) for each in filled.blanks] == [1, 1, 0]
    assert filled.cut
    assert not machine.fill(["The [MASK]"])[0].cut
    long = "The [MASK] " + "sat " * 40 + "[MASK]"
    (filled,) = short.fill([long], top=1)
    assert filled.text == long.replace("[MASK]", "cat", 1)
    assert filled.cut
    assert all(len(row) <= 5 for row in model.seen if len(row) != 3)


def test_more_than_there_is_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And however little is held at once, the answers are the same."""
    machine, _ = filler(_cat=2.0)
    line = "The [MASK] sat [MASK]"
    (whole,) = machine.fill([line], top=10_000)
    texts = {machine.tokenizer.decode([each]) for each in range(4, machine.tokenizer.size)}
    assert {f" {each.text}" for each in whole.blanks[0]} == {text for text in texts if text[0] == " "}
    monkeypatch.setattr(engine, "SCORES_AT_ONCE", 1)
    assert machine.fill([line], top=10_000) == [whole]


def model_of(size: int) -> MaskedModel:
    torch.manual_seed(0)
    tree = {"encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2}}
    return build_masked(parse(MaskedConfig, tree), size).eval()


def test_a_model_s_own_probabilities() -> None:
    """They are the softmax of the logits that it gives to the whole line, in a batch as alone."""
    text = tokenizer("word")
    model = model_of(text.size)
    lines = ["The [MASK] sat", "A dog sat on the [MASK], and"]
    for line, filled in zip(lines, Filler(model, text, CPU).fill(lines, top=3), strict=True):
        before, after = line.split(" [MASK]")
        ids = [*text.encode(before), MASK, *text.encode(after), END]
        chances = model(Tokens.of([ids]))[0, ids.index(MASK)].softmax(-1)
        for each in filled.blanks[0]:
            assert each.probability == pytest.approx(float(chances[each.token].detach()), rel=1e-4)
            assert text.decode([each.token]) == f" {each.text}"
        allowed = [float(chances[i].detach()) for i in range(4, text.size) if text.decode([i])[0] == " "]
        assert filled.blanks[0][0].probability == pytest.approx(max(allowed), rel=1e-4)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4), st.sampled_from(sorted(KINDS)))
def test_all_but_the_blanks_is_left_as_it_was(parts: list[str], kind: str) -> None:
    parts = [part.encode("utf-8", "ignore").decode() for part in parts]
    line = BLANK.join(parts)
    parts = line.split(BLANK)  # what was drawn may hold one itself
    text = tokenizer(kind)
    model: Any = Scripted(text.size, {5: 1.0})
    (filled,) = Filler(model, text, CPU).fill([line], top=1)
    assert len(filled.blanks) == len(parts) - 1
    words = [fillings[0].text for fillings in filled.blanks]
    assert filled.text == parts[0] + "".join(word + part for word, part in zip(words, parts[1:], strict=True))
    assert not any("\n" in word or "\r" in word for word in words)
