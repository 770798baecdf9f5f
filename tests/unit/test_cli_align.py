"""`align` and `translate --alignments`: formats, gold, files, refusals."""

import contextlib
import json
from pathlib import Path

import pytest

import saccade
from saccade.align import AlignConfig
from saccade.errors import UsageError
from saccade.metrics.links import Gold, alignment_scores, read_gold
from tests.support.cli import RECIPE, saccade_command, saccade_process, shake, write_corpus
from tests.support.fuzz import odd_lines

SOURCES = ["dead beef", "", "face  c", "ab cd e"]
TARGETS = ["feeb daed", "x", "c ecaf", ""]
TRANSFORMER = """
model:
  encoder: {kind: transformer, layers: 1, width: 16, heads: 2}
  decoder: {kind: transformer, layers: 3, width: 16, heads: 2}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run` (GRU), `deep` (Transformer), `blind` (no attention), a corpus, and files of pairs and links."""
    folder = tmp_path_factory.mktemp("home")
    recipe = write_corpus(folder)
    begin, end = RECIPE.index("model:"), RECIPE.index("train:\n  updates")
    (folder / "deep.yaml").write_text(RECIPE[:begin] + TRANSFORMER + RECIPE[end:], encoding="utf-8")
    blind = RECIPE.replace(", attention: {score: general}", "")
    (folder / "blind.yaml").write_text(blind, encoding="utf-8")
    few = ("--set", "train.updates=1", "-q")
    for name, of in (("run", recipe), ("deep", folder / "deep.yaml"), ("blind", folder / "blind.yaml")):
        done = saccade_command("train", of, *few, "--out", folder / name)
        assert done.exit_code == 0, done.stderr
    shake(folder / "run", by=0.7)
    shake(folder / "deep", by=0.7)
    write(folder / "src", SOURCES)
    write(folder / "tgt", TARGETS)
    write(folder / "pairs.tsv", [f"{a}\t{b}\t{c}" for a, b, c in zip(SOURCES, TARGETS, GOLD, strict=True)])
    write(folder / "gold", GOLD)
    return folder


GOLD = ["0-1 1-0", "", "0-1 1?0", ""]


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def aligned(*arguments: str, stdin: bytes = b"") -> list[str]:
    done = saccade_command("align", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("\n")
    return done.stdout[:-1].split("\n")


def refused(*arguments: str) -> str:
    done = saccade_command(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr


# ---- links


def test_links_are_written_in_pharaohs_format(tmp_path: Path) -> None:
    expected = [str(each) for each in saccade.load("run", "cpu").align(SOURCES, TARGETS)]
    assert expected[1] == expected[3] == ""
    assert expected[0]
    assert aligned("run", "src", "tgt") == expected
    assert aligned("run", "src", "tgt", "--batch-tokens", "1", "--device", "cpu") == expected
    assert aligned("run", "pairs.tsv") == expected
    assert aligned("run", "-", "tgt", stdin=(Path("src").read_bytes())) == expected
    assert saccade_command("align", "run", "src", "tgt", "-o", tmp_path / "links").stdout == ""
    assert (tmp_path / "links").read_text(encoding="utf-8").split("\n") == [*expected, ""]
    assert saccade_command("align", "run", write(tmp_path / "none", []), tmp_path / "none").stdout == ""


def test_json_lines_have_the_words() -> None:
    rows = [json.loads(line) for line in aligned("run", "src", "tgt", "-f", "jsonl")]
    found = saccade.load("run", "cpu").align(SOURCES, TARGETS)
    assert [row["source"] for row in rows] == [line.split() for line in SOURCES]
    assert [row["target"] for row in rows] == [line.split() for line in TARGETS]
    assert [row["links"] for row in rows] == [[list(link) for link in sorted(each.links)] for each in found]
    assert not any(row["cut"] for row in rows)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--method", "intersection"], {"method": "intersection"}),
        (["--method", "union"], {"method": "union"}),
        (["--method", "grow-diag", "--unit", "token"], {"method": "grow-diag", "unit": "token"}),
        (["--method", "threshold"], {"method": "threshold"}),
        (["--method", "threshold", "--threshold", "0.4"], {"method": "threshold", "threshold": 0.4}),
        (["--layer", "1", "--head", "2"], {"layer": 1, "head": 2}),
        (["--step", "input", "--layer", "3"], {"step": "input", "layer": 3}),
    ],
)
def test_every_setting_is_heard(options: list[str], settings: dict[str, object]) -> None:
    model = saccade.load("deep", "cpu")
    expected = [str(each) for each in model.align(SOURCES, TARGETS, **settings)]  # type: ignore[arg-type]
    assert aligned("deep", "src", "tgt", *options) == expected


