"""Prompts in, texts out: against writing token by token from the whole text, and whatever else is in the batch."""

from collections import defaultdict
from functools import cache
from typing import Any

import pytest
import torch

from saccade.config import parse, parse_yaml
from saccade.data.plain_text import Ends
from saccade.data.streams import ReadConfig, StreamsConfig, WindowsConfig
from saccade.decode.sampling import SampleConfig, draw, filtered, numbers
from saccade.decode.scores import allowed_log_probabilities
from saccade.generate import Engine, Piece, Written
from saccade.metrics.perplexity import TextCounts
from saccade.models.build import build_language_model
from saccade.models.language_model import LanguageModelConfig
from saccade.text import ByteText, CharText, TextConfig, Tokenizer, WordText, train_tokenizers
from saccade.types import END, Tokens

DECODERS = """
window: {kind: window, order: 4, width: 8, embedding: 6}
elman: {kind: elman, width: 8}
lstm: {kind: lstm, layers: 2, width: 8}
lstmn: {kind: lstmn, width: 8}
transformer: {kind: transformer, layers: 2, width: 8, heads: 2, positions: learned, places: 12}
rotary: {kind: transformer, layers: 1, width: 8, heads: 2, positions: rotary}
"""
TREES: dict[str, Any] = parse_yaml(DECODERS, "decoders")
every = pytest.mark.parametrize("kind", list(TREES))
PROMPTS = ["the cat", "", "a", "the cat sat on the mat", "two\nlines", "the cat"]
LINES = ["the cat sat on the mat", "a näive dog sat", "日本 two lines"]


@cache
def tokenizer(kind: str) -> Tokenizer:
    configs: dict[str, TextConfig] = {
        "char": CharText(size=290),
        "byte": ByteText(),
        "word": WordText(cut="spaces", size=30),
    }
    return train_tokenizers(configs[kind], LINES, [], seed=1).source


def engine(kind: str, text: str = "char", ends: Ends = "line", length: int = 12) -> Engine:
    torch.manual_seed(4)
    model = build_language_model(parse(LanguageModelConfig, {"decoder": TREES[kind]}), tokenizer(text).size).eval()
    with torch.no_grad():  # sharper than a fresh one, and with an end now and then
        model.output.weight.mul_(4)
        model.output.bias[END] = 4.0
    transformer = TREES[kind]["kind"] == "transformer"
    read: ReadConfig = WindowsConfig(length=length) if transformer else StreamsConfig()
    return Engine(model, tokenizer(text), torch.device("cpu"), read, ends)


