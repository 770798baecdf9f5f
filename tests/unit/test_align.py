"""Alignments of given and of found outputs: words, layers, heads, steps, two models, odd lines, refusals."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from saccade.align import AlignConfig, Aligner, Alignment
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.inspect.attention import attention_trace
from saccade.inspect.links import Method, argmax
from saccade.metrics.links import swapped
from saccade.models.build import build_translator
from saccade.models.translator import TranslatorConfig
from saccade.text import BpeText, ByteText, CharText, TextConfig, UnigramText, WordText, train_tokenizers
from saccade.translate import Engine

LINES = ["the cat sat on the mat", "la la land", "a cat and a mat", "Ångström naïve", "so  it   goes ."]
TRANSFORMER: dict[str, Any] = {"kind": "transformer", "layers": 3, "width": 8, "heads": 2}
GRU: dict[str, Any] = {"kind": "gru", "width": 8}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"encoder": TRANSFORMER | {"layers": 1}, "decoder": TRANSFORMER},
    "gru": {"encoder": GRU, "decoder": GRU | {"attention": {"score": "general"}}},
    "no attention": {"encoder": GRU, "decoder": GRU},
    "last": {"encoder": GRU, "decoder": GRU | {"attention": {"score": "last"}}},
    "tree": {"encoder": TRANSFORMER | {"layers": 1, "positions": "tree"}, "decoder": TRANSFORMER},
}
TEXTS: dict[str, TextConfig] = {
    "bpe": BpeText(size=300),
    "char": CharText(size=280),
    "byte": ByteText(),
    "unigram": UnigramText(size=290),
    "word": WordText(size=12),
    "spaces": WordText(cut="spaces", size=12),
}


@cache
def engine(model: str = "transformer", text: str = "bpe", seed: int = 0) -> Engine:
    """Random weights, so large that attention is far from even."""
    pair = train_tokenizers(TEXTS[text], LINES, [], seed=1)
    torch.manual_seed(seed)
    made = build_translator(TranslatorConfig.model_validate(MODELS[model]), pair.source.size, pair.target.size)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter))
    return Engine(made.eval(), pair, torch.device("cpu"))


def aligner(model: str = "transformer", text: str = "bpe", **given_: Any) -> Aligner:
    return Aligner(engine(model, text), AlignConfig.model_validate(given_))


# ---- what the weights are


@pytest.mark.parametrize(
    ("settings_", "layer", "head", "later"),
    [
        ({}, 1, None, 0),  # the last but one of three
        ({"layer": 1}, 0, None, 0),
        ({"layer": 3, "head": 2}, 2, 1, 0),
        ({"step": "input"}, 1, None, 1),
        ({"step": "input", "layer": 1, "head": 1}, 0, 0, 1),
    ],
)
def test_weights_are_those_of_the_trace_merged_by_hand(
    settings_: dict[str, Any], layer: int, head: int | None, later: int
) -> None:
    sources, targets = ["the cat  sat", "Ångström"], ["la mat naïve cat", "on and on"]
    for text in ("bpe", "char", "word"):
        own = engine("transformer", text)
        found = aligner("transformer", text, **settings_).align(sources, targets, weights=True)
        for each, source, target in zip(found, sources, targets, strict=True):
            assert each.source == tuple(source.split())
            assert each.target == tuple(target.split())
            cross = _trace(own, source, target)[layer]
            weights_ts = (cross.mean(0) if head is None else cross[head])[later:, :-1]
            by_hand = np.zeros((len(each.target), len(each.source)))
            columns = own.text.source.word_places(source, own.text.source.encode(source))
            rows = own.text.target.word_places(target, own.text.target.encode(target))
            for t, row in enumerate(rows):
                for s, column in enumerate(columns):
                    by_hand[row, column] += weights_ts[t, s] / rows.count(row)
            assert each.weights is not None
            np.testing.assert_allclose(each.weights, by_hand, atol=1e-5)
            assert each.links == argmax(each.weights)


def _trace(own: Engine, source: str, target: str) -> np.ndarray:
    ids, out = own.text.source.encode(source), own.text.target.encode(target)
    pieces = own.text.source.pieces
    trace = attention_trace(
        own.model, ids, out, source_pieces=[*pieces(ids), ""], target_pieces=[*own.text.target.pieces(out), ""]
    )
    return trace.attention["cross"]


def test_the_only_layer_is_taken_where_there_is_one() -> None:
    one = aligner("gru").align([LINES[0]], [LINES[2]])
    assert one == aligner("gru", layer=1, head=1).align([LINES[0]], [LINES[2]])
    assert one[0].weights is None


def test_tokens_can_be_linked_as_they_are() -> None:
    own, (each,) = engine(), aligner(unit="token").align(["the cat"], ["a mat"], weights=True)
    assert each.source == tuple(own.text.source.pieces(own.text.source.encode("the cat")))
    assert each.target == tuple(own.text.target.pieces(own.text.target.encode("a mat")))
    assert each.weights is not None
    np.testing.assert_allclose(each.weights, _trace(own, "the cat", "a mat")[1].mean(0)[:-1, :-1], atol=1e-5)


def test_a_parse_may_stand_beside_the_source() -> None:
    (each,) = aligner("tree").align(["the cat sat\t2 3 0"], ["a mat"])
    assert each.source == ("the", "cat", "sat")
    assert each.links
    with pytest.raises(UsageError, match=r"line 7 .* no tab"):
        aligner("tree").align(["the cat sat"], ["a mat"], first=7)


@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_batches_change_nothing(model: str) -> None:
    sources = [line for line in (*LINES, "", "cat") for _ in range(3)]
    targets = [line for _ in range(3) for line in (*LINES, "mat", "")]
    one = aligner(model, method="intersection").align(sources, targets, 1, weights=True)
    other = aligner(model, method="intersection").align(sources, targets, weights=True)
    assert [each.links for each in one] == [each.links for each in other]
    for mine, yours in zip(one, other, strict=True):
        if mine.weights is not None and yours.weights is not None:
            np.testing.assert_allclose(mine.weights, yours.weights, atol=1e-5)


# ---- of what was found


@pytest.mark.parametrize("text", list(TEXTS))
@pytest.mark.parametrize("beam", [1, 4])
def test_every_hypothesis_of_a_beam_is_aligned_by_its_own_tokens(text: str, beam: int) -> None:
    own, lines = engine("transformer", text), [*LINES, ""]
    decode = DecodeConfig(beam=beam, n_best=beam, max_length=9)
    found = own.translate(lines, decode)
    with_links = aligner("transformer", text).attach(lines, found)
    plain = [
        replace(each, hypotheses=tuple(replace(h, alignment=None) for h in each.hypotheses)) for each in with_links
    ]
    assert plain == found
    for line, each in zip(lines, with_links, strict=True):
        assert each.alignment == each.hypotheses[0].alignment
        for hypothesis in each.hypotheses:
            assert hypothesis.alignment is not None
            assert {j for _, j in hypothesis.alignment} <= set(range(len(hypothesis.text.split())))
            assert {i for i, _ in hypothesis.alignment} <= set(range(len(line.split())))
            if own.text.target.encode(hypothesis.text) == list(hypothesis.tokens):
                (given_,) = aligner("transformer", text).align([line], [hypothesis.text])
                assert given_.links == hypothesis.alignment


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(TEXTS)), st.lists(st.integers(0, 10**6), max_size=12))
@example("bpe", [198, 289])  # a lone lead byte, then a token that begins with a space
def test_written_tokens_stand_in_the_words_of_their_text(text: str, drawn: list[int]) -> None:
    tokenizer = engine("transformer", text).text.target
    ids = [each % tokenizer.size for each in drawn]
    places, words = tokenizer.written_places(ids), tokenizer.decode(ids).split()
    assert len(places) == len(ids)
    assert places == sorted(places)
    assert all(0 <= place < max(1, len(words)) for place in places)
    spelt = [tokenizer.spelling(each).strip(b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f") for each in ids]  # as `split` has it
    for number, word in enumerate(words):  # what is seen of a word was written by its own tokens
        mine = b"".join(each for each, place in zip(spelt, places, strict=True) if place == number)
        assert word.encode() == mine or "\ufffd" in word or text in ("word", "spaces")


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["bpe", "char", "byte", "unigram"]), st.text(alphabet="the cat å\u3000\t é", max_size=20))
def test_written_and_read_tokens_stand_in_the_same_words(text: str, line: str) -> None:
    tokenizer = engine("transformer", text).text.target
    ids = tokenizer.encode(line)
    assert tokenizer.written_places(ids) == tokenizer.word_places(line, ids)


# ---- two models


@pytest.mark.parametrize("method", ["intersection", "union", "grow-diag"])
def test_two_models_are_joined(method: Method) -> None:
    sources, targets = [*LINES, "", "cat"], [*reversed(LINES), "mat", ""]
    back = engine("gru", "char", 3)
    one = aligner().align(sources, targets)
    two = Aligner(back, AlignConfig()).align(targets, sources)
    both = Aligner(engine(), AlignConfig(method=method), reverse=back).align(sources, targets)
    for forwards, backwards, joined in zip(one, two, both, strict=True):
        other = swapped(backwards.links)
        union = forwards.links | other
        assert forwards.links & other <= joined.links <= union
        if method != "grow-diag":
            assert joined.links == (union if method == "union" else forwards.links & other)
    found = engine().translate(sources, DecodeConfig(max_length=9))
    attached = Aligner(engine(), AlignConfig(method=method), reverse=back).attach(sources, found)
    assert all(each.alignment is not None for each in attached)


def test_a_reverse_model_refuses_what_it_has_no_use_for() -> None:
    for wrong, told in (
        (AlignConfig(), "method is argmax, which reads one"),
        (AlignConfig(method="threshold"), "method is threshold, which reads one"),
        (AlignConfig(method="union", unit="token"), "unit is token: two models need not cut text"),
    ):
        with pytest.raises(UsageError, match=told):
            Aligner(engine(), wrong, reverse=engine("gru"))
    with pytest.raises(UsageError, match="the reverse model reads dependency trees"):
        Aligner(engine(), AlignConfig(method="union"), reverse=engine("tree"))
    with pytest.raises(UsageError, match="the reverse model: its decoder has no attention"):
        Aligner(engine(), AlignConfig(method="union"), reverse=engine("no attention"))


# ---- odd lines

ODD = st.text(max_size=25) | st.text(alphabet=" \t\u2028\x1c\x85\u200dab¨ﬁ", max_size=12)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(ODD, ODD), min_size=1, max_size=4),
    st.sampled_from(list(TEXTS)),
    st.sampled_from(["word", "token"]),
)
def test_any_lines_are_aligned(pairs: list[tuple[str, str]], text: str, unit: str) -> None:
    sources, targets = ([pair[side].encode("utf-8", "replace").decode() for pair in pairs] for side in (0, 1))
    found = aligner("gru", text, unit=unit, method="union").align(sources, targets)
    assert len(found) == len(pairs)
    for each, source, target in zip(found, sources, targets, strict=True):
        _check_within(each)
        if unit == "word":
            assert each.source == tuple(source.split())[: len(each.source)]
            assert each.target == tuple(target.split())[: len(each.target)]
            assert "\n" not in str(each)


def _check_within(each: Alignment) -> None:
    assert all(0 <= i < len(each.source) and 0 <= j < len(each.target) for i, j in each.links)


def test_of_long_lines_the_beginning_is_aligned() -> None:
    short = Aligner(replace(engine("gru", "char"), max_source=20), AlignConfig())
    long, (cut_source, cut_target, both, neither) = (
        "ab " * 40_000,
        short.align(["ab " * 40_000, "ab", "ab " * 40_000, "ab ab"], ["cat", "ab " * 40_000, "ab " * 40_000, "cat"]),
    )
    assert len(long.split()) == 40_000
    assert (cut_source.cut, cut_target.cut, both.cut, neither.cut) == (True, True, True, False)
    assert (len(both.source), len(both.target)) == (7, 7)
    assert (len(cut_source.source), len(cut_target.target)) == (7, 7)
    for each in (cut_source, cut_target, both):
        _check_within(each)


# ---- refusals


@pytest.mark.parametrize("model", ["no attention", "last"])
def test_models_without_weights_are_refused(model: str) -> None:
    with pytest.raises(
        UsageError, match=r"runs/x: its decoder has no attention to the source, .* model.decoder.attention"
    ):
        Aligner(engine(model), AlignConfig(), name="runs/x")


def test_layers_and_heads_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="layer is 4; of layers there are 3 in the model"):
        aligner(layer=4)
    with pytest.raises(UsageError, match="head is 3; of heads there are 2"):
        aligner(head=3)
    with pytest.raises(UsageError, match="layer is 2; of layers there is 1"):
        aligner("gru", layer=2)


def test_settings_that_do_not_fit_are_refused() -> None:
    for wrong in ({"layer": 0}, {"head": 0}, {"threshold": 0.0, "method": "threshold"}, {"method": "best"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            AlignConfig.model_validate(wrong)
    with pytest.raises(ValueError, match="threshold belongs to the method threshold, but method is union"):
        AlignConfig(method="union", threshold=0.5)


def test_sides_must_pair_up() -> None:
    with pytest.raises(UsageError, match="there are 2 sources and 1 targets"):
        aligner().align(["a", "b"], ["a"])


def test_the_threshold_is_the_least_weight() -> None:
    weights = aligner().align([LINES[0]], [LINES[2]], weights=True)[0].weights
    assert weights is not None
    for given_, least in ((None, 0.2), (0.35, 0.35)):
        (found,) = aligner(method="threshold", threshold=given_).align([LINES[0]], [LINES[2]])
        assert found.links == {(int(i), int(j)) for j, i in np.argwhere(weights >= least)}