def test_a_reverse_run_gives_the_other_alignment() -> None:
    model, back = saccade.load("deep", "cpu"), saccade.load("run", "cpu")
    sources, targets = (Path(f"test.{side}").read_text(encoding="utf-8")[:-1].split("\n") for side in ("src", "tgt"))
    expected = [str(each) for each in model.align(sources, targets, method="union", reverse=back)]
    assert aligned("deep", "test.src", "test.tgt", "--method", "union", "--reverse", "run") == expected
    assert expected != [str(each) for each in model.align(sources, targets, method="union")]


# ---- gold


def test_gold_scores_what_was_found(tmp_path: Path) -> None:
    found = [each.links for each in saccade.load("run", "cpu").align(SOURCES, TARGETS)]
    expected = alignment_scores(found, [read_gold(line) for line in GOLD])
    done = json.loads("\n".join(aligned("run", "src", "tgt", "--gold", "gold", "-f", "json")))
    assert done["scores"] == {name: each.to_dict() for name, each in expected.items()}
    assert done["align"]["method"] == "argmax"
    assert (done["run"], done["gold"], done["reverse"]) == ("run", "gold", None)
    assert (
        json.loads("\n".join(aligned("run", "pairs.tsv", "--gold", "pairs.tsv", "-f", "json")))["scores"]
        == (done["scores"])
    )
    table = aligned("run", "pairs.tsv", "--gold", "gold", "-o", str(tmp_path / "links"))
    assert f"{expected['aer'].value:.1f}" in table[2]
    assert table[2].startswith("AER")
    assert (tmp_path / "links").read_text(encoding="utf-8") == "".join(
        f"{line}\n" for line in aligned("run", "src", "tgt")
    )
    assert [line.split("\t")[:2] for line in aligned("run", "pairs.tsv", "--gold", "gold", "-f", "tsv")] == [
        ["metric", "value"],
        *([name, f"{each.value:.1f}"] for name, each in expected.items()),
    ]
    assert aligned("run", "pairs.tsv", "--gold", "gold", "-f", "markdown")[0].startswith("| metric")


def test_gold_may_count_from_1_and_have_the_target_first(tmp_path: Path) -> None:
    expected = aligned("run", "src", "tgt", "--gold", "gold")
    from_1 = ["1-2 2-1 0-1", "", "1-2 2p1", "0-0"]
    done = saccade_command("align", "run", "src", "tgt", "--gold", write(tmp_path / "gold", from_1), "--one-based")
    assert done.stdout == "\n".join(expected) + "\n"
    assert "gold: 2 links to no word (0, counting from 1), left out." in done.stderr
    other = [f"{b}\t{a}\t{c}" for a, b, c in zip(SOURCES, TARGETS, ["1-0 0-1", "", "1-0 0?1", ""], strict=True)]
    swapped = str(write(tmp_path / "swapped.tsv", other))
    assert aligned("run", swapped, "--gold", swapped, "--swap") == expected
    assert aligned("run", "src", "tgt", "--gold", swapped, "--swap") == expected


def test_links_of_others_can_be_scored(tmp_path: Path) -> None:
    links = str(write(tmp_path / "links", ["0-1 1-1", "", "0-1 1-0", ""]))
    done = json.loads("\n".join(aligned(links, "--gold", "gold", "-f", "json")))
    gold = [Gold.of({(0, 1), (1, 0)}), Gold.of(()), Gold.of({(0, 1)}, {(1, 0)}), Gold.of(())]
    found = [frozenset({(0, 1), (1, 1)}), frozenset(), frozenset({(0, 1), (1, 0)}), frozenset()]
    assert done["scores"]["aer"]["value"] == pytest.approx(alignment_scores(found, gold)["aer"].value)
    assert done["scores"]["aer"]["value"] == pytest.approx(100 * (1 - (2 + 3) / (4 + 3)))


# ---- translate


