"""The commands that use a model: translate, evaluate, score, explain; their formats, streams and refusals."""

import contextlib
import gzip
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import saccade
from saccade.decode.phrases import holds
from tests.support.cli import saccade_command, saccade_process, shake, write_corpus


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, `run` (trained a little) and `wild` (whose outputs differ from line to line)."""
    folder = tmp_path_factory.mktemp("home")
    recipe = write_corpus(folder)
    for name in ("run", "wild"):
        done = saccade_command("train", recipe, "-q", "--out", folder / name)
        assert done.exit_code == 0, done.stderr
    shake(folder / "wild", by=0.7)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def split(text: str) -> list[str]:
    """Lines as the command means them; `splitlines` would break them at other characters, too."""
    assert text.endswith("\n")
    return text[:-1].split("\n")


def translated(*arguments: str, stdin: bytes = b"") -> str:
    done = saccade_command("translate", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


# ---- translate


def test_arguments_files_and_stdin_give_the_same(tmp_path: Path) -> None:
    lines = ["dead beef", "", "face  c", "ab"]
    expected = "".join(f"{each.text}\n" for each in saccade.load("wild", "cpu").translate(lines))
    assert translated("wild", *lines) == expected
    text = "\n".join(lines)
    assert translated("wild", stdin=text.encode()) == expected  # with no line feed at the end
    assert translated("wild", "-i", "-", stdin=(text + "\n").encode()) == expected
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.encode()))
    assert translated("wild", "-i", str(tmp_path / "in.gz"), "-o", str(tmp_path / "out"), "--device", "cpu") == ""
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected
    assert translated("wild", *lines, "-o", "-") == expected
    assert translated("wild", text) == expected  # an argument of several lines is several lines
    assert translated("wild", *lines, "--batch-tokens", "1") == expected


def test_a_file_may_be_replaced_by_its_translation(tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.write_text("ab\ncd\n", encoding="utf-8")
    expected = translated("wild", "ab", "cd")
    translated("wild", "-i", str(both), "-o", str(both))
    assert both.read_text(encoding="utf-8") == expected
    assert list(tmp_path.iterdir()) == [both]


def test_nothing_in_is_nothing_out() -> None:
    assert translated("wild", stdin=b"") == ""
    assert translated("wild", stdin=b"\n") == "\n"


def test_jsonl_holds_all_there_is() -> None:
    rows = [json.loads(line) for line in translated("wild", "-f", "jsonl", "--n-best", "2", "ab", "").splitlines()]
    (own,) = saccade.load("wild", "cpu").translate(["ab"], n_best=2)
    assert rows[0]["source"] == "ab"
    assert rows[0]["text"] == own.text
    assert rows[0]["score"] == own.score
    assert [each["text"] for each in rows[0]["hypotheses"]] == [each.text for each in own.hypotheses]
    first = rows[0]["hypotheses"][0]
    assert math.isclose(sum(first["token_log_probabilities"]), first["log_probability"], abs_tol=1e-4)
    assert len(first["token_log_probabilities"]) == len(first["tokens"]) + first["ended"]
    assert rows[1]["text"] == ""


def test_nbest_is_what_moses_writes() -> None:
    rows = [line.split(" ||| ") for line in split(translated("wild", "-f", "nbest", "ab", "", "dead"))]
    assert [int(row[0]) for row in rows] == [0, 0, 0, 1, 2, 2, 2]  # the recipe's beam is 3
    assert all(len(row) == 4 for row in rows)
    scores = [float(row[3]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    best = translated("wild", "--scores", "ab").rstrip("\n").split("\t")
    assert best == [rows[0][3], rows[0][1]]
    assert len(split(translated("wild", "-f", "nbest", "--n-best", "2", "ab"))) == 2


def test_bars_in_a_text_do_not_break_nbest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.text.Tokenizer.decode", lambda *_: "a ||| b")
    (line,) = translated("run", "-f", "nbest", "--n-best", "1", "ab").splitlines()
    assert line.split(" ||| ")[1] == "a &#124;&#124;&#124; b"


def test_every_way_to_decode_is_heard() -> None:
    def first(*options: str) -> dict[str, float]:
        row = json.loads(translated("wild", "-f", "jsonl", "dead beef", *options))
        found: dict[str, float] = row["hypotheses"][0]
        return found

    greedy, beam = first("--beam", "1"), first("--beam", "8")
    assert greedy != beam
    assert len(first("--max-length", "2")["tokens"]) <= 2  # type: ignore[arg-type]
    for alpha in (0.0, 0.5):
        found = first("--length-penalty", str(alpha))
        length = len(found["token_log_probabilities"])  # type: ignore[arg-type]
        assert math.isclose(found["score"], found["log_probability"] / length**alpha, rel_tol=1e-6)


def test_any_setting_of_the_search_can_be_given() -> None:
    by_option = translated("wild", "dead beef", "--length-penalty", "0.25", "-f", "jsonl")
    by_setting = translated("wild", "dead beef", "--decode", "length=average", "--decode", "alpha=0.25", "-f", "jsonl")
    assert by_option == by_setting


def test_a_length_penalty_is_heard_where_the_recipe_has_none() -> None:
    model = saccade.load("wild", "cpu")
    model.decode = model.decode.model_copy(update={"length": "none"})
    assert model.decoding().length == "none"
    chosen = model.decoding(length_penalty=0.5)
    assert (chosen.length, chosen.alpha) == ("power", 0.5)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "x", "--n-best", "2"], "--format nbest"),
        (["run", "x", "--decode", "lenght=gnmt"], "length"),
        (["run", "x", "--decode", "beam"], "--decode beam: write it as name=value"),
        (["run", "x", "--n-best", "4", "-f", "jsonl"], "n_best is 4 and beam is 3"),
        (["run", "x", "--scores", "-f", "jsonl"], "Leave it out"),
        (["run", "x", "-i", "test.src"], "both given"),
        (["run", "-i", "none"], "none: cannot be read"),
        (["run", "x", "-o", "nowhere/out"], "cannot be written"),
        (["run", "x", "--beam", "0"], "beam"),
        (["run", "x", "-f", "xml"], "xml"),
        (["run", "x", "--batch-tokens", "0"], "--batch-tokens"),
        (["none", "x"], "is no run folder"),
        (["run", "x", "--device", "cuda:99"], "--device is 'cuda:99'"),
    ],
)
def test_what_cannot_be_translated_ends_with_2_and_says_why(arguments: list[str], reason: str) -> None:
    done = saccade_command("translate", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert reason in done.stderr


def test_a_damaged_model_ends_with_1_and_is_named(home: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in (home / "run").iterdir():
        if file.is_file():
            (damaged / file.name).write_bytes(file.read_bytes())
    weights = bytearray((damaged / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (damaged / "model.safetensors").write_bytes(weights)
    done = saccade_command("translate", damaged, "x")
    assert done.exit_code == 1
    assert "model.safetensors" in done.stderr


def test_what_was_done_to_lines_is_told() -> None:
    done = saccade_command(
        "translate", "run", "--max-length", "1", "--beam", "1", stdin=b"a\xff\nok\n" + b"ab " * 20_000
    )
    assert done.stdout.count("\n") == 3
    assert "1 line not valid UTF-8" in done.stderr
    assert "1 line longer than 1,024 tokens" in done.stderr


def test_a_pipe_is_answered_line_by_line_and_may_be_closed() -> None:
    """A program that waits for each answer gets it; and one that stops reading ends the command quietly."""
    process = saccade_process("translate", "run", "--beam", "1", "--max-length", "3")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    for line in (b"ab\n", b"\n", b"cd\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        for _ in range(200):
            os.write(process.stdin.fileno(), b"ab\n" * 2000)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), told) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = saccade_command("translate", "run", "x", "-o", "/dev/full")
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr


# ---- evaluate and score


def sacrebleu(reference: Path, output: Path, *options: str) -> list[Any]:
    """What its own command line prints."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(output), "-m", "bleu", "chrf", *options]
    found: list[Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def test_evaluate_prints_the_digits_that_sacrebleu_prints(home: Path, tmp_path: Path) -> None:
    """`saccade translate < source | sacrebleu reference` and `saccade evaluate source reference` are one thing."""
    output, reference = tmp_path / "output", tmp_path / "reference"
    output.write_text(translated("wild", stdin=(home / "test.src").read_bytes()), encoding="utf-8", newline="\n")
    # what the model writes greedily, every third line changed: a score that is neither 0 nor 100
    lines = split(translated("wild", "--beam", "1", stdin=(home / "test.src").read_bytes()))
    changed = [f"{line} !\n" if i % 3 else f"x{line}\n" for i, line in enumerate(lines)]
    reference.write_text("".join(changed), encoding="utf-8", newline="\n")
    theirs = sacrebleu(reference, output, "--confidence", "-f", "json")
    digits = sacrebleu(reference, output, "-b")
    done = saccade_command("evaluate", "wild", "test.src", reference, "-f", "tsv", "--metrics", "bleu,chrf")
    rows = [line.split("\t") for line in split(done.stdout)[1:]]
    assert [float(row[1]) for row in rows] == digits
    assert 0 < digits[1] < 100
    for row, their in zip(rows, theirs, strict=True):
        assert row[5].split("|") == their["signature"].split("|")


def test_the_recipes_own_data_are_scored(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = json.loads(saccade_command("evaluate", "run", "-f", "json").stdout)
    files = json.loads(saccade_command("evaluate", "run", "test.src", "test.tgt", "-f", "json").stdout)
    assert own["scores"] == files["scores"]
    assert own["scores"]["bleu"]["count"] == 16  # with the empty line
    valid = json.loads(saccade_command("evaluate", "run", "--split", "valid", "-f", "json").stdout)
    assert valid["scores"]["chrf"]["count"] == 12
    assert list(valid["scores"]) == ["bleu", "chrf", "exact_match"]
    monkeypatch.chdir(tmp_path)
    assert json.loads(saccade_command("evaluate", home / "run", "-f", "json").stdout)["scores"] == own["scores"]
    shutil.copytree(home / "run", tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "environment.json").unlink()  # so that the run cannot say where its data were
    moved = saccade_command("evaluate", "elsewhere")
    assert moved.exit_code == 2
    assert "test.src: is not in" in moved.stderr
    assert "--base" in moved.stderr
    assert saccade_command("evaluate", "elsewhere", "--base", home).exit_code == 0


def test_generated_data_are_scored(tmp_path: Path) -> None:
    small = ("data.train=50", "data.valid=5", "data.test=7", "train.updates=1", "model.encoder.width=8")
    options = [part for each in (*small, "train.metric=loss") for part in ("--set", each)]
    assert saccade_command("train", "dates", "-q", "--out", tmp_path / "dates", *options).exit_code == 0
    done = saccade_command("evaluate", tmp_path / "dates", "--metrics", "exact_match", "--max-length", "2")
    assert "7" in done.stdout.splitlines()[2].split()


def test_scores_come_in_four_formats_and_outputs_in_a_file(tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    text = saccade_command("evaluate", "wild", "-o", out, "--beam", "1", "--length-penalty", "1", "--device", "cpu")
    assert [line.split()[0] for line in text.stdout.splitlines()[2:]] == ["BLEU", "chrF2", "exact"]
    assert "nrefs:1|" in text.stdout
    assert out.read_text(encoding="utf-8") == translated("wild", "-i", "test.src", "--beam", "1")
    markdown = saccade_command("evaluate", "wild", "-f", "markdown", "--batch-tokens", "64").stdout
    assert markdown.startswith("| metric ")
    tsv = saccade_command("evaluate", "wild", "-f", "tsv").stdout.splitlines()
    assert tsv[0].split("\t") == ["metric", "value", "low", "high", "lines", "signature"]
    assert [row.split("\t")[0] for row in tsv[1:]] == ["bleu", "chrf", "exact_match"]


@pytest.mark.parametrize(("gate", "status"), [("chrf=0", 0), ("exact_match=100.1", 3)])
def test_a_gate_decides_the_status_after_the_scores_are_told(gate: str, status: int) -> None:
    done = saccade_command("evaluate", "run", "--fail-under", "bleu=0", "--fail-under", gate, "-f", "json")
    assert done.exit_code == status
    assert set(json.loads(done.stdout)["scores"]) == {"bleu", "chrf", "exact_match"}
    assert ("less than 100.1" in done.stderr) == (status == 3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["test.src"], "belong together"),
        (["test.src", "test.tgt", "--split", "valid"], "--split chooses"),
        (["test.src", "valid.tgt"], "test.src has 16 lines and valid.tgt 12"),
        (["/dev/null", "/dev/null"], "nothing to score"),
        (["--metrics", "bleu,bleu"], "each once"),
        (["--metrics", "blue"], "out of bleu, bleu:lc, bleu:none, bleu:none:lc"),
        (["--fail-under", "bleu"], "metric=value"),
        (["--fail-under", "bleu=nan"], "metric=value"),
        (["--metrics", "chrf", "--fail-under", "bleu=1"], "bleu is not among the metrics: chrf"),
    ],
)
def test_what_cannot_be_evaluated_ends_with_2_and_says_why(arguments: list[str], reason: str) -> None:
    done = saccade_command("evaluate", "run", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr


def test_a_recipe_without_test_data_says_so(home: Path, tmp_path: Path) -> None:
    done = saccade_command("train", "train.yaml", "-q", "--set", "data.test=null", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    refused = saccade_command("evaluate", tmp_path / "run")
    assert refused.exit_code == 2
    assert "names no test data" in refused.stderr
    assert "is no run folder" in saccade_command("evaluate", tmp_path).stderr


def test_scores_are_log_probabilities_and_agree_with_validation() -> None:
    done = saccade_command("score", "run", "valid.src", "valid.tgt", "--batch-tokens", "40")
    values = [float(line) for line in done.stdout.splitlines()]
    rows = [
        json.loads(line)
        for line in saccade_command("score", "run", "valid.src", "valid.tgt", "-f", "jsonl").stdout.splitlines()
    ]
    assert len(values) == len(rows) == 12
    assert values == pytest.approx([row["log_probability"] for row in rows], abs=1e-4)
    assert all(row["tokens"][-1] == "</s>" for row in rows)
    assert all(len(row["tokens"]) == len(row["token_log_probabilities"]) for row in rows)
    tokens = sum(len(row["tokens"]) for row in rows)
    best = json.loads(saccade_command("info", "run", "--json").stdout)["run"]["best"]
    assert -sum(values) / tokens == pytest.approx(best["loss"], abs=1e-4)
    assert done.stderr.startswith(f"perplexity {best['perplexity']:.2f}")
    assert saccade_command("score", "run", "valid.src", "test.tgt").exit_code == 2


# ---- explain


def test_attention_is_written_in_three_formats(tmp_path: Path) -> None:
    page = saccade_command("explain", "run", "dead", "-o", tmp_path / "a.html")
    assert page.exit_code == 0, page.stderr
    assert "dead → " in (tmp_path / "a.html").read_text(encoding="utf-8")
    done = saccade_command("explain", "run", "dead", "--target", "ab", "-o", tmp_path / "a.npz", "--device", "cpu")
    assert done.stdout == f"wrote {tmp_path / 'a.npz'}: dead → ab\n"
    with np.load(tmp_path / "a.npz") as arrays:
        assert arrays["cross"].shape == (1, 1, 3, 5)
        assert np.allclose(arrays["cross"].sum(-1), 1)
        assert [*arrays["source"], *arrays["target"]] == [*"dead", "</s>", *"ab", "</s>"]
    for name, options in (("a", []), ("b", ["--layer", "1", "--head", "1"]), ("c", ["--grid", "--kind", "cross"])):
        assert saccade_command("explain", "run", "dead", "-o", tmp_path / f"{name}.png", *options).exit_code == 0
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.width > 100


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-o", "a.pdf"], "must end in one of .png"),
        (["-o", "a.html", "--grid"], "choose what a .png shows"),
        (["-o", "a.png", "--grid", "--layer", "1"], "leave out --layer"),
        (["-o", "a.png", "--layer", "2"], "--layer is 2"),
        (["-o", "a.png", "--head", "3"], "--head is 3"),
        (["-o", "a.png", "--kind", "encoder"], "no encoder self-attention"),
        ([], "output"),
    ],
)
def test_what_cannot_be_explained_ends_with_2_and_says_why(arguments: list[str], reason: str) -> None:
    done = saccade_command("explain", "run", "dead", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr


@pytest.mark.parametrize(("closed", "status", "told"), [(0, 0, ""), (1, 2, "standard output is closed")])
def test_a_closed_stream_is_told_in_words(home: Path, closed: int, status: int, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "saccade.cli", "translate", "run"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(Path(saccade.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: os.close(closed),
        check=False,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


# ---- lexical constraints


def test_phrases_for_all_lines_and_for_one() -> None:
    asked = ["--must", "fade", "--must-not", "a", "--must-not", "b"]
    lines = split(translated("wild", "dead beef", "ab", *asked))
    assert len(lines) == 2
    for line in lines:
        assert [holds(line, phrase) for phrase in ("fade", "a", "b")] == [1, 0, 0]
    rows = [{"text": "dead", "must": ["ace", "fade"]}, {"text": "beef", "must_not": ["a"]}, {"text": "ab"}]
    stdin = "".join(json.dumps(row) + "\n" for row in rows).encode()
    both, one, other = split(
        translated("wild", "--input-format", "jsonl", "--must", "fade", "--beam", "1", stdin=stdin)
    )
    assert holds(both, "ace") == 1
    assert [holds(line, "fade") for line in (both, one, other)] == [1, 1, 1]  # asked for in both places, meant once
    model = saccade.load("wild", "cpu")
    assert model.translate(saccade.Request("dead", must=["ace", "fade"]), beam=1).text == both


def test_what_is_unmet_is_told() -> None:
    done = saccade_command("translate", "wild", "ab", "", "--must", "fade", "--format", "jsonl")
    found, empty = (json.loads(line)["hypotheses"][0] for line in split(done.stdout))
    assert found["unmet"] == []
    assert (empty["text"], empty["unmet"]) == ("", ["fade"])
    assert "not as must and must_not ask: 1 output. An empty line" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--must", " "], "line 1: must: ' ' has no word in it. Leave it out"),
        (["--must", "a b", "--must-not", "b"], "line 1: must: 'a b' holds 'b', which must_not forbids"),
        (["--prefix", "a b c", "--must-not", "b"], "line 1: prefix: 'a b c' holds 'b', which must_not forbids"),
        (
            ["--must", "a", "--decode", "groups=2", "--decode", "diversity=1", "--beam", "4"],
            "line 1: must: 'a' is asked for, and decode.groups is 2",
        ),
    ],
)
def test_phrases_that_cannot_be_are_refused(arguments: list[str], told: str) -> None:
    done = saccade_command("translate", "wild", "ab", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr
