"""What tagging promises, for every architecture: trained, saved, loaded, the same; any sentence in is one out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import saccade
from saccade import checkpoint, config
from saccade.api import Model
from saccade.data.batching import BEGINNING
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import load_recipe
from saccade.tag import MAX_WORDS
from saccade.tasks.tag_ready import TagReady
from saccade.text.cut import cut_words
from saccade.text.tags import is_written_so, read_spans
from saccade.types import UNKNOWN
from tests.support.tagging import MODELS, conll, conllu, tag_recipe, write_tagged
from tests.support.tiny import notes

every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tagged(tmp_path_factory.mktemp("tagged"))


@pytest.fixture(scope="module")
def runs(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each architecture, trained a little."""
    folder = tmp_path_factory.mktemp("runs")
    for name in MODELS:
        saccade.train(tag_recipe(corpus, name, "train.metric=f1"), folder / name, device="cpu")
    return {name: folder / name for name in MODELS}


def scores(run: Path, split: str = "test", *files: Path) -> dict[str, float]:
    recipe, base = load_recipe(str(run / "train.yaml"))
    found = recipe.scores(saccade.load(run, "cpu").loaded, files, split, base)  # type: ignore[arg-type]
    return {name: score.value for name, score in found.items()}


LINES = ["", "x", " ", "Ada Dunmor met Velton AG in Port Balwin on 3 May 1987.", "…", "a\tb  c", "東京 نص ", "\0"]


@every_model
def test_loaded_is_what_was_trained(name: str, runs: dict[str, Path]) -> None:
    """What validation found of the best weights, evaluation finds of the loaded model; and it says so twice."""
    run = runs[name]
    best = [note for note in notes(run, "validated") if note["best"]][-1]
    found = scores(run, "valid")
    assert found["accuracy"] == pytest.approx(best["accuracy"])
    assert found["f1"] == pytest.approx(best["f1"])
    assert saccade.load(run, "cpu").tag(LINES) == saccade.load(run, "cpu").tag(LINES)


@every_model
def test_one_sentence_in_is_one_out(name: str, runs: dict[str, Path]) -> None:
    """Empty, of one word, of anything; alone or in a batch; every word where it says it stands."""
    model = saccade.load(runs[name], "cpu")
    together = model.tag(LINES)
    assert [found.text for found in together] == LINES
    for line, found in zip(LINES, together, strict=True):
        assert [word[:3] for word in map(_placed, found.words)] == [tuple(piece) for piece in cut_words(line)]
        assert all(0.0 <= word.score <= 1.0 + 1e-6 for word in found.words)
        assert found.log_probability <= 1e-4
        for span in found.spans:
            assert line[span.begin : span.end] == span.text
        alone = model.tag(line)
        assert alone.tags == found.tags
        assert alone.spans == tuple(replace(span, score=mine.score) for span, mine in zip(found.spans, alone.spans))  # noqa: B905
    assert together[0].words == ()
    assert model.tag_words([[], ["x"]])[1].tags == together[1].tags


def _placed(word: object) -> tuple[object, ...]:
    return tuple(getattr(word, name) for name in ("text", "begin", "end"))


@every_model
def test_every_metric_is_there(name: str, runs: dict[str, Path], corpus: Path) -> None:
    found = scores(runs[name])
    assert {"accuracy", "known_tags", "f1", "f1_strict", "precision", "recall", "f1_PER"} <= found.keys()
    assert ("unseen_accuracy" in found) == (name not in ("transformer of pieces", "lstm of characters"))
    assert all(0.0 <= value <= 100.0 for value in found.values())
    assert scores(runs[name], "test", corpus / "test.conll") == found


def test_tags_and_spans_fit_together(runs: dict[str, Path]) -> None:
    model = saccade.load(runs["lstm, cnn, crf"], "cpu")
    for found in model.tag(["Ada Dunmor met Velton AG in Port Balwin on 3 May 1987."] * 2):
        assert is_written_so(found.tags, "bioes")
        spans = [(span.type, span.first, span.last) for span in found.spans]
        assert spans == [tuple(span) for span in read_spans(found.tags)]


def test_a_long_sentence_is_tagged_to_its_end(runs: dict[str, Path]) -> None:
    found = saccade.load(runs["transformer"], "cpu").tag("word " * (2 * MAX_WORDS + 7))
    assert len(found.words) == 2 * MAX_WORDS + 7