def test_translations_come_with_their_alignments(tmp_path: Path) -> None:
    model = saccade.load("deep", "cpu")
    expected = model.translate(SOURCES, alignments=True)
    done = saccade_command("translate", "deep", *SOURCES, "--alignments", tmp_path / "links")
    assert done.stdout == "".join(f"{each.text}\n" for each in expected)
    lines = (tmp_path / "links").read_text(encoding="utf-8")[:-1].split("\n")
    assert lines == [" ".join(f"{i}-{j}" for i, j in sorted(each.alignment or ())) for each in expected]
    assert lines[0]
    assert lines[1] == ""
    assert model.translate(SOURCES[0], alignments=True).alignment == expected[0].alignment
    assert model.translate(SOURCES[0]).alignment is None


def test_json_lines_have_the_alignment_of_every_hypothesis(tmp_path: Path) -> None:
    config = AlignConfig(method="union", layer=1)
    expected = saccade.load("deep", "cpu").translate(SOURCES, beam=3, n_best=3, alignments=config)
    options = ("-f", "jsonl", "--beam", "3", "--n-best", "3", "--align", "method=union,layer=1")
    done = saccade_command("translate", "deep", *SOURCES, *options, "--alignments", tmp_path / "links")
    rows = [json.loads(line) for line in done.stdout[:-1].split("\n")]
    for row, each in zip(rows, expected, strict=True):
        found = [hypothesis["alignment"] for hypothesis in row["hypotheses"]]
        assert found == [[list(link) for link in sorted(output.alignment or ())] for output in each.hypotheses]
    assert len((tmp_path / "links").read_text(encoding="utf-8").split("\n")) == len(SOURCES) + 1
    plain = saccade_command("translate", "deep", "ab", "-f", "jsonl")
    assert "alignment" not in json.loads(plain.stdout)["hypotheses"][0]


def test_a_forced_prefix_is_aligned_like_what_follows_it(tmp_path: Path) -> None:
    done = saccade_command("translate", "deep", *SOURCES, "--prefix", "fe de", "--alignments", tmp_path / "links")
    outputs = done.stdout[:-1].split("\n")
    assert outputs[0].startswith("fe de")
    lines = (tmp_path / "links").read_text(encoding="utf-8")[:-1].split("\n")
    given = saccade.load("deep", "cpu").align(SOURCES, outputs)
    assert lines == [str(each) for each in given]
    assert {link.split("-")[1] for link in lines[0].split()} >= {"0"}


@pytest.mark.parametrize("run", ["run", "deep"])
def test_every_odd_line_has_a_line_of_links(run: str, tmp_path: Path) -> None:
    lines = [line for line in odd_lines() if len(line) < 70_000][::8]
    stdin = b"\n".join(lines) + b"\n"
    done = saccade_command(
        "translate", run, "--beam", "1", "--max-length", "6", "--alignments", tmp_path / "links", stdin=stdin
    )
    assert done.exit_code == 0, done.stderr
    links = (tmp_path / "links").read_bytes()
    assert links.count(b"\n") == len(lines)
    assert set(links.decode()) <= set("0123456789- \n")
    (tmp_path / "src").write_bytes(stdin)
    (tmp_path / "tgt").write_bytes(b"\n".join(reversed(lines)) + b"\n")
    done = saccade_command("align", run, tmp_path / "src", tmp_path / "tgt", "--method", "union")
    assert done.exit_code == 0, done.stderr
    assert done.stdout_bytes.count(b"\n") == len(lines)
    assert sum(bool(line) for line in done.stdout_bytes.split(b"\n")) > len(lines) / 4


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    process = saccade_process("translate", Path("run").resolve(), "--alignments", tmp_path / "links")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"ab\n" * 5000)
        process.stdin.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), told) == (0, b"")


# ---- refusals


