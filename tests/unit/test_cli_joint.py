"""Other runs on the command line: --with, --lm and --channel of translate, evaluate and score; what is refused."""

import json
from pathlib import Path

import pytest

import saccade
from tests.support.cli import saccade_command
from tests.support.joint import make_corpus, make_run

LINES = ["abc", "hgfedcba", "", "badcafe"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_corpus(tmp_path_factory.mktemp("joint"))
    for name in ("lstm", "transformer", "bytes", "back", "lm", "lm-bytes"):
        make_run(folder, name)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def said(*arguments: str) -> str:
    done = saccade_command(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def loaded(name: str) -> saccade.Model:
    return saccade.load(name, "cpu")


def texts(model: saccade.Model) -> str:
    return "".join(f"{each.text}\n" for each in model.translate(LINES))


def test_an_ensemble_is_as_in_python() -> None:
    models = [loaded(name) for name in ("lstm", "transformer", "lstm")]
    expected = texts(saccade.ensemble(models, weights=[0.5, 0.3, 0.2], mix="linear"))
    more = ("--with", "transformer", "--with", "lstm", "--weights", "0.5,0.3,0.2", "--mix", "linear")
    assert said("translate", "lstm", *LINES, *more) == expected
    assert said("translate", "lstm", *LINES, "--with", "transformer") == texts(saccade.ensemble(models[:2]))


def test_a_language_model_is_as_in_python() -> None:
    lstm, lm, other, back = (loaded(name) for name in ("lstm", "lm", "lm-bytes", "back"))
    assert said("translate", "lstm", *LINES, "--lm", "lm") == texts(saccade.fused(lstm, lm, weight=0.2))
    much = ("--lm", "lm", "--lm-weight", "2", "--lm-mode", "shallow")
    assert said("translate", "lstm", *LINES, *much) == texts(saccade.fused(lstm, lm, weight=2.0))
    ranked = ("--lm", "lm-bytes", "--lm-weight", "0.5", "--lm-mode", "rerank")
    assert said("translate", "lstm", *LINES, *ranked) == texts(
        saccade.reranked(lstm, language_model=other, lm_weight=0.5)
    )
    both = ("--lm", "lm-bytes", "--lm-weight", "0.5", "--channel", "back", "--channel-weight", "0.7")
    every = saccade.reranked(lstm, channel=back, channel_weight=0.7, language_model=other, lm_weight=0.5)
    assert said("translate", "lstm", *LINES, *both) == texts(every)
    mixed = ("--lm", "lm", "--lm-mode", "shallow", "--channel", "back")
    assert said("translate", "lstm", *LINES, *mixed) == texts(saccade.reranked(saccade.fused(lstm, lm), channel=back))


def test_outputs_carry_the_score_of_every_part() -> None:
    both = ("--lm", "lm-bytes", "--channel", "back", "--beam", "3", "-f")
    rows = said("translate", "lstm", "abc", *both, "nbest").splitlines()
    assert len(rows) == 3
    for row in rows:
        number, _, features, score = row.split(" ||| ")
        words = features.split()
        assert (number, words[::2]) == ("0", ["logp=", "length=", "direct=", "channel=", "lm="])
        parts = dict(zip(words[::2], map(float, words[1::2]), strict=True))
        ends = {1, 0}  # whether END was written is not told: one of the two lengths fits
        total = parts["direct="] + parts["channel="] + 0.2 * parts["lm="]
        assert any(float(score) == pytest.approx(total / (parts["length="] + end), abs=1e-3) for end in ends)
    found = json.loads(said("translate", "lstm", "abc", *both, "jsonl"))
    assert list(found["hypotheses"][0]["features"]) == ["direct", "channel", "lm"]
    alone = json.loads(said("translate", "lstm", "abc", "-f", "jsonl"))
    assert "features" not in alone["hypotheses"][0]


def test_evaluate_measures_all_of_it() -> None:
    lines = [Path(f"valid.{side}").read_text().splitlines() for side in ("src", "tgt")]
    models = {name: loaded(name) for name in ("lstm", "transformer", "lm", "back", "lm-bytes")}
    lstm = models["lstm"]
    for more, model in (
        (("--with", "transformer", "--weights", "3,1", "--mix", "linear"),
         saccade.ensemble([lstm, models["transformer"]], weights=[3, 1], mix="linear")),
        (("--lm", "lm", "--lm-weight", "0.5", "--lm-mode", "shallow"), saccade.fused(lstm, models["lm"], weight=0.5)),
        (("--channel", "back", "--channel-weight", "0.5", "--lm", "lm-bytes"),
         saccade.reranked(lstm, channel=models["back"], channel_weight=0.5, language_model=models["lm-bytes"])),
    ):  # fmt: skip
        told = json.loads(said("evaluate", "lstm", "valid.src", "valid.tgt", *more, "-f", "json"))
        expected = model.evaluate(lines[0], lines[1])
        assert told["scores"]["chrf"]["value"] == pytest.approx(expected["chrf"].value)
        assert told[more[0].strip("-")] in (more[1], [more[1]])


def test_score_of_given_outputs() -> None:
    both = saccade.ensemble([loaded("lstm"), loaded("transformer")], weights=[1, 3], mix="linear")
    lines = [Path(f"valid.{side}").read_text().splitlines() for side in ("src", "tgt")]
    expected = [each.log_probability for each in both.score(lines[0], lines[1])]
    more = ("--with", "transformer", "--weights", "1,3", "--mix", "linear")
    found = said("score", "lstm", "valid.src", "valid.tgt", *more).splitlines()
    assert [float(each) for each in found] == pytest.approx(expected, abs=1e-3)
    Path("pairs.tsv").write_text("abc\tcba\tabc\nde\ted\tde\n", encoding="utf-8")
    told = json.loads(said("score", "lstm", "--contrast", "pairs.tsv", "--with", "transformer", "-f", "json"))
    assert told["with"] == ["transformer"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("translate lstm abc --weights 1,2", "--weights goes with --with, which is not given"),
        ("translate lstm abc --mix linear", "--mix goes with --with"),
        ("translate lstm abc --lm-weight 0.1", "--lm-weight goes with --lm"),
        ("translate lstm abc --lm-mode rerank", "--lm-mode goes with --lm"),
        ("translate lstm abc --channel-weight 0.1", "--channel-weight goes with --channel"),
        ("translate lstm abc --with transformer --weights 1", "weights: there are 1 of them for 2 models"),
        ("translate lstm abc --with transformer --weights 1,x", "--weights is '1,x'; it must be numbers"),
        ("translate lstm abc --with transformer --weights 1,0", "weights: 0 is not a positive number"),
        ("translate lstm abc --with bytes", "bytes: does not share the target vocabulary of lstm"),
        ("translate lstm abc --with lm", "lm: is a run of the task language-model"),
        ("translate lstm abc --with nowhere", "nowhere: is no run folder"),
        ("translate lstm abc --lm lm-bytes", "lm-bytes: does not share the target vocabulary of lstm"),
        ("translate lstm abc --lm transformer", "transformer: is a run of the task translate"),
        ("translate lstm abc --lm lm --lm-weight -1", "the language model's weight is -1"),
        ("translate lstm abc --channel lm", "lm: is a run of the task language-model"),
        ("translate lstm abc --channel back --channel-weight nan", "the channel's weight is nan"),
        ("evaluate lm --with lstm", "--with: lm is a run of the task language-model, which has no use for it"),
        ("evaluate lm --channel back", "--channel: lm is a run of the task language-model"),
        ("evaluate lstm valid.src valid.tgt --mix linear", "--mix goes with --with"),
        ("evaluate lstm valid.src valid.tgt --lm lm --metrics perplexity", "they have no perplexity"),
        ("score lm valid.tgt --with lstm", "--with: lm is a run of the task language-model"),
        ("score lstm valid.src valid.tgt --weights 1,2", "--weights goes with --with"),
    ],
)
def test_what_makes_no_sense_is_refused(command: str, told: str) -> None:
    done = saccade_command(*command.split())
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_explain_has_no_use_for_others() -> None:
    done = saccade_command("explain", "lstm", "abc", "--with", "transformer", "-o", "x.html")
    assert done.exit_code == 2