def test_words_may_be_given(runs: dict[str, Path]) -> None:
    model = saccade.load(runs["lstm"], "cpu")
    assert model.tag("a.b c", cut="spaces").tags == model.tag_words([["a.b", "c"]])[0].tags
    with pytest.raises(UsageError, match="sentence 1 is a string"):
        model.tag_words(["a b"])
    with pytest.raises(UsageError, match="sentence 2 has an empty word"):
        model.tag_words([["a"], ["", "b"]])


def test_evaluate_from_python(runs: dict[str, Path]) -> None:
    model = saccade.load(runs["lstm"], "cpu")
    found = model.evaluate([["Ada", "Dunmor", "came"], ["x"]], [["I-PER", "I-PER", "O"], ["B-NEW"]])
    assert found["known_tags"].value == 75.0
    assert found.spans is not None
    assert found.spans.micro.gold == 2
    assert [len(tags) for tags in found.found] == [3, 1]
    with pytest.raises(UsageError, match="bleu was not computed"):
        found["bleu"]
    with pytest.raises(UsageError, match="sentence 1 has 1 words and 2 tags"):
        model.evaluate([["a"]], [["O", "O"]])
    with pytest.raises(UsageError, match="the tag 'PER' is none of"):
        model.evaluate([["a"]], [["PER"]])
    with pytest.raises(UsageError, match="no sentence has a word"):
        model.evaluate([[]], [[]])


def test_verbs_of_other_tasks_are_refused(runs: dict[str, Path]) -> None:
    model = saccade.load(runs["lstm"], "cpu")
    with pytest.raises(UsageError, match="is a run of the task tag; to translate"):
        model.translate("a")


# ---- data that is not as it should be


def test_tags_that_training_never_had(corpus: Path, tmp_path: Path) -> None:
    """In validation and test data: counted, told, wrong whatever the model says; of no weight in the loss."""
    for split in ("valid", "test"):
        text = (corpus / f"{split}.conll").read_text().replace("B-DATE", "B-TIME").replace("I-DATE", "I-TIME")
        (tmp_path / f"{split}.conll").write_text(text)
    (tmp_path / "train.conll").write_text((corpus / "train.conll").read_text())
    events: list[object] = []
    saccade.train(tag_recipe(tmp_path, "lstm, cnn, crf"), tmp_path / "run", device="cpu", on_event=events.append)
    told = " ".join(events[0].remarks)  # type: ignore[attr-defined]
    assert "Words whose tag the training data do not have" in told
    found = scores(tmp_path / "run")
    assert 0 < found["known_tags"] < 100
    assert found["f1_TIME"] == 0.0
    validated = notes(tmp_path / "run", "validated")[-1]
    assert np.isfinite(validated["loss"])
    assert validated["accuracy"] == pytest.approx(scores(tmp_path / "run", "valid")["accuracy"])


@pytest.mark.parametrize("model", ["lstm", "lstm, cnn, crf", "lstm of characters"])
def test_validation_gives_what_evaluate_gives(corpus: Path, tmp_path: Path, model: str) -> None:
    """Also beside tags that training never had, and of a sentence that is longer than what is read together."""
    (tmp_path / "train.conll").write_text((corpus / "train.conll").read_text())
    valid = (corpus / "valid.conll").read_text()
    long = "".join(row + "\n" for row in valid.split("\n") * 4 if row)
    odd = "Ada B-PER\nof I-TIME\nVelsa I-PER\ncame O\n\nPort I-LOC\nB B-LOC\nC I-TIME\n"
    (tmp_path / "valid.conll").write_text(f"{valid}\n{odd}\n{long}")
    assert long.count("\n") > 256
    recipe = tag_recipe(tmp_path, model, "data.test=null", "train.updates=24", "train.optimizer.rate=4e-2")
    saccade.train(recipe, tmp_path / "run", device="cpu")
    facts = json.loads((tmp_path / "run" / "data" / "valid" / "store.json").read_text())
    assert facts["rows"] == valid.count("\n\n") + 4
    found = scores(tmp_path / "run", "valid")
    assert found["f1"] > 0 or recipe.text.kind != "words"
    validated = notes(tmp_path / "run", "validated")
    chosen = min(validated, key=lambda each: each["loss"])
    assert {name: chosen[name] for name in ("accuracy", "f1")} == {
        name: pytest.approx(found[name]) for name in ("accuracy", "f1")
    }