def test_refusals_of_align_name_what_is_wrong(tmp_path: Path) -> None:
    assert "blind: its decoder has no attention to the source" in refused("align", "blind", "src", "tgt")
    assert "layer is 9; of layers there is 1 in run" in refused("align", "run", "src", "tgt", "--layer", "9")
    assert "head is 3; of heads there are 2 in deep" in refused("align", "deep", "src", "tgt", "--head", "3")
    assert "threshold belongs to the method threshold" in refused("align", "run", "src", "tgt", "--threshold", "0.5")
    assert "threshold" in refused("align", "run", "src", "tgt", "--method", "threshold", "--threshold", "1.5")
    assert "method is argmax, which reads one" in refused("align", "run", "src", "tgt", "--reverse", "deep")
    assert "SOURCE: there is nothing to align" in refused("align", "run")
    assert "they must pair up" in refused("align", "run", "src", "train.tgt")
    assert "src line 1: has no tab" in refused("align", "run", "src")
    assert "--format is json; of links it must be one of text, jsonl" in refused(
        "align", "run", "src", "tgt", "-f", "json"
    )
    assert "--format is jsonl; of scores" in refused("align", "run", "src", "tgt", "--gold", "gold", "-f", "jsonl")
    assert "--one-based and --swap" in refused("align", "run", "src", "tgt", "--swap")
    assert "stdin can be read once" in refused("align", "run", "-", "-")
    assert "is a file of links" in refused("align", "gold")
    assert "is a file of links" in refused("align", "gold", "src", "--gold", "gold")
    assert "is the file that is to be scored" in refused("align", "gold", "--gold", "gold")
    assert "nowhere" in refused("align", "nowhere", "src", "tgt")


def test_refusals_of_gold_name_the_line(tmp_path: Path) -> None:
    for lines, told in (
        (["0-0"], "src has 4 lines and"),
        (["0-0", "", "1_1", ""], "bad line 3: '1_1' is no link"),
        (["0-0", "", "", "0-0"], "bad line 4: the link 0-0 (counted from 0) lies outside of the pair"),
        (["0-0 2-0", "", "", ""], "bad line 1: the link 2-0"),
        (["", "", "", ""], "gold: has no link"),
    ):
        assert told in refused("align", "run", "src", "tgt", "--gold", str(write(tmp_path / "bad", lines)))


def test_refusals_of_translate_name_what_is_wrong(tmp_path: Path) -> None:
    assert "--align: text has no room for alignments" in refused("translate", "run", "ab", "--align", "on")
    assert "--align: nbest has no room" in refused("translate", "run", "ab", "--align", "on", "-f", "nbest")
    assert "--alignments -: the translations go there" in refused("translate", "run", "ab", "--alignments", "-")
    both = str(tmp_path / "both")
    assert "the translations go there" in refused("translate", "run", "ab", "--alignments", both, "-o", both)
    assert "its decoder has no attention" in refused("translate", "blind", "ab", "--alignments", both)
    assert "layer is 2; of layers" in refused("translate", "run", "ab", "--alignments", both, "--align", "layer=2")
    assert "method" in refused("translate", "run", "ab", "--alignments", both, "--align", "metod=union")
    assert not Path(both).exists()


def test_scores_of_links_have_gates_and_every_format(tmp_path: Path) -> None:
    links, gold = write(tmp_path / "links", ["0-0 1-2", "0-0"]), write(tmp_path / "gold", ["0-0 1-1", "0-0"])
    done = saccade_command("align", links, "--gold", gold, "-f", "latex")
    assert r"\toprule" in done.stdout
    assert "AER" in done.stdout
    assert saccade_command("align", links, "--gold", gold, "--fail-over", "aer=50").exit_code == 0
    missed = saccade_command("align", links, "--gold", gold, "--fail-over", "aer=30", "--fail-under", "recall=10")
    assert missed.exit_code == 3
    assert "aer is 33.33, more than 30" in missed.stderr
    assert "less is better" in refused("align", str(links), "--gold", str(gold), "--fail-under", "aer=3")
    assert "bleu is not among the metrics: aer" in refused(
        "align", str(links), "--gold", str(gold), "--fail-under", "bleu=3"
    )
    assert "aer is not measured here" in refused("align", "run", "src", "tgt", "--fail-over", "aer=3")


@pytest.mark.parametrize("option", [["--method", "union"], ["--layer", "2"], ["--head", "1"], ["-o", "x"]])
def test_what_a_file_of_links_has_no_use_for_is_refused(option: list[str], tmp_path: Path) -> None:
    links, gold = write(tmp_path / "links", ["0-0"]), write(tmp_path / "gold", ["0-0"])
    assert "are scored as they are" in refused("align", str(links), "--gold", str(gold), *option)


def test_an_ensemble_has_no_attention_of_its_own() -> None:
    one = saccade.load("deep", "cpu")
    with pytest.raises(UsageError, match="several decide here"):
        saccade.ensemble([one, one]).translate("ab", alignments=True)
