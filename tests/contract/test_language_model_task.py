"""The task, whole: every kind of decoder and text trains, saves, loads, writes and scores; bad input is told."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saccade
from saccade import config
from saccade.checkpoint import read_json
from saccade.data.minimal_pairs import MinimalPair
from saccade.data.streams import StreamsConfig
from saccade.data.text_store import TextStore
from saccade.errors import SaccadeError, UsageError
from saccade.likelihood import CacheConfig, DynamicConfig
from saccade.metrics.interval import Resampling
from saccade.recipe import load_recipe
from saccade.tasks.language_model import LanguageModelRecipe
from saccade.train.events import Finished, Prepared, Validated
from saccade.types import END, Tokens
from tests.support.language import DECODERS, recipe, tree, write_texts

CASES = [(kind, "char") for kind in DECODERS] + [("lstm", text) for text in ("word", "byte", "bpe", "unigram")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each case."""
    folder = tmp_path_factory.mktemp("runs")
    for kind, text in CASES:
        size = ("text.size=300",) if text == "unigram" else ()
        saccade.train(recipe(kind, text, *size), folder / f"{kind}-{text}", device="cpu")
    return folder


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_what_was_trained_is_what_is_used(kind: str, text: str, runs: Path) -> None:
    """The published model's numbers on the validation text are those that chose it."""
    path = runs / f"{kind}-{text}"
    notes = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    best = min(note["loss"] for note in notes if note["kind"] == "validated")
    model = saccade.load(path, "cpu")
    assert model.task == "language-model"
    store = TextStore.open(path / "data" / "valid")
    nll = -sum(values.sum().item() for values in model.writer.reader.text(store.text))
    # Validation reads three streams side by side, using reads one: two beginnings more.
    close = 1e-5 if kind == "transformer" else 0.05
    assert nll / len(store.text) == pytest.approx(best, rel=close)
    told = read_json(path / "config.json")
    assert told["vocabulary"] == {"text": model.writer.text.size}
    assert (told["ends"], told["read"]["kind"]) == ("line", "windows" if kind == "transformer" else "streams")


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_it_writes_and_scores_what_it_has_written(kind: str, text: str, runs: Path) -> None:
    model = saccade.load(runs / f"{kind}-{text}", "cpu")
    again = saccade.load(runs / f"{kind}-{text}", "cpu")
    one = model.generate("The", seed=3, max_tokens=15)
    assert one == again.generate("The", seed=3, max_tokens=15)
    beside, _ = model.generate(["The", "A"], seed=3, max_tokens=15)
    assert beside.samples[0].tokens == one.samples[0].tokens
    assert "".join(piece.text for piece in model.stream("The", seed=3, max_tokens=15)) == one.text
    assert len(model.generate("", samples=3).samples) == 3
    (written,) = one.samples
    given = model.writer.prompt_ids("The")
    if model.writer.read.kind == "windows" and len(given) + len(written.tokens) > 24:
        return  # behind its window a Transformer writes from the later half
    ids = [*given, *written.tokens]
    with torch.no_grad():
        log_p = model.writer.model(Tokens.of([ids[:-1]]))[0].log_softmax(-1)
    expected = [log_p[len(given) - 1 + t, token].item() for t, token in enumerate(written.tokens)]
    assert list(written.token_log_probabilities) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_every_number_is_told(kind: str, text: str, runs: Path, tmp_path: Path) -> None:
    path = runs / f"{kind}-{text}"
    model, chosen = saccade.load(path, "cpu"), load_recipe(str(path / "train.yaml"))[0]
    found = chosen.scores(model.loaded, (), "test", tmp_path)
    assert list(found) == ["perplexity", "perplexity_per_word", "perplexity_per_byte", "bits_per_character"]
    lines = [part.text for part in _test_text(chosen)]
    counts = model.perplexity(lines).counts
    assert counts.words == sum(len(line.split()) + 1 for line in lines)
    assert counts.characters == counts.bytes == sum(len(line) + 1 for line in lines)
    assert counts.tokens == sum(len(ids) + 1 for ids in model.writer.text.encode_batch(lines))
    nll = counts.tokens * math.log(found["perplexity"].value)
    assert counts.words * math.log(found["perplexity_per_word"].value) == pytest.approx(nll)
    assert counts.bytes * math.log(found["perplexity_per_byte"].value) == pytest.approx(nll)
    assert counts.characters * math.log(2) * found["bits_per_character"].value == pytest.approx(nll)
    assert [score.count for score in found.values()] == [counts.tokens, counts.words, counts.bytes, counts.characters]
    assert found["perplexity"].signature is not None
    for more in ({"cache": CacheConfig()}, {"dynamic": DynamicConfig(steps=30)}):
        learning = model.perplexity(lines, **more)
        assert learning.counts == counts
        assert learning.nll != pytest.approx(nll, rel=1e-9)
    assert isinstance(chosen, LanguageModelRecipe)
    with_cache = chosen.scores_with(model.loaded, (), "test", tmp_path, cache=CacheConfig(weight=0.2))
    assert "cache:500,1,0.2" in (with_cache["perplexity"].signature or "")


