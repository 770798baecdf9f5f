"""`measure`: the scores of outputs in files, in every format; the digits of `evaluate`; what is refused."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

import saccade
from saccade.cli.words import metric, metric_name
from saccade.metrics.interval import Resampling
from saccade.metrics.names import TEXT_METRICS
from tests.support.cli import saccade_command, write_corpus

OUTPUTS = ["The cat sat on the mat.", "a Dog & a cat", "", "50 % of $10 #1_a {b} ~c^"] * 3
REFERENCES = ["The cat sat on a mat.", "A dog & a cat", "nothing", "50 % of $10 #1_a {b} ~c^"] * 3
OTHERS = [*OUTPUTS[:6], *REFERENCES[:6]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, lines in (("out", OUTPUTS), ("ref", REFERENCES), ("other", OTHERS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*arguments: str | Path, stdin: bytes = b"") -> str:
    done = saccade_command("measure", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(*arguments: str | Path, status: int = 2) -> str:
    done = saccade_command("measure", *arguments)
    assert done.exit_code == status, done.output
    return done.stderr


def test_json_holds_every_metric_as_python_gives_it() -> None:
    found = json.loads(said("out", "ref", "other", "--metrics", ",".join(TEXT_METRICS), "-f", "json"))
    assert (found["outputs"], found["references"]) == ("out", ["ref", "other"])
    both = list(zip(REFERENCES, OTHERS, strict=True))
    expected = saccade.measure(OUTPUTS, both, TEXT_METRICS)
    assert found["scores"] == {name: score.to_dict() for name, score in expected.items()}
    assert list(saccade.measure(OUTPUTS, REFERENCES)) == ["bleu", "chrf", "exact_match"]
    assert "nrefs:2" in found["scores"]["chrf++"]["signature"]


def test_a_view_stands_beside_the_raw_score() -> None:
    text = said("out", "ref", "--metrics", "bleu,bleu:none:lc").splitlines()
    assert text[2].startswith("BLEU  ")
    assert "case:mixed|eff:no|tok:13a" in text[2]
    assert text[3].startswith("BLEU (none, lc)  ")
    assert "case:lc|eff:no|tok:none" in text[3]
    rows = list(
        csv.DictReader(io.StringIO(said("out", "ref", "-f", "tsv", "--metrics", "bleu:lc,ter")), delimiter="\t")
    )
    assert [row["metric"] for row in rows] == ["bleu:lc", "ter"]
    assert "| chrF2++ |" in said("out", "ref", "--format", "markdown", "--metrics", "chrf++")


def test_latex_is_a_tabular_with_everything_escaped() -> None:
    lines = said("out", "ref", "-f", "latex", "--metrics", "bleu,chrf++").splitlines()
    assert lines[:2] == [r"\begin{tabular}{lrlrl}", r"\toprule"]
    assert (lines[3], lines[-2], lines[-1]) == (r"\midrule", r"\bottomrule", r"\end{tabular}")
    for line in (lines[2], *lines[4:-2]):
        assert line.endswith(r" \\")
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        assert len(cells) == 5
    assert r"95 \% interval" in lines[2]
    assert not re.search(r"[|–]|(?<!\\)%", "\n".join(lines))


def test_stdin_is_a_file() -> None:
    content = Path("out").read_bytes()
    assert (
        json.loads(said("-", "ref", "-f", "json", stdin=content))["scores"]
        == json.loads(said("out", "ref", "-f", "json"))["scores"]
    )


def test_resamples_and_their_seed() -> None:
    def interval(*options: str) -> tuple[float | None, float | None]:
        score = json.loads(said("out", "ref", "-f", "json", "--metrics", "wer", *options))["scores"]["wer"]
        return score["low"], score["high"]

    expected = saccade.measure(OUTPUTS, REFERENCES, ["wer"], confidence=Resampling(200, 5))["wer"]
    assert interval("--resamples", "200", "--resample-seed", "5") == (expected.low, expected.high)
    assert interval("--resample-seed", "5") != interval()
    assert interval("--resamples", "0") == (None, None)
    signature = json.loads(said("out", "ref", "-f", "json", "--resamples", "200", "--resample-seed", "5"))
    assert "bs:200|seed:5" in signature["scores"]["bleu"]["signature"]


def test_gates() -> None:
    assert "chrf++ is" in refused("out", "ref", "--metrics", "chrf++", "--fail-under", "chrf++=100", status=3)
    assert "ter:cased is" in refused("out", "ref", "--metrics", "ter:cased", "--fail-over", "ter:cased=1", status=3)
    said("out", "out", "--metrics", "chrf++", "--fail-under", "chrf++=100")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["out", "ref", "--metrics", "bleu:13b"], "--metrics is 'bleu:13b'; it must be a list out of bleu, bleu:lc"),
        (["out", "ref", "--metrics", "bleu,bleu"], "each once"),
        (["out", "ref", "--metrics", "perplexity"], "saccade evaluate RUN"),
        (["out", "ref", "--resamples", "99"], "--resamples is 99; fewer than 100"),
        (["out", "ref", "--resample-seed", "-1"], "--resample-seed is -1"),
        (["out", "ref", "--resamples", "0", "--resample-seed", "1"], "nothing is drawn"),
        (["out", "ref", "--fail-under", "ter:cased=1"], "less is better; say --fail-over ter:cased=1"),
        (["out", "ref", "--fail-under", "ter=1"], "less is better"),
        (["out", "ref", "--fail-under", "chrf++=1"], "chrf++ is not among the metrics"),
        (["-", "-"], "stdin can be read once"),
        (["out", "short"], "out has 12 lines and short 1; they must pair up"),
        (["empty", "empty"], "there is nothing to score"),
        (["out", "missing"], "missing: "),
    ],
)
def test_what_is_refused(arguments: list[str], told: str) -> None:
    Path("short").write_text("one\n", encoding="utf-8")
    Path("empty").write_text("", encoding="utf-8")
    assert told in refused(*arguments)


def test_python_refuses_too() -> None:
    for metrics, told in ((["bleu:13b"], "bleu:13b is no metric of text"), (["perplexity"], "no metric of text")):
        with pytest.raises(saccade.UsageError, match=told):
            saccade.measure(OUTPUTS, REFERENCES, metrics)  # type: ignore[arg-type]
    with pytest.raises(saccade.UsageError, match="at least 100"):
        Resampling(99)
    with pytest.raises(saccade.UsageError, match="seed is -1"):
        Resampling(seed=-1)


def test_views_are_said_as_people_say_them() -> None:
    assert metric_name("bleu:none:lc") == "BLEU (none, lc)"
    assert metric("chrf++", 31.25) == "chrF++ 31.2"


def test_evaluate_and_measure_print_the_same_digits(folder: Path) -> None:
    """And `evaluate` takes the views, the resamples and LaTeX, too."""
    done = saccade_command("train", write_corpus(folder), "-q", "--out", "run", "--set", "train.updates=2")
    assert done.exit_code == 0, done.stderr
    options = ("--metrics", "bleu,bleu:none:lc,chrf++,ter,exact_match", "--resamples", "200", "--resample-seed", "3")
    made = saccade_command("evaluate", "run", "test.src", "test.tgt", *options, "-o", "written", "-f", "json")
    assert made.exit_code == 0, made.stderr
    assert (
        json.loads(made.stdout)["scores"] == json.loads(said("written", "test.tgt", *options, "-f", "json"))["scores"]
    )
    latex = saccade_command("evaluate", "run", "--metrics", "chrf++,perplexity", "-f", "latex").stdout
    assert latex.startswith(r"\begin{tabular}")
    assert r"chrF2++" in latex
    refused_ = saccade_command("evaluate", "run", "--resamples", "5")
    assert refused_.exit_code == 2


def test_a_recipe_may_ask_for_views(folder: Path) -> None:
    recipe = write_corpus(folder)
    chosen = ("--set", "metrics=[bleu:none:lc, chrf++]", "--set", "train.metric=chrf++", "--set", "train.updates=2")
    done = saccade_command("train", recipe, "-q", "--out", "run", *chosen)
    assert done.exit_code == 0, done.stderr
    assert list(json.loads(saccade_command("evaluate", "run", "-f", "json").stdout)["scores"]) == [
        "bleu:none:lc",
        "chrf++",
    ]
