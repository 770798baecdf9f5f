"""`search-report`: counted by hand on a table, and held against translate and exact search on a run."""

import json
import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from PIL import Image
from torch import Tensor

import saccade
from saccade.decode.brute_force import brute_force
from saccade.decode.exact import ExactRule
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import UsageError
from saccade.lines import Output, Source, Translation
from saccade.search_report import TOLERANCE, SearchReport, modes, parse_rule, rule_name, search_report
from saccade.translate import Engine
from saccade.types import END, START, Hypothesis, State, Step
from saccade.view.search import SearchCurve, draw_search
from tests.support.cli import saccade_command, shake, write_corpus

# ---- a table of probabilities in the place of a model


class _Text:
    """Words are tokens from 3 on: a, b, c."""

    target = property(lambda self: self)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[3 + "abc".index(word) for word in text.split()] for text in texts]

    def decode(self, tokens: tuple[int, ...]) -> str:
        return " ".join("abc"[token - 3] for token in tokens)


class Table:
    """As an Engine, of a model that knows the last token alone; the same for every source."""

    judge: object = None

    def __init__(self, rows: dict[int, dict[int, float]]) -> None:
        p = torch.zeros(6, 6)
        for last, following in rows.items():
            for token, probability in following.items():
                p[last, token] = probability
        p[p.sum(-1) == 0, END] = 1.0
        self.logits_VV = p.log()
        self.text = _Text()
        self.device = torch.device("cpu")

    def read(self, lines: list[str]) -> list[Source]:
        return [Source(line, [3] * len(line.split()) + [END], None, cut=False) for line in lines]

    def begin(self, sources: list[Source], max_steps: int) -> tuple[Step, State]:
        def step(last_N: Tensor, state: State) -> tuple[Tensor, State]:
            return self.logits_VV[last_N], state

        return step, State({"one": torch.zeros(len(sources))}, {"one": torch.zeros(len(sources))})

    def as_text(self, tokens: tuple[int, ...]) -> str:
        return self.text.decode(tokens)

    def translate(self, lines: list[str], config: DecodeConfig, batch_tokens: int) -> list[Translation]:
        limits = [config.limit(len(source.ids)) for source in self.read(lines)]
        found = search(*self.begin(self.read(lines), 9), limits=limits, config=config)
        return [Translation(line, (self._output(best),)) for line, (best, *_) in zip(lines, found, strict=True)]

    def _output(self, found: Hypothesis) -> Output:
        scores = found.token_log_probabilities
        return Output(
            self.as_text(found.tokens), found.score, found.log_probability, found.tokens, scores, ended=found.ended
        )


ENGINE = cast("Engine", Table({START: {3: 0.5, END: 0.4, 4: 0.1}, 3: {4: 0.5, 5: 0.5}, 4: {END: 1.0}, 5: {END: 1.0}}))
"""Greedy: a b, ¼. The mode is empty: 0.4. By the mean log-probability a b and a c are best, and equal."""


def reported(max_length: int = 9, **given: Any) -> SearchReport:
    given = {"beams": (1, 2), "lengths": ("none", "average"), **given}
    decode = given.pop("decode", DecodeConfig(max_length=max_length))
    return search_report(ENGINE, ["x y", "", "z"], ["a b", "a", ["b c a", "a"]], decode=decode, **given)