def by_hand(mine: Engine, prompt: str, config: SampleConfig, key: tuple[int, int]) -> list[int]:
    """Each token from the whole of what stands before it, as far as the window goes."""
    ids, drawn = mine.prompt_ids(prompt), list[int]()
    row = numbers(config.seed, [key], config.max_tokens)[0]
    while len(drawn) < config.max_tokens:
        if isinstance(mine.read, WindowsConfig) and len(ids) > mine.read.length:
            ids = ids[-(mine.read.length // 2) :]
        with torch.no_grad():
            logits = mine.model(Tokens.of([ids]))[0, -1:]
        token = int(draw(filtered(allowed_log_probabilities(logits), config), row[len(drawn), None])[0])
        ids, drawn = [*ids, token], [*drawn, token]
        if config.stop == "end" and token == END:
            break
    return drawn


@every
@pytest.mark.parametrize("stop", ["end", "length"])
def test_each_token_is_drawn_from_all_that_stands_before_it(kind: str, stop: Any) -> None:
    mine, config = engine(kind), SampleConfig(samples=2, seed=3, max_tokens=30, stop=stop, top_p=0.95)
    got = mine.generate(PROMPTS, config)
    assert [len(each.samples) for each in got] == [2] * len(PROMPTS)
    assert [each.prompt for each in got] == PROMPTS
    for p, prompt in enumerate(PROMPTS):
        for s in range(2):
            written = got[p].samples[s]
            assert list(written.tokens) == by_hand(mine, prompt, config, (p, s))
            assert written.ended == (stop == "end" and written.tokens[-1] == END)
    assert got[0] != got[5]  # the same prompt, but another row


@every
def test_how_many_are_written_side_by_side_changes_nothing(kind: str) -> None:
    mine, config = engine(kind), SampleConfig(samples=3, max_tokens=25)
    together = mine.generate(PROMPTS, config)
    for rows in (1, 2, 7):
        for one, other in zip(together, mine.generate(PROMPTS, config, rows), strict=True):
            assert [each.tokens for each in one.samples] == [each.tokens for each in other.samples]
            assert one.text == other.text
    assert mine.generate(PROMPTS[:1], config)[0].samples[0].tokens == together[0].samples[0].tokens


@pytest.mark.parametrize("text", ["char", "byte", "word"])
@pytest.mark.parametrize("stop", ["end", "length"])
def test_pieces_are_whole_characters_and_together_the_text(text: str, stop: Any) -> None:
    mine, config = engine("lstm", text), SampleConfig(samples=4, max_tokens=40, stop=stop, temperature=2.0)
    pieces: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in mine.stream(PROMPTS, config):
        pieces[piece.prompt, piece.sample].append(piece)
    written = mine.generate(PROMPTS, config)
    for (p, s), some in pieces.items():
        whole = written[p].samples[s]
        assert "".join(piece.text for piece in some) == whole.text == shown(mine, PROMPTS[p], whole, stop)
        assert [piece.last for piece in some] == [False] * (len(some) - 1) + [True]
        assert tuple(piece.token for piece in some) == whole.tokens
        assert whole.log_probability == pytest.approx(sum(piece.log_probability for piece in some))


def shown(mine: Engine, prompt: str, written: Written, stop: str) -> str:
    """Line by line, END being a line's end; words that are cut at spaces have one between prompt and first word."""
    lines: list[list[int]] = [[]]
    for token in written.tokens:
        if token == END:
            lines.append([])
        else:
            lines[-1].append(token)
    text = "\n".join(map(mine.text.decode, lines))
    if prompt and lines[0] and mine.text.is_set_off(lines[0][0]):
        text = f" {text}"
    return text.removesuffix("\n") if stop == "end" and written.ended else text


def test_a_word_behind_a_prompt_has_one_space_before_it() -> None:
    mine = engine("elman", "word")
    word = mine.text.encode("mat")[0]
    torch.nn.init.zeros_(mine.model.output.weight)
    mine.model.output.bias.data.zero_()[word] = 50.0
    config = SampleConfig(max_tokens=2, stop="length")
    for prompt, text in (("the", " mat mat"), ("the ", "mat mat"), ("", "mat mat"), ("the\n", "mat mat")):
        assert mine.generate([prompt], config)[0].text == text


@pytest.mark.parametrize(("ends", "sign"), [("line", "\n"), ("paragraph", "\n\n"), ("file", "")])
def test_an_end_is_written_as_what_ends(ends: Ends, sign: str) -> None:
    mine = engine("elman", "char", ends)
    torch.nn.init.zeros_(mine.model.output.weight)
    mine.model.output.bias.data.zero_()[END] = 50.0
    assert mine.generate([""], SampleConfig(max_tokens=2, stop="length"))[0].text == 2 * sign
    (stopped,) = mine.generate([""], SampleConfig(max_tokens=5))[0].samples
    assert (stopped.text, stopped.tokens, stopped.ended) == ("", (END,), True)


def test_a_line_ends_at_a_line_feed_too() -> None:
    mine = engine("elman", "byte", "file")
    torch.nn.init.zeros_(mine.model.output.weight)
    feed = 4 + ord("\n")
    mine.model.output.bias.data.zero_()[feed] = 5.0
    config = SampleConfig(max_tokens=500, stop="line", seed=2)
    (written,) = mine.generate(["a\nb"], config)[0].samples
    assert written.ended
    assert written.tokens[-1] == feed
    assert feed not in written.tokens[:-1]
    assert "\n" not in written.text
    (on,) = mine.generate(["a\nb"], config.model_copy(update={"stop": "end"}))[0].samples
    assert "\n" in on.text


@pytest.mark.parametrize(
    ("ends", "prompt", "text"),
    [
        ("line", "ab\n\nc", "ab|end|end|c"),
        ("line", "ab\n", "ab|end"),
        ("line", "", ""),
        ("file", "ab\nc", "ab|feed|c"),
        ("paragraph", "ab\nc ", "ab c "),
        ("paragraph", "ab\n\nc", "ab|end|c"),
        ("paragraph", "ab\n\n", "ab|end"),
    ],
)
def test_prompts_are_read_as_the_text_was(ends: Ends, prompt: str, text: str) -> None:
    mine = engine("elman", "byte", ends)
    parts = {"end": [END], "feed": [4 + ord("\n")]}
    expected = [each for part in text.split("|") for each in parts.get(part, mine.text.encode(part))]
    assert mine.prompt_ids(prompt) == [END, *expected]


# ---- scoring


@every
@pytest.mark.parametrize("ends", ["line", "file"])
def test_a_text_is_scored_from_its_beginning_to_its_end(kind: str, ends: Ends) -> None:
    mine = engine(kind, ends=ends, length=40)
    texts = ["the cat", "", "a näive dog", "two\nlines", "the cat"]
    got = list(mine.score(texts))
    for text, found in zip(texts, got, strict=True):
        feed = [END] if ends == "line" else mine.text.encode("\n")
        ids = [
            each for n, line in enumerate(text.split("\n")) for each in (*[feed, []][n == 0], *mine.text.encode(line))
        ]
        ids = [*ids, END]
        with torch.no_grad():
            log_p = mine.model(Tokens.of([[END, *ids[:-1]]]))[0].log_softmax(-1)
        expected = [log_p[t, each].item() for t, each in enumerate(ids)]
        assert found.token_log_probabilities == pytest.approx(expected, abs=1e-5)
        assert found.log_probability == pytest.approx(sum(expected), abs=1e-4)
        assert found.tokens == tuple(mine.text.pieces(ids))
        words, size = len(text.split()), len(text.encode())
        ends_within = text.count("\n")
        assert found.perplexity.counts == TextCounts(
            len(ids), words + 1 + ends_within, len(text) + 1, size + 1, 1 + ends_within * (ends == "line")
        )
    assert got[0].token_log_probabilities == pytest.approx(got[4].token_log_probabilities, abs=1e-6)


def test_a_document_is_one_text() -> None:
    mine = engine("lstm")
    lines = ["the cat sat", "", "a näive dog"]
    ids = [each for line in lines for each in (*mine.text.encode(line), END)]
    with torch.no_grad():
        log_p = mine.model(Tokens.of([[END, *ids[:-1]]]))[0].double().log_softmax(-1)
    values = [log_p[t, each].item() for t, each in enumerate(ids)]
    found = mine.score_document(iter(lines))
    assert found.nll == pytest.approx(-sum(values), abs=1e-4)
    assert found.ends_nll == pytest.approx(
        -sum(v for v, each in zip(values, ids, strict=True) if each == END), abs=1e-4
    )
    assert found.counts == TextCounts(len(ids), 9, 25, 26, 3)
    apart = sum(-each.log_probability for each in mine.score(lines))
    assert abs(apart - found.nll) > 1e-3  # by themselves lines know nothing of each other


def test_windows_of_a_long_prompt_keep_their_later_half() -> None:
    """So that a Transformer never stands where it has not been trained; by hand in the first test, the edges here."""
    mine = engine("transformer", length=5)
    for length in (4, 5, 6, 7, 30):
        config = SampleConfig(max_tokens=12, stop="length")
        prompt = "a" * (length - 1)
        assert list(mine.generate([prompt], config)[0].samples[0].tokens) == by_hand(mine, prompt, config, (0, 0))
