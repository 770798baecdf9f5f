"""Searching from the command line and from Python: settings of the beam, prefixes, requests as JSON, refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

import saccade
from saccade import config
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.lines import Request
from saccade.recipe import parse_recipe
from saccade.translate import MAX_PREFIX_TOKENS
from saccade.types import END
from tests.support.cli import RECIPE, saccade_command, shake, write_corpus


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`wild`, whose outputs differ from line to line, and `blind`, which does not look at the source."""
    folder = tmp_path_factory.mktemp("home")
    recipe = write_corpus(folder)
    for name, sets in (("wild", []), ("blind", ["--set", "model.decoder.attention=null"])):
        done = saccade_command("train", recipe, "-q", "--out", folder / name, *sets)
        assert done.exit_code == 0, done.stderr
        shake(folder / name, by=0.7)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def translated(*arguments: str, stdin: str = "") -> str:
    done = saccade_command("translate", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def found(*arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(translated("wild", "dead beef", "-f", "jsonl", *arguments))["hypotheses"]
    return rows


def decode(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--decode", setting)]


# ---- settings


def test_settings_of_the_beam_are_heard() -> None:
    usual = found("--n-best", "3")
    for each in found("--n-best", "3", *decode("no_repeat_ngram=1", "min_length=4")):
        assert len(set(each["tokens"])) == len(each["tokens"])
    longest, proven = (found("--n-best", "3", *decode(f"stop={stop}")) for stop in ("length", "proven"))
    assert longest == proven
    assert longest[0]["score"] >= usual[0]["score"]
    apart = found("--n-best", "6", "--beam", "6", *decode("groups=3", "diversity=3"))
    assert len({each["tokens"][0] if each["tokens"] else "" for each in apart}) >= 3
    covering = found(*decode("coverage=0.5"))[0]
    mean = covering["log_probability"] / len(covering["token_log_probabilities"])
    assert covering["score"] < mean
    by_layer = found(*decode("coverage=0.5", "coverage_layer=0"))[0]
    assert by_layer == covering  # a recurrent decoder looks once


def test_evaluate_takes_them_too() -> None:
    done = saccade_command("evaluate", "wild", "test.src", "test.tgt", *decode("stop=proven", "no_repeat_ngram=2"))
    assert done.exit_code == 0, done.stderr
    done = saccade_command("evaluate", "wild", "test.src", "test.tgt", *decode("groups=2"))
    assert done.exit_code == 2
    assert "groups is 2 and beam is 3" in done.stderr


def test_python_takes_any_setting() -> None:
    model = saccade.load("wild", "cpu")
    plain = model.translate("dead beef")
    assert model.translate(Request("dead beef")) == plain
    assert model.translate(["ab", Request("dead beef")])[1].text == plain.text


def test_the_least_length_is_absolute_and_by_the_source() -> None:
    model = saccade.load("wild", "cpu")
    with torch.no_grad():
        model.engine.model.decoder.output.bias[END] += 20.0  # it ends as soon as it may
    for beam in (1, 3):
        for settings, least in ((["min_length=0"], 0), (["min_length=9"], 9), (["min_ratio=0.5"], 5)):
            translation = model.translate("dead beef", beam=beam, settings=settings)  # 10 tokens, END counted
            assert len(translation.hypotheses[0].tokens) == least


def test_an_average_with_an_exponent_is_the_power_it_always_was() -> None:
    """Run folders and recipes from before `power` had a name say average and an exponent."""
    old = {"beam": 3, "length": "average", "alpha": 0.6, "n_best": 1, "max_length": 12, "ratio": 2.0, "extra": 20}
    now = config.parse(DecodeConfig, old)
    assert (now.length, now.alpha) == ("power", 0.6)
    assert config.parse(DecodeConfig, {"alpha": 0.6}).length == "power"
    assert config.parse(DecodeConfig, {"length": "average", "alpha": 1.0}) == DecodeConfig()
    assert config.parse(DecodeConfig, config.plain(now)) == now
    assert config.parse(DecodeConfig, {"length": "none", "alpha": 1.0}).length == "none"
    model = saccade.load("wild", "cpu")
    model.decode = DecodeConfig(length="power", alpha=0.6)
    by_name = model.decoding(settings=["length=average"])
    assert (by_name.length, by_name.alpha) == ("average", 1.0)  # the mean, and not with the exponent of before
    none = model.decoding(settings=["length=none"])
    assert (none.length, none.alpha) == ("none", 1.0)
    both = model.decoding(settings=["length=average", "alpha=0.25"])
    assert (both.length, both.alpha) == ("power", 0.25)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"beam": 2, "n_best": 3}, "n_best is 3 and beam is 2: a beam holds at most that many outputs"),
        ({"length": "none", "alpha": 0.6}, "length is none and alpha is 0.6: without normalisation no exponent"),
        ({"beam": 5, "groups": 2, "diversity": 1}, "groups is 2 and beam is 5: a beam is cut into groups of one size"),
        ({"diversity": 0.5}, "diversity is 0.5 and groups is 1: there are no groups to keep apart"),
        ({"beam": 4, "groups": 2}, "groups is 2 and diversity is 0: every group would find the same"),
        ({"coverage_layer": 0}, "coverage_layer is 0 and coverage is 0: nothing asks for a layer"),
        ({"min_length": 9, "max_length": 9}, "min_length is 9 and max_length is 9, END counted: nothing could end"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DecodeConfig(**settings)


@pytest.mark.parametrize(
    ("decoder", "decode", "reason"),
    [
        ("attention: null", "coverage: 0.2", "decode.coverage goes by the decoder's weights over the source's tokens"),
        ("attention: {score: last}", "coverage: 0.2", "model.decoder has none"),
        ("attention: {score: general}", "coverage: 0.2, coverage_layer: 1", "coverage_layer is 1, but 1 of the"),
    ],
)
def test_a_recipe_whose_coverage_cannot_be_told_is_refused(decoder: str, decode: str, reason: str) -> None:
    text = RECIPE.replace("attention: {score: general}", decoder).replace("beam: 3", f"beam: 3, {decode}")
    with pytest.raises(UsageError, match=reason):
        parse_recipe(config.parse_yaml(text, "recipe"))


def test_what_a_model_cannot_tell_is_refused() -> None:
    for run, settings, reason in (
        ("blind", ["coverage=0.2"], "no cross-attention"),
        ("wild", ["coverage=0.2", "coverage_layer=3"], "coverage_layer is 3, but 1 of the decoder's layers"),
    ):
        done = saccade_command("translate", run, "ab", *decode(*settings))
        assert done.exit_code == 2
        assert reason in done.stderr


# ---- prefixes


def test_an_output_begins_with_its_prefix() -> None:
    for beam in ("1", "4"):
        lines = translated("wild", "dead beef", "", "ab", "--prefix", "fa", "--beam", beam).split("\n")
        assert lines[0].startswith("fa")
        assert lines[2].startswith("fa")
        assert lines[1] == ""  # an empty line stays empty
    model = saccade.load("wild", "cpu")
    alone = model.translate(Request("dead beef", prefix="fa")).hypotheses[0]
    (scored,) = model.score(["dead beef"], ["fa"])
    assert alone.token_log_probabilities[:2] == pytest.approx(scored.token_log_probabilities[:2], abs=1e-4)
    assert alone.log_probability == pytest.approx(sum(alone.token_log_probabilities), abs=1e-4)
    mixed = model.translate([Request("dead beef", prefix="fa"), "dead beef", Request("ab", prefix="c")])
    assert mixed[0].text == alone.text
    assert mixed[1].text == model.translate("dead beef").text
    assert mixed[2].text.startswith("c")


def test_a_prefix_longer_than_the_limit_is_all_there_is() -> None:
    model = saccade.load("wild", "cpu")
    prefix = "fa bc dead beef cafe"
    assert len(prefix) > model.decode.max_length
    for beam in (1, 3):
        (only,) = model.translate(Request("ab", prefix=prefix), beam=beam).hypotheses
        assert (only.text, only.ended) == (prefix, False)
        assert len(only.token_log_probabilities) == len(prefix)
    most = Request("ab", prefix="a" * (MAX_PREFIX_TOKENS + 1))
    with pytest.raises(UsageError, match=r"line 2: the prefix .* has 1,025 tokens; the longest allowed has 1,024"):
        model.translate(["ab", most])


# ---- requests


def test_lines_of_json_are_requests() -> None:
    rows = [
        {"text": "dead beef", "prefix": "fa"},
        {"text": ""},
        {"text": "ab\ud800", "must": []},
        {"text": "dead beef"},
    ]
    stdin = "".join(json.dumps(row) + "\n" for row in rows)
    lines = translated("wild", "--input-format", "jsonl", stdin=stdin).split("\n")
    assert len(lines) == 5
    assert lines[-1] == ""
    model = saccade.load("wild", "cpu")
    expected = [Request("dead beef", "fa"), Request(""), Request("ab\ufffd"), Request("dead beef")]
    assert lines[:-1] == [each.text for each in model.translate(expected)]
    general = translated("wild", "--input-format", "jsonl", "--prefix", "c", stdin=stdin).split("\n")
    assert general[0] == lines[0]  # its own
    assert general[3].startswith("c")
    assert general[1] == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "is not JSON"),
        ("{'text': 1}", "is not JSON"),
        ("[" * 99999, "is not JSON"),
        ('"dead"', "is no JSON object"),
        ('{"prefix": "a"}', "has no 'text'"),
        ('{"text": "a", "prefx": "b"}', "'prefx' is none of text, prefix, must, must_not (did you mean 'prefix'?)"),
        ('{"text": 3}', "'text' is 3, which is no text"),
        ('{"text": "a", "prefix": null}', "'prefix' is None, which is no text"),
        ('{"text": "a", "must": "b"}', "'must' is 'b'; it must be a list of texts"),
        ('{"text": "a", "must_not": [1]}', "'must_not' is 1, which is no text"),
    ],
)
def test_a_line_that_is_no_request_is_named(line: str, reason: str) -> None:
    good = '{"text": "ab"}\n'
    done = saccade_command("translate", "wild", "--input-format", "jsonl", stdin=good + line + "\n" + good)
    assert done.exit_code == 2
    assert "--input-format jsonl: line 2 (" in done.stderr
    assert reason in done.stderr