@pytest.mark.parametrize(("kind", "text"), [("lstm", "word"), ("transformer", "char"), ("window", "char")])
def test_every_line_is_noted_and_the_numbers_stay_as_they_are(kind: str, text: str, runs: Path) -> None:
    """What a line costs is what its tokens cost, one by one; that it is noted changes no bit of the sums."""
    path = runs / f"{kind}-{text}"
    model, chosen = saccade.load(path, "cpu"), load_recipe(str(path / "train.yaml"))[0]
    parts = _test_text(chosen)
    for learning in ({}, {"cache": CacheConfig()}, {"dynamic": DynamicConfig(steps=30)}):
        plain = model.writer.score_stretches(parts, **learning)
        noted = model.writer.score_stretches(parts, each=True, **learning)
        assert plain.stretches_NK is None
        assert (noted.nll, noted.ends_nll, noted.counts) == (plain.nll, plain.ends_nll, plain.counts)
        rows = model.writer.text.encode_batch([part.text for part in parts])
        every = torch.cat(
            list(model.writer.reader.text(np.array([t for ids in rows for t in (*ids, END)]), **learning))
        )
        costs = torch.split(-every, [len(ids) + 1 for ids in rows])
        by_hand = [
            (nats.sum().item(), nats[-1].item(), len(nats), len(part.text.split()) + 1, len(part.text) + 1,
             len(part.text.encode()) + 1, 0)
            for nats, part in zip(costs, parts, strict=True)
        ]  # fmt: skip
        assert noted.stretches_NK is not None
        np.testing.assert_allclose(noted.stretches_NK, by_hand, rtol=1e-6, atol=1e-6)


def test_intervals_are_asked_for_or_not(runs: Path, tmp_path: Path) -> None:
    path = runs / "lstm-char"
    model, chosen = saccade.load(path, "cpu"), load_recipe(str(path / "train.yaml"))[0]
    found = chosen.scores(model.loaded, (), "test", tmp_path)
    assert all(score.low < score.value < score.high for score in found.values())
    bare = chosen.scores(model.loaded, (), "test", tmp_path, confidence=False)
    assert {name: score.value for name, score in bare.items()} == {name: score.value for name, score in found.items()}
    assert all(math.isnan(score.low) and math.isnan(score.high) for score in bare.values())
    other = chosen.scores(model.loaded, (), "test", tmp_path, confidence=Resampling(200, seed=5))
    assert other["perplexity"].low != found["perplexity"].low
    (tmp_path / "one.txt").write_text("The king sleeps.\n", encoding="utf-8")
    alone = chosen.scores(model.loaded, [tmp_path / "one.txt"], "test", tmp_path)
    assert all(math.isnan(score.low) for score in alone.values())


