"""The task masked-language-model, for every architecture: trained, saved, loaded, resumed, scored; bad input."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import saccade
from saccade import checkpoint
from saccade.data.corpus import Rows, TextLine, has_split, rows_of, split_lines
from saccade.data.files import Counts
from saccade.data.masking import MASK
from saccade.data.splits import Split
from saccade.errors import UsageError
from saccade.models.masked import MaskedModel
from saccade.recipe import Recipe, parse_recipe
from saccade.tasks.masked import MaskedRecipe
from saccade.text import BpeText, Tokenizer, WordText, train_tokenizers
from saccade.train.events import Finished, Prepared
from saccade.types import END, PAD, Tokens
from tests.support.blanks import MODELS, recipe, write_text
from tests.support.killing import leftovers, logged, trace
from tests.support.tiny import notes

every_model = pytest.mark.parametrize("model", MODELS)
SIDES: tuple[Split, ...] = ("train", "valid")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


@every_model
def test_trained_saved_loaded_and_scored(model: str, corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, model)
    told: list[Any] = []
    trained = saccade.train(chosen, tmp_path / "run", device="cpu", on_event=told.append)
    prepared = next(event for event in told if isinstance(event, Prepared))
    assert prepared.unit == ("pairs of sentences" if chosen.model.next_sentence else "rows")
    wanted = {"loss", "perplexity", "accuracy"}
    wanted |= {"next_sentence_loss", "next_sentence_accuracy"} if chosen.model.next_sentence else set()
    assert set(trained.best) == wanted
    assert trained.best["perplexity"] == pytest.approx(math.exp(trained.best["loss"]))
    loaded = checkpoint.load(tmp_path / "run", torch.device("cpu"))
    # The data that were validated, scored again by what was loaded: the same numbers.
    scores = chosen.scores(loaded, [], "valid", Path.cwd())
    assert set(scores) == wanted - {"loss", "next_sentence_loss"}
    for name, score in scores.items():
        assert score.value == pytest.approx(trained.best[name], rel=1e-5), name
    by_file = chosen.scores(loaded, [corpus / "valid.txt"], "test", Path.cwd())
    assert {name: score.value for name, score in by_file.items()} == {n: s.value for n, s in scores.items()}
    assert scores["accuracy"].low <= scores["accuracy"].value <= scores["accuracy"].high
    assert scores["perplexity"].low < scores["perplexity"].value < scores["perplexity"].high
    bare = chosen.scores(loaded, [], "valid", Path.cwd(), confidence=False)
    assert math.isnan(bare["perplexity"].low)


@every_model
def test_lines_of_all_kinds_are_filled(model: str, corpus: Path, tmp_path: Path) -> None:
    saccade.train(recipe(corpus, model), tmp_path / "run", device="cpu")
    user = saccade.load(tmp_path / "run", "cpu")
    lines = [
        "",
        "[MASK]",
        "the sky is [MASK] blue",
        "unheard words [MASK] here",
        "no blank",
        "[MASK][MASK]",
        "\ttabs [MASK]",
    ]
    filled = user.fill(lines, top=3)
    assert [each.source for each in filled] == lines
    assert [len(each.blanks) for each in filled] == [0, 1, 1, 1, 0, 2, 1]
    assert not any("[MASK]" in each.text for each in filled)
    for each in filled:
        for fillings in each.blanks:
            chances = [filling.probability for filling in fillings]
            assert chances == sorted(chances, reverse=True)
            assert 0 < sum(chances) <= 1 + 1e-6
    alone = user.fill(lines[2], top=3)
    assert alone.text == filled[2].text
    with pytest.raises(UsageError, match="to translate, there must be one of translate"):
        user.translate("x")


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("bert", ("train.save_every=3", "train.workers=2")),
        ("lstm", ("train.accumulate=2", "masking.whole_words=true")),
        ("transformer", ("train.save_every=3", "data.lines=joined", "data.max_length=16", "train.ema=0.9")),
    ],
)
def test_a_run_that_is_dropped_goes_on_as_if_it_had_not_been(
    model: str, settings: tuple[str, ...], corpus: Path, tmp_path: Path
) -> None:
    """To the bit: the masks of an epoch are a pure function of its number."""
    chosen = recipe(corpus, model, "train.log_every=1", *settings)
    alone = saccade.train(chosen, tmp_path / "alone", device="cpu").finished
    expected = trace(tmp_path / "alone")
    assert len({note["fingerprint"] for note in expected["updates"]}) == alone.update
    out = tmp_path / "dropped"
    for stretch in (4, 5, 6, 7, 99):
        training = saccade.training(chosen, out, resume=(out / "train.yaml").exists(), device="cpu")
        events = [event for event, _ in zip(training, range(stretch), strict=False)]
        training.close()  # type: ignore[attr-defined]
        if isinstance(events[-1], Finished):
            break
    assert trace(out) == expected
    assert logged(out) == logged(tmp_path / "alone")
    assert not leftovers(out)


def test_each_epoch_has_other_blanks_and_validation_always_the_same(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "bert")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    ready: Any = chosen.make_task(Path.cwd()).open(tmp_path / "run")
    one, other = (ready.train.batch(torch.arange(20).numpy(), epoch) for epoch in (0, 1))
    assert not torch.equal(one.target.ids[: len(other.target.ids)], other.target.ids[: len(one.target.ids)])
    again = ready.train.batch(torch.arange(20).numpy(), 0)
    assert torch.equal(one.source.ids, again.source.ids)
    assert torch.equal(one.target.ids, again.target.ids)
    model = ready.build()
    values = [ready.validate(model.eval(), at_once, torch.device("cpu")) for at_once in (4096, 64)]
    assert values[0] == pytest.approx(values[1])


def test_what_is_validated_is_what_the_logits_say(corpus: Path, tmp_path: Path) -> None:
    """Loss, accuracy and perplexity of the blanks, and accuracy of pairs, computed row by row."""
    chosen = recipe(corpus, "bert")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    ready: Any = chosen.make_task(Path.cwd()).open(tmp_path / "run")
    model = checkpoint.load(tmp_path / "run", torch.device("cpu")).model
    assert isinstance(model, MaskedModel)
    assert model.next_sentence is not None
    values = ready.validate(model, 4096, torch.device("cpu"))
    blanks = ready.valid
    nll, right, tokens, told, pairs = 0.0, 0, 0, 0, 0
    for row in range(len(blanks)):
        batch = blanks.batch(torch.tensor([row]).numpy(), 0)
        with torch.no_grad():
            logits = model(batch.source)
            label = int(model.next_sentence(model.encode(batch.source)).argmax()) + 1
        pairs += 1
        told += label == int(batch.target.ids[-1])
        assert int(batch.source.ids[-1]) == END
        for place, gold in enumerate(batch.target.ids.tolist()[:-1]):
            if gold != PAD:
                nll -= float(logits[place].log_softmax(-1)[gold])
                right += int(logits[place].argmax()) == gold
                tokens += 1
    assert values["loss"] == pytest.approx(nll / tokens, rel=1e-5)
    assert values["accuracy"] == pytest.approx(100 * right / tokens)
    assert values["next_sentence_accuracy"] == pytest.approx(100 * told / pairs)


def test_the_loss_that_is_logged_is_over_what_is_predicted(corpus: Path, tmp_path: Path) -> None:
    """A model that knows nothing needs log V nats for a blank."""
    chosen = recipe(corpus, "transformer", "train.optimizer.rate=1e-9", "train.updates=2", "train.log_every=1")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    size = json.loads((tmp_path / "run" / "config.json").read_text())["vocabulary"]["text"]
    for note in notes(tmp_path / "run", "trained"):
        assert note["loss"] == pytest.approx(math.log(size), rel=0.25)


# ---- rows of text


def tokenizer(text: Any = None) -> Tokenizer:
    lines = ["the cat sat on the mat", "on the mat", "the dog ran a cat can run", "a cat can run"] * 3
    return train_tokenizers(text or WordText(size=40), lines, [], 1).source


def decoded(rows: list[Rows], text: Tokenizer) -> list[tuple[int, str]]:
    found = []
    for some in rows:
        begin = 0
        for length, document in zip(some.lengths_R.tolist(), some.document_R.tolist(), strict=True):
            ids = some.ids_N[begin : begin + length].tolist()
            assert ids[-1] == END
            assert END not in ids[:-1]
            found.append((document, text.decode(ids[:-1])))
            begin += length
    return found


LINES = [
    TextLine(0, "the cat sat"),
    TextLine(0, "on the mat"),
    TextLine(1, "the dog ran"),
    TextLine(1, "a cat can run"),
]


@pytest.mark.parametrize("text", [WordText(size=40), BpeText(size=300), WordText(size=40, cut="spaces")])
def test_each_line_is_a_row(text: Any) -> None:
    known = tokenizer(text)
    rows = list(rows_of(LINES, known, limit=100, joined=False))
    assert decoded(rows, known) == [(line.document, line.text) for line in LINES]


@pytest.mark.parametrize("text", [WordText(size=40), BpeText(size=300), WordText(size=40, cut="spaces")])
def test_joined_lines_read_as_one_text(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few are read at a time; a document ends its row."""
    known = tokenizer(text)
    expected = [(0, "the cat sat on the mat"), (1, "the dog ran a cat can run")]
    for chunk in (10_000, 1):
        monkeypatch.setattr("saccade.data.corpus.CHUNK", chunk)
        rows = list(rows_of(LINES, known, limit=100, joined=True))
        assert decoded(rows, known) == expected
        ids = [known.encode(whole) for _, whole in expected]
        assert [each for some in rows for each in some.ids_N.tolist()] == [*ids[0], END, *ids[1], END]