def test_a_tag_that_writes_no_span_is_told_by_line(corpus: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    """Where all others do: in a file to be scored, and in validation data before anything is trained."""
    (tmp_path / "wrong.conll").write_text("a O\n\nb O\nc PER\n")
    message = r"wrong\.conll:4: the tag 'PER' is none of"
    with pytest.raises(UsageError, match=message):
        scores(runs["lstm"], "test", tmp_path / "wrong.conll")
    recipe = tag_recipe(corpus, "lstm", f"data.valid={tmp_path / 'wrong.conll'}")
    with pytest.raises(UsageError, match=message):
        saccade.train(recipe, tmp_path / "run", device="cpu")


def test_another_width_of_characters_is_told(corpus: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    tree = config.plain(tag_recipe(corpus, "lstm, cnn, crf")) | {"init_from": str(runs["lstm, cnn, crf"])}
    tree["model"]["characters"] = None
    (tmp_path / "tag.yaml").write_text(config.to_yaml(tree))
    with pytest.raises(UsageError, match=r"reads 5 numbers of its characters there, nothing here \(model\.char"):
        saccade.train(tmp_path / "tag.yaml", tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.tag=4", r"train\.conll:1: the row has 2 columns; data\.tag asks for column 4"),
        ("data.train=none.conll", r"none\.conll: cannot be read: No such file"),
        ("data.scheme=bioes", None),
        ("data={kind: conllu, train: train.conll, valid: valid.conll}", r"the row has 1 column; CoNLL-U has 10"),
        ("data.max_length=3", None),
        ("data.max_length=1", r"data\.train: no usable sentence is left: .* longer than max_length"),
    ],
)
def test_data_that_cannot_be_read(corpus: Path, tmp_path: Path, setting: str, message: str | None) -> None:
    """Told by file and line before anything is trained; no half-made folder is left."""
    recipe = tag_recipe(corpus, "lstm", setting, "train.updates=1")
    if message is None:
        saccade.train(recipe, tmp_path / "run", device="cpu", base=corpus)
        return
    with pytest.raises(UsageError, match=message):
        saccade.train(recipe, tmp_path / "run", device="cpu", base=corpus)
    assert not (tmp_path / "run").exists()


def test_schemes_are_converted_and_mended(corpus: Path, tmp_path: Path) -> None:
    """IOB1 in, BIOES learnt; what is not written as it should be is told."""
    for split in ("train", "valid", "test"):
        text = (corpus / f"{split}.conll").read_text().replace("B-", "I-")
        (tmp_path / f"{split}.conll").write_text(text)
    saccade.train(tag_recipe(tmp_path, "lstm", "train.updates=1"), tmp_path / "run", device="cpu")
    tags = json.loads((tmp_path / "run" / "labels.json").read_text())
    assert tags["scheme"] == "bioes"
    assert {"S-PER", "E-DATE"} <= set(tags["tags"])
    events: list[object] = []
    strict = tag_recipe(tmp_path, "lstm", "train.updates=1", "data.scheme=iob2")
    saccade.train(strict, tmp_path / "strict", device="cpu", on_event=events.append)
    assert "Sentences whose tags were not written as their scheme says" in " ".join(events[0].remarks)  # type: ignore[attr-defined]


def test_tags_of_single_words(corpus: Path, tmp_path: Path) -> None:
    """CoNLL-U: no spans, no F1; and whoever asks for F1 is told."""
    from saccade.data.conll import TagCounts
    from saccade.data.tagged import split_tagged

    data = tag_recipe(corpus).data
    for split in ("train", "valid", "test"):
        rows = split_tagged(data, split, base=corpus, counts=TagCounts())
        plain = [row._replace(tags=tuple(tag[2:] or "OUT" for tag in row.tags)) for row in rows]
        (tmp_path / f"{split}.conllu").write_text(conllu(plain))
    tree = "data={kind: conllu, train: train.conllu, valid: valid.conllu, test: test.conllu}"
    chosen = tag_recipe(tmp_path, "gru, lstm, crf", tree, "train.metric=accuracy")
    saccade.train(chosen, tmp_path / "run", device="cpu", base=tmp_path)
    recipe, _ = load_recipe(str(tmp_path / "run" / "train.yaml"))
    loaded = saccade.load(tmp_path / "run", "cpu")
    found = recipe.scores(loaded.loaded, (), "test", tmp_path)
    assert found.keys() == {"accuracy", "unseen_accuracy", "known_tags"}
    assert loaded.tag("Ada came").spans == ()
    assert loaded.config["column"] == "upos"
    with pytest.raises(UsageError, match=r"train\.metric is f1, which counts spans, but the tags write none"):
        saccade.train(tag_recipe(tmp_path, "lstm", tree, "train.metric=f1"), tmp_path / "no", base=tmp_path)


def test_the_data_are_told(corpus: Path, tmp_path: Path) -> None:
    recipe = tag_recipe(corpus)
    assert [split for split, _ in recipe.beginnings(corpus)] == ["train", "valid", "test"]
    told = recipe.checked(corpus)
    assert "9 tags: B-DATE" in " ".join(told["train"])
    assert "% of its words do not stand in train" in " ".join(told["test"])
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.conll").write_text("a\n\nb O\n\nc\n")
    with pytest.raises(UsageError) as error:
        tag_recipe(tmp_path).checked(tmp_path)
    assert len(str(error.value).splitlines()) == 6  # two rows of three files
    sizes, sure = recipe.vocabularies(corpus)
    assert sizes.keys() == {"words", "tags"}
    assert not sure


# ---- settings that do not go together


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("text={kind: bpe}", "model.characters={kind: cnn}"), "model.characters is cnn, but text.kind is bpe"),
        (("text={kind: char}", "model.vectors={path: x}"), "model.vectors has vectors of words, but text.kind is char"),
        (("text={kind: bpe, dropout: 0.1}",), "text.dropout cuts a text otherwise each time"),
        (("model.output={kind: crf}", "train.smoothing=0.1"), "train.smoothing is 0.1: it spreads"),
        (("train.metric=bleu",), "for the task tag it must be one of loss, accuracy, f1"),
        (("data={kind: conllu, train: a, valid: b, column: pos}",), "'pos' is no column of CoNLL-U"),
        (("text={kind: wrods}",), "text.kind is 'wrods'; it must be one of"),
    ],
)
def test_what_does_not_go_together_is_refused(corpus: Path, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as error:
        tag_recipe(corpus, "lstm", *settings)
    assert message in str(error.value)


# ---- an encoder that was trained before


@pytest.mark.parametrize("text", ["word", "bpe"])
def test_a_tagger_begins_with_an_encoder(corpus: Path, tmp_path: Path, text: str) -> None:
    """Pre-trained on blanks; tokenizer and weights come from there, frozen ones stay."""
    encoder = "{kind: transformer, layers: 1, width: 8, heads: 2}"
    settings = (f"text={{kind: {text}, size: 300}}", f"model={{encoder: {encoder}}}", "data.train=50", "data.valid=5")
    blanks = saccade.recipe("blanks", *settings, "data.test=5", "train.updates=3", "train.validate_every=3")
    saccade.train(blanks, tmp_path / "blanks", device="cpu")
    tree = config.plain(tag_recipe(corpus, "transformer of pieces"))
    del tree["text"]
    tree |= {"init_from": "blanks", "freeze": True, "model": {"output": {"kind": "crf"}}}
    (tmp_path / "tag.yaml").write_text(config.to_yaml(tree))
    saccade.train(tmp_path / "tag.yaml", tmp_path / "run", device="cpu")
    first = checkpoint.load(tmp_path / "blanks", torch.device("cpu")).model.get_parameter("encoder.embed.table.weight")
    model = saccade.load(tmp_path / "run", "cpu")
    assert torch.equal(model.tagger.model.encoder.embed.table.weight, first)
    assert len(model.tag("Ada came.").words) == 3


# ---- words that are seen once, and pretrained vectors


def test_words_that_stand_once_are_sometimes_unknown(corpus: Path, tmp_path: Path) -> None:
    """In training alone, half of the time, and the same ones each time that the batch is made."""
    chosen = tag_recipe(corpus, "lstm", "text.unknown=0.5", "train.batch_tokens=4000")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    ready = chosen.make_task(corpus).open(tmp_path / "run")
    batches = ready.batches(BEGINNING)
    first, again = next(batches)[1], next(ready.batches(BEGINNING))[1]
    assert first.source.ids.tolist() == again.source.ids.tolist()
    assert isinstance(ready, TagReady)
    plain = ready.largest()[0]
    rare = ready.text.rare  # type: ignore[union-attr]
    once = sum(each in rare for each in plain.source.ids.tolist())
    hidden = int((first.source.ids == UNKNOWN).sum())
    assert once > 40
    assert 0.3 * once < hidden < 0.7 * once
    never = tag_recipe(corpus, "lstm", "text.unknown=0", "train.batch_tokens=4000").make_task(corpus)
    assert UNKNOWN not in next(never.open(tmp_path / "run").batches(BEGINNING))[1].source.ids


def with_vectors(folder: Path, corpus: Path, *settings: str) -> tuple[Model, Path]:
    words = sorted({line.split()[0].lower() for line in (corpus / "train.conll").read_text().splitlines() if line})
    rows = [f"{word} {' '.join(str((7 * i + k) % 5 - 2) for k in range(6))}" for i, word in enumerate(words[::2])]
    (folder / "vectors.txt").write_text("".join(f"{row}\n" for row in [*rows, "elsewhere 1 2 3 4 5 6"]))
    recipe = tag_recipe(corpus, "lstm, cnn, crf", "model.vectors.path=vectors.txt", *settings)
    saccade.train(recipe, folder / "run", device="cpu", base=folder)
    return saccade.load(folder / "run", "cpu"), folder / "run"


def test_words_begin_with_their_vectors(corpus: Path, tmp_path: Path) -> None:
    """Frozen ones stay; words of the file have ids; the run tells how many there were, and goes on without the file."""
    frozen = ("model.vectors.freeze=true", "model.vectors.more_words=10000")
    model, run = with_vectors(tmp_path, corpus, *frozen)
    assert model.tagger.text.knows("elsewhere")  # type: ignore[union-attr]
    assert not model.tagger.text.saw("elsewhere")  # type: ignore[union-attr]
    number = model.tagger.text.read([["elsewhere"]]).ids[0]
    table = model.tagger.model.encoder.embed.table.weight
    assert table[number].tolist() == [1, 2, 3, 4, 5, 6]
    assert "vectors.txt: vectors for" in (run / "README.md").read_text()
    (tmp_path / "vectors.txt").unlink()
    recipe = tag_recipe(corpus, "lstm, cnn, crf", "model.vectors.path=vectors.txt", *frozen, "train.updates=12")
    assert saccade.train(recipe, run, resume=True, device="cpu", base=tmp_path).finished.update == 12
    assert saccade.verify(run).ok
    assert any("vectors" in file.name for file in saccade.verify(run).files)


def test_words_in_capitals_have_the_vector_of_their_small_letters(corpus: Path, tmp_path: Path) -> None:
    """Where they have no id as they stand, in a run that is read again; what is tagged depends on it."""
    frozen = ("model.vectors.freeze=true", "model.vectors.more_words=10000", "text.lowercase=unseen")
    model, _ = with_vectors(tmp_path, corpus, *frozen)
    ids = model.tagger.text.read([["Elsewhere", "elsewhere", "NOWHERE"]]).ids.tolist()
    assert ids[0] == ids[1]
    assert ids[2] == UNKNOWN
    assert model.tagger.model.encoder.embed.table.weight[ids[0]].tolist() == [1, 2, 3, 4, 5, 6]
    seen, like, unknown = (
        model.tagger.model.encoder.embed.table.weight[model.tagger.text.read([[word]]).ids[0]].tolist()
        for word in ("Elsewhere", "elsewhere", "Nowhere")
    )
    assert seen == like != unknown


def test_vectors_are_trained_on_unless_frozen(corpus: Path, tmp_path: Path) -> None:
    model, _ = with_vectors(tmp_path, corpus)
    text, table = model.tagger.text, model.tagger.model.encoder.embed.table.weight
    rows = [line.split() for line in (tmp_path / "vectors.txt").read_text().splitlines()[:-1]]
    known = [(row[0], [float(x) for x in row[1:]]) for row in rows if text.knows(row[0])]  # type: ignore[union-attr]
    moved = [table[text.read([[word]]).ids[0]].tolist() != vector for word, vector in known]
    assert len(known) > 5
    assert any(moved)


def test_vectors_of_another_width_are_told(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the file's vectors have 6 numbers, the model's token vectors 5"):
        with_vectors(tmp_path, corpus, "model.encoder.embedding=5")


# ---- a folder that is not whole


@pytest.mark.parametrize("name", ["tokenizer.json", "labels.json"])
def test_files_of_another_run_are_refused(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    import shutil

    shutil.copytree(runs["lstm"], tmp_path / "run")
    (tmp_path / "run" / name).write_text((tmp_path / "run" / name).read_text() + " ")
    with pytest.raises(SaccadeError, match=name):
        saccade.load(tmp_path / "run", "cpu")


def test_the_corpus_has_what_the_tests_speak_of(corpus: Path) -> None:
    assert conll([]) == ""
    assert "B-DATE" in (corpus / "test.conll").read_text()
