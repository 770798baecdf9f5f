"""Outputs of a translator that are drawn or chosen by minimum Bayes risk: commands, Python calls, and refusals."""

import json
from pathlib import Path

import pytest

import saccade
from saccade import config
from saccade.config import parse
from saccade.decode.sampling import DrawConfig, RiskConfig
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.lines import Request
from saccade.metrics.expected import expected_utility
from saccade.metrics.text import chrf
from tests.support.cli import saccade_command, shake, write_corpus

LINES = ["dead beef", "", "face  c", "ab", "cafe", "fed", "dead beef"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and `wild`, whose outputs differ from line to line; `drawing` samples by its recipe."""
    folder = tmp_path_factory.mktemp("home")
    recipe = write_corpus(folder)
    drawing = ("--set", "decode.sample.samples=3", "--set", "decode.sample.top_p=0.8", "--set", "train.metric=chrf")
    for name, more in (("wild", ()), ("drawing", drawing)):
        done = saccade_command("train", recipe, "-q", "--out", folder / name, *more)
        assert done.exit_code == 0, done.stderr
        shake(folder / name, by=0.7, seed=len(more))
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def said(*arguments: str | Path, stdin: str = "") -> str:
    done = saccade_command(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str | Path) -> str:
    done = saccade_command(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return " ".join(done.stderr.split())


def split(text: str) -> list[str]:
    """Lines as the command means them; `splitlines` would break them at other characters, too."""
    assert text.endswith("\n")
    return text[:-1].split("\n")


FILTERS = ("--temperature", "0.9", "--top-k", "7", "--top-p", "0.95", "--min-p", "0.01", "--typical", "0.98")


def test_a_line_is_drawn_as_python_draws_it() -> None:
    model = saccade.load("wild", "cpu")
    given = model.translate(LINES, temperature=0.9, top_k=7, top_p=0.95, min_p=0.01, typical=0.98, seed=4)
    text = said("translate", "wild", *LINES, *FILTERS, "--seed", "4")
    assert text == "".join(f"{each.text}\n" for each in given)
    assert text != said("translate", "wild", *LINES, *FILTERS, "--seed", "5")
    assert given[0].text != given[6].text  # the same line, but another number
    by_settings = ("sample.temperature=0.9", "sample.top_k=7", "sample.top_p=0.95", "sample.min_p=0.01")
    rest = ("sample.typical=0.98", "sample.seed=4")
    asked = [word for each in (*by_settings, *rest) for word in ("--decode", each)]
    assert said("translate", "wild", *LINES, *asked) == text


def test_all_samples_are_told_with_their_scores() -> None:
    model = saccade.load("wild", "cpu")
    given = model.translate(LINES, samples=4, seed=2)
    rows = split(said("translate", "wild", *LINES, "--samples", "4", "--seed", "2", "-f", "jsonl"))
    for line, row, each in zip(LINES, map(json.loads, rows), given, strict=True):
        assert len(each.hypotheses) == 4
        assert row["source"] == line
        assert [hypothesis["text"] for hypothesis in row["hypotheses"]] == [one.text for one in each.hypotheses]
        for shown, one in zip(row["hypotheses"], each.hypotheses, strict=True):
            assert shown["score"] == pytest.approx(one.log_probability / max(len(one.token_log_probabilities), 1))
            assert shown["log_probability"] == pytest.approx(sum(one.token_log_probabilities), abs=1e-5)
            assert len(one.tokens) <= 12  # decode.max_length
    moses = split(said("translate", "wild", *LINES, "--samples", "4", "--seed", "2", "-f", "nbest"))
    assert [int(each.split(" ||| ")[0]) for each in moses] == [n for n in range(len(LINES)) for _ in range(4)]
    assert [each.split(" ||| ")[1] for each in moses] == [one.text for each in given for one in each.hypotheses]


def test_neither_batches_nor_chunks_nor_other_lines_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores may differ in their last digits, as sums do that are added up in another order; the draws do not."""

    def drawn(*arguments: str, stdin: str = "") -> list[tuple[str, str]]:
        rows = split(said("translate", "wild", "--samples", "3", "-f", "nbest", *arguments, stdin=stdin))
        return [(number, text) for number, text, *_ in (row.split(" ||| ") for row in rows)]

    lines = LINES * 3
    together = drawn(*lines)
    assert drawn(*lines, "--batch-tokens", "1") == together
    assert drawn(stdin="\n".join(lines)) == together
    from saccade.cli.streams import Input

    whole = Input.chunks
    monkeypatch.setattr(Input, "chunks", lambda self: whole(self, lines=2))
    assert drawn(stdin="\n".join(lines)) == together
    assert drawn(*["ab"] * 4, *lines[4:])[12:] == together[12:]
    engine, decode = saccade.load("wild", "cpu").engine, saccade.load("wild", "cpu").decoding(samples=2)
    some, all_of_them = engine.translate(LINES[3:], decode, first=4), engine.translate(LINES, decode)
    assert [each.text for each in some] == [each.text for each in all_of_them[3:]]


def test_the_least_and_the_most_tokens_hold_for_samples() -> None:
    model = saccade.load("wild", "cpu")
    short = model.engine.translate(LINES, model.decoding(samples=9, max_length=2))
    assert max(len(one.tokens) for each in short for one in each.hypotheses) == 2
    long = model.translate(["dead", "ab"], samples=9, temperature=0.3, settings=["min_length=7"])
    assert all(len(one.tokens) >= 7 for each in long for one in each.hypotheses)
    apart = model.translate(["dead", "ab"], samples=9, temperature=0.3, settings=["no_repeat_ngram=1"])
    assert all(len(set(one.tokens)) == len(one.tokens) for each in apart for one in each.hypotheses)
    begun = model.translate([Request("dead", prefix="fa"), "ab"], samples=9)
    assert all(one.text.startswith("fa") for one in begun[0].hypotheses)
    assert not all(one.text.startswith("fa") for one in begun[1].hypotheses)
    chosen = model.translate(Request("dead", prefix="fa"), mbr="chrf", samples=9)
    assert chosen.text.startswith("fa")


def test_what_may_not_be_is_not_drawn_and_what_must_be_is_refused() -> None:
    model = saccade.load("wild", "cpu")
    lines = ["dead", "ab", "cafe"]
    free = model.translate(lines, samples=40, temperature=0.7)
    letter = max((c for each in free for one in each.hypotheses for c in one.text if c.isalnum()), key=str.isalpha)
    asked = [Request(line, must_not=(letter,)) for line in lines]
    without = model.translate(asked, samples=40, temperature=0.7, settings=["whole_words=false"])
    assert any(letter in one.text for each in free for one in each.hypotheses)
    assert not any(letter in one.text for each in without for one in each.hypotheses)
    told = refused("translate", "wild", "ab", "--must", "fa", "--samples", "3", "-f", "jsonl")
    assert "line 1: must: 'fa' is asked for, and samples: what an output must hold can be searched for, but not" in told


def test_several_models_draw_as_one() -> None:
    alone = said("translate", "wild", *LINES, "--seed", "3")
    assert said("translate", "wild", *LINES, "--seed", "3", "--with", "wild") == alone
    assert said("translate", "wild", *LINES, "--seed", "3", "--with", "drawing") != alone
    told = refused("translate", "wild", "ab", "--samples", "3", "-f", "jsonl", "--channel", "wild")
    assert "sample: the noisy channel ranks what a beam finds, but samples are asked for." in told


# ---- minimum Bayes risk


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_the_best_by_expected_utility(utility: str) -> None:
    model = saccade.load("wild", "cpu")
    drawn = model.translate(LINES, samples=20, seed=3, top_p=0.9)
    ask = ("--mbr", utility, "--samples", "20", "--seed", "3", "--top-p", "0.9")
    rows = split(said("translate", "wild", *LINES, *ask, "-f", "jsonl", "--n-best", "3"))
    for each, row in zip(drawn, map(json.loads, rows), strict=True):
        texts = [one.text for one in each.hypotheses]
        values = dict(zip(texts, expected_utility(texts, texts, utility), strict=True))  # type: ignore[arg-type]
        best = sorted(values, key=lambda text: -round(values[text], 9))[:3]
        assert [one["text"] for one in row["hypotheses"]] == best
        if row["source"]:
            assert [one["score"] for one in row["hypotheses"]] == pytest.approx([values[text] for text in best])
    first = [json.loads(row)["text"] for row in rows]
    assert said("translate", "wild", *LINES, *ask) == "".join(f"{text}\n" for text in first)
    python = model.translate(LINES, mbr=utility, samples=20, seed=3, top_p=0.9)  # type: ignore[call-overload]
    assert [each.text for each in python] == first
    whole = split(said("translate", "wild", *LINES, *ask, "-f", "nbest"))
    distinct = [len({one.text for one in each.hypotheses}) for each in drawn]
    assert [row.split(" ||| ")[0] for row in whole] == [str(n) for n, many in enumerate(distinct) for _ in range(many)]


def test_candidates_may_be_what_a_beam_finds() -> None:
    model = saccade.load("wild", "cpu")
    found = model.translate("dead beef", beam=4, n_best=4)
    drawn = model.translate("dead beef", samples=10)
    own = [one.text for one in drawn.hypotheses]
    for candidates, texts in (
        ("beam", [one.text for one in found.hypotheses]),
        ("both", [*own, *(one.text for one in found.hypotheses)]),
        ("samples", own),
    ):
        more = () if candidates == "samples" else ("--beam", "4")
        ask = ("--mbr", "chrf", "--samples", "10", *more, "--decode", f"mbr.candidates={candidates}", "-f", "jsonl")
        row = json.loads(said("translate", "wild", "dead beef", *ask))
        values = expected_utility(texts, own, "chrf")
        assert row["score"] == pytest.approx(max(values))
        assert row["text"] == texts[[round(value, 9) for value in values].index(round(max(values), 9))]


def test_a_hundred_samples_unless_told_otherwise() -> None:
    decode = saccade.load("wild", "cpu").decoding(mbr="bleu")
    assert decode.sample == DrawConfig(samples=100)
    assert decode.mbr == RiskConfig(utility="bleu")
    assert saccade.load("wild", "cpu").decoding(mbr="bleu", samples=7).sample == DrawConfig(samples=7)


def test_evaluation_by_minimum_bayes_risk(tmp_path: Path) -> None:
    model = saccade.load("wild", "cpu")
    Path("some.src").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    Path("some.tgt").write_text("".join(f"{line[::-1]}\n" for line in LINES), encoding="utf-8")
    ask = ("--mbr", "chrf", "--samples", "10", "--seed", "6", "--metrics", "chrf", "-f", "json", "-o", tmp_path / "out")
    told = json.loads(said("evaluate", "wild", "some.src", "some.tgt", *ask))
    outputs = [each.text for each in model.translate(LINES, mbr="chrf", samples=10, seed=6)]
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1] == outputs
    right = [line[::-1] for line in LINES]
    assert told["scores"]["chrf"]["value"] == pytest.approx(chrf(outputs, right).value)
    assert told["decode"]["mbr"] == {"utility": "chrf", "candidates": "samples"}
    decode = model.decoding(mbr="chrf", samples=10, seed=6)
    found = model.evaluate(LINES, right, metrics=["chrf"], decode=decode)
    assert found["chrf"].value == pytest.approx(told["scores"]["chrf"]["value"])
    drawn = json.loads(said("evaluate", "wild", "some.src", "some.tgt", "--samples", "1", "-f", "json"))
    assert drawn["decode"]["sample"]["samples"] == 1


