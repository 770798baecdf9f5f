"""`saccade tag` and what the other commands say of a tagger's run."""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.cli import saccade_command
from tests.support.tagging import tag_recipe, write_tagged

LINE = "Ada Dunmor met Velton AG in Port Balwin."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and beside it its recipe."""
    from saccade import config

    folder = tmp_path_factory.mktemp("tagger")
    write_tagged(folder)
    quick = ("train.updates=30", "train.optimizer.rate=4e-2", "train.validate_every=15", "model.encoder.width=24")
    recipe = tag_recipe(folder, "lstm, cnn, crf", *quick, "model.encoder.dropout=0", "train.metric=f1")
    tree = config.plain(recipe)
    for split in ("train", "valid", "test"):
        tree["data"][split] = f"{split}.conll"
    (folder / "tag.yaml").write_text(config.to_yaml(tree))
    done = saccade_command("train", folder / "tag.yaml", "-q", "--out", folder / "run")
    assert done.exit_code == 0, done.stderr
    return folder


def tagged(folder: Path, *arguments: str | Path, stdin: bytes = b"") -> str:
    done = saccade_command("tag", folder / "run", *arguments, "--device", "cpu", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return str(done.stdout)


def test_training_says_what_to_do_next(folder: Path) -> None:
    done = saccade_command("train", folder / "tag.yaml", "--set", "train.updates=1", "--out", folder / "again")
    assert "sentences, " in done.stderr + done.stdout
    assert f"next: saccade tag {folder / 'again'} '" in done.stderr + done.stdout


def test_text_is_a_line_a_sentence(folder: Path) -> None:
    out = tagged(folder, LINE, "", "x")
    first, second, third, end = out.split("\n")
    assert [pair.rpartition("/")[0] for pair in first.split()] == [*LINE[:-1].split(), "."]
    assert second == end == ""
    assert third.startswith("x/")


def test_conll_reads_back(folder: Path) -> None:
    """As many sentences as lines, in the scheme that was asked for, and scores in a third column."""
    from saccade.data.conll import ConllData, TagCounts, tagged_sentences
    from saccade.text.tags import Scheme, is_written_so

    schemes: tuple[Scheme, ...] = ("iob1", "iob2", "bioes")
    for scheme in schemes:
        (folder / "out.conll").write_text(tagged(folder, LINE, LINE, "-f", "conll", "--scheme", scheme))
        data = ConllData(train="out.conll", valid="out.conll")
        found = list(tagged_sentences(data, data.train, base=folder, counts=TagCounts()))
        assert [len(sentence.words) for sentence in found] == [9, 9]
        assert all(is_written_so(sentence.tags, scheme) for sentence in found)
    rows = tagged(folder, LINE, "--format", "conll", "--scores").splitlines()
    assert all(0 <= float(row.split("\t")[2]) <= 1.0001 for row in rows if row)


def test_conllu_reads_back(folder: Path) -> None:
    conllu = pytest.importorskip("conllu", reason="conllu is not installed: pip install 'saccade[dev]'")
    (sentence,) = conllu.parse(tagged(folder, LINE, "-f", "conllu"))
    assert sentence.metadata["text"] == LINE
    assert [token["form"] for token in sentence] == [*LINE[:-1].split(), "."]
    assert sentence[-2]["misc"]["SpaceAfter"] == "No"


def test_an_empty_line_is_no_sentence_of_conllu(folder: Path) -> None:
    """CoNLL-U has none without words; the number of the line says that there was one."""
    out = tagged(folder, "", "x", " ", "y", "", "-f", "conllu")
    blocks = out.split("\n\n")
    assert blocks.pop() == ""
    assert [block.split("\n")[0] for block in blocks] == ["# sent_id = 2", "# sent_id = 4"]
    assert all(block.split("\n")[-1].startswith("1\t") for block in blocks)


def test_a_scheme_where_no_spans_are_written_is_refused(folder: Path, tmp_path: Path) -> None:
    import saccade

    recipe = tag_recipe(folder, "lstm", "data.scheme=none", "train.updates=1")
    saccade.train(recipe, tmp_path / "words", device="cpu")
    done = saccade_command("tag", tmp_path / "words", "a", "--scheme", "bioes", "--device", "cpu")
    assert done.exit_code == 2
    assert "--scheme bioes: " in done.stderr
    assert saccade_command("tag", tmp_path / "words", "a", "--device", "cpu").exit_code == 0


def test_evaluate_tells_what_it_leaves_out_and_what_is_no_run(folder: Path, tmp_path: Path) -> None:
    import saccade

    saccade.train(tag_recipe(folder, "lstm", "data.on_bad=repair", "train.updates=1"), tmp_path / "run", device="cpu")
    (tmp_path / "bad.conll").write_text("a O\nb\n\nc O\n")
    done = saccade_command("evaluate", tmp_path / "run", tmp_path / "bad.conll", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert "Rows that could not be read: 1 (" in done.stderr
    assert "bad.conll:2)" in done.stderr
    missing = saccade_command("evaluate", tmp_path / "missing", tmp_path / "bad.conll")
    assert missing.exit_code == 2
    assert "is no run folder" in missing.stderr


def test_jsonl_has_places_and_scores(folder: Path) -> None:
    found = json.loads(tagged(folder, LINE, "-f", "jsonl"))
    assert found["text"] == LINE
    assert all(LINE[word["begin"] : word["end"]] == word["text"] for word in found["words"])
    assert all(LINE[span["begin"] : span["end"]] == span["text"] for span in found["spans"])
    assert found["spans"], "the model was trained to find some"
    assert found["log_probability"] <= 0


def test_tsv_has_a_row_a_span(folder: Path) -> None:
    head, *rows = tagged(folder, LINE, LINE, "-f", "tsv").splitlines()
    assert head.split("\t") == ["sentence", "begin", "end", "tag", "score", "text"]
    spans = json.loads(tagged(folder, LINE, "-f", "jsonl"))["spans"]
    assert len(rows) == 2 * len(spans)
    assert rows[0].split("\t")[:3] == ["1", str(spans[0]["begin"]), str(spans[0]["end"])]


ODD = [b"", b" ", b"x", b"\x00", b"a\rb", b"\xff\xfe", b"a\tb", "東京 \u2028 x\u0301".encode(), b"'s n't", b"b" * 9000]


@pytest.mark.parametrize("format_", ["text", "conll", "jsonl"])
def test_one_sentence_in_is_one_out(folder: Path, format_: str) -> None:
    """Whatever bytes it holds; from stdin, from a file, from a compressed one."""
    given = b"".join(line + b"\n" for line in ODD)
    out = tagged(folder, "-f", format_, stdin=given)
    if format_ == "conll":
        assert len([line for line in out.split("\n")[:-1] if not line]) == len(ODD)
    else:
        assert out.count("\n") == len(ODD)
    (folder / "odd.txt").write_bytes(given)
    (folder / "odd.gz").write_bytes(gzip.compress(given))
    for name in ("odd.txt", "odd.gz"):
        tagged(folder, "-i", folder / name, "-o", folder / "out", "-f", format_, "--batch-tokens", "64")
        assert (folder / "out").read_text().count("\n") == out.count("\n")


def test_words_that_are_cut_already(folder: Path) -> None:
    assert tagged(folder, "don't stop.", "--words").split("/")[0] == "don't"
    assert tagged(folder, "don't stop.").split("/")[0] == "do"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "-i", "x"), "TEXT and --input are both given"),
        (("a", "--scores"), "--scores adds a column to conll; --format is text"),
    ],
)
def test_what_makes_no_sense_is_told(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = saccade_command("tag", folder / "run", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_evaluate(folder: Path) -> None:
    done = saccade_command("evaluate", folder / "run", "--base", folder, "--format", "json", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    scores = json.loads(done.stdout)["scores"]
    assert {"accuracy", "unseen_accuracy", "known_tags", "f1", "f1_strict", "f1_PER"} <= scores.keys()
    files = saccade_command("evaluate", folder / "run", folder / "test.conll", "-f", "json", "--device", "cpu")
    assert json.loads(files.stdout)["scores"] == scores
    assert all(score["low"] <= score["value"] <= score["high"] for score in scores.values())
    options = ("--resamples", "300", "--resample-seed", "4")
    drawn = saccade_command("evaluate", folder / "run", folder / "test.conll", "-f", "json", *options)
    others = json.loads(drawn.stdout)["scores"]
    assert {name: score["value"] for name, score in others.items()} == {name: s["value"] for name, s in scores.items()}
    changed = {name for name, score in others.items() if score != scores[name]}
    assert {"f1", "precision"} <= changed <= {name for name in scores if name.startswith(("f1", "precision", "recall"))}
    none = saccade_command("evaluate", folder / "run", folder / "test.conll", "-f", "tsv", "--resamples", "0")
    rows = {line.split("\t")[0]: line.split("\t") for line in none.stdout.splitlines()}
    assert rows["recall"][2:4] == rows["f1_PER"][2:4] == rows["f1_strict"][2:4] == ["", ""]
    assert rows["accuracy"][2] != ""  # Wilson's is not drawn
    latex = saccade_command("evaluate", folder / "run", folder / "test.conll", "-f", "latex").stdout
    recall = scores["recall"]
    assert f"{recall['value']:.1f} & {recall['low']:.1f} -- {recall['high']:.1f} " in latex
    gate = saccade_command("evaluate", folder / "run", "--split", "valid", "--fail-under", "f1=101", "--base", folder)
    assert gate.exit_code == 3
    assert "span F1" in gate.stdout
    wrong = saccade_command("evaluate", folder / "run", "--metrics", "bleu", "--base", folder)
    assert wrong.exit_code == 2
    assert "it must be a list out of accuracy" in wrong.stderr


def test_other_commands_speak_of_taggers(folder: Path) -> None:
    info = saccade_command("info", folder / "run")
    assert "tag, lstm, finished at update 30" in info.stdout
    assert "word tokens" in info.stdout
    check = saccade_command("data", "check", folder / "tag.yaml")
    assert "60 sentences" in check.stdout
    plan = saccade_command("train", folder / "tag.yaml", "--dry-run", "--out", folder / "none")
    assert plan.exit_code == 0, plan.stderr
    assert "data: train begins " in plan.stderr
    listed = saccade_command("runs", "list", folder)
    assert "tag" in listed.stdout
    card = (folder / "run" / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card
    assert "saccade tag run < input.txt" in card


def test_the_column_missing_is_told_before_training(folder: Path) -> None:
    done = saccade_command("train", folder / "tag.yaml", "--set", "data.tag=7", "--out", folder / "none")
    assert done.exit_code == 2
    assert "train.conll:1: the row has 2 columns; data.tag asks for column 7" in done.stderr
    assert not (folder / "none").exists()


def test_a_run_on_generated_notices_is_scored_on_files(folder: Path, tmp_path: Path) -> None:
    """As one on generated reviews is: with a word and its tag a line, the last column."""
    small = ("data.train=30", "data.valid=5", "data.test=5", "train.updates=1", "model.encoder.width=8")
    chosen = [part for each in small for part in ("--set", each)]
    done = saccade_command("train", "ner-notices", "-q", "--out", tmp_path / "run", *chosen)
    assert done.exit_code == 0, done.stderr
    scored = saccade_command("evaluate", tmp_path / "run", folder / "test.conll", "-f", "json", "--device", "cpu")
    assert scored.exit_code == 0, scored.stderr
    assert json.loads(scored.stdout)["scores"]["f1"]["count"] == 12
    treebank = saccade_command("evaluate", tmp_path / "run", tmp_path / "a.conllu", "--device", "cpu")
    assert treebank.exit_code == 2
    assert "which column of CoNLL-U has the tags is not known" in treebank.stderr