def test_counted_by_hand() -> None:
    report = reported()
    assert (report.lines, report.empty_sources) == (2, 1)
    plain, mean = report.rules
    narrow, wide = plain.beams
    assert (plain.exact.proved, plain.exact.empty_modes, plain.exact.empty) == (2, 2, 2)
    assert [mode.text for mode in plain.modes] == ["", ""]
    assert plain.modes[0].empty_log_probability == pytest.approx(math.log(0.4))
    assert (narrow.errors, narrow.empty, narrow.unfinished) == (2, 0, 0)  # ¼ < 0.4
    assert (wide.errors, wide.empty, wide.unfinished) == (0, 2, 0)
    assert narrow.log_probability == pytest.approx(math.log(0.25))
    assert wide.log_probability == plain.exact.log_probability == pytest.approx(math.log(0.4))
    assert narrow.length_ratio == 4 / 3  # of b c a and a, which are as near to two tokens, the shorter counts
    assert wide.length_ratio == 0.0
    assert wide.metrics["chrf"] == 0.0 < narrow.metrics["chrf"]

    assert (mean.exact.proved, mean.exact.empty_modes) == (2, 0)
    assert mean.exact.score == pytest.approx(math.log(0.25) / 3)
    assert [each.errors for each in mean.beams] == [0, 0]  # a b and a c are equal: neither is an error
    assert mean.beams[1].length_ratio == mean.beams[0].length_ratio
    assert {mode.text for mode in mean.modes} <= {"a b", "a c"}
    assert "of 2 proved modes 2 are empty and 0 missed at beam 2." in plain.verdict
    assert "of 2 proved modes 0 are empty and 0 missed at beam 2." in mean.verdict


def test_what_is_cut_off_is_an_error_and_said() -> None:
    """A limit of 2: a b has no room for its END; what may end is nothing, and b."""
    (plain,) = reported(2, beams=(1,), lengths=("none",)).rules
    assert (plain.beams[0].unfinished, plain.beams[0].errors, plain.exact.empty_modes) == (2, 2, 2)


def test_a_budget_that_runs_out_leaves_no_errors_to_count() -> None:
    (mean,) = reported(beams=(1,), lengths=("average",), expansions=1).rules
    assert (mean.exact.proved, mean.beams[0].errors, mean.exact.expansions) == (0, 0, 2)
    assert mean.exact.score == pytest.approx(math.log(0.25) / 3)  # greedy's, which it began with
    assert all(mode.bound > mode.score for mode in mean.modes)
    assert "no mode proved (2 of 2 lines ran out of budget)" in mean.verdict
    assert reported(seconds=1e-9).rules[1].exact.proved == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"beams": ()}, "beams: must be at least one, each once"),
        ({"beams": (1, 1)}, "beams: must be at least one, each once"),
        ({"beams": (2, 1)}, "beams: must be in ascending order"),
        ({"beams": (1, 1000)}, "beam is 1000: input should be less than or equal to 512"),
        ({"lengths": ("none", "nnoe")}, "lengths: 'nnoe' must be one of none, average"),
        ({"lengths": ("none=2",)}, "lengths: 'none=2' must be one of"),
        ({"lengths": ("gnmt=-1",)}, "lengths: 'gnmt=-1' must be one of"),
        ({"lengths": ("gnmt=x",)}, "lengths: 'gnmt=x' must be one of"),
        ({"metrics": ("perplexity",)}, "metrics: perplexity is not of outputs"),
        ({"metrics": ()}, "metrics: must be at least one"),
        ({"expansions": 0}, "must be positive"),
    ],
)
def test_refusals(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        reported(**given)
    assert told in str(refused.value)


def test_a_setting_that_exact_search_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match=r"decode: no_repeat_ngram=2, min_length=3 changes which output is the best"):
        reported(decode=DecodeConfig(no_repeat_ngram=2, min_length=3))
    assert reported(decode=DecodeConfig(stop="proven", ratio=3.0)).decode["stop"] == "proven"


def test_outputs_that_are_ranked_anew_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "judge", object())
    with pytest.raises(UsageError, match="ranks whole outputs anew"):
        reported()


def test_nothing_to_search() -> None:
    with pytest.raises(UsageError, match="no line holds anything"):
        search_report(ENGINE, ["", ""], ["a", "b"], decode=DecodeConfig())
    with pytest.raises(UsageError, match="pair up"):
        search_report(ENGINE, ["x"], ["a", "b"], decode=DecodeConfig())