def _test_text(chosen: Any) -> list[Any]:
    from saccade.data.files import Counts
    from saccade.data.texts import split_text

    return list(split_text(chosen.data, "test", base=Path(), counts=Counts()))


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_nothing_and_next_to_nothing_are_scored(kind: str, text: str, runs: Path) -> None:
    model = saccade.load(runs / f"{kind}-{text}", "cpu")
    empty, one, odd = model.score(["", "a", "\u65e5\ud7ff never seen\0"])
    assert empty.tokens == ("</s>",)
    assert len(one.tokens) >= 2
    for each in (empty, one, odd):
        assert math.isfinite(each.log_probability)
        assert each.log_probability == pytest.approx(sum(each.token_log_probabilities))
    assert model.perplexity([""]).counts.tokens == 1
    with pytest.raises(UsageError, match="the text is empty"):
        model.perplexity([])


def test_pairs_are_ranked(runs: Path) -> None:
    model = saccade.load(runs / "lstm-word", "cpu")
    found = model.contrast("reflexive", count=5)
    assert list(found) == ["reflexive-number", "reflexive-gender", "reflexive-relative", "reflexive-clause", "all"]
    assert all(score.count == 5 for name, score in found.items() if name != "all")
    pairs = [MinimalPair("The king sleeps.", "king the king the sleeps sleeps."), MinimalPair("a", "a")]
    good, bad, *_ = (each.log_probability for pair in pairs for each in model.score([pair.good, pair.bad]))
    assert model.contrast(pairs)["all"].value == (50.0 if good > bad else 0.0)


def test_a_model_of_another_task_is_told_so(runs: Path, tmp_path: Path) -> None:
    model = saccade.load(runs / "lstm-char", "cpu")
    with pytest.raises(UsageError, match="is a run of the task language-model; to translate, there must be one of"):
        model.translate("a")
    small = ("data.train=40", "data.valid=4", "train.updates=1", "model.encoder.width=8", "train.metric=loss")
    translator = saccade.train(saccade.recipe("dates", *small), tmp_path / "dates", device="cpu").load("cpu")
    with pytest.raises(
        UsageError, match="is a run of the task translate; to write or score text, there must be one of"
    ):
        translator.generate("a")
    with pytest.raises(UsageError, match="give both"):
        translator.score(["a"])
    with pytest.raises(UsageError, match="give pairs that have one"):
        translator.contrast("agreement")
    pairs = [MinimalPair("1999-03-03", "", source="3 mars 1999"), MinimalPair("a", "a", "same", source="b")]
    assert translator.contrast(pairs)["same"].value == 0.0
    with pytest.raises(UsageError, match="top_q is not a setting"):
        model.generate("a", top_q=1)  # type: ignore[call-overload]


# ---- the recipe