def refused(*arguments: str) -> str:
    done = saccade_command("translate", "wild", "dead", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--beam", "5", "--decode", "sample.samples=3", "-f", "nbest"], "beam: is 5, but sample.samples asks for"),
        (["--decode", "beam=5", "--samples", "3", "-f", "nbest"], "beam: is 5, but samples asks for samples"),
        (["--decode", "length=none", "--length-penalty", "0.6"], "length_penalty: is 0.6, but length=none"),
        (["--decode", "length=none", "--length-penalty", "1"], "length_penalty: is 1, but length=none"),
        (["--decode", "ratio=inf"], "ratio"),
        (["--decode", "ratio=.inf"], "ratio"),
        (["--max-length", "100000000"], "max_length"),
        (["--with", "wild", "--weights", "1e309,1"], "weights"),
    ],
)
def test_contradictions_and_numbers_out_of_range_are_refused(arguments: list[str], reason: str) -> None:
    assert reason in refused(*arguments)


def test_no_number_is_too_large_where_another_bounds_it() -> None:
    usual = DecodeConfig(ratio=1e308, min_ratio=1e308, max_length=9)
    assert (usual.limit(5), usual.least(5, 9)) == (9, 8)
    assert translated("wild", "dead", *decode("ratio=1e308", "min_ratio=1e308"), "--max-length", "5").count("\n") == 1
    one = translated("wild", "dead", "--with", "wild", "--weights", "1e308,1e308")
    assert one == translated("wild", "dead", "--with", "wild")


@pytest.mark.parametrize("name", ["must", "must_not"])
def test_one_text_is_no_list_of_phrases(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: is 'ab'; it must be a list of phrases"):
        Request("dead", **{name: "ab"})
