"""The task `classify` × every architecture: trained a little, saved, loaded, used, scored; and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import saccade
from saccade.api import Model
from saccade.checkpoint import load as load_run
from saccade.data.labelled_store import LabelledStore
from saccade.errors import SaccadeError, UsageError
from saccade.models.encoders import RecurrentEncoder
from saccade.recipe import Recipe
from saccade.tasks.base import Scores
from saccade.train.events import Finished, Prepared
from saccade.types import Batch
from tests.support.labels import MODELS, PAIRED, recipe, write_labelled_corpus
from tests.support.malice import sign
from tests.support.tiny import notes

CASES = [(name, False) for name in MODELS] + [(name, True) for name in PAIRED]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_labelled_corpus(folder / "one")
    write_labelled_corpus(folder / "two", paired=True)
    return folder


def made(corpus: Path, name: str, paired: bool, *settings: str) -> Recipe:
    return recipe(corpus / ("two" if paired else "one"), name, *settings, paired=paired)


def rows(corpus: Path, split: str, paired: bool) -> list[list[str]]:
    text = (corpus / ("two" if paired else "one") / f"{split}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


@pytest.mark.parametrize(("name", "paired"), CASES)
def test_train_save_load_use_and_score(name: str, paired: bool, corpus: Path, tmp_path: Path) -> None:
    """What validation told is what evaluation of the same data tells; the loaded model answers as the trained one."""
    chosen = made(corpus, name, paired, "train.metric=accuracy", "train.updates=6", "train.validate_every=3")
    out = tmp_path / "run"
    finished = saccade.train(chosen, out, device="cpu").finished
    assert all(math.isfinite(note["loss"]) for note in notes(out, "trained"))
    model = saccade.load(out, "cpu")
    assert model.task == "classify"
    gold = rows(corpus, "valid", paired)
    lines = ["\t".join(row[1:]) for row in gold]
    answers = model.classify(lines)
    assert [len(each.answers) for each in answers] == [2] * len(lines)
    measured = model.evaluate_labels(lines, [row[0] for row in gold])
    by_another_name: Any = model.evaluate(lines, [row[0] for row in gold])
    assert measured == by_another_name
    assert measured.accuracy.value == pytest.approx(finished.best["accuracy"])
    assert measured.macro_f1.value == pytest.approx(finished.best["macro_f1"])
    nll = [
        -math.log(next(a.probability for a in each.answers if a.label == row[0]))
        for each, row in zip(answers, gold, strict=True)
    ]
    assert sum(nll) / len(nll) == pytest.approx(finished.best["loss"], rel=1e-4)
    by_recipe = chosen.scores(load_run(out, torch.device("cpu")), [], "valid", Path.cwd())
    assert isinstance(by_recipe, Scores)
    assert by_recipe["accuracy"] == measured.accuracy
    assert [table.name for table in by_recipe.tables] == ["classes", "confusion"]
    check_what_is_looked_at(model, name, paired)
    # Nothing at all, one token, and a line of anything else.
    odd = ["\t", "x\tx", "\u2028\x00<s>\t"] if paired else ["", "x", "\u2028\x00<s>"]
    assert all(sum(a.probability for a in each.answers) == pytest.approx(1, abs=1e-5) for each in model.classify(odd))


def check_what_is_looked_at(model: Model, name: str, paired: bool) -> None:
    """Weights add up within each row; a model that attends to nothing says so."""
    line = (
        "The plot is not good.\tThe cast is great." if paired else "The plot is not good. Overall, the cast is great."
    )
    attends = model.config["model"].get("pooling") == "attention"
    if not (attends or name.startswith(("han", "transformer", "lstmn"))):
        with pytest.raises(UsageError, match="looks at nothing that could be shown"):
            model.explain(line)
        return
    trace = model.explain(line)
    assert trace.title.startswith("The plot is not good.")
    for weights_LHQK in trace.attention.values():
        sums = weights_LHQK.sum(-1)
        assert sums == pytest.approx(torch.ones(sums.shape).numpy(), abs=1e-3)
    if "pooling" in trace.attention and model.classifier.reading.layout != "apart":
        assert trace.target[-1].startswith(model.classify(line).label)
    if name == "han":
        words = [len(model.classifier.text.encode(each)) for each in line.replace(". O", ".\nO").split("\n")]
        assert trace.attention["pooling"].shape == (1, 1, 3, sum(words))
        assert not trace.attention["pooling"][0, 0, 0, words[0] :].any()
        assert not trace.attention["pooling"][0, 0, 1, : words[0]].any()
    with pytest.raises(UsageError, match="the same for every label"):
        model.explain(line, "positive")


def test_the_pictures_show_it(corpus: Path, tmp_path: Path) -> None:
    from saccade.view.attention import draw_matrix
    from saccade.view.page import render_html

    saccade.train(made(corpus, "han", False, "train.updates=1"), tmp_path / "run", device="cpu")
    trace = saccade.load(tmp_path / "run", "cpu").explain("The plot is bad. The cast is great.")
    figure = draw_matrix(trace, kind="pooling")
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == list(trace.target)
    page = render_html([trace], title="words and sentences")
    assert '"pooling"' in page


# ---- data that are not as they should be


def test_labels_never_seen_are_counted_and_wrong(corpus: Path, tmp_path: Path) -> None:
    folder = write_labelled_corpus(tmp_path / "data")
    with (folder / "valid.tsv").open("a", encoding="utf-8") as file:
        file.write("undecided\tThe plot is good.\nundecided\tThe cast is bad.\nmixed\tA film.\n")
    chosen = recipe(folder, "gru", "train.updates=4", "train.validate_every=2", "train.metric=macro_f1")
    events = list(saccade.training(chosen, tmp_path / "run", device="cpu"))
    assert isinstance(events[0], Prepared)
    assert isinstance(events[-1], Finished)
    told = "Texts whose label the training data do not have, which counts as wrong: 'undecided' (2), 'mixed' (1)."
    assert f"valid: {told}" in events[0].remarks
    assert saccade.load(tmp_path / "run", "cpu").classifier.labels.names == ("negative", "positive")
    measured = chosen.scores(load_run(tmp_path / "run", torch.device("cpu")), [folder / "valid.tsv"], "test", tmp_path)
    assert measured["accuracy"].value == pytest.approx(events[-1].best["accuracy"])
    assert measured["macro_f1"].value == pytest.approx(events[-1].best["macro_f1"])
    assert measured["accuracy"].value <= 100 * 20 / 23
    assert isinstance(measured, Scores)
    rows_of = {row["label"]: row for row in measured.tables[0].rows}
    assert rows_of["undecided"]["recall"] == "0.0"
    assert rows_of["undecided"]["in training"] == "no"
    assert rows_of["positive"]["in training"] == "yes"


def test_a_column_that_is_missing_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    folder = write_labelled_corpus(tmp_path / "data", train=20)
    with (folder / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("positive\n")
    with pytest.raises(UsageError, match=r"train.tsv:21: the row has 1 column; the text stands in column 2"):
        saccade.train(recipe(folder, "gru"), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    saccade.train(recipe(folder, "gru", "data.on_bad=repair", "train.updates=1"), tmp_path / "run", device="cpu")
    assert "Rows left out because they could not be read: 1" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [("a\tx\na\ty\n", r"at least two labels to tell apart; there is \['a'\]"), ("", "there is none")],
)
def test_nothing_to_tell_apart(tmp_path: Path, content: str, told: str) -> None:
    folder = write_labelled_corpus(tmp_path / "data")
    (folder / "train.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=told):
        saccade.train(recipe(folder, "gru"), tmp_path / "run", device="cpu")


@pytest.mark.parametrize("kind", ["sequence", "hierarchical"])
def test_long_texts_are_cut_dropped_or_refused(tmp_path: Path, kind: str) -> None:
    folder = write_labelled_corpus(tmp_path / "data", train=30, valid=4)
    with (folder / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("positive\t" + "good " * 80 + "\n")
    name = "gru" if kind == "sequence" else "han"

    def counted(rule: str) -> dict[str, Any]:
        out = tmp_path / rule
        chosen = recipe(folder, name, f"data.on_long={rule}", "data.max_length=40", "train.updates=1")
        saccade.train(chosen, out, device="cpu")
        facts: dict[str, Any] = json.loads((out / "data" / "train" / "store.json").read_text())
        return facts

    cut, dropped = counted("cut"), counted("drop")
    assert (cut["rows"], cut["counts"]["too_long_cut"]) == (31, 1)
    assert (dropped["rows"], dropped["counts"]["too_long_dropped"], dropped["counts"]["kept"]) == (30, 1, 30)
    with pytest.raises(UsageError, match=r"train.tsv:31: the text has more than 40 tokens"):
        counted("refuse")


def test_a_share_is_held_out_where_no_validation_data_are_named(tmp_path: Path) -> None:
    folder = write_labelled_corpus(tmp_path / "data", train=200)
    chosen = recipe(folder, "gru", "data.valid=null", "data.hold_out=0.2", "train.updates=1")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    train, valid = (LabelledStore.open(tmp_path / "run" / "data" / split) for split in ("train", "valid"))
    assert len(train) + len(valid) == 200
    assert 20 <= len(valid) <= 60
    every = [row.split("\t")[1] for row in (folder / "train.tsv").read_text(encoding="utf-8").splitlines()]
    assert {valid.text(i) for i in range(len(valid))} <= set(every)


def test_what_is_checked(tmp_path: Path) -> None:
    folder = write_labelled_corpus(tmp_path / "data", train=40, valid=5, test=5)
    first = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()[0]
    with (folder / "test.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{first}\nother\tA film.\n")
    found = recipe(folder, "gru").checked(tmp_path)
    assert list(found) == ["train", "valid", "test"]
    assert found["train"][0] == "40 rows read, 40 texts kept."
    assert found["train"][1].startswith("labels: 2: ")
    assert "1 texts have a label that train has not, and will count as wrong: ['other']" in found["test"]
    assert "1 texts also stand in train: scores on test will flatter" in found["test"]
    (folder / "valid.tsv").write_text("positive\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"valid: .*valid.tsv:1: the row has 1 column"):
        recipe(folder, "gru").checked(tmp_path)


# ---- pretrained vectors


@pytest.mark.parametrize("name", ["gru", "han"])
def test_words_begin_with_their_vectors(name: str, corpus: Path, tmp_path: Path) -> None:
    """Frozen ones stay, others learn; the run tells of them and goes on without the file."""
    (tmp_path / "vectors.txt").write_text("plot 1 2 3 4 5 6 7 8\ngood 8 7 6 5 4 3 2 1\nnowhere 0 0 0 0 0 0 0 0\n")
    for freeze in (True, False):
        out = tmp_path / f"run-{freeze}"
        settings = (f"model.vectors={{path: vectors.txt, freeze: {freeze}}}", "train.updates=3")
        saccade.train(made(corpus, name, False, *settings), out, device="cpu", base=tmp_path)
        engine = saccade.load(out, "cpu").classifier
        reader = engine.model.words if name == "han" else engine.model.encoder
        assert isinstance(reader, RecurrentEncoder)
        row = reader.embed.table.weight[engine.text.encode(" plot")[0]]
        assert (row.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]) == freeze
        assert row.tolist() == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8], abs=0.2)
        assert "vectors.txt: vectors for 2" in (out / "README.md").read_text()
    (tmp_path / "vectors.txt").unlink()
    longer = made(corpus, name, False, settings[0], "train.updates=4")
    assert saccade.train(longer, out, resume=True, device="cpu", base=tmp_path).finished.update == 4
    assert saccade.verify(out).ok


# ---- what makes no sense


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("model.pair=apart", "model.pair is apart, which compares two texts, but the data have one"),
        ("text.shared=false", "text.shared is false, but there is one vocabulary alone"),
        ("text={kind: bpe, size: 400, dropout: 0.1}", "text.dropout is 0.1, which is for translate"),
        ("model.pooling=first", "pooling is first and the encoder gru, whose state at the first token"),
        ("model.attention_width=5", "attention_width is 5, which is a setting of pooling: attention; pooling is last"),
        ("model.activation=relu", "activation is relu, but there is no hidden layer"),
        ("model.encoder={kind: transformer, positions: tree}", "positions are tree, which read a dependency parse"),
        ("model.encoder={kind: bag}", "pooling is last and the encoder a bag"),
        (
            "train.metric=bleu",
            "train.metric is 'bleu'; for the task classify it must be one of loss, accuracy, macro_f1",
        ),
        ("text={kind: char}\0model.vectors={path: x}", "model.vectors has vectors of words, but text.kind is char"),
        ("data.train.second=2", "`train` has 2 texts a row and `valid` 1"),
    ],
)
def test_settings_that_make_no_sense(corpus: Path, setting: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        made(corpus, "gru", False, *setting.split("\0"))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("model.sentences.encoder.embedding=9", "the sentences' encoder has embedding: 9, but reads vectors"),
        ("model.sentences.encoder.embedding_dropout=0.5", "the sentences' encoder has embedding_dropout: 0.5"),
        ("model.sentences={encoder: {kind: gru}, pooling: first}", "pooling is first and the encoder gru"),
        ("model.sentences.pooling=mean", "attention_width is 4, which is a setting of pooling: attention"),
        (
            "model.sentences={encoder: {kind: transformer, segments: 2}}",
            "the sentences' encoder has segments: 2, but reads vectors of sentences",
        ),
        ("model.sentences.encoder={kind: bag}", "bag"),
    ],
)
def test_settings_of_documents_that_make_no_sense(corpus: Path, setting: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        made(corpus, "han", False, setting)


def test_a_run_whose_files_are_not_of_one_run_is_refused(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    saccade.train(made(corpus, "gru", False, "train.updates=1"), out, device="cpu")
    (out / "labels.json").write_text('["a", "b", "c"]')
    with pytest.raises(SaccadeError, match=r"labels.json: is not the file that was saved"):
        saccade.load(out, "cpu")
    sign(out)
    with pytest.raises(SaccadeError, match="its list of labels 3, its model"):
        saccade.load(out, "cpu")
    (out / "labels.json").write_text('["negative", "positive"]')
    config = json.loads((out / "config.json").read_text())
    for reads in (None, {"texts": 1}, {"texts": 1, "max_length": "9", "max_sentences": 1}):
        (out / "config.json").write_text(json.dumps(config | {"reads": reads}))
        sign(out)
        with pytest.raises(SaccadeError, match="reads must hold texts, max_length, max_sentences, whole numbers"):
            saccade.load(out, "cpu")


def test_other_verbs_say_what_the_run_is_for(corpus: Path, tmp_path: Path) -> None:
    saccade.train(made(corpus, "gru", False, "train.updates=1"), tmp_path / "run", device="cpu")
    model = saccade.load(tmp_path / "run", "cpu")
    with pytest.raises(UsageError, match="is a run of the task classify; to translate, there must be one of translate"):
        model.translate("x")
    with pytest.raises(UsageError, match="there are 1 texts and 2 labels"):
        model.evaluate_labels(["x"], ["a", "b"])


# ---- batches


def test_batches_of_nested_texts_are_as_the_rows_say(corpus: Path, tmp_path: Path) -> None:
    """Each row alone, and some together: the same ids, the same label, packed."""
    saccade.train(made(corpus, "han", False, "train.updates=1"), tmp_path / "run", device="cpu")
    store = LabelledStore.open(tmp_path / "run" / "data" / "valid")
    import numpy as np

    some = np.array([3, 0, 7])
    batch = store.collate(some)
    assert isinstance(batch, Batch)
    assert batch.source.inside is not None
    begin = 0
    for k, row in enumerate(some):
        alone = store.collate(np.array([row]))
        assert alone.source.inside is not None
        mine = batch.rows(k, k + 1)
        assert mine.source.inside is not None
        assert torch.equal(mine.source.inside.ids, alone.source.inside.ids)
        assert torch.equal(mine.target.ids, alone.target.ids)
        begin += len(alone.source.ids)
        places = int(alone.source.inside.layout.longest) * len(alone.source.ids)
        assert store.lengths[row].tolist() == [places, alone.source.inside.layout.longest]
    assert begin == len(batch.source.ids)
    assert replace(batch, index=()) is not None
