"""The command `classify`, and what evaluate, explain, info, data check and train tell of classifiers."""

import gzip
import json
from pathlib import Path

import pytest

import saccade
from saccade import config
from tests.support.cli import saccade_command, shake
from tests.support.labels import recipe, write_labelled_corpus

LINES = ["The plot is good.", "", "x\ty", "The cast is never bad, but the music is dull."]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run` and `pairs`, shaken so that their answers differ; `han`; their recipes and data."""
    folder = tmp_path_factory.mktemp("home")
    for name, model, paired in (("run", "lstm", False), ("pairs", "apart", True), ("han", "han", False)):
        data = write_labelled_corpus(folder / f"data-{name}", paired=paired)
        chosen = recipe(data, model, "train.updates=2", paired=paired)
        (folder / f"{name}.yaml").write_text(config.to_yaml(config.plain(chosen)), encoding="utf-8")
        done = saccade_command("train", folder / f"{name}.yaml", "-q", "--out", folder / name)
        assert done.exit_code == 0, done.stderr
        shake(folder / name, by=1.0, seed=3)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def classified(*arguments: str, stdin: bytes = b"") -> str:
    done = saccade_command("classify", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_arguments_files_and_stdin_give_the_same(tmp_path: Path) -> None:
    answers = saccade.load("run", "cpu").classify(LINES)
    expected = "".join(f"{each.label}\n" for each in answers)
    assert len({each.label for each in answers}) == 2
    assert classified("run", *LINES) == expected
    text = "\n".join(LINES)
    assert classified("run", stdin=text.encode()) == expected
    assert classified("run", "-i", "-", stdin=(text + "\n").encode()) == expected
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.encode()))
    assert classified("run", "-i", str(tmp_path / "in.gz"), "-o", str(tmp_path / "out"), "--device", "cpu") == ""
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected
    assert classified("run", *LINES, "--batch-tokens", "1") == expected
    assert classified("run", stdin=b"") == ""


def test_formats() -> None:
    answers = saccade.load("run", "cpu").classify(LINES)
    by_line = [line.split("\t") for line in classified("run", *LINES, "--scores").splitlines()]
    assert by_line == [[f"{each.probability:.4f}", each.label] for each in answers]
    rows = classified("run", *LINES, "-f", "tsv").split("\n")[:-1]
    # a tab within a text would be a column
    assert rows == [f"{each.label}\t{line}".replace("x\ty", "x y") for each, line in zip(answers, LINES, strict=True)]
    rows = classified("run", *LINES, "-f", "tsv", "--scores", "--top", "2").split("\n")[:-1]
    for row, each, line in zip(rows, answers, LINES, strict=True):
        cells = [cell for a in each.answers for cell in (a.label, f"{a.probability:.4f}")]
        assert row == "\t".join([*cells, line.replace("\t", " ")])
    found = [json.loads(line) for line in classified("run", *LINES, "-f", "jsonl").splitlines()]
    for each, row, line in zip(answers, found, LINES, strict=True):
        assert (row["text"], row["label"], row["cut"]) == (line, each.label, False)
        assert row["score"] == pytest.approx(each.probability)
        assert [answer["label"] for answer in row["labels"]] == [answer.label for answer in each.answers]
    one = json.loads(classified("run", "x", "-f", "jsonl", "--top", "1"))
    assert len(one["labels"]) == 1


def test_what_is_written_as_tsv_can_be_trained_on_and_scored(tmp_path: Path) -> None:
    """The model agrees with itself."""
    (tmp_path / "own.tsv").write_text(classified("run", *LINES[:1], "Bad film", "-f", "tsv"), encoding="utf-8")
    done = saccade_command("evaluate", "run", tmp_path / "own.tsv", "-f", "json")
    assert json.loads(done.stdout)["scores"]["accuracy"]["value"] == 100


def test_two_texts() -> None:
    found = json.loads(classified("pairs", "The plot is good.\tThe cast is bad.", "-f", "jsonl"))
    assert (found["text"], found["second"]) == ("The plot is good.", "The cast is bad.")
    assert classified("pairs", "a\tb", "-f", "tsv").endswith("\ta\tb\n")
    assert classified("pairs", "").count("\n") == 1
    done = saccade_command("classify", "pairs", "a\tb", "only one")
    assert done.exit_code == 2
    assert "line 2 ('only one') holds 1 text; the model reads a tab between two texts in each line." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "x", "-i", "run.yaml"], "TEXT and --input are both given"),
        (["run", "x", "--top", "2"], "--top: text has one label for each line in"),
        (["run", "x", "-f", "jsonl", "--scores"], "--scores: jsonl holds the probabilities anyway"),
        (["nowhere", "x"], "nowhere: is no run folder"),
    ],
)
def test_refusals(arguments: list[str], told: str) -> None:
    done = saccade_command("classify", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr


def test_a_long_line_is_told_of() -> None:
    done = saccade_command("classify", "run", "good " * 600)
    assert done.exit_code == 0
    assert "1 line longer than the model reads (512 tokens): the rest was not read." in done.stderr


def test_a_long_line_is_told_of_where_it_is_explained_or_compared(home: Path, tmp_path: Path) -> None:
    explained = saccade_command("explain", "run", "good " * 600, "-o", tmp_path / "a.npz")
    assert "longer than the model reads" in explained.stderr
    assert "longer" not in saccade_command("explain", "run", "good", "-o", tmp_path / "a.npz").stderr
    row = (home / "data-run" / "test.tsv").read_text(encoding="utf-8").splitlines()[0]
    (tmp_path / "long.tsv").write_text(f"{row}\n{row}{' good' * 600}\n", encoding="utf-8")
    compared = saccade_command("compare", "run", "run", "--names", "x,y", "--source", tmp_path / "long.tsv")
    assert compared.exit_code == 0, compared.stderr
    assert "x: 1 line longer than it reads; the rest of each was not read." in compared.stdout
    scored = saccade_command("evaluate", "run", tmp_path / "long.tsv")
    assert "1 line longer than the model reads (512 tokens): the rest was not read." in scored.stderr
    assert "longer" not in saccade_command("evaluate", "run").stderr


def test_evaluate_tells_each_label_and_who_is_taken_for_whom() -> None:
    done = saccade_command("evaluate", "run")
    assert done.exit_code == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["label", "precision", "recall", "F1", "texts"] in rows
    assert ["true", "\\", "given", "negative", "positive"] in rows
    as_json = json.loads(saccade_command("evaluate", "run", "-f", "json").stdout)
    assert [each["label"] for each in as_json["classes"]] == ["negative", "positive"]
    assert sum(map(sum, as_json["confusion"])) == as_json["scores"]["accuracy"]["count"] == 12
    one = saccade_command("evaluate", "run", "--metrics", "macro_f1", "-f", "tsv", "--split", "valid")
    assert one.stdout.splitlines()[1].startswith("macro_f1\t")
    assert "| label" in saccade_command("evaluate", "run", "-f", "markdown").stdout
    none = json.loads(saccade_command("evaluate", "run", "-f", "json", "--resamples", "0").stdout)["scores"]
    assert (none["macro_f1"]["low"], none["accuracy"]) == (None, as_json["scores"]["accuracy"])
    assert saccade_command("evaluate", "run", "--fail-under", "accuracy=101").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--beam", "2"], "--beam: run is a run of the task classify, which has no use for it"),
        (["run", "--gold", "x"], "--gold: run is a run of the task classify, which has no use for it"),
        (["run", "--metrics", "bleu"], "it must be a list out of accuracy, macro_f1"),
        (["run", "nothing.tsv"], "nothing.tsv: cannot be read"),
        (["pairs", "lines.jsonl"], "where two texts stand in it is not known"),
        (["run", "data-run/test.tsv", "lines.jsonl"], "give files of one layout"),
    ],
)
def test_what_evaluate_refuses(arguments: list[str], told: str) -> None:
    done = saccade_command("evaluate", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr


def test_evaluate_tells_what_it_leaves_out(home: Path, tmp_path: Path) -> None:
    """On stderr: a share of rows that are not scored flatters no one without being told."""
    chosen = recipe(home / "data-run", "gru", "data.on_bad=repair", "train.updates=1")
    saccade.train(chosen, tmp_path / "run", device="cpu")
    rows = (home / "data-run" / "test.tsv").read_text(encoding="utf-8")
    (tmp_path / "more.tsv").write_text("alone\n" + rows, encoding="utf-8")
    done = saccade_command("evaluate", tmp_path / "run", tmp_path / "more.tsv", "-f", "json")
    assert done.exit_code == 0, done.stderr
    assert "Rows left out because they could not be read: 1 (" in done.stderr
    assert "more.tsv:1)" in done.stderr
    json.loads(done.stdout)
    whole = saccade_command("evaluate", tmp_path / "run", home / "data-run" / "test.tsv")
    assert whole.stderr == ""


def test_evaluate_reads_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"label": "positive", "text": "A film."}\n{"label": "new", "text": ""}\n')
    found = json.loads(saccade_command("evaluate", "run", tmp_path / "a.jsonl", "-f", "json").stdout)
    assert found["scores"]["accuracy"]["count"] == 2
    assert {each["label"] for each in found["classes"]} >= {"positive", "new"}
    (tmp_path / "empty.tsv").write_text("")
    done = saccade_command("evaluate", "run", tmp_path / "empty.tsv")
    assert (done.exit_code, "there is nothing to score" in done.stderr) == (2, True)


def test_data_that_moved_are_told_of(home: Path, tmp_path: Path) -> None:
    data = write_labelled_corpus(tmp_path / "data")
    tree = config.plain(recipe(data, "gru", "train.updates=1"))
    for split in ("train", "valid", "test"):
        tree["data"][split]["tsv"] = [f"data/{split}.tsv"]
    (tmp_path / "mine.yaml").write_text(config.to_yaml(tree), encoding="utf-8")
    assert saccade_command("train", tmp_path / "mine.yaml", "-q", "--out", tmp_path / "run").exit_code == 0
    assert saccade_command("evaluate", tmp_path / "run").exit_code == 0
    data.rename(tmp_path / "elsewhere")
    done = saccade_command("evaluate", tmp_path / "run")
    assert done.exit_code == 2
    assert "data/test.tsv: is not in" in done.stderr
    (tmp_path / "base").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "base" / "data")
    assert saccade_command("evaluate", tmp_path / "run", "--base", tmp_path / "base").exit_code == 0


@pytest.mark.parametrize("run", ["run", "han"])
def test_explain(run: str, tmp_path: Path) -> None:
    for name in ("a.png", "a.html", "a.npz"):
        done = saccade_command("explain", run, "The plot is bad. The cast is great.", "-o", tmp_path / name)
        assert done.exit_code == 0, done.stderr
        assert (tmp_path / name).stat().st_size > 500
    done = saccade_command("explain", run, "x", "-o", tmp_path / "b.png", "--kind", "cross")
    assert (done.exit_code, "has no cross-attention; it has: pooling" in done.stderr) == (2, True)
    assert saccade_command("explain", run, "x", "-o", tmp_path / "b.png", "--kind", "pooling").exit_code == 0
    done = saccade_command("explain", run, "x", "-o", tmp_path / "b.png", "--target", "positive")
    assert (done.exit_code, "leave it out" in done.stderr) == (2, True)


def test_what_else_is_told(home: Path) -> None:
    listed = saccade_command("runs", "list", home).stdout
    assert "words gru + attention → sentences gru + attention" in listed
    assert "gru + max" in listed
    assert "classify, lstm + attention, finished at update 2 of 2" in saccade_command("info", "run").stdout
    card = (home / "han" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "gru over words → gru over sentences" in card
    assert "saccade classify han < texts.txt > labels.txt" in card
    checked = saccade_command("data", "check", "run.yaml")
    assert checked.exit_code == 0
    assert "labels: 2: " in checked.stdout
    planned = saccade_command("train", "run.yaml", "--dry-run", "--out", "new")
    assert "with about 60 tokens, 2 labels" in planned.stderr
    assert "data: test begins " in planned.stderr
