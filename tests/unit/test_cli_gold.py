"""`evaluate --gold`: a translator's alignments beside the scores of its outputs."""

import json
from pathlib import Path

import pytest

import saccade
from saccade.align import AlignConfig, link_scores
from saccade.data.dates import DateExample, examples
from saccade.errors import UsageError
from saccade.metrics.interval import Resampling
from saccade.metrics.links import Gold, Link, read_gold, write_links
from tests.support.cli import RECIPE, saccade_command, shake

COUNT = 24


def spelled(each: DateExample) -> tuple[str, str, str]:
    """The characters of a date as words, so that its exact alignment is one of words.

    Sure where one character alone decides, possible where several do together; hyphens have none.
    """
    shown = [place for place, character in enumerate(each.source) if not character.isspace()]
    place = {at: number for number, at in enumerate(shown)}
    sure: set[Link] = set()
    possible: set[Link] = set()
    for j, at in enumerate(each.alignment):
        (sure if len(at) == 1 else possible).update((place[i], j) for i in at if i in place)
    links = " ".join([write_links(sure), *(f"{i}?{j}" for i, j in sorted(possible))]).strip()
    return " ".join(each.source[i] for i in shown), " ".join(each.target), links


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run` reads dates a little, `blind` has no attention; test.src, test.tgt and gold are spelled dates."""
    folder = tmp_path_factory.mktemp("home")
    for split, count in (("train", 60), ("valid", 8), ("test", COUNT)):
        source, target, gold = zip(*map(spelled, examples(1, split, count)), strict=True)
        write(folder / f"{split}.src", list(source))
        write(folder / f"{split}.tgt", list(target))
        if split == "test":
            write(folder / "gold", list(gold))
    (folder / "run.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "blind.yaml").write_text(RECIPE.replace(", attention: {score: general}", ""), encoding="utf-8")
    for name in ("run", "blind"):
        few = ("--set", "train.updates=2", "--set", "train.batch_tokens=600", "-q", "--out", folder / name)
        done = saccade_command("train", folder / f"{name}.yaml", *few)
        assert done.exit_code == 0, done.stderr
    shake(folder / "run", by=0.5)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def said(*arguments: str | Path) -> str:
    done = saccade_command(*arguments)
    assert done.exit_code == 0, done.stderr
    return str(done.stdout)


def refused(*arguments: str | Path) -> str:
    done = saccade_command("evaluate", *arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return str(done.stderr)


FILES = ("run", "test.src", "test.tgt")
QUICK = ("--metrics", "chrf", "--beam", "1")


def test_the_alignments_are_those_of_align_digit_for_digit() -> None:
    """And the other scores are those without gold."""
    by_align = json.loads(said("align", *FILES, "--gold", "gold", "-f", "json"))
    found = json.loads(said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "json"))
    assert list(found["scores"]) == ["chrf", "aer", "precision", "recall"]
    assert {name: found["scores"][name] for name in by_align["scores"]} == by_align["scores"]
    assert 0 < found["scores"]["aer"]["value"] < 100
    assert (found["gold"], found["align"]) == ("gold", by_align["align"])
    plain = json.loads(said("evaluate", *FILES, *QUICK, "-f", "json"))
    assert found["scores"]["chrf"] == plain["scores"]["chrf"]
    assert plain.keys() == found.keys() - {"gold", "align"}
    small = json.loads(said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "json", "--batch-tokens", "70"))
    assert small["scores"] == found["scores"]


def test_every_format_has_the_rows() -> None:
    scores = json.loads(said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "json"))["scores"]
    shown = {
        name: (f"{scores[name]['value']:.1f}", f"{scores[name]['low']:.1f}", f"{scores[name]['high']:.1f}")
        for name in ("aer", "precision", "recall")
    }
    table = said("evaluate", *FILES, *QUICK, "--gold", "gold").splitlines()
    assert [line.split()[0] for line in table[3:6]] == ["AER", "precision", "recall"]
    assert all(" – ".join(ends) in line for line, (_, *ends) in zip(table[3:6], shown.values(), strict=True))
    tsv = said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "tsv").splitlines()
    assert [tuple(line.split("\t")[:4]) for line in tsv[2:]] == [(name, *row) for name, row in shown.items()]
    latex = said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "latex")
    assert " -- ".join(shown["aer"][1:]) in latex
    assert "| AER" in said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "markdown")


def test_gates_know_the_alignments() -> None:
    with_gold = ("evaluate", *FILES, *QUICK, "--gold", "gold")
    said(*with_gold, "--fail-over", "aer=100", "--fail-under", "recall=0")
    missed = saccade_command(*with_gold, "--fail-over", "aer=0.5", "--fail-under", "precision=99.9")
    assert missed.exit_code == 3
    assert "aer is " in missed.stderr
    assert "precision is " in missed.stderr
    assert "AER" in missed.stdout
    said("evaluate", *FILES, "--beam", "1", "--gold", "gold", "--fail-over", "aer=100")  # with the recipe's metrics
    assert "of aer less is better; say --fail-over" in refused(*with_gold[1:], "--fail-under", "aer=3")
    assert "aer is not among the metrics: chrf" in refused(*FILES, *QUICK, "--fail-over", "aer=30")
    assert "ter is not among the metrics: chrf, aer" in refused(*with_gold[1:], "--fail-over", "ter=30")


def test_gold_may_count_from_1_and_stand_behind_tabs(tmp_path: Path) -> None:
    lines = Path("gold").read_text(encoding="utf-8").splitlines()
    gold = [read_gold(line) for line in lines]
    more = [
        " ".join(
            [f"{i + 1}-{j + 1}" for i, j in sorted(each.sure)]
            + [f"{i + 1}p{j + 1}" for i, j in sorted(each.possible - each.sure)]
        )
        for each in gold
    ]
    expected = said("evaluate", *FILES, *QUICK, "--gold", "gold")
    from_1 = write(tmp_path / "from_1", [f"a\tb\t{line}" for line in ["0-1 " + more[0], *more[1:]]])
    done = saccade_command("evaluate", *FILES, *QUICK, "--gold", from_1, "--one-based")
    assert done.stdout == expected
    assert "1 link to no word (0, counting from 1), left out." in done.stderr
    assert "lies outside of the pair" in refused(*FILES, *QUICK, "--gold", from_1.with_name("from_1"))


def test_other_references_have_no_gold_and_resamples_are_heard(tmp_path: Path) -> None:
    other = write(tmp_path / "other", ["x"] * COUNT)
    alone, beside = (
        json.loads(said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "json", *more))["scores"]
        for more in ((), ("--refs", other))
    )
    assert alone["aer"] == beside["aer"]
    none = json.loads(said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "json", "--resamples", "0"))["scores"]
    assert (none["aer"]["low"], none["aer"]["value"]) == (None, alone["aer"]["value"])
    options = ("--resamples", "200", "--resample-seed", "3")
    drawn = json.loads(said("evaluate", *FILES, *QUICK, "--gold", "gold", "-f", "json", *options))["scores"]
    assert drawn["aer"]["low"] != alone["aer"]["low"]
    sources, targets, lines = (Path(name).read_text(encoding="utf-8").splitlines() for name in (*FILES[1:], "gold"))
    found = saccade.load("run", "cpu").align(sources, targets)
    by_hand = link_scores(found, [read_gold(line) for line in lines], confidence=Resampling(200, seed=3))
    assert {name: score.to_dict() for name, score in by_hand.items()} == {name: drawn[name] for name in by_hand}


def test_long_lines_are_aligned_as_far_as_they_are_read(tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", ["1 2", "1 " * 1500]), write(tmp_path / "t", ["1 2", "2"])
    gold = write(tmp_path / "g", ["0-0", "1400-0"])
    done = saccade_command("evaluate", "run", source, target, "--metrics", "chrf", "--beam", "1", "--gold", gold)
    assert done.exit_code == 0, done.stderr
    assert "1 pair longer than 1,024 tokens: the rest of each was not read." in done.stderr


def test_refusals_name_what_is_wrong(tmp_path: Path) -> None:
    gold = ("--gold", "gold")
    assert "--gold gold: links words of SOURCE and REFERENCE; give both files, too." in refused("run", *gold)
    assert "SOURCE and REFERENCE belong together" in refused("run", "test.src", *gold)
    assert "--one-based says how --gold is written" in refused(*FILES, "--one-based")
    told = refused(*FILES, *gold, "--with", "run")
    assert "--gold gold: alignments are read from one model's attention, but several decide here." in told
    assert "Leave out --with, or --gold." in told
    assert "Leave out --channel, or --gold." in refused(*FILES, *gold, "--channel", "run")
    blind = refused("blind", "test.src", "test.tgt", *gold)
    assert "--gold: blind: its decoder has no attention to the source" in blind
    assert "Train one with model.decoder.attention" in blind
    assert "stdin can be read once" in refused("run", "-", "test.tgt", "--gold", "-")
    assert "nowhere" in refused(*FILES, "--gold", "nowhere")
    lines = Path("gold").read_text(encoding="utf-8").splitlines()
    for wrong, message in (
        (lines[1:], f"test.src has {COUNT} lines and {tmp_path / 'bad'} {COUNT - 1}; they must pair up."),
        (["0_0", *lines[1:]], "bad line 1: '0_0' is no link"),
        ([*lines[:-1], "0-99"], f"bad line {COUNT}: the link 0-99 (counted from 0) lies outside of the pair"),
        ([""] * COUNT, "gold: has no link"),
    ):
        assert message in refused(*FILES, *QUICK, "--gold", write(tmp_path / "bad", wrong))


def test_alignments_are_scored_in_python() -> None:
    model = saccade.load("run", "cpu")
    pairs = [("1 2", "2 1"), ("3", "3")]
    found = model.align(*map(list, zip(*pairs, strict=True)))
    one_by_one = model.aligner(AlignConfig()).each(["1 2", "3"], ["2 1", "3"])
    gold = [Gold.of({(0, 1), (1, 0)}), Gold.of({(0, 0)})]
    scores = link_scores(found, gold)
    assert link_scores(one_by_one, gold) == scores
    assert scores["aer"].count == 2
    with pytest.raises(UsageError, match="gold line 2: the link 3-0"):
        link_scores(found, [gold[0], Gold.of({(3, 0)})])
    with pytest.raises(UsageError, match="2 alignments and 1 lines of gold"):
        link_scores(found, gold[:1])