def test_a_row_takes_no_line_that_does_not_fit_and_a_long_line_becomes_several() -> None:
    known = tokenizer()
    rows = decoded(list(rows_of(LINES, known, limit=4, joined=True)), known)
    assert rows == [(0, "the cat sat"), (0, "on the mat"), (1, "the dog ran"), (1, "a cat can run")]
    short = decoded(list(rows_of(LINES[:2], known, limit=2, joined=False)), known)
    assert [text for _, text in short] == ["the cat", " sat", "on the", " mat"]


def test_documents_end_at_empty_lines_and_files(tmp_path: Path) -> None:
    from saccade.data.corpus import read_lines

    (tmp_path / "a.txt").write_text("\n\none\n two \n\n \nthree\n")
    (tmp_path / "b.txt").write_text("four\nfive")
    counts = Counts()
    lines = list(read_lines(["a.txt", "b.txt"], base=tmp_path, on_bad="refuse", counts=counts))
    assert [tuple(line) for line in lines] == [(0, "one"), (0, "two"), (1, "three"), (2, "four"), (2, "five")]
    assert (counts.lines, counts.kept) == (5, 5)


# ---- bad input


def refused(corpus: Path, *settings: str, model: str = "transformer") -> str:
    with pytest.raises(UsageError) as caught:
        recipe(corpus, model, *settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        ("transformer", ("text={kind: bpe, size: 300, dropout: 0.1}",), "text.dropout is 0.1"),
        ("bert", ("data={kind: grammar}",), "data.kind is grammar, whose sentences follow nothing"),
        ("gru", ("train.metric=next_sentence_accuracy",), "but model.next_sentence is false"),
        ("gru", ("train.metric=bleu",), "must be one of loss, accuracy, perplexity, next_sentence_accuracy"),
        ("gru", ("masking.share=0",), "masking.share is 0"),
        ("gru", ("masking.mask=0.95",), "together they may be 1 at most"),
        ("gru", ("model.encoder.bidirectional=false",), "what follows it would not be seen"),
        ("gru", ("data.max_length=3",), "data.max_length is 3"),
        ("gru", ("decode={beam: 2}",), "decode is not a setting"),
        ("gru", ("freeze=true",), "there is no init_from"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(model: str, settings: tuple[str, ...], told: str, corpus: Path) -> None:
    assert told in refused(corpus, *settings, model=model)


def test_a_task_that_is_not_there_is_told_beside_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"task is 'masked'; it must be one of .*masked-language-model"):
        parse_recipe({"task": "masked"})


def test_texts_that_cannot_be_used(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "one.txt").write_text("the sky is very blue\nthe sky is so blue\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 is not UTF-8\n")
    run = tmp_path / "run"
    with pytest.raises(UsageError, match="the train text is empty"):
        saccade.train(recipe(corpus, "gru", f"data.train={tmp_path / 'empty.txt'}"), run, device="cpu")
    with pytest.raises(UsageError, match=r"needs two documents.*2 lines in 1 documents"):
        saccade.train(recipe(corpus, "bert", f"data.valid={tmp_path / 'one.txt'}"), run, device="cpu")
    with pytest.raises(UsageError, match="not valid UTF-8"):
        saccade.train(recipe(corpus, "gru", f"data.train={tmp_path / 'latin.txt'}"), run, device="cpu")
    with pytest.raises(UsageError, match="cannot be read"):
        saccade.train(recipe(corpus, "gru", "data.train=nowhere.txt"), run, device="cpu")
    assert not run.exists()  # nothing is left of a run that could not begin


def test_data_are_checked_before_anything_is_trained(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "bert")
    assert isinstance(chosen, MaskedRecipe)
    found = chosen.checked(Path.cwd())
    assert list(found) == ["train", "valid"]
    assert found["train"][0].endswith(" lines in 30 documents.")
    assert any("occurred before in train" in line for line in found["train"])
    assert any("also stand in train" in line for line in found["valid"])
    (tmp_path / "one.txt").write_text("a line\nanother\n")
    with pytest.raises(UsageError, match="train: 2 lines in 1 document; next-sentence"):
        recipe(corpus, "bert", f"data.train={tmp_path / 'one.txt'}").checked(Path.cwd())
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UsageError, match="train: there is no line"):
        recipe(corpus, "gru", f"data.train={tmp_path / 'empty.txt'}").checked(Path.cwd())