def test_rules_are_read_as_they_are_written() -> None:
    for text in ("none", "average", "gnmt=0.6", "power=0.6", "average=0"):
        assert rule_name(*parse_rule(text)) == text
    assert parse_rule(" gnmt=1 ") == ("gnmt", 1.0)


# ---- a run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    done = saccade_command("train", write_corpus(folder), "-q", "--out", folder / "wild")
    assert done.exit_code == 0, done.stderr
    shake(folder / "wild", by=0.3)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


SMALL = ("--beams", "1,3", "--lengths", "none,gnmt=0.6", "--lines", "4", "--max-length", "3")


def told(*arguments: str) -> str:
    done = saccade_command("search-report", "wild", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_counted_again() -> None:
    report = json.loads(told(*SMALL, "--expansions", "50000", "-f", "json", "--device", "cpu"))
    assert (report["data"], report["lines"], report["of_lines"], report["run"]) == ("test", 4, 16, "wild")
    assert report["decode"]["max_length"] == 3
    model = saccade.load("wild", "cpu")
    sources = (Path("test.src").read_text(encoding="utf-8").splitlines())[:4]
    for rule in report["rules"]:
        assert rule["exact"]["proved"] == 4
        assert [mode["source"] for mode in rule["modes"]] == sources
        for row in rule["beams"]:
            settings = [f"length={rule['length']}", f"alpha={rule['alpha']}"]
            decode = model.decoding(beam=row["beam"], n_best=1, max_length=3, settings=settings)
            outputs = [each.hypotheses[0] for each in model.engine.translate(sources, decode)]
            missed = [
                not output.ended or output.score < mode["score"] - TOLERANCE
                for output, mode in zip(outputs, rule["modes"], strict=True)
            ]
            assert row["errors"] == sum(missed)
            assert row["unfinished"] == sum(not output.ended for output in outputs)
            assert row["log_probability"] == pytest.approx(sum(each.log_probability for each in outputs) / 4, abs=1e-5)
        assert rule["exact"]["score"] == pytest.approx(sum(mode["score"] for mode in rule["modes"]) / 4)


def test_modes_of_a_run_are_those_of_brute_force() -> None:
    """Of outputs of at most two tokens, END counted: as many as the vocabulary."""
    model = saccade.load("wild", "cpu")
    decode = model.decoding(max_length=2)
    sources = model.engine.read(["dead beef", "ab"])
    _, found = modes(model.engine, sources, decode, ExactRule("average"))
    with torch.inference_mode():
        mode = brute_force(*model.engine.begin(sources[1:], 2), limit=2, length="average").mode
    assert found.proved
    assert found.best is not None
    assert found.best.score == pytest.approx(mode.score, abs=1e-5)
    assert found.best.tokens == mode.tokens


def test_python_says_what_the_command_says() -> None:
    model = saccade.load("wild", "cpu")
    sources, targets = (Path(name).read_text(encoding="utf-8").splitlines()[:4] for name in ("test.src", "test.tgt"))
    seen: list[str] = []
    report = model.search_report(
        sources, targets, beams=(1, 3), lengths=("none", "gnmt=0.6"), decode=model.decoding(max_length=3),
        progress=seen.append, batch_tokens=64,
    )  # fmt: skip
    shown = json.loads(told(*SMALL, "test.src", "test.tgt", "-f", "json", "--batch-tokens", "64"))
    for mine, theirs in zip(json.loads(json.dumps(report.to_dict()))["rules"], shown["rules"], strict=True):
        for one, other in zip([*mine["beams"], mine["exact"]], [*theirs["beams"], theirs["exact"]], strict=True):
            assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert len(seen) == 6
    assert seen[0].startswith("none: beam 1, ")
    assert seen[-1] == "gnmt=0.6: exact, 4/4 lines, 4 proved"


def test_every_format(tmp_path: Path) -> None:
    more = (*SMALL, "--split", "valid", "--base", ".", "--metrics", "chrf,exact_match", "--seconds", "60")
    text = told(*more)
    assert "length rule none\n" in text
    assert "length rule gnmt=0.6\n" in text
    assert "4 lines of 12 of valid" in text
    assert "chrF: nrefs:1|case:mixed" in text
    rows = [line.split("\t") for line in told(*more, "-f", "tsv").splitlines()]
    assert rows[0][:3] == ["length rule", "beam", "log p"]
    assert [row[:2] for row in rows[1:]] == [
        [name, beam] for name in ("none", "gnmt=0.6") for beam in ("1", "3", "exact")
    ]
    assert {"chrF", "exact match"} < set(rows[0])
    assert told(*more, "-f", "markdown").count("| exact |") == 2
    latex = told(*more, "-f", "latex")
    assert latex.count(r"\begin{tabular}") == 2
    tables = latex.replace("\n\n", "\n").splitlines()
    assert all(line.startswith(("%", "\\")) or line.endswith(r"\\") for line in tables)


def heights(axes: Any) -> list[list[float]]:
    return [list(line.get_ydata()) for line in axes.lines]


def test_the_curves_are_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "search.png"
    told(*SMALL, "-o", str(picture))
    with Image.open(picture) as image:
        assert image.format == "PNG"
        assert image.size[0] > 1000
    curve = SearchCurve("none", [1.0, 2.0, 3.0], [1.0, 0.9, 0.8], [-1.0, -0.5, -0.4], [50.0, 25.0], proved=0.5)
    figure = draw_search([curve], [1, 5], metric="BLEU", title="$5", detail="")
    quality, length, errors, likelihood = figure.axes
    assert [each.get_text() for each in quality.get_xticklabels()] == ["1", "5", "exact"]
    assert heights(quality) == [[1.0, 2.0], [2.0, 3.0], [3.0]]
    assert quality.lines[2].get_markerfacecolor() == "white"  # not all modes are proved
    assert heights(length)[0] == [1.0, 0.9]
    assert heights(errors) == [[50.0, 25.0]]
    assert heights(likelihood)[2] == [-0.4]
    for wrong in ([], [curve] * 8):
        with pytest.raises(UsageError, match="curves: "):
            draw_search(wrong, [1, 5], metric="BLEU", title="", detail="")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wild", "--beams", "1,x"], "--beams is '1,x'; write widths in ascending order"),
        (["wild", "--beams", "5,1"], "--beams is '5,1'"),
        (["wild", "--beams", "0"], "--beams is '0'"),
        (["wild", "--lengths", "avreage"], "lengths: 'avreage' must be one of"),
        (["wild", "--metrics", "blue"], "--metrics is 'blue'; it must be a list out of bleu"),
        (["wild", "--metrics", "perplexity"], "--metrics is 'perplexity'"),
        (["wild", "--seconds", "0"], "--seconds is 0; it must be more than 0"),
        (["wild", "-o", "search.pdf"], "--output is search.pdf; the picture is a .png"),
        (["wild", "test.src"], "SOURCE and REFERENCE belong together"),
        (["wild", "test.src", "test.tgt", "--split", "valid"], "--split chooses among the recipe's own data"),
        (["wild", "test.src", "valid.tgt"], "they must pair up"),
        (["wild", "empty", "empty"], "empty: is empty; there is nothing to search"),
        (["wild", "--decode", "bea=3"], "bea is not a setting"),
        (["wild", "--decode", "min_length=3"], "decode: min_length=3 changes which output is the best"),
    ],
)
def test_what_cannot_be_reported_is_refused(arguments: list[str], message: str) -> None:
    Path("empty").touch()
    done = saccade_command("search-report", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_a_run_of_another_task_is_refused(home: Path) -> None:
    (home / "lm").mkdir(exist_ok=True)
    (home / "lm" / "train.yaml").write_text("task: language-model\n", encoding="utf-8")
    done = saccade_command("search-report", "lm")
    assert done.exit_code == 2
    assert "search-report: lm is a run of the task language-model, which has no use for it" in done.stderr
