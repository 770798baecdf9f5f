"""Our scores against sacrebleu: its command line, digit for digit, and its Python interface."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from saccade.metrics.interval import Resampling
from saccade.metrics.measure import measure
from saccade.metrics.names import TEXT_METRICS, TextMetric
from saccade.metrics.score import digits
from saccade.metrics.text import bleu, chrf, ter

REFERENCES = [
    "The cat sat on the mat.",
    "He didn't say what he'd do with the 1,000 euros!",
    "A man is riding a bicycle down the street.",
    "Zwei Hunde spielen im Schnee.",
    "Das ist ein Test mit „Anführungszeichen“.",
    "",
] * 3
HYPOTHESES = [
    "The cat sat on a mat.",
    "He did not say what he would do with 1,000 euros.",
    "A man rides a bicycle down the street .",
    "Zwei Hunde spielen im Schnee.",
    "Dies ist ein Test mit Anführungszeichen.",
    "something",
    *REFERENCES[:6],
    "",
    "entirely other words here",
    *REFERENCES[2:6],
]


def command(tmp_path: Path, *options: str) -> str:
    for name, lines in (("ref", REFERENCES), ("hyp", HYPOTHESES)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    run = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp"), *options]
    return subprocess.run(run, capture_output=True, text=True, check=True, encoding="utf-8").stdout.strip()


def test_the_command_prints_the_same_digits(tmp_path: Path) -> None:
    printed = command(tmp_path, "-b", "-w", "2", "-m", "bleu", "chrf", "ter", "-f", "text").split()
    ours = [digits(metric(HYPOTHESES, REFERENCES, confidence=False), width=2) for metric in (bleu, chrf, ter)]
    assert ours == printed


def test_the_command_prints_the_same_signature(tmp_path: Path) -> None:
    score = bleu(HYPOTHESES, REFERENCES, confidence=False)
    assert command(tmp_path, "-f", "text").startswith(f"BLEU|{score.signature} = {digits(score)} ")


def test_the_command_prints_the_same_digits_of_several_references(tmp_path: Path) -> None:
    others = [line.replace("the", "a") for line in REFERENCES]
    (tmp_path / "other").write_text("".join(line + "\n" for line in others), encoding="utf-8")
    several = list(zip(REFERENCES, others, strict=True))
    score = bleu(HYPOTHESES, several, confidence=False)
    command(tmp_path)  # writes the first references and the hypotheses
    run = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(tmp_path / "ref"),
        str(tmp_path / "other"),
        "-i",
        str(tmp_path / "hyp"),
    ]
    printed = subprocess.run([*run, "-f", "text"], capture_output=True, text=True, check=True).stdout
    assert printed.startswith(f"BLEU|{score.signature} = {digits(score)} ")
    assert "nrefs:2" in str(score.signature)


def test_the_command_prints_the_same_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    score = bleu(HYPOTHESES, REFERENCES)
    mean, half = (score.low + score.high) / 2, (score.high - score.low) / 2
    expected = f"BLEU|{score.signature} = {score.value:.3f} (μ = {mean:.3f} ± {half:.3f})"
    assert command(tmp_path, "--confidence", "-w", "3", "-f", "text").startswith(expected)


VIEWS: dict[TextMetric, str] = {
    "bleu": "-m bleu",
    "bleu:lc": "-m bleu -lc",
    "bleu:none": "-m bleu -tok none",
    "bleu:none:lc": "-m bleu -tok none -lc",
    "bleu:intl": "-m bleu -tok intl",
    "bleu:intl:lc": "-m bleu -tok intl -lc",
    "bleu:char": "-m bleu -tok char",
    "bleu:char:lc": "-m bleu -tok char -lc",
    "bleu:zh": "-m bleu -tok zh",
    "bleu:zh:lc": "-m bleu -tok zh -lc",
    "chrf": "-m chrf",
    "chrf:lc": "-m chrf --chrf-lowercase",
    "chrf++": "-m chrf --chrf-word-order 2",
    "chrf++:lc": "-m chrf --chrf-word-order 2 --chrf-lowercase",
    "ter": "-m ter",
    "ter:cased": "-m ter --ter-case-sensitive",
}
"""What sacrebleu's command wants to be told for the same view."""


def test_no_view_is_left_out() -> None:
    by_sacrebleu = {name for name in TEXT_METRICS if name.startswith(("bleu", "chrf", "ter"))}
    assert set(VIEWS) == by_sacrebleu - {"bleu_code"}


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_has_the_digits_the_signature_and_the_interval_of_the_command(
    name: TextMetric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    printed = json.loads(
        command(tmp_path, *VIEWS[name].split(), "--confidence", "--confidence-n", "300", "-f", "json", "-w", "6")
    )
    score = measure(name, HYPOTHESES, REFERENCES, confidence=Resampling(300, 77))
    assert score.name.startswith(printed["name"])
    assert score.signature == printed["signature"]
    assert digits(score, width=6) == f"{printed['score']:.6f}"
    mean, half = (score.low + score.high) / 2, (score.high - score.low) / 2
    assert (f"{mean:.6f}", f"{half:.6f}") == (f"{printed['confidence_mean']:.6f}", f"{printed['confidence_var']:.6f}")


def test_views_differ() -> None:
    """Or the options would say nothing."""
    cased = [line.title() for line in HYPOTHESES]
    found = {name: measure(name, cased, REFERENCES, confidence=False).value for name in VIEWS}
    assert found["bleu:lc"] > found["bleu"]
    assert found["bleu:none"] < found["bleu"] < found["bleu:char"]
    assert found["chrf++:lc"] > found["chrf++"]
    assert found["chrf++"] < found["chrf"]
    assert found["ter:cased"] > found["ter"]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(bleu, sacrebleu.corpus_bleu), (chrf, sacrebleu.corpus_chrf), (ter, sacrebleu.corpus_ter)]
)
def test_equal_to_the_python_interface(ours, theirs) -> None:  # type: ignore[no-untyped-def]
    score = ours(HYPOTHESES, REFERENCES)
    assert score.value == theirs(HYPOTHESES, [REFERENCES]).score
    assert score.count == len(REFERENCES)
    assert score.low < score.value < score.high
    assert ours(HYPOTHESES, REFERENCES) == score
