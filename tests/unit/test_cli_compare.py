"""`compare`: runs and files on one test set; every option, every format, every refusal."""

import csv
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade import config
from saccade.compare import run as comparing
from tests.support.cli import saccade_command, shake, write_corpus
from tests.support.labels import recipe as label_recipe
from tests.support.labels import write_labelled_corpus
from tests.support.language import recipe as language_recipe
from tests.support.tagging import tag_recipe, write_tagged

ON = ("--source", "test.src", "--reference", "test.tgt")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one`, `lstm-1` and `lstm-2` (which differ in their seed alone), and files of outputs `a.txt`, `b.txt`."""
    folder = tmp_path_factory.mktemp("home")
    recipe = write_corpus(folder)
    lstm = ("--set", "model.encoder.kind=lstm", "--set", "model.decoder.kind=lstm")
    for name, settings in (("one", ()), ("lstm-1", lstm), ("lstm-2", (*lstm, "--set", "seed=2"))):
        done = saccade_command("train", recipe, "-q", "--out", folder / name, *settings)
        assert done.exit_code == 0, done.stderr
        shake(folder / name, by=0.5, seed=len(name))
    right = (folder / "test.tgt").read_text(encoding="utf-8").split("\n")[:-1]
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in right), encoding="utf-8")
    some = [line if i % 3 else line[::-1] for i, line in enumerate(right)]
    (folder / "b.txt").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def compared(*arguments: str | Path) -> dict[str, Any]:
    done = saccade_command("compare", *arguments, "-f", "json", "--device", "cpu")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*arguments: str | Path) -> str:
    done = saccade_command("compare", *arguments)
    assert done.exit_code == 2, done.output
    return str(done.stderr)


# ---- what is compared


def test_runs_are_asked_and_scored_as_evaluate_scores_them() -> None:
    found = compared("one", "lstm-1", "--metrics", "chrf,bleu")
    for system, name in enumerate(("one", "lstm-1")):
        told = json.loads(saccade_command("evaluate", name, "--metrics", "chrf,bleu", "-f", "json").stdout)["scores"]
        for metric in ("chrf", "bleu"):
            ours, theirs = found["scores"][metric][system], told[metric]
            assert ours["value"] == pytest.approx(theirs["value"], abs=1e-9)
            assert (ours["low"], ours["high"]) == pytest.approx((theirs["low"], theirs["high"]), abs=1e-4)
    assert found["scores"]["bleu"][0]["paired"] is None
    assert found["lines"] == 16
    assert found["metrics"] == ["chrf", "bleu"]
    one = found["systems"][0]
    assert one["parameters"] == saccade.load("one", "cpu").parameters
    assert (one["updates"], one["model"], one["seed"]) == (6, "gru → gru + general", 1)
    assert one["trained_seconds"] > 0
    assert one["trained_tokens"] > 0
    assert one["lines_per_second"] == pytest.approx(16 / one["seconds"])
    assert one["tokens_per_second"] > 0
    assert found["settings"]["model.encoder.kind"] == ["gru", "lstm"]


def test_runs_and_files_mix_on_files() -> None:
    found = compared("b.txt", "one", "a.txt", *ON, "--refs", "a.txt", "--metrics", "exact_match,ter")
    assert [system["kind"] for system in found["systems"]] == ["file", "run", "file"]
    exact = found["scores"]["exact_match"]
    assert exact[2]["value"] == 100
    assert exact[2]["paired"]["difference"] == pytest.approx(100 - exact[0]["value"])
    assert found["less_is_better"] == ["ter"]
    assert "nrefs:2" in found["scores"]["ter"][0]["signature"]
    assert "|bs:1000|ar:10000|seed:12345|" in found["scores"]["ter"][0]["signature"]
    assert found["buckets"][-1]["title"] == "how often a word was seen in the training data"


def test_files_alone_need_no_source() -> None:
    found = compared("a.txt", "b.txt", "--reference", "test.tgt")
    assert found["metrics"] == ["bleu", "chrf", "exact_match"]
    assert found["systems"][0]["parameters"] is None
    assert found["buckets"][0]["column"] == "reference words"
    assert found["buckets"][-1]["title"] == "how often a word was seen in the references"


def test_a_table_holds_sources_and_references() -> None:
    sources, right = (Path(name).read_text().split("\n")[:-1] for name in ("test.src", "test.tgt"))
    Path("test.tsv").write_text("".join(f"{s}\t{r}\tother\n" for s, r in zip(sources, right, strict=True)))
    by_table, by_files = compared("one", "b.txt", "--tsv", "test.tsv"), compared("one", "b.txt", *ON)
    assert by_table["scores"]["exact_match"] == by_files["scores"]["exact_match"]
    assert "nrefs:2" in by_table["scores"]["bleu"][0]["signature"]


def test_the_validation_data_and_another_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = compared(home / "one", "--split", "valid", "--base", home)
    assert (found["test_set"], found["lines"]) == ("valid", 12)
    assert found["differences"] == []
    assert found["verdict"].startswith("one has BLEU ")


# ---- tests


def test_the_test_and_its_draws_can_be_chosen() -> None:
    with_coins = compared("b.txt", "one", *ON, "--metrics", "chrf")["scores"]["chrf"][1]["paired"]
    assert (with_coins["test"], with_coins["resamples"], with_coins["seed"]) == ("randomisation", 10000, 12345)
    options = ("--test", "bootstrap", "--resamples", "500", "--seed", "3")
    drawn = compared("b.txt", "one", *ON, "--metrics", "chrf", *options)["scores"]["chrf"][1]["paired"]
    assert (drawn["test"], drawn["resamples"], drawn["seed"]) == ("bootstrap", 500, 3)
    assert drawn["difference"] == with_coins["difference"]
    assert drawn["low"] <= drawn["difference"] <= drawn["high"]


def test_the_same_system_twice() -> None:
    found = compared("one", "one", "--names", "one,other")
    for cells in found["scores"].values():
        assert (cells[1]["paired"]["difference"], cells[1]["paired"]["p"]) == (0, 1)
    assert found["verdict"].startswith("The same as one on every line: other.")
    assert "other and one wrote the same outputs." in found["remarks"]
    assert found["differences"][0]["ties"] == 16
    assert [system["name"] for system in compared("one", "./one")["systems"]] == ["one", "one (2)"]


def test_several_comparisons_are_corrected_for() -> None:
    found = compared("b.txt", "a.txt", "one", *ON, "--metrics", "exact_match")
    told = [cell["paired"] for cell in found["scores"]["exact_match"][1:]]
    assert all(each["p_holm"] >= each["p"] for each in told)
    assert any("2 comparisons" in remark for remark in found["remarks"])
    assert any("another seed, is not covered" in remark for remark in found["remarks"])


# ---- seeds


def test_runs_that_differ_in_their_seed_are_grouped() -> None:
    found = compared("one", "lstm-1", "lstm-2", "--metrics", "chrf")
    assert [system["group"] for system in found["systems"]] == [None, "lstm", "lstm"]
    [seeds] = found["seeds"]
    values = [cell["value"] for cell in found["scores"]["chrf"][1:]]
    assert (seeds["group"], seeds["values"]) == ("lstm", values)
    assert seeds["mean"] == pytest.approx(sum(values) / 2)
    assert seeds["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert "The seed alone moves chrF2 of lstm by" in found["verdict"]
    assert compared("lstm-1", "lstm-2", "--no-group-seeds")["seeds"] == []
    assert len(compared("lstm-1", "lstm-2", "--group-seeds", "--metrics", "chrf")["seeds"]) == 1


def test_another_seed_of_the_baseline_is_neither_better_nor_worse() -> None:
    found = compared("lstm-1", "lstm-2", "--metrics", "chrf")
    assert "etter than" not in found["verdict"]
    assert "orse than" not in found["verdict"]


def test_groups_can_be_named() -> None:
    found = compared("a.txt", "b.txt", "lstm-1", "--metrics", "chrf", "--group", "files=a.txt,b.txt", *ON)
    assert [system["group"] for system in found["systems"]] == ["files", "files", None]
    assert "write it as name=system,system" in refused("a.txt", "b.txt", "--group", "x=a.txt", *ON)
    assert "'c', which is no system" in refused("a.txt", "b.txt", "--group", "x=a.txt,c", *ON)


# ---- decoding


def test_one_way_to_decode_for_all() -> None:
    asked = (
        "--beam",
        "2",
        "--length-penalty",
        "0.5",
        "--max-length",
        "7",
        "--decode",
        "extra=3",
        "--batch-tokens",
        "64",
    )
    found = compared("one", "lstm-1", *asked)
    ways = [system["decode"] for system in found["systems"]]
    assert ways[0] == ways[1]
    assert (ways[0]["beam"], ways[0]["alpha"], ways[0]["max_length"], ways[0]["extra"]) == (2, 0.5, 7, 3)
    assert compared("one")["systems"][0]["decode"]["beam"] == 3
    assert "only files of outputs" in refused("a.txt", "b.txt", *ON, "--beam", "2")


# ---- formats


def test_formats() -> None:
    systems = ("b.txt", "a.txt", *ON, "--metrics", "exact_match,chrf")
    text = saccade_command("compare", *systems).stdout
    assert "exact match on 16 lines" in text
    assert "paired randomisation, 10,000 trials, seed 12345" in text
    rows = list(csv.DictReader(saccade_command("compare", *systems, "-f", "tsv").stdout.splitlines(), delimiter="\t"))
    assert [(row["metric"], row["system"]) for row in rows] == [
        ("exact_match", "b.txt"), ("exact_match", "a.txt"), ("chrf", "b.txt"), ("chrf", "a.txt"),
    ]  # fmt: skip
    assert rows[0]["p"] == ""
    assert 0 < float(rows[1]["p"]) <= 1
    assert "| system |" in saccade_command("compare", *systems, "-f", "markdown").stdout
    tex = re.sub(" +", " ", saccade_command("compare", *systems, "--names", "b_1,50 %", "-f", "latex").stdout)
    assert r"b\_1 & " in tex
    assert r"50 \% & 100.0 (" in tex
    assert tex.count(r"\begin{") == tex.count(r"\end{") == 2


def test_the_page_holds_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ["compare", "b.txt", "a.txt", *ON, "--examples", "2", "--buckets", "2", "-o", str(tmp_path / "c.html")]
    monkeypatch.setattr(sys, "argv", ["saccade", *arguments])
    done = saccade_command(*arguments)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "saccade compare b.txt a.txt --source test.src" in page
    assert page.count('<dl class="case">') == 2  # a.txt is nowhere worse
    found = compared("b.txt", "a.txt", *ON, "--buckets", "2")
    assert all(len(each["labels"]) <= 2 for each in found["buckets"][:-1])
    assert "must end in .html" in refused("a.txt", *ON, "-o", "c.json")


# ---- refusals


def test_what_is_not_there_or_does_not_fit_is_told(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("x\n")
    (tmp_path / "empty").write_text("")
    assert "is not there" in refused("one", "nothing")
    assert "is a folder, but no run" in refused("one", tmp_path)
    assert "short has 1 lines and the test set" in refused(tmp_path / "short", "a.txt", *ON)
    assert "empty has 0 lines" in refused(tmp_path / "empty", *ON)
    assert "is empty; there is nothing to score" in refused("a.txt", "--reference", tmp_path / "empty")
    assert "16 lines" in refused("a.txt", "--source", "test.src", "--reference", tmp_path / "short")
    assert "give the right ones by --reference" in refused("a.txt", "b.txt")
    assert "source is given without reference" in refused("one", "--source", "test.src")
    assert "reference is given without source" in refused("one", "--reference", "test.tgt")
    assert "leave out source and reference" in refused("a.txt", "--tsv", "test.tsv", *ON)
    (tmp_path / "bad.tsv").write_text("a\tb\nc\n")
    assert "bad.tsv:2: has no tab" in refused("a.txt", "--tsv", tmp_path / "bad.tsv")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--metrics", "chrf,loss"), "metrics is 'chrf,loss'"),
        (("--metrics", "perplexity"), "perplexity is of a model's own tokens"),
        (("--metrics", "distinct_1"), "distinct_1 is no sum over lines"),
        (("--metrics", "chrf,chrf"), "each once"),
        (("--names", "a"), "there must be 2"),
        (("--names", "a,a"), "no two alike"),
        (("--resamples", "5"), "at least 100"),
        (("--seed", "-1"), "seed is -1"),
        (("--examples", "-1"), "examples is -1"),
        (("--buckets", "0"), "buckets is 0"),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, ...], told: str) -> None:
    assert told in refused("a.txt", "b.txt", *ON, *options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--group", "x=one,c"), "'c', which is no system"),
        (("-o", "test.src/page.html"), "test.src is no folder"),
        (("-o", "folder.html"), "is a folder"),
        (("--split", "valid", *ON), "--split chooses among the recipe's own data"),
        (("--split", "test", "--tsv", "test.src"), "--split chooses among the recipe's own data"),
    ],
)
def test_what_can_be_refused_at_once_is_refused_before_a_model_is_asked(
    options: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "produce", lambda *_: pytest.fail("a model was asked"))
    Path("folder.html").mkdir(exist_ok=True)
    assert told in refused("one", "lstm-1", *options)


def test_names_of_files_are_unlike_and_visible(tmp_path: Path) -> None:
    right = Path("test.tgt").read_text()
    for name in ("a", "a (2)", "red\x1b[31m\u202e"):
        (tmp_path / name).write_text(right)
    names = [each["name"] for each in compared(tmp_path / "a", tmp_path / "a", tmp_path / "a (2)", *ON)["systems"]]
    assert len(set(names)) == 3
    assert names[2] == "a (2)"
    done = saccade_command("compare", tmp_path / "a", tmp_path / "red\x1b[31m\u202e", *ON, "--metrics", "chrf")
    assert "red\\x1b[31m\\u202e" in done.stdout
    assert "\x1b" not in done.output
    assert "\u202e" not in done.output


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    raw = Path("test.tgt").read_bytes().split(b"\n")
    (tmp_path / "bad").write_bytes(b"\n".join([b"\xff\xfe", *raw[1:]]))
    remarks = compared("a.txt", tmp_path / "bad", *ON)["remarks"]
    assert f"{tmp_path / 'bad'}: 1 line with bytes that are no UTF-8, which were read as U+FFFD." in remarks
    assert not any("a.txt: " in remark for remark in remarks)


def test_runs_with_other_test_data_are_refused_with_the_difference(home: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    lines = (tmp_path / "test.tgt").read_text().split("\n")
    (tmp_path / "test.tgt").write_text("\n".join(["other", *lines[1:]]))
    done = saccade_command("train", tmp_path / "train.yaml", "-q", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    told = refused("one", tmp_path / "run")
    assert "do not have the same test data: line 1 of the references is" in told
    assert "'other'" in told
    short = config.read(home / "one" / "train.yaml")["data"]["test"]
    assert short == {**short, "source": ["test.src"]}


# ---- other tasks


def test_taggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tagged(tmp_path)
    for seed in (1, 2):
        chosen = tag_recipe(tmp_path, "lstm, cnn, crf", "train.updates=6", f"seed={seed}")
        saccade.train(chosen, tmp_path / f"tagger-{seed}", device="cpu")
    runs = [tmp_path / f"tagger-{seed}" for seed in (1, 2)]
    found = compared(*runs)
    assert found["metrics"] == ["f1", "accuracy"]
    for system, run in enumerate(runs):
        told = json.loads(saccade_command("evaluate", run, "-f", "json").stdout)["scores"]
        for metric in ("f1", "accuracy"):
            cell = found["scores"][metric][system]
            assert (cell["value"], cell["low"]) == pytest.approx((told[metric]["value"], told[metric]["low"]))
    assert found["systems"][0]["group"] == "tagger"
    words = [line.split(" ")[0] for line in (tmp_path / "test.conll").read_text().splitlines() if line]
    seen = Counter(line.split(" ")[0] for line in (tmp_path / "train.conll").read_text().splitlines() if line)
    by_word = found["buckets"][-1]
    unseen = sum(seen[word] == 0 for word in words)
    assert dict(zip(by_word["labels"], by_word["counts"], strict=True)).get("0", 0) == unseen
    outputs = saccade.compare(runs).outputs[1]
    (tmp_path / "tags.txt").write_text("".join(f"{line}\n" for line in outputs))
    mixed = compared(runs[1], tmp_path / "tags.txt", "--metrics", "accuracy")
    assert mixed["scores"]["accuracy"][1]["paired"]["p"] == 1
    assert compared(*runs, "--source", tmp_path / "test.conll")["scores"] == found["scores"]
    assert "does not search" in refused(*runs, "--beam", "2")
    assert "stands in the source file itself" in refused(*runs, "--reference", "test.tgt")
    assert "unlike tasks" in refused(runs[0], "one")
    monkeypatch.setattr(comparing, "produce", lambda *_: pytest.fail("a model was asked"))
    assert "out of f1, accuracy" in refused(*runs, "--metrics", "bleu")


def test_classifiers(tmp_path: Path) -> None:
    data = write_labelled_corpus(tmp_path / "data")
    for name, model in (("lstm", "lstm"), ("other", "lstm")):
        saccade.train(label_recipe(data, model, "train.updates=2"), tmp_path / name, device="cpu")
        shake(tmp_path / name, by=1.0, seed=len(name))
    found = compared(tmp_path / "lstm", tmp_path / "other", "--split", "valid")
    told = json.loads(saccade_command("evaluate", tmp_path / "lstm", "--split", "valid", "-f", "json").stdout)["scores"]
    for metric in ("accuracy", "macro_f1"):
        assert found["scores"][metric][0]["value"] == pytest.approx(told[metric]["value"])
    assert found["scores"]["macro_f1"][1]["paired"]["p"] <= 1


def test_language_models(tmp_path: Path) -> None:
    for name, kind in (("lstm", "lstm"), ("other", "transformer")):
        saccade.train(language_recipe(kind, "char", "train.updates=2"), tmp_path / name, device="cpu")
    (tmp_path / "text.txt").write_text("the queens see the king\n\nthe king sleeps\n")
    found = compared(tmp_path / "lstm", tmp_path / "other", "--source", tmp_path / "text.txt")
    assert found["metrics"] == ["perplexity_per_word", "perplexity_per_byte"]
    scored = list(saccade.load(tmp_path / "lstm", "cpu").score(["the queens see the king", "the king sleeps"]))
    nats, words = sum(each.perplexity.nll for each in scored), sum(each.perplexity.counts.words for each in scored)
    assert found["scores"]["perplexity_per_word"][0]["value"] == pytest.approx(2.718281828459045 ** (nats / words))
    assert found["lines"] == 2
    assert any("Each line was read by itself" in remark for remark in found["remarks"])
    assert "has no outputs" in refused(tmp_path / "lstm", tmp_path / "text.txt", "--source", tmp_path / "text.txt")