def test_a_transformer_reads_windows_where_nothing_is_said() -> None:
    said = tree("transformer")
    del said["read"]
    made = config.parse(LanguageModelRecipe, said)
    assert made.read.kind == "windows"
    said = tree("lstm")
    del said["read"]
    assert config.parse(LanguageModelRecipe, said).read == StreamsConfig()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("model.decoder={kind: transformer, width: 8, heads: 2}",), "carries no state on .*: use windows"),
        (("text.shared=false",), "text.shared is false, but a language model's text has one side"),
        (("text={kind: bpe, size: 300, dropout: 0.1}",), "text.dropout is 0.1, but .* cut once"),
        (
            ("data={kind: text, train: t, valid: v, ends: file}", "text={kind: word, cut: spaces}"),
            "data.ends is file, where line feeds are tokens, but text.cut is spaces",
        ),
        (("train.metric=bleu",), "train.metric is 'bleu'; for the task language-model it must be one of loss, perplex"),
        (("read.steps=0",), "read.steps is 0"),
        (("data.kind=dates",), "data.kind is 'dates'; it must be one of text, grammar, chorales"),
        (("decode.beam=5",), "decode.beam is not a setting of decode"),
        (("model.encoder={}",), "model.encoder is not a setting of model"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        recipe("lstm", "char", *settings)


@pytest.mark.parametrize("ends", ["line", "paragraph", "file"])
@pytest.mark.parametrize("read", ["streams", "windows"])
def test_text_files_are_trained_on(ends: str, read: str, tmp_path: Path) -> None:
    path = write_texts(tmp_path)
    sections = {
        "streams": "{kind: streams, streams: 3, steps: 9, varied: true}",
        "windows": "{kind: windows, length: 20}",
    }
    settings = (f"data.ends={ends}", f"read={sections[read]}", "train.metric=perplexity", "decode.stop=line")
    events = list(saccade.training(saccade.recipe(path, *settings), tmp_path / "run", base=tmp_path, device="cpu"))
    assert isinstance(events[0], Prepared)
    text = (tmp_path / "train.txt").read_text()
    assert (events[0].examples, events[0].unit) == (
        len(text) + (ends == "file"),
        "tokens",
    )  # an end, or a space, a line
    assert isinstance(events[-1], Finished)
    assert {"loss", "perplexity"} == set(events[-1].best)
    model = saccade.load(tmp_path / "run", "cpu")
    assert "\n" not in model.generate("The", max_tokens=60).text
    store = TextStore.open(tmp_path / "run" / "data" / "valid")
    valid = (tmp_path / "valid.txt").read_text()
    assert store.measured["characters"] == len(valid) + (ends == "file")
    assert (
        store.measured["ends"] == {"line": 12, "paragraph": 1, "file": 1}[ends] == np.count_nonzero(store.text == END)
    )
    assert "".join(model.writer.text.decode(store.stretch(i).tolist()) for i in range(len(store))) == (
        valid if ends == "file" else valid.strip().replace("\n", "" if ends == "line" else " ")
    )


def test_bad_texts_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    path = write_texts(tmp_path)
    for name, content, settings, message in (
        ("train.txt", b"", (), "the train text is empty"),
        ("valid.txt", b"", (), "the valid text is empty"),
        ("train.txt", b"na\xefve\n", (), r"train.txt:1: byte 3 of the line \(0xef\) is not valid UTF-8"),
        ("train.txt", b"a\n", ("read.streams=5",), "the text has 2 tokens, fewer than the 5 streams"),
    ):
        write_texts(tmp_path)
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            list(saccade.training(saccade.recipe(path, *settings), tmp_path / "run", base=tmp_path, device="cpu"))
    write_texts(tmp_path)
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(UsageError, match=r"valid.txt: cannot be read"):
        list(saccade.training(saccade.recipe(path), tmp_path / "run", base=tmp_path, device="cpu"))


def test_a_short_validation_text_is_read_as_it_is(tmp_path: Path) -> None:
    """Fewer tokens than streams; a text of one token."""
    path = write_texts(tmp_path)
    (tmp_path / "valid.txt").write_text("\n")
    events = saccade.training(saccade.recipe(path, "train.updates=1"), tmp_path / "run", base=tmp_path, device="cpu")
    (validated,) = [event for event in events if isinstance(event, Validated)]
    assert math.isfinite(validated.values["loss"])


def test_a_folder_that_says_something_else_is_refused(tmp_path: Path) -> None:
    saccade.train(recipe("elman"), tmp_path / "run", device="cpu")
    loaded = saccade.load(tmp_path / "run", "cpu").loaded
    for key, value, message in (
        ("ends", "page", "ends is 'page'"),
        ("read", {"kind": "streams", "stream": 1}, "read is no section"),
        ("vocabulary", {"text": 7}, "they are not of one run"),
    ):
        kept = loaded.config[key]
        loaded.config[key] = value
        with pytest.raises(SaccadeError, match=message):
            _ = saccade.api.Model(loaded).writer
        loaded.config[key] = kept


def test_dynamic_evaluation_that_goes_astray_is_told(tmp_path: Path) -> None:
    little = ("data={kind: grammar, train: 40, valid: 4, test: 4}", "model.decoder.width=16", "text.size=500")
    short = ("train.updates=3", "train.validate_every=3", "train.workers=0", "read.streams=2", "read.steps=8")
    saccade.train(saccade.recipe("word-lm", *little, *short), tmp_path / "run", device="cpu")
    model = saccade.load(tmp_path / "run", "cpu")
    lines = ["the queen speaks ."] * 40
    assert model.perplexity(lines, dynamic=DynamicConfig(rate=1e-4, steps=5)).per_token > 1.0
    with pytest.raises(UsageError, match="gone astray"):
        model.perplexity(lines, dynamic=DynamicConfig(rate=1e9, steps=5))
