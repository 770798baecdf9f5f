"""Lexical constraints on models: what is asked is in the text, for every tokenizer; with whatever else is asked."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from saccade import config
from saccade.decode.phrases import holds
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.lines import Request
from saccade.models.build import build_translator
from saccade.models.translator import TranslatorConfig
from saccade.text import TextPair
from saccade.translate import Engine
from tests.unit.test_phrases import KINDS, tokenizer_of

WORDS = ["cat", "the other", "mats", "oft nach", "übermäßig", "Köln", "1234", "y bailan"]
KNOWN = {"word": ["cat", "the other", "1234"], "spaces": ["cat", "the other", "1234"]}
LINES = ["the cat sat", "oft", "the price is 1234 and", "la niña"]


@cache
def engine(kind: str, seed: int = 0, spread: float = 3.0) -> Engine:
    """A model that was never trained: it writes anything, bytes that make no characters too."""
    torch.manual_seed(seed)
    tokenizer = tokenizer_of(kind)
    tree = {
        "encoder": {"kind": "gru", "width": 8},
        "decoder": {"kind": "gru", "width": 8, "attention": {"score": "dot"}},
    }
    model = build_translator(TypeAdapter(TranslatorConfig).validate_python(tree), tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(spread)
    return Engine(model, TextPair(tokenizer, tokenizer, shared=True), torch.device("cpu"))


def check(text: str, request: Request) -> None:
    for phrase in request.must:
        assert holds(text, phrase) >= request.must.count(phrase), (text, request)
    for phrase in request.must_not:
        assert not holds(text, phrase), (text, request)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_text_is_as_asked(kind: str, data: st.DataObject) -> None:
    phrases = KNOWN.get(kind, WORDS)
    beam = data.draw(st.sampled_from([1, 2, 4]))
    stop = data.draw(st.sampled_from(["count", "length", "proven"]))
    chosen = DecodeConfig(beam=beam, n_best=beam, max_length=12, ratio=1.0, extra=0, stop=stop)
    asked = []
    for line in LINES[: data.draw(st.integers(1, 3))]:
        must = data.draw(st.lists(st.sampled_from(phrases), max_size=2))
        free = [each for each in [*phrases, "a", "-", "ä", "é"] if not any(holds(one, each) for one in must)]
        must_not = data.draw(st.lists(st.sampled_from(free), max_size=2))
        asked.append(Request(line, must=must, must_not=must_not))
    for request, translation in zip(asked, engine(kind).translate(asked, chosen), strict=True):
        assert len(translation.hypotheses) <= beam
        for each in translation.hypotheses:
            lacking = {phrase for phrase in request.must if holds(each.text, phrase) < request.must.count(phrase)}
            assert set(each.unmet) == lacking
            assert not lacking or request.must_not  # what must not be around a phrase may keep it out, and is told
            assert not any(holds(each.text, phrase) for phrase in request.must_not)


@pytest.mark.parametrize("kind", ["bpe", "byte", "spaces"])
def test_what_a_line_gets_does_not_hang_on_the_lines_beside_it(kind: str) -> None:
    phrases = KNOWN.get(kind, WORDS)
    asked = [
        Request(LINES[0], must=phrases[:1]),
        Request(LINES[1]),
        Request(LINES[2], must=phrases[1:3], must_not=["a"]),
        Request(LINES[3], must_not=["the", "a"]),
        Request(LINES[0], prefix="the", must=phrases[:1]),
    ]
    chosen = DecodeConfig(beam=3, n_best=3, max_length=15)
    together = engine(kind).translate(asked, chosen)
    for request, translation in zip(asked, together, strict=True):
        [alone] = engine(kind).translate([request], chosen, batch_tokens=1)
        assert [each.tokens for each in alone.hypotheses] == [each.tokens for each in translation.hypotheses]
        assert [each.score for each in alone.hypotheses] == pytest.approx(
            [each.score for each in translation.hypotheses], abs=1e-4
        )
    [plain] = engine(kind).translate([LINES[1]], chosen)
    assert [each.tokens for each in plain.hypotheses] == [each.tokens for each in together[1].hypotheses]


def test_many_lines_are_searched_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [Request(f"the cat {number}", must=["mats"], must_not=[str(number)]) for number in range(5)]
    chosen = DecodeConfig(beam=2, max_length=6)
    expected = [each.text for each in engine("bpe").translate(asked, chosen)]
    monkeypatch.setattr("saccade.translate.CONSTRAINED_AT_ONCE", 2)
    assert [each.text for each in engine("bpe").translate(asked, chosen)] == expected
    with pytest.raises(UsageError, match=r"line 14: must: ' ' has no word"):
        engine("bpe").translate([*asked[:4], Request("a", must=[" "])], chosen, first=10)


def test_greedy_keeps_from_what_must_not_be_and_searches_wider_for_what_must() -> None:
    chosen = DecodeConfig(beam=1, max_length=10)
    [free] = engine("bpe").translate(["the cat sat"], chosen)
    words = free.text.split()
    [without] = engine("bpe").translate([Request("the cat sat", must_not=[words[0]])], chosen)
    assert holds(free.text, words[0])
    assert not holds(without.text, words[0])
    [held] = engine("bpe").translate([Request("the cat sat", must=["oft nach"])], chosen)
    assert len(held.hypotheses) == 1
    assert holds(held.text, "oft nach")


# ---- beside other wishes


def with_settings(**settings: object) -> DecodeConfig:
    return config.parse(DecodeConfig, {"beam": 4, "n_best": 4, "max_length": 14, **settings}, "decode")


@pytest.mark.parametrize(
    "chosen",
    [
        with_settings(no_repeat_ngram=1),
        with_settings(no_repeat_ngram=2),
        with_settings(min_length=9),
        with_settings(coverage=0.4),
        with_settings(length="gnmt", alpha=0.6, stop="proven"),
        with_settings(whole_words=False),
    ],
    ids=lambda chosen: ",".join(f"{k}={v}" for k, v in chosen.model_dump(exclude_unset=True).items()),
)
@pytest.mark.parametrize("prefix", ["", "the other"])
@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_beside_other_wishes_it_is_as_asked_or_says_what_is_not(chosen: DecodeConfig, prefix: str, kind: str) -> None:
    request = Request("the cat sat on", prefix=prefix, must=["Köln", "mats"], must_not=["cat", "a", "e"])
    if not chosen.whole_words:
        request = replace(request, must_not=["cat", "zz"])
    [found] = engine(kind).translate([request], chosen)
    for each in found.hypotheses:
        assert each.text.startswith(prefix)
        lacking = [phrase for phrase in request.must if not holds(each.text, phrase, whole_words=chosen.whole_words)]
        assert list(each.unmet) == lacking
        assert not any(holds(each.text, phrase, whole_words=chosen.whole_words) for phrase in request.must_not)
        if not chosen.no_repeat_ngram:
            assert not lacking


def test_a_phrase_that_repeats_what_may_not_be_repeated_is_told_as_unmet() -> None:
    request = Request("the cat sat", must=["cat cat cat"])
    [found] = engine("bpe").translate([request], with_settings(no_repeat_ngram=1))
    assert found.hypotheses[0].unmet == ("cat cat cat",)


def test_groups_take_what_must_not_be_and_refuse_what_must() -> None:
    chosen = with_settings(groups=2, diversity=0.5)
    [found] = engine("bpe").translate([Request("the cat", must_not=["a", "the"])], chosen)
    for each in found.hypotheses:
        check(each.text, Request("", must_not=["a", "the"]))
    with pytest.raises(
        UsageError, match=r"line 4: must: 'cat' is asked for, and decode\.groups is 2: .* Leave out one"
    ):
        engine("bpe").translate([Request("the cat", must=["cat"])], chosen, first=4)


def test_the_limit_grows_where_what_must_be_has_no_room() -> None:
    chosen = DecodeConfig(beam=2, max_length=2)
    phrase = "the price is 1234 and the number is 12345"
    [found] = engine("char").translate([Request("x", must=[phrase])], chosen)
    assert holds(found.text, phrase)
    assert len(found.hypotheses[0].tokens) <= len(phrase) + 2
    [plain] = engine("char").translate(["x"], chosen)
    assert len(plain.hypotheses[0].tokens) <= 2


def test_an_empty_line_stays_empty_and_says_what_it_lacks() -> None:
    [found] = engine("bpe").translate([Request("", must=["cat"], must_not=["a"])], DecodeConfig())
    assert (found.text, found.hypotheses[0].unmet) == ("", ("cat",))


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request("a", must=["  "]), "line 2: must: '  ' has no word in it"),
        (Request("a", must_not=["\n"]), r"line 2: must_not: '\\n' has no word in it"),
        (
            Request("a", must=["the cat"], must_not=["cat"]),
            "line 2: must: 'the cat' holds 'cat', which must_not forbids",
        ),
        (Request("a", prefix="the cat sat", must_not=["cat"]), "line 2: prefix: 'the cat sat' holds 'cat'"),
    ],
)
def test_what_cannot_be_is_refused_by_the_line(request_: Request, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        engine("bpe").translate(["fine", request_], DecodeConfig())


def test_a_blocked_end_is_not_the_way_out() -> None:
    """No word twice leaves nothing behind `a`; END would leave the forbidden phrase whole: another rule gives way."""
    for seed in range(4):
        [found] = engine("spaces", seed).translate(
            [Request("the cat", must_not=["the", "cat", "a"])],
            with_settings(no_repeat_ngram=1, max_length=70, ratio=50),
        )
        for each in found.hypotheses:
            check(each.text, Request("", must_not=["the", "cat", "a"]))