def test_a_text_without_tokens_to_predict_cannot_be_scored(corpus: Path, tmp_path: Path) -> None:
    """Words that were never seen are UNKNOWN, which is never a blank."""
    chosen: Recipe = recipe(corpus, "gru")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    (tmp_path / "foreign.txt").write_text("wholly\n\nforeign\n")
    loaded = checkpoint.load(tmp_path / "run", torch.device("cpu"))
    with pytest.raises(UsageError, match="no token in the data that could be a blank"):
        chosen.scores(loaded, [tmp_path / "foreign.txt"], "test", Path.cwd())
    with pytest.raises(UsageError, match="names no test data"):
        chosen.scores(loaded, [], "test", Path.cwd())
    assert loaded.model.loss is not None
    assert isinstance(loaded.model, MaskedModel)
    ids = Tokens.of([[MASK, END]])
    assert loaded.model(ids).shape == (1, 2, loaded.sizes["text"])


def test_a_classifiers_texts_are_learnt_without_their_labels(tmp_path: Path) -> None:
    """As plain text of the same lines; what is held out of them is validated; their encoder goes on to the labels."""
    lines = [(label, f"the film is {label}") for _ in range(60) for label in ("good", "bad")]
    (tmp_path / "a.tsv").write_text("".join(f"{label}\t{i} {text}\n" for i, (label, text) in enumerate(lines)))
    data: dict[str, Any] = {"kind": "files", "train": {"tsv": "a.tsv"}, "hold_out": 0.2, "max_length": 8}
    shared: dict[str, Any] = {
        "text": {"kind": "word"},
        "train": {"updates": 2, "batch_tokens": 64, "validate_every": 2, "workers": 0},
        "data": data,
    }
    encoder = {"kind": "transformer", "layers": 1, "width": 8, "heads": 2}
    chosen = parse_recipe({"task": "masked-language-model", "model": {"encoder": encoder}, **shared})
    assert isinstance(chosen, MaskedRecipe)
    kept = {split: [x.text for x in split_lines(chosen.data, split, base=tmp_path, counts=Counts())] for split in SIDES}
    assert sorted(kept["train"] + kept["valid"]) == sorted(f"{i} {text}" for i, (_, text) in enumerate(lines))
    assert 0 < len(kept["valid"]) < len(kept["train"])
    assert not has_split(chosen.data, "test")
    assert set(chosen.checked(tmp_path)) == set(SIDES)
    first = saccade.train(chosen, tmp_path / "first", device="cpu", base=tmp_path)
    loaded = checkpoint.load(first.path, torch.device("cpu"))
    assert chosen.scores(loaded, [], "valid", tmp_path)["accuracy"].value == pytest.approx(first.best["accuracy"])
    model = {"kind": "sequence", "encoder": encoder, "pooling": "last"}
    then = parse_recipe({"task": "classify", "model": model, "init_from": str(first.path), **shared})
    told: list[Any] = []
    saccade.train(then, tmp_path / "then", device="cpu", base=tmp_path, on_event=told.append)
    assert any("weights of the encoder were taken" in str(event) for event in told)
