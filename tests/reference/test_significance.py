"""Paired tests against sacrebleu's own command line, and against every way that outputs can change sides."""

import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.metrics.measure import measure
from saccade.metrics.names import TextMetric
from saccade.metrics.significance import (
    TESTS,
    against_first,
    bootstrapped,
    holm,
    paired_bootstrap,
    paired_randomisation,
)
from saccade.metrics.statistics import (
    LineStatistics,
    label_statistics,
    mean_and_half,
    span_statistics,
    surprise_statistics,
    tag_statistics,
    text_statistics,
)

WORDS = ("the", "a", "red", "old", "house", "tree", "runs", "over", "slowly", ",", "and", "sees", "its", "shadow")


def corpus(lines: int, seed: int, *error_rates: float) -> tuple[list[str], list[list[str]]]:
    """References, and systems that each get some words wrong, leave some out and turn some around."""
    draw = random.Random(seed)
    references = [" ".join(draw.choices(WORDS, k=draw.randint(1, 14))) for _ in range(lines)]

    def garbled(line: str, rate: float) -> str:
        words = [draw.choice(WORDS) if draw.random() < rate else word for word in line.split()]
        words = [word for word in words if draw.random() > rate / 3] or ["the"]
        if draw.random() < rate:
            words.reverse()
        return " ".join(words)

    return references, [[garbled(line, rate) for line in references] for rate in error_rates]


@dataclass(frozen=True)
class Told:
    """A cell of sacrebleu's table: `31.2 (31.1 ± 2.0) (p = 0.0123)*`; with randomisation there is no interval."""

    score: float
    mean: float | None
    half: float | None
    p: float | None


def command_line(
    folder: Path, references: Sequence[Sequence[str]], systems: Sequence[Sequence[str]], *options: str, seed: int
) -> list[dict[TextMetric, Told]]:
    """What `sacrebleu` prints of each system."""
    files = {f"ref{i}": each for i, each in enumerate(references)} | {f"sys{i}": e for i, e in enumerate(systems)}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *(name for name in files if name.startswith("ref")), "-i",
               *(name for name in files if name.startswith("sys")), "-m", "bleu", "chrf", "ter",
               "-w", "6", "-f", "latex", *options]  # fmt: skip
    environment = {**os.environ, "SACREBLEU_SEED": str(seed)}
    told = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout
    rows = [line for line in told.splitlines() if re.match(r" *(Baseline: )?sys\d ", line)]
    assert len(rows) == len(systems)
    return [dict(zip(NAMES, map(_cell, row.rstrip("\\ ").split("&")[1:]), strict=True)) for row in rows]


def _cell(text: str) -> Told:
    found = re.fullmatch(r"\s*([\d.]+)(?: \(([\d.]+) ± ([\d.]+)\))?(?: \(p = ([\d.]+)\)\*?)?\s*", text)
    assert found, text
    score, *others = (None if each is None else float(each) for each in found.groups())
    assert score is not None
    return Told(score, *others)


NAMES: tuple[TextMetric, ...] = ("bleu", "chrf", "ter")


@pytest.mark.parametrize(("seed", "resamples", "two_references"), [(12345, 500, False), (7, 300, True)])
def test_bootstrap_prints_what_sacrebleu_prints(
    tmp_path: Path, seed: int, resamples: int, two_references: bool
) -> None:
    references, systems = corpus(60, seed, 0.30, 0.27, 0.31)
    right = [references, systems.pop()] if two_references else [references]
    rows = command_line(tmp_path, right, systems, "--paired-bs", "--paired-bs-n", str(resamples), seed=seed)
    for name in NAMES:
        tables = [text_statistics(name, each, list(zip(*right, strict=True))) for each in systems]
        drawn = bootstrapped(tables, resamples=resamples, seed=seed)
        for row, table, values in zip(rows, tables, drawn, strict=True):
            assert table.value() == pytest.approx(row[name].score, abs=5.1e-7)  # all that is printed
            # Resamples are summed in single precision there.
            assert mean_and_half(values) == pytest.approx((row[name].mean, row[name].half), abs=2e-5)
            if table is not tables[0]:
                both = [tables[0], table]
                paired = against_first(both, test="bootstrap", resamples=resamples, seed=seed)[1][1]
                assert paired is not None
                assert paired.p == paired_bootstrap(tables[0], table, resamples=resamples, seed=seed)
                assert f"{paired.p_sacrebleu:.4f}" == f"{row[name].p:.4f}", name
                assert paired.p_sacrebleu is not None
                assert paired.p >= paired.p_sacrebleu


