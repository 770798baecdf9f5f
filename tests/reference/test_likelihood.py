"""Log-probabilities of texts against explicit computations: every count, every carried state, cache and learning."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade import likelihood
from saccade.config import parse
from saccade.data.plain_text import Stretch, measured
from saccade.data.streams import ReadConfig, Streams, StreamsConfig, Text, WindowsConfig
from saccade.errors import UsageError
from saccade.likelihood import CacheConfig, DynamicConfig, Reader
from saccade.metrics.perplexity import Perplexity, TextCounts
from saccade.models.language_model import LanguageModel
from saccade.types import END, Batch, Tokens
from tests.language_cases import VOCABULARY, LanguageCase, every_language_model, name_of

CPU = torch.device("cpu")
CASES = {case.name: case for case in every_language_model()}
every = pytest.mark.parametrize("case", list(CASES.values()), ids=name_of)
carrying = pytest.mark.parametrize("case", [case for case in CASES.values() if case.carries], ids=name_of)
TEXT = np.random.default_rng(0).integers(END, VOCABULARY, 60)


def read_by(case: LanguageCase) -> ReadConfig:
    transformer = case.config.decoder.kind == "transformer"
    return WindowsConfig(length=7, context=2) if transformer else StreamsConfig(steps=7)


def values(reader: Reader, **options: object) -> Tensor:
    return torch.cat(list(reader.text(TEXT, **options)))  # type: ignore[arg-type]


@torch.no_grad()
def of_stretch(model: LanguageModel, before: list[int], own: list[int]) -> list[float]:
    """Of the tokens `own`, which follow those before; the first of all given ones stands alone."""
    given = [*before, *own[:-1]]
    log_p = model(Tokens.of([given]))[0].double().log_softmax(-1)
    at = len(before) - 1
    return [log_p[at + t, token].item() for t, token in enumerate(own)]


# ---- a text as it is


@carrying
def test_a_text_is_read_in_one_go_whatever_the_steps(case: LanguageCase) -> None:
    model = case.build()
    whole = of_stretch(model, [END], TEXT.tolist())
    for steps in (1, 7, 60, 100):
        got = values(Reader(model, StreamsConfig(steps=steps, streams=5), CPU))
        assert got.dtype == torch.float64
        assert got.tolist() == pytest.approx(whole, abs=1e-5)


def test_in_pieces_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stretch no more logits are held than allowed."""
    model = CASES["lstm, Zaremba's"].build()
    whole = values(Reader(model, StreamsConfig(), CPU))
    monkeypatch.setattr(likelihood, "AT_ONCE", 4 * VOCABULARY)
    sizes: list[int] = []
    model.output.register_forward_hook(lambda _, x, y: sizes.append(len(y)))
    torch.testing.assert_close(values(Reader(model, StreamsConfig(), CPU)), whole)
    assert max(sizes) == 4


def test_the_tape_of_an_lstmn_begins_anew_with_each_chunk_of_the_training() -> None:
    model = CASES["lstmn"].build()
    got = values(Reader(model, StreamsConfig(steps=9), CPU))
    carried, expected = model.begin(1), []
    for begin in range(0, len(TEXT), 9):
        own = TEXT[begin : begin + 9]
        given = np.concatenate([TEXT[begin - 1 : begin] if begin else [END], own[:-1]])
        with torch.no_grad():
            reading = model.decoder.read(Tokens.of([given]), carried)
            log_p = model.output(reading.features)[0].log_softmax(-1)
        carried = reading.carried
        expected += [log_p[t, token].item() for t, token in enumerate(own)]
    assert got.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["transformer, tied", "transformer, GPT-2's", "gru, residual, narrow tokens"])
@pytest.mark.parametrize(("length", "context"), [(7, 0), (10, 3), (14, 9), (60, 0), (100, 0)])
def test_windows_know_their_context_alone(name: str, length: int, context: int) -> None:
    model = CASES[name].build()
    expected = []
    for begin in range(0, len(TEXT), length - context):
        first = max(0, begin - context)
        before = [END if first == 0 else int(TEXT[first - 1]), *TEXT[first:begin].tolist()]
        expected += of_stretch(model, before, TEXT[begin : begin + length - context].tolist())
    got = values(Reader(model, WindowsConfig(length=length, context=context), CPU))
    assert got.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_window_is_never_longer_than_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model, longest = CASES["transformer, tied"].build(), list[int]()
    read = model.decoder.read

    def noted(given: Tokens, *rest: object) -> object:
        longest.append(given.layout.longest)
        return read(given, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(model.decoder, "read", noted)
    values(Reader(model, WindowsConfig(length=12, context=8), CPU))
    assert max(longest) == 12


def test_a_window_that_would_predict_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="context is 12 and length 12"):
        parse(WindowsConfig, {"kind": "windows", "length": 12, "context": 12})


