"""Models that read dependency trees, from recipe to translation: trained, used, refused where a parse is missing."""

import json
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.data.parses import read_heads
from saccade.data.store import Store
from saccade.errors import UsageError
from tests.support.cli import saccade_command, shake

RECIPE = """
data:
  kind: files
  train: {source: train.src, target: train.tgt, heads: train.heads}
  valid: {tsv: valid.tsv, heads_column: 3}
  test: {jsonl: test.jsonl, heads_field: heads}
text: {kind: bpe, size: 280}
model:
  encoder: {kind: transformer, layers: 1, width: 16, heads: 2, positions: tree}
  decoder: {kind: transformer, layers: 1, width: 16, heads: 2}
train: {updates: 6, batch_tokens: 128, validate_every: 3, metric: exact_match, schedule: {kind: constant}}
decode: {beam: 2, max_length: 8}
"""
WORDS = ("deaf", "bad", "cafe", "fed", "a")


def corpus(folder: Path) -> Path:
    """Each source is two to four words that hang on each other as the draw has it; the target is its root."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        n = int(random.integers(2, 5))
        words = random.choice(WORDS, n).tolist()
        order = random.permutation(n).tolist()
        heads = [0] * n
        for at in range(1, n):
            heads[order[at]] = order[int(random.integers(at))] + 1
        rows.append((" ".join(words), words[heads.index(0)], " ".join(map(str, heads))))
    for ending, column in (("src", 0), ("tgt", 1), ("heads", 2)):
        (folder / f"train.{ending}").write_text("".join(f"{row[column]}\n" for row in rows))
    (folder / "valid.tsv").write_text("".join("\t".join(row) + "\n" for row in rows[:9]))
    some = [dict(zip(("source", "target", "heads"), row, strict=True)) for row in rows[:7]]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    recipe = folder / "tree.yaml"
    recipe.write_text(RECIPE)
    return recipe


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and `run`, whose outputs differ from tree to tree."""
    folder = tmp_path_factory.mktemp("trees")
    done = saccade_command("train", corpus(folder), "-q", "--out", folder / "run")
    assert done.exit_code == 0, done.stderr
    shake(folder / "run", by=0.8)
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


# ---- training


def test_training_keeps_the_parses_and_decodes_with_them(home: Path) -> None:
    store = Store.open(home / "run" / "data" / "train")
    assert store.parses is not None
    assert len(store.parses.values) == 2 * len(store.sources.values)
    notes = [json.loads(line) for line in (home / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("exact_match" in note for note in notes)
    told = saccade_command("data", "check", "tree.yaml")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.count("dependency trees: ") == 3


def test_a_model_that_reads_none_keeps_none(home: Path, tmp_path: Path) -> None:
    done = saccade_command(
        "train", "tree.yaml", "-q", "--out", tmp_path / "run", "--set", "model.encoder.positions=sinusoidal",
        "--set", "train.updates=1",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert Store.open(tmp_path / "run" / "data" / "train").parses is None
    done = saccade_command("evaluate", tmp_path / "run")
    assert done.exit_code == 0, done.stderr


def test_with_bpe_dropout_it_trains_resumes_and_ends_the_same(tmp_path: Path) -> None:
    def train(name: str, *more: str) -> None:
        settings = ("text.dropout=0.3", "train.fingerprint=true", "train.deterministic=true", *more)
        arguments = [part for setting in settings for part in ("--set", setting)]
        again = ["--resume"] if (tmp_path / name).exists() else []
        done = saccade_command("train", "tree.yaml", "-q", "--out", tmp_path / name, *again, *arguments)
        assert done.exit_code == 0, done.stderr

    def fingerprints(name: str) -> list[str]:
        notes = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [note["fingerprint"] for note in notes if note["kind"] == "update"]

    train("whole")
    train("halves", "train.updates=3")
    train("halves", "train.updates=6")
    assert fingerprints("halves") == fingerprints("whole")
    assert len(fingerprints("whole")) == 6


# ---- using


def test_lines_come_with_their_heads(home: Path) -> None:
    model = saccade.load(home / "run", "cpu")
    lines = ["deaf bad cafe fed\t0 1 1 1", "deaf bad cafe fed\t2 3 4 0", "", "a\t0", "  \t"]
    found = model.translate(lines)
    assert [each.source for each in found] == ["deaf bad cafe fed", "deaf bad cafe fed", "", "a", "  "]
    assert found[2].text == ""
    assert found[0].hypotheses[0].log_probability != found[1].hypotheses[0].log_probability  # the tree is seen
    for line, each in zip(lines, found, strict=True):
        alone = model.translate(line)
        assert alone.text == each.text
        assert alone.score == pytest.approx(each.score, abs=1e-4)
    done = saccade_command("translate", "run", stdin="\n".join(lines).encode())
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "".join(f"{each.text}\n" for each in found)


def test_a_long_line_is_cut_with_its_tree(home: Path) -> None:
    model = saccade.load(home / "run", "cpu")
    words = 1100
    heads = [*range(2, words + 1), 0]  # a chain whose root is cut off
    found = model.translate(f"{' '.join(['a'] * words)}\t{' '.join(map(str, heads))}")
    assert found.cut


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("deaf bad", "there is no tab in it, behind which the heads of its words would stand"),
        ("deaf bad\t2", "1 head for 2 words"),
        ("deaf bad\t2 1", "the heads go in a circle"),
        ("deaf bad\t0 0", "words 1 and 2 both have the head 0; a dependency tree has one root"),
    ],
)
def test_lines_without_a_right_parse_are_refused(home: Path, tmp_path: Path, line: str, reason: str) -> None:
    given = tmp_path / "lines"
    given.write_text(f"a\t0\n{line}\n")
    (tmp_path / "right").write_text("x\ny\n")
    for command, *arguments in (
        ("translate", "-i", str(given)),
        ("evaluate", str(given), str(tmp_path / "right")),
        ("score", str(given), str(tmp_path / "right")),
    ):
        done = saccade_command(command, "run", *arguments)
        assert done.exit_code == 2, command
        assert f"line 2 ({line!r}): {reason}" in done.stderr
        assert "give each line as its text, a tab, and for each word the place of its head" in done.stderr
    done = saccade_command("explain", "run", line, "-o", tmp_path / "x.npz")
    assert done.exit_code == 2
    assert reason in done.stderr


def test_the_line_is_named_by_its_own_number(home: Path) -> None:
    model = saccade.load(home / "run", "cpu")
    with pytest.raises(UsageError, match="line 701 "):
        list(model.score(["a\t0"] * 700 + ["a"], ["a"] * 701))
    with pytest.raises(UsageError, match="line 12 "):
        model.engine.translate(["a\t0", "a"], model.decode, first=11)


def test_evaluate_score_and_explain_read_the_same_trees(home: Path, tmp_path: Path) -> None:
    done = saccade_command("evaluate", "run", "-o", tmp_path / "out", "-f", "json")
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in (home / "test.jsonl").read_text().splitlines()]
    lines = [f"{row['source']}\t{row['heads']}" for row in rows]
    model = saccade.load("run", "cpu")
    assert (tmp_path / "out").read_text() == "".join(f"{each.text}\n" for each in model.translate(lines))
    (tmp_path / "s").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "t").write_text("".join(f"{row['target']}\n" for row in rows))
    scored = saccade_command("score", "run", tmp_path / "s", tmp_path / "t")
    assert scored.exit_code == 0, scored.stderr
    alone = [next(model.score([line], [row["target"]])) for line, row in zip(lines, rows, strict=True)]
    shown = [float(value) for value in scored.stdout.splitlines()]
    assert shown == pytest.approx([each.log_probability for each in alone], abs=1e-3)
    trace = model.explain(lines[0])
    elsewhere = f"{rows[0]['source']}\t{_other_tree(rows[0]['source'], rows[0]['heads'])}"
    other = model.explain(elsewhere)
    assert trace.title.startswith(f"{rows[0]['source']} → ")
    assert trace.source[-1] == "</s>"
    assert not np.allclose(trace.attention["encoder"], other.attention["encoder"])
    assert next(model.score([elsewhere], [rows[0]["target"]])) != alone[0]