@pytest.mark.parametrize(("seed", "trials", "lines"), [(12345, 1000, 9), (99, 500, 50)])
def test_randomisation_prints_what_sacrebleu_prints(tmp_path: Path, seed: int, trials: int, lines: int) -> None:
    references, systems = corpus(lines, seed, 0.30, 0.25, 0.31)
    rows = command_line(tmp_path, [references], systems, "--paired-ar", "--paired-ar-n", str(trials), seed=seed)
    for name in NAMES:
        tables = [text_statistics(name, each, references) for each in systems]
        found = against_first(tables, test="randomisation", resamples=trials, seed=seed)[1]
        for row, table, paired in zip(rows, tables, found, strict=True):
            assert table.value() == pytest.approx(row[name].score, abs=5.1e-7)
            if paired is not None:
                assert paired.p == paired_randomisation(tables[0], table, resamples=trials, seed=seed)
                assert f"{paired.p_sacrebleu:.4f}" == f"{row[name].p:.4f}", name


# ---- what the counts say is what is measured


@pytest.mark.parametrize(
    "name",
    ["bleu", "bleu_code", "chrf", "ter", "exact_match", "wer", "cer", "per", "g2p_wer", "rouge_1", "rouge_2", "rouge_l",
     "answer_em", "answer_f1", "bracket_f1", "slot_f1", "intent_accuracy"],
)  # fmt: skip
def test_counts_make_the_score_and_interval_of_evaluate(name: TextMetric) -> None:
    references, [system] = corpus(40, 3, 0.2)
    if name == "bracket_f1":
        references, system = ([f"(S (NP {line} )NP )S" for line in some] for some in (references, system))
    if name == "slot_f1":
        references, system = (
            [" ".join(["x", *("B-" + word for word in line.split())]) for line in some] for some in (references, system)
        )
    right = [[one, other] for one, other in zip(references, references[1:] + references[:1], strict=True)]
    table = text_statistics(name, system, right)
    theirs, ours = measure(name, system, right), table.score(bootstrapped([table])[0])
    plain = (theirs.signature or "").replace("|bs:1000|seed:12345", "") or None
    assert (ours.name, ours.signature, ours.count) == (theirs.name, plain, theirs.count)
    assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high), abs=2e-5)