def test_a_model_that_knows_nothing_has_as_much_perplexity_as_words() -> None:
    model = CASES["elman, Mikolov's"].build()
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.zeros_(model.output.bias)
    nll = -values(Reader(model, StreamsConfig(), CPU)).sum().item()
    assert Perplexity(nll, TextCounts(tokens=len(TEXT))).per_token == pytest.approx(VOCABULARY, rel=1e-6)


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(UsageError, match="0 tokens"):
        list(Reader(CASES["elman, Mikolov's"].build(), StreamsConfig(), CPU).text(TEXT[:0]))
    with pytest.raises(UsageError, match="no tokens"):
        list(Reader(CASES["transformer, tied"].build(), WindowsConfig(), CPU).text(TEXT[:0]))


# ---- many texts


@every
def test_rows_are_read_by_themselves(case: LanguageCase) -> None:
    model, rng = case.build(), np.random.default_rng(1)
    rows = [rng.integers(END, VOCABULARY, length).tolist() for length in (3, 7, 1, 0, 5, 7, 2)]
    reader = Reader(model, read_by(case), CPU)
    expected = [of_stretch(model, [END], row) if row else [] for row in rows]
    for batch_tokens in (1, 14, 4096):
        got = reader.rows(rows, batch_tokens)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)


@every
def test_a_row_longer_than_all_that_is_held_is_a_text(case: LanguageCase) -> None:
    model = case.build()
    reader = Reader(model, read_by(case), CPU)
    long = np.tile(TEXT, 2)
    (short, got) = reader.rows([TEXT[:3].tolist(), long.tolist()], batch_tokens=16)
    expected = torch.cat(list(reader.text(long))).tolist()
    assert got == pytest.approx(expected, abs=1e-5)
    assert short == pytest.approx(of_stretch(model, [END], TEXT[:3].tolist()), abs=1e-5)


# ---- the cache


@torch.no_grad()
def cached_by_hand(model: LanguageModel, config: CacheConfig) -> list[float]:
    """Grave et al. (2017), equations 2 and 3, word by word."""
    given = [END, *TEXT[:-1].tolist()]
    h = model.features(Tokens.of([given]))[0].double()
    p = model.output(h.float()).double().softmax(-1)
    found = []
    for t, word in enumerate(TEXT.tolist()):
        shares: dict[int, float] = defaultdict(float)
        for i in range(max(0, t - config.window), t):
            shares[int(TEXT[i])] += math.exp(config.theta * float(h[t] @ h[i]))
        mass = sum(shares.values())
        mine = p[t, word].item()
        found.append(math.log((1 - config.weight) * mine + config.weight * shares[word] / mass if t else mine))
    return found