# ---- recipes


def test_a_recipe_that_draws() -> None:
    """Validation decodes greedily all the same; a beam on the command line searches."""
    model = saccade.load("drawing", "cpu")
    assert model.decode.sample == DrawConfig(samples=3, top_p=0.8)
    assert [len(each.hypotheses) for each in model.translate(LINES)] == [3] * len(LINES)
    assert said("translate", "drawing", *LINES) == "".join(f"{each.text}\n" for each in model.translate(LINES))
    assert model.decoding(seed=9).sample == DrawConfig(samples=3, top_p=0.8, seed=9)
    searched = model.decoding(beam=2)
    assert (searched.sample, searched.mbr, searched.beam) == (None, None, 2)
    assert len(model.translate("ab", beam=2, n_best=2).hypotheses) == 2
    assert model.decoding(settings=["sample=null"]).sample is None


# ---- refusals


def test_what_is_refused() -> None:
    ask = ("translate", "wild", "ab")
    text = "--samples: is 3, but text has one line for each line in. Add --format nbest or --format jsonl, or let --mbr"
    assert text in refused(*ask, "--samples", "3")
    one = "--samples: is 3, but one output of each line is scored. Draw one, or let --mbr choose among them."
    assert one in refused("evaluate", "wild", "test.src", "test.tgt", "--samples", "3")
    assert "sample.temperature is -1.0" in refused(*ask, "--temperature", "-1")
    assert "sample.samples is 0" in refused(*ask, "--samples", "0", "-f", "jsonl")
    assert "sample.top_p is 0.0" in refused(*ask, "--top-p", "0")
    said_of_beam = refused(*ask, "--beam", "3", "--top-k", "5")
    assert "beam: is 3, but top_k asks for samples, which are drawn and not searched for." in said_of_beam
    assert "beam: is 3, but mbr asks for samples" in refused(*ask, "--beam", "3", "--mbr", "bleu")
    assert "mbr estimates what to choose from samples: set sample.samples to 2 or more" in refused(
        *ask, "--samples", "1", "--mbr", "chrf"
    )
    assert "mbr estimates what to choose from samples" in refused(*ask, "--decode", "mbr.utility=chrf")
    assert "mbr.utility is 'ter'; it must be one of chrf, bleu" in refused(*ask, "--decode", "mbr.utility=ter")
    assert "n_best is 9 and there are 4 candidates to choose among" in refused(
        *ask, "--samples", "4", "--mbr", "chrf", "--n-best", "9", "-f", "jsonl"
    )
    assert "n_best is 2, but samples have no order to choose the best by" in refused(
        *ask, "--samples", "4", "--n-best", "2", "-f", "jsonl"
    )