def test_each_line_is_scored_as_sacrebleu_scores_a_sentence() -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    references, [system] = corpus(60, 5, 0.3)
    system[0], references[1] = "", ""
    metric: Any
    for name, metric in (("bleu", BLEU(effective_order=True)), ("chrf", CHRF())):
        theirs = [metric.sentence_score(o, [r]).score for o, r in zip(system, references, strict=True)]
        np.testing.assert_allclose(text_statistics(name, system, references).each(), theirs, atol=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bleu:lc", "bleu:none", "bleu:char:lc", "chrf:lc", "chrf++", "ter:cased"])
def test_views_of_text_are_sacrebleus(name: str) -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    references, [system] = corpus(30, 8, 0.3)
    system = [line.title() if i % 3 else line for i, line in enumerate(system)]
    metric: Any = {
        "bleu:lc": BLEU(lowercase=True), "bleu:none": BLEU(tokenize="none"),
        "bleu:char:lc": BLEU(tokenize="char", lowercase=True), "chrf:lc": CHRF(lowercase=True),
        "chrf++": CHRF(word_order=2), "ter:cased": TER(case_sensitive=True),
    }[name]  # fmt: skip
    theirs = metric.corpus_score(system, [references])
    table = text_statistics(name, system, references)  # type: ignore[arg-type]
    assert table.value() == pytest.approx(theirs.score, abs=1e-9)
    assert table.signature == str(metric.get_signature())
    assert table.less_is_better == name.startswith("ter")


@given(st.integers(1, 6), st.integers(0, 999), st.integers(2, 30))
@settings(max_examples=30)
def test_scores_of_resampled_sums_are_sacrebleus(empty: int, seed: int, lines: int) -> None:
    """Any sums at all, those of empty and of hopeless outputs included."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    references, [system] = corpus(lines, seed, 0.9)
    system = ["" if i % (empty + 1) == 0 else line for i, line in enumerate(system)]
    metrics: dict[TextMetric, Any] = {"bleu": BLEU(force=True), "chrf": CHRF(), "ter": TER()}
    for name, metric in metrics.items():
        table = text_statistics(name, system, references)
        rows = np.random.default_rng(seed).integers(lines, size=3)
        theirs = metric.corpus_score([system[i] for i in rows], [[references[i] for i in rows]]).score
        assert table.value(rows) == pytest.approx(theirs, abs=1e-9)


# ---- every way to change sides


def every_p(one: LineStatistics, other: LineStatistics) -> float:
    """The share of all 2^N assignments that make a difference at least as large."""
    seen = abs(one.value() - other.value())
    reached = 0.0
    for stays in itertools.product([False, True], repeat=one.lines):
        stay_N1 = np.array(stays)[:, None]
        a = np.where(stay_N1, one.counts_NK, other.counts_NK).sum(0, keepdims=True)
        b = np.where(stay_N1, other.counts_NK, one.counts_NK).sum(0, keepdims=True)
        reached += bool(abs(one.value_of(a)[0] - one.value_of(b)[0]) >= seen - 1e-9)
    return float(reached / 2**one.lines)


@pytest.mark.parametrize("name", ["exact_match", "wer", "cer", "answer_f1", "bleu", "chrf", "ter"])
@pytest.mark.parametrize("seed", range(3))
def test_randomisation_comes_to_the_share_of_all_assignments(name: TextMetric, seed: int) -> None:
    references, [one, other] = corpus(9, seed, 0.05, 0.3)
    first, second = (text_statistics(name, each, references) for each in (one, other))
    p, exact = paired_randomisation(first, second, resamples=20000), every_p(first, second)
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20000) + 2e-4)


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter", "wer", "exact_match"])
@pytest.mark.parametrize("differing", [1, 3])
def test_few_lines_that_differ_cannot_have_a_small_p(name: TextMetric, differing: int) -> None:
    """Of k lines that differ, all to one side, 2 of 2^k assignments make the difference."""
    references, _ = corpus(100, 4)
    other = [*["quite another sentence stands here"] * differing, *references[differing:]]
    tables = [text_statistics(name, each, references) for each in (references, other)]
    for test in TESTS:
        found = against_first(tables, test=test)[1][1]
        assert found is not None
        assert found.p > 0.9 * (2 / 2**differing if test == "randomisation" else 0.05)
        if name in NAMES and test == "randomisation":
            assert found.p_sacrebleu == 1 / 10001  # what its command line prints
        if name not in NAMES:
            assert found.p_sacrebleu is None


def test_six_wins_of_six_have_p_one_in_thirtytwo() -> None:
    """Hand-worked: all right against all wrong on six lines is reached by 2 of 2^6 assignments."""
    right = [f"line {i}" for i in range(6)]
    first, second = text_statistics("exact_match", ["wrong"] * 6, right), text_statistics("exact_match", right, right)
    assert every_p(first, second) == 2 / 64
    assert paired_randomisation(first, second, resamples=50000) == pytest.approx(1 / 32, abs=0.003)


@given(st.integers(0, 500))
@settings(max_examples=10)
def test_the_same_system_twice_and_both_ways_around(seed: int) -> None:
    references, [one, other] = corpus(12, seed, 0.2, 0.4)
    for name in ("bleu", "exact_match"):
        a, b = (text_statistics(name, each, references) for each in (one, other))
        for test in (paired_bootstrap, paired_randomisation):
            assert test(a, a, resamples=100) == 1.0
            assert test(a, b, resamples=200) == pytest.approx(test(b, a, resamples=200), abs=1e-12)
        [_, same], [_, apart], [_, back] = (against_first(pair)[1] for pair in ([a, a], [a, b], [b, a]))
        assert same is not None
        assert apart is not None
        assert back is not None
        assert (same.difference, same.low, same.high, same.better, same.p) == (0, 0, 0, 0, 1)
        assert (apart.difference, apart.low) == pytest.approx((-back.difference, -back.high))


def test_p_is_evenly_spread_where_there_is_no_difference() -> None:
    """Two systems that err alike: 5 % of the tests may say otherwise, give or take."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(400):
        one, other = (label_statistics(["a"] * 40, draw.choice(["a", "b"], 40, p=[0.7, 0.3]).tolist(), "ab")[0]
                      for _ in range(2))  # fmt: skip
        found.append(paired_randomisation(one, other, resamples=199))
    assert np.mean(np.array(found) <= 0.05) < 0.08
    assert np.mean(np.array(found) <= 0.5) < 0.56


# ---- other metrics, other numbers


def test_labels_tags_and_spans_are_counted_as_elsewhere() -> None:
    from saccade.metrics.classification import classification
    from saccade.metrics.spans import accuracy, span_report

    true, given_ = list("aabbccabca"), list("abbbcaabcc")
    measured = classification(true, given_)
    right, macro = label_statistics(true, given_, ["d"])
    assert right.value() == pytest.approx(measured.accuracy.value)
    assert macro.value() == pytest.approx(measured.macro_f1.value)
    assert right.score(bootstrapped([right])[0]).low == pytest.approx(measured.accuracy.low)
    ours = macro.score(bootstrapped([macro])[0])
    assert (ours.low, ours.high) == pytest.approx((measured.macro_f1.low, measured.macro_f1.high))
    gold, found = [["B-X", "O"], ["O"], ["B-X", "I-X"]], [["B-X", "O"], ["B-X"], ["B-X", "O"]]
    assert tag_statistics(gold, found).value() == pytest.approx(accuracy(gold, found).value)
    spans, others = [[("X", 0, 1)], [], [("X", 0, 2)]], [[("X", 0, 1)], [("X", 0, 1)], [("X", 0, 1)]]
    assert span_statistics(spans, others).value() == pytest.approx(100 * span_report(spans, others).micro.f1)
    with pytest.raises(UsageError, match="sentence 2 has 1 words, but 2 tags"):
        tag_statistics([["O"], ["O"]], [["O"], ["O", "O"]])


def test_perplexity_is_of_all_lines_together() -> None:
    table = surprise_statistics("perplexity_per_word", np.array([2.0, 4.0]), np.array([1, 3]), "s")
    assert table.value() == pytest.approx(np.exp(6 / 4))
    assert table.each() == pytest.approx(np.exp([2, 4 / 3]))
    assert table.less_is_better


def test_holm_by_hand() -> None:
    # sorted .01 .02 .04: × 3, × 2, × 1, and never less than the one before
    assert holm([0.02, 0.01, 0.04]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_what_cannot_be_tested_is_told() -> None:
    references, [one, other] = corpus(5, 0, 0.2, 0.2)
    bleu, chrf = text_statistics("bleu", one, references), text_statistics("chrf", other, references)
    with pytest.raises(UsageError, match="not the same metric"):
        paired_bootstrap(bleu, chrf)
    with pytest.raises(UsageError, match="same lines; they have 5, 4"):
        paired_randomisation(bleu, text_statistics("bleu", one[:4], references[:4]))
    with pytest.raises(UsageError, match="test is 'sign'"):
        against_first([bleu], test="sign")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="resamples is 10; it must be at least 100"):
        against_first([bleu], resamples=10)
    with pytest.raises(UsageError, match="seed is -1"):
        against_first([bleu], seed=-1)
    with pytest.raises(UsageError, match="comet is no metric of text"):
        text_statistics("comet", one, references)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="distinct_1 is no sum over lines"):
        text_statistics("distinct_1", one, references)
    alone = text_statistics("bleu", one[:1], references[:1])
    [_, paired] = against_first([alone, alone])[1]
    assert paired is not None
    assert np.isnan([paired.p, paired.low, paired.better]).all()


def test_draws_are_the_same_however_many_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.metrics import significance

    references, [one, other] = corpus(33, 1, 0.3, 0.25)
    a, b = (text_statistics("ter", each, references) for each in (one, other))
    whole = [paired_bootstrap(a, b, resamples=500), paired_randomisation(a, b, resamples=500)]
    monkeypatch.setattr(significance, "_AT_ONCE", 33 * 64)
    assert [paired_bootstrap(a, b, resamples=500), paired_randomisation(a, b, resamples=500)] == whole