@pytest.mark.parametrize("name", ["lstm, AWD", "window, the paper's"])
@pytest.mark.parametrize("steps", [1, 7, 300])
def test_the_cache_is_its_equation(name: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = CASES[name].build()
    for config in (CacheConfig(window=6, theta=0.7, weight=0.2), CacheConfig(window=500, theta=1.3, weight=0.05)):
        reader = Reader(model, StreamsConfig(steps=steps), CPU)
        monkeypatch.setattr(Reader, "_segments", _in_steps(steps))
        got = values(reader, cache=config)
        assert got.tolist() == pytest.approx(cached_by_hand(model, config), abs=1e-5)


def _in_steps(steps: int) -> Callable[[Reader, Text, DynamicConfig | None], Iterator[Batch]]:
    """Short stretches, so that the cache is filled from several of them."""
    return lambda reader, text, dynamic: Streams(text, 1, steps).once()


def test_a_cache_without_weight_is_none_and_with_it_everything_sums_to_one() -> None:
    model = CASES["gru, residual, narrow tokens"].build()
    reader = Reader(model, StreamsConfig(), CPU)
    torch.testing.assert_close(values(reader, cache=CacheConfig(weight=0.0)), values(reader))
    before, mass = TEXT[:20], 0.0
    for word in range(VOCABULARY):
        text = np.append(before, word)
        if word == 0:  # PAD is never a token of a text; the model's own share of it is what is missing
            mass += 0.9 * math.exp(of_stretch(model, [END], text.tolist())[-1])
            continue
        mass += torch.cat(list(reader.text(text, cache=CacheConfig(window=15, weight=0.1))))[-1].exp().item()
    assert mass == pytest.approx(1.0, abs=1e-5)


def test_the_cache_helps_where_words_come_again() -> None:
    model = CASES["lstm, Zaremba's"].build()
    text = np.tile(np.random.default_rng(5).integers(4, VOCABULARY, 4), 20)
    reader = Reader(model, StreamsConfig(), CPU)
    plain = torch.cat(list(reader.text(text))).mean()
    assert torch.cat(list(reader.text(text, cache=CacheConfig(weight=0.5)))).mean() > plain + 0.2


# ---- dynamic evaluation


def dynamic_by_hand(model: LanguageModel, config: DynamicConfig, window: int | None) -> list[float]:
    """Segment after segment, with torch's own gradient descent; the state is carried, or a window read anew."""
    model, found = deepcopy(model), []
    trained = [weight.detach().clone() for weight in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=config.rate)
    carried = model.begin(1)
    for begin in range(0, len(TEXT), config.steps):
        own = TEXT[begin : begin + config.steps]
        first = begin if window is None else max(0, begin + config.steps - window)
        given = [END if first == 0 else int(TEXT[first - 1]), *TEXT[first:begin].tolist(), *own[:-1].tolist()]
        reading = model.decoder.read(Tokens.of([given]), carried)
        logits = model.output(reading.features)[0, -len(own) :]
        loss = F.cross_entropy(logits, torch.from_numpy(own), reduction="none")
        found += (-loss).tolist()
        optimizer.zero_grad()
        torch.autograd.backward(loss.mean())
        optimizer.step()
        with torch.no_grad():
            for weight, old in zip(model.parameters(), trained, strict=True):
                weight.add_(config.decay * (old - weight))
        carried = {name: value.detach() for name, value in reading.carried.items()}
    return found


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["lstm, AWD", "elman, Mikolov's", "window, the paper's", "transformer, GPT-2's"])
def test_dynamic_evaluation_is_gradient_descent_behind_each_segment(name: str, decay: float) -> None:
    case = CASES[name]
    model, config = case.build().double(), DynamicConfig(rate=0.3, decay=decay, steps=4)  # steps magnify rounding
    before = deepcopy(model.state_dict())
    transformer = case.config.decoder.kind == "transformer"
    read: ReadConfig = WindowsConfig(length=6) if transformer else StreamsConfig(steps=6)
    got = values(Reader(model, read, CPU), dynamic=config)
    expected = dynamic_by_hand(model, config, 6 if transformer else None)
    assert got.tolist() == pytest.approx(expected, abs=1e-6)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key  # the model itself has learnt nothing


def test_without_a_rate_nothing_is_learnt() -> None:
    reader = Reader(CASES["lstm, AWD"].build(), StreamsConfig(), CPU)
    torch.testing.assert_close(values(reader, dynamic=DynamicConfig(rate=0.0)), values(reader))


def test_cache_and_learning_go_together() -> None:
    """The cache remembers what the weights of its time made of the text."""
    model = CASES["elman, Mikolov's"].build()
    reader = Reader(model, StreamsConfig(), CPU)
    both = values(reader, cache=CacheConfig(weight=1e-9), dynamic=DynamicConfig(steps=3))
    torch.testing.assert_close(both, values(reader, dynamic=DynamicConfig(steps=3)), atol=1e-6, rtol=1e-6)


# ---- counts


def test_perplexities_by_hand() -> None:
    counts = TextCounts(6, **measured([Stretch("a näive dog")])) + TextCounts(1, **measured([Stretch("")]))
    assert counts == TextCounts(tokens=7, words=5, characters=13, bytes=14, ends=2)
    found = Perplexity(14 * math.log(2), counts, ends_nll=math.log(2))
    assert found.per_token == pytest.approx(4.0)
    assert found.per_word == pytest.approx(2 ** (14 / 5))
    assert found.per_byte == pytest.approx(2.0)
    assert found.bits_per_byte == pytest.approx(1.0)
    assert found.bits_per_character == pytest.approx(14 / 13)
    assert found.nats_per_frame is None
    twice = found + found
    assert twice.per_word == pytest.approx(found.per_word)
    assert twice.counts.words == 10
    music = Perplexity(10.0, TextCounts(tokens=9, ends=1, frames=4), ends_nll=2.0)
    assert music.nats_per_frame == 2.0
    assert found.to_dict()["counts"] == {"tokens": 7, "words": 5, "characters": 13, "bytes": 14, "ends": 2}
    assert measured([Stretch("a b\nc\n", ended=False)]) == {"words": 5, "characters": 6, "bytes": 6, "ends": 0}
    with pytest.raises(UsageError, match="no tokens"):
        Perplexity(0.0, TextCounts())