def test_mbr_is_for_translators(tmp_path: Path) -> None:
    from tests.support.language import recipe

    run = saccade.train(recipe("lstm", "char"), tmp_path / "run", device="cpu").path
    for option, value in (("--mbr", "chrf"), ("--samples", "3"), ("--seed", "1")):
        assert f"{option}: {run} is a run of the task language-model, which has no use" in refused(
            "evaluate", run, option, value
        )


def test_settings_that_make_no_sense_are_refused_in_recipes() -> None:
    for tree, told in (
        ({"mbr": {}}, "set sample.samples to 2 or more"),
        ({"sample": {"samples": 1}, "mbr": {}}, "set sample.samples to 2 or more"),
        ({"sample": {"samples": 5}, "n_best": 2}, "samples have no order"),
        ({"beam": 2, "n_best": 3}, "a beam holds at most that many outputs"),
        ({"sample": {"samples": 5}, "mbr": {"candidates": "beam"}, "beam": 3, "n_best": 4}, "3 candidates"),
    ):
        with pytest.raises(UsageError, match=told):
            parse(DecodeConfig, tree)
    many = parse(DecodeConfig, {"sample": {"samples": 5}, "mbr": {"candidates": "both"}, "beam": 3, "n_best": 8})
    assert parse(DecodeConfig, config.plain(many)) == many