def _other_tree(source: str, heads: str) -> str:
    n = len(source.split())
    chain = " ".join(map(str, range(n)))
    other = chain if chain != heads else " ".join(map(str, [*range(2, n + 1), 0]))
    read_heads(other, source)
    return other


# ---- refused in the recipe


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("data.train.heads=null",), "data.train has none: name a file of heads"),
        (("data.valid.heads_column=null",), "data.valid has none"),
        (("data.test.heads_field=null",), "data.test has none"),
        (("model.decoder.positions=tree",), "what is still being written has no dependency parse"),
        (("model.encoder.pattern={kind: window}",), "use the pattern full, or tree: absolute"),
        (("model.encoder.pattern={kind: bigbird}",), "use the pattern full, or tree: absolute"),
        (("model.encoder.pattern={kind: linformer}",), "stand nowhere"),
        (("model.encoder.width=15", "model.encoder.heads=3"), "sinusoidal positions come in pairs"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        saccade.recipe("tree.yaml", *settings)


def test_generated_dates_have_no_parse() -> None:
    with pytest.raises(UsageError, match=r"data\.kind is dates, which has none"):
        saccade.recipe("dates", "model.encoder={kind: transformer, width: 128, positions: tree}",
                       "model.decoder.bridge=mean")  # fmt: skip


def test_what_to_do_next_tells_that_lines_come_with_heads(tmp_path: Path) -> None:
    done = saccade_command("train", corpus(tmp_path), "--out", tmp_path / "run", "--set", "train.updates=1")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].endswith("run 'text<TAB>heads'")


# ---- compare


def test_runs_with_and_without_parses_are_compared(home: Path) -> None:
    plain = ("--set", "model.encoder.positions=sinusoidal")
    done = saccade_command("train", home / "tree.yaml", "-q", "--out", home / "plain", *plain)
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in (home / "test.jsonl").read_text().splitlines()]
    with_heads = [f"{row['source']}\t{row['heads']}" for row in rows]
    tree = [each.text for each in saccade.load(home / "run", "cpu").translate(with_heads)]
    bare = [each.text for each in saccade.load(home / "plain", "cpu").translate([row["source"] for row in rows])]
    assert saccade.compare([home / "plain", home / "run"], device="cpu").outputs == (tuple(bare), tuple(tree))
    given = saccade.compare(
        [home / "run", home / "plain"], source=with_heads, reference=[row["target"] for row in rows], device="cpu"
    )
    assert given.outputs == (tuple(tree), tuple(bare))
    assert "\t" not in str(given.to_dict()["differences"])
