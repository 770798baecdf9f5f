"""Labelled text: columns and fields, what is refused and where, labels, and texts as a classifier reads them."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from saccade.data.corpus import TextLine, further_lines
from saccade.data.counts import Counts
from saccade.data.labelled import Chosen, Example, Labelled, LabelledData, labelled
from saccade.data.labelled_splits import files_like
from saccade.data.labels import Labels
from saccade.data.readings import Reading
from saccade.errors import UsageError
from saccade.types import END, START, UNKNOWN


def read(split: dict[str, Any], base: Path, **options: Any) -> tuple[list[Example], Counts]:
    counts = Counts()
    return list(labelled(Labelled.model_validate(split), base=base, counts=counts, **options)), counts


def test_tsv_by_column(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\t9\tx\tGood film\n0\t2\ty\tBad  film \n", encoding="utf-8")
    found, counts = read({"tsv": "a.tsv", "text": 4}, tmp_path)
    assert found == [Example("1", ("Good film",), "a.tsv:1"), Example("0", ("Bad  film ",), "a.tsv:2")]
    assert (counts.lines, counts.kept) == (2, 2)


def test_tsv_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("id\tone\tother\tlabel\n7\tA man\tA person\tyes\n", encoding="utf-8")
    split = {"tsv": "a.tsv", "header": True, "label": "label", "text": "one", "second": "other"}
    assert read(split, tmp_path)[0] == [Example("yes", ("A man", "A person"), "a.tsv:2")]
    with pytest.raises(
        UsageError, match=r"a.tsv:1: the header has no column 'two'; it has 'id', 'one', 'other', 'label'"
    ):
        read(split | {"second": "two"}, tmp_path)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_compressed_and_several_files(tmp_path: Path, compress: Any) -> None:
    (tmp_path / "a").write_bytes(compress("pos\tüber\n".encode()))
    (tmp_path / "b").write_bytes(b"neg\tunder\n")
    found, _ = read({"tsv": ["a", "b"]}, tmp_path)
    assert [(each.label, each.texts, each.place) for each in found] == [
        ("pos", ("über",), "a:1"),
        ("neg", ("under",), "b:1"),
    ]


def test_jsonl(tmp_path: Path) -> None:
    rows = [{"label": 3, "text": "a"}, {"label": True, "text": "b"}, {"label": " x ", "text": "c"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [each.label for each in read({"jsonl": "a.jsonl"}, tmp_path)[0]] == ["3", "true", "x"]
    rows = [{"gold": "e", "premise": "a", "hypothesis": "b"}]
    (tmp_path / "b.jsonl").write_text(json.dumps(rows[0]), encoding="utf-8")
    split = {"jsonl": "b.jsonl", "label": "gold", "text": "premise", "second": "hypothesis"}
    assert read(split, tmp_path)[0] == [Example("e", ("a", "b"), "b.jsonl:1")]


@pytest.mark.parametrize(
    ("name", "content", "split", "told"),
    [
        ("a.tsv", "pos\ta\nneg\n", {}, r"a.tsv:2: the row has 1 column; the text stands in column 2\. Fix the row"),
        ("a.tsv", "a\n", {"label": 2, "text": 1}, r"a.tsv:1: the row has 1 column; the label stands in column 2"),
        ("a.tsv", "p\ta\n", {"second": 3}, r"a.tsv:1: the row has 2 columns; the second text stands in column 3"),
        ("a.tsv", " \ta\n", {}, r"a.tsv:1: the label is empty"),
        ("a.tsv", "p\t\udcff\n", {}, r"a.tsv:1: byte 3 of the line \(0xff\) is not valid UTF-8"),
        (
            "a.jsonl",
            '{"text": "a", "gold": 1}',
            {},
            r"a.jsonl:1: the object has no field 'label'; it has 'text', 'gold'",
        ),
        ("a.jsonl", '{"label": 1}', {}, r"a.jsonl:1: the object has no field 'text'; it has 'label'"),
        ("a.jsonl", '{"label": 1.5, "text": ""}', {}, r"a.jsonl:1: the field 'label' holds float; a label is a string"),
        ("a.jsonl", '{"label": 1, "text": ["a"]}', {}, r"a.jsonl:1: the field 'text' holds list, not a string"),
        ("a.jsonl", "[1]", {}, r"a.jsonl:1: the row is not a JSON object"),
        ("a.jsonl", "{", {}, r"a.jsonl:1: the row is not valid JSON"),
        ("a.jsonl", '{"label": 1, "text": "\\ud800"}', {}, r"a.jsonl:1: the text holds an unpaired surrogate"),
    ],
)
def test_what_is_refused_and_where(tmp_path: Path, name: str, content: str, split: dict[str, Any], told: str) -> None:
    """Or left out, or mended, where the rules say so; and counted."""
    (tmp_path / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    given = {name.partition(".")[2]: name} | split
    with pytest.raises(UsageError, match=told):
        read(given, tmp_path)
    problems: list[str] = []
    read(given, tmp_path, problems=problems)
    assert len(problems) == 1
    found, counts = read(given, tmp_path, on_bad="repair")
    assert counts.bad_rows + counts.invalid_utf8 == 1
    assert counts.lines == counts.kept + counts.bad_rows == len(found) + counts.bad_rows


def test_empty_texts_are_left_out_of_training_alone(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("p\ta\tb\np\t \t\np\t\tb\n", encoding="utf-8")
    found, counts = read({"tsv": "a.tsv", "second": 3}, tmp_path)
    assert [each.texts for each in found] == [("a", "b"), ("", "b")]
    assert (counts.lines, counts.kept, counts.empty) == (3, 2, 1)
    assert counts.places == ["empty a.tsv:2"]
    assert len(read({"tsv": "a.tsv", "second": 3}, tmp_path, keep_empty=True)[0]) == 3


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.tsv: cannot be read: No such file"):
        read({"tsv": "none.tsv"}, tmp_path)


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({}, "none is given"),
        ({"tsv": "a", "jsonl": "b"}, "`tsv` and `jsonl` are given"),
        ({"jsonl": "a", "header": True}, "`header` describes `tsv`"),
        ({"jsonl": "a", "text": 2}, "`text` is 2; of `jsonl` it is the name of a field"),
        ({"tsv": "a", "label": "gold"}, "`label` is 'gold'; of `tsv` it is the number of a column"),
        ({"tsv": "a", "text": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_make_no_sense(split: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Labelled.model_validate(split)


def test_splits_have_as_many_texts() -> None:
    with pytest.raises(ValidationError, match="`train` has 2 texts a row and `test` 1"):
        LabelledData.model_validate({"train": {"tsv": "a", "second": 3}, "test": {"tsv": "b"}})


def test_what_is_held_out_is_a_share_and_equal_texts_stay_together() -> None:
    """Every row is on exactly one side, whatever its label and place."""
    rows = [Example(str(i % 2), (f"text {i // 2}",), f"a:{i}") for i in range(4000)]
    out, rest = Chosen(0.1, held_out=True), Chosen(0.1, held_out=False)
    held = {each.texts for each in rows if out.has(each)}
    kept = {each.texts for each in rows if rest.has(each)}
    assert not held & kept
    assert len(held) + len(kept) == 2000
    assert 160 <= len(held) <= 240  # 200 ± 3 standard deviations of a binomial


# ---- labels


def test_what_was_noted_is_told_by_one_of_two_sides_alone(tmp_path: Path) -> None:
    """A row that cannot be read by the training side; what was mended in a row by the side that has it."""
    rows = b"".join(b"a\ttext %d\r\n" % i for i in range(40))
    (tmp_path / "a.tsv").write_bytes(b"alone\n" + rows + b"alone\n")
    counted = {}
    for held_out in (False, True):
        found, counts = read({"tsv": "a.tsv"}, tmp_path, on_bad="repair", chosen=Chosen(0.3, held_out))
        assert 0 < len(found) == counts.kept == counts.carriage_returns < 40
        assert counts.lines == counts.kept + counts.bad_rows
        counted[held_out] = counts
    assert (counted[False].bad_rows, counted[True].bad_rows) == (2, 0)
    assert counted[False].kept + counted[True].kept == 40
    problems: dict[bool, list[str]] = {False: [], True: []}
    for held_out, told in problems.items():
        read({"tsv": "a.tsv"}, tmp_path, problems=told, chosen=Chosen(0.3, held_out))
    assert [len(told) for told in problems.values()] == [2, 0]


def test_labels_in_order_and_back() -> None:
    labels = Labels.of(["10", "9", "-1", "b", "a", "9"])
    assert labels.names == ("-1", "9", "10", "a", "b")
    assert [labels.id(name) for name in labels.names] == [1, 2, 3, 4, 5]
    assert labels.id("never seen") == 0
    assert [labels.name(i) for i in range(1, 6)] == list(labels.names)
    assert Labels.from_json(labels.to_json(), "labels.json") == labels


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '["a", "a"]', '[""]', "[" * 100_000])
def test_what_is_no_list_of_labels(text: str) -> None:
    with pytest.raises(UsageError, match=r"labels.json: is not a list of labels"):
        Labels.from_json(text, "labels.json")


# ---- texts as they are read


def letters(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text if letter != " "] for text in texts]


def test_one_text_two_joined_two_apart() -> None:
    a, b, c = 97, 98, 99
    one = Reading("sequence", starts=False, ends=True, max_length=2, max_sentences=9)
    assert one.rows([("a b",), ("",), ("abc",)], letters) == (
        [[[a, b, END]], [[END]], [[a, b, END]]],
        [False, False, True],
    )
    joined = Reading("sequence", starts=True, ends=True, max_length=9, max_sentences=9)
    assert joined.rows([("a", "b c"), ("", "")], letters)[0] == [[[START, a, END, b, c, END]], [[START, END, END]]]
    assert joined.tokens([[[a, END]], [[END]]]).ids.tolist() == [[a, END], [END, 0]]
    apart = Reading("apart", starts=False, ends=True, max_length=9, max_sentences=9)
    rows, _ = apart.rows([("a", "b c"), ("", "b")], letters)
    assert rows == [[[a, END], [b, c, END]], [[END], [b, END]]]
    tokens = apart.tokens(rows)
    assert tokens.ids.tolist() == [[UNKNOWN, UNKNOWN]] * 2
    assert tokens.inside is not None
    assert tokens.inside.layout.lengths_B.tolist() == [2, 3, 1, 2]


def test_documents() -> None:
    a, b, c, dot = 97, 98, 99, 46
    reading = Reading("document", starts=False, ends=False, max_length=3, max_sentences=2)
    rows, cut = reading.rows([("ab. Cc.",), ("",), ("aa. Bb. Cc.",), ("abcabc",), ("a", "b")], letters)
    assert rows == [[[a, b, dot], [67, c, dot]], [], [[a, a, dot], [66, b, dot]], [[a, b, c]], [[a], [b]]]
    assert cut == [False, False, True, True, False]
    tokens = reading.tokens(rows)
    assert tokens.layout.lengths_B.tolist() == [2, 0, 2, 1, 2]
    assert tokens.inside is not None
    assert tokens.inside.ids.tolist()[0] == [a, b, dot]


def test_only_so_many_characters_are_looked_at() -> None:
    reading = Reading("sequence", starts=False, ends=True, max_length=9, max_sentences=9, max_characters=3)
    assert reading.rows([("aaa",), ("aaab",)], letters) == ([[[97] * 3 + [END]]] * 2, [False, True])


TREES = ["(3 (2 It) (4 (2 's) (3 fun)))", "(2 (2 It) (1 (2 's) (1 (2 a) (1 8\u00a01\\/2))))"]


def write_trees(folder: Path, *lines: str) -> None:
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_trees_as_sentences_and_as_phrases(tmp_path: Path) -> None:
    write_trees(tmp_path, *TREES)
    found, counts = read({"trees": "a.txt"}, tmp_path)
    assert [(each.label, each.texts[0]) for each in found] == [("3", "It 's fun"), ("2", "It 's a 8\u00a01\\/2")]
    assert (counts.lines, counts.kept) == (2, 2)
    found, counts = read({"trees": "a.txt", "phrases": True}, tmp_path)
    assert [(each.label, each.texts[0], each.place) for each in found] == [
        ("2", "It", "a.txt:1"),
        ("2", "'s", "a.txt:1"),
        ("3", "fun", "a.txt:1"),
        ("4", "'s fun", "a.txt:1"),
        ("3", "It 's fun", "a.txt:1"),  # and the second tree's `It` and `'s` stood here before
        ("2", "a", "a.txt:2"),
        ("1", "8\u00a01\\/2", "a.txt:2"),
        ("1", "a 8\u00a01\\/2", "a.txt:2"),
        ("1", "'s a 8\u00a01\\/2", "a.txt:2"),
        ("2", "It 's a 8\u00a01\\/2", "a.txt:2"),
    ]
    assert (counts.lines, counts.kept, counts.repeated) == (12, 10, 2)
    assert "Phrases left out because they occurred before: 2." in counts.sentences("text")


def test_labels_are_renamed_and_others_left_out_and_counted(tmp_path: Path) -> None:
    write_trees(tmp_path, *TREES)
    binary = {"trees": "a.txt", "phrases": True, "labels": {0: "bad", 1: "bad", 3: "good", 4: "good"}}
    found, counts = read(binary, tmp_path)
    assert [each.label for each in found] == ["good", "good", "good", "bad", "bad", "bad"]
    assert (counts.lines, counts.kept, counts.other_label, counts.repeated) == (12, 6, 4, 2)
    assert "Texts left out because their label is none of those asked for: 4." in counts.sentences("text")


def test_labels_that_leave_nothing_are_told(tmp_path: Path) -> None:
    write_trees(tmp_path, *TREES)
    split = {"trees": "a.txt", "labels": {"pos": 1, "neg": 0}}
    told = "a.txt: `labels` leaves no text: it names 'neg', 'pos'; the texts have '2', '3'."
    with pytest.raises(UsageError, match=told):
        read(split, tmp_path)
    problems: list[str] = []
    assert read(split, tmp_path, problems=problems)[0] == []
    assert len(problems) == 1
    assert problems[0].startswith(told)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_held_out_phrases_are_counted_on_one_side(tmp_path: Path, share: float) -> None:
    write_trees(tmp_path, *TREES)
    split = {"trees": "a.txt", "phrases": True, "labels": {1: "bad", 3: "good", 4: "good"}}
    sides = [read(split, tmp_path, chosen=Chosen(share, held_out=held_out)) for held_out in (True, False)]
    assert sum(counts.lines for _, counts in sides) == 12
    assert sum(counts.repeated for _, counts in sides) == 2
    assert sum(counts.other_label for _, counts in sides) == 4
    assert sorted(each.texts for found, _ in sides for each in found) == sorted(
        each.texts for each in read(split, tmp_path)[0]
    )


@pytest.mark.parametrize("phrases", [False, True])
def test_a_file_is_read_as_trees_where_the_data_are(tmp_path: Path, phrases: bool) -> None:
    write_trees(tmp_path, *TREES)
    train = {"trees": "tr.txt", "phrases": True, "labels": {3: "good", 2: "so"}}
    data = LabelledData.model_validate({"train": train, "valid": train | {"phrases": phrases}})
    like = files_like(data, [tmp_path / "a.txt"])
    found = list(labelled(like, base=Path("elsewhere"), counts=Counts()))
    assert len(found) == (6 if phrases else 2)
    assert (found[-1].label, found[-1].texts) == ("so", ("It 's a 8\u00a01\\/2",))


def test_layouts_by_name_where_the_data_have_trees() -> None:
    columns = {"tsv": "v.tsv", "text": 3}
    train = {"trees": "tr.txt", "phrases": True, "labels": {3: "good"}}
    data = LabelledData.model_validate({"train": train, "valid": columns})
    like = Labelled.model_validate(columns | {"tsv": "/x.tsv"})
    assert files_like(data, [Path("/x.tsv")]).model_dump() == like.model_dump()
    assert files_like(data, [Path("/x.jsonl.gz")]).jsonl == ("/x.jsonl.gz",)
    sentences = Labelled.model_validate({"trees": "/x.txt.gz", "labels": {3: "good"}})
    # Phrases are learnt, sentences scored.
    assert files_like(data, [Path("/x.txt.gz")]).model_dump() == sentences.model_dump()
    with pytest.raises(UsageError, match="files of one layout"):
        files_like(data, [Path("/x.tsv"), Path("/x.txt")])
    assert files_like(LabelledData.model_validate({"train": columns}), [Path("/x.txt")]).tsv == ("/x.txt",)


def test_the_texts_of_a_further_file_come_without_labels(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\tGood\t film \ny\t\tBad\n", encoding="utf-8")
    data = LabelledData.model_validate({"train": {"tsv": "b", "second": 3}})
    counts = Counts()
    found = further_lines(data, [tmp_path / "a.tsv"], base=Path("elsewhere"), counts=counts)
    assert list(found) == [TextLine(0, "Good"), TextLine(1, "film"), TextLine(2, "Bad")]
    assert (counts.lines, counts.kept) == (2, 2)
    (tmp_path / "plain.txt").write_text("Good film\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"plain.txt:1: the row has 1 column; the second text stands in column 3"):
        list(further_lines(data, [tmp_path / "plain.txt"], base=tmp_path, counts=Counts()))


def test_phrases_are_not_held_out() -> None:
    train = {"trees": "a.txt", "phrases": True}
    with pytest.raises(ValidationError, match=r"`train.phrases` is true and `valid` is not given.*Name other trees"):
        LabelledData.model_validate({"train": train})
    assert LabelledData.model_validate({"train": train, "valid": {"trees": "b.txt"}}).train.phrases
    assert LabelledData.model_validate({"train": {"trees": "a.txt"}}).valid is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "the line is empty"),
        ("fun", "more or else than one tree"),
        ("(3 fun) (3 fun)", "more or else than one tree"),
        ("(3 (2 It) (3 fun)", "1 brackets are left open"),
        ("(3 fun))", "more or else than one tree"),
        ("((3 fun))", "a bracket opens without a label"),
        ("(3 (2 It) (3))", "the brackets of a label '3' hold no word"),
        ("(3 " * 501 + "fun" + ")" * 501, "more than 500 brackets"),
    ],
)
def test_what_is_no_tree_is_refused_by_line_or_left_out(tmp_path: Path, line: str, told: str) -> None:
    write_trees(tmp_path, TREES[0], line)
    with pytest.raises(UsageError, match=rf"a.txt:2: no tree with a label at every node: .*{told}.*on_bad to repair"):
        read({"trees": "a.txt"}, tmp_path)
    found, counts = read({"trees": "a.txt"}, tmp_path, on_bad="repair")
    assert (len(found), counts.lines, counts.bad_rows) == (1, 2, 1)


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({"tsv": "a", "trees": "b"}, "give one of `tsv`, `jsonl` and `trees`; `tsv` and `trees` are given"),
        ({"tsv": "a", "phrases": True}, "`phrases` describes `trees`, which is not given"),
        ({"trees": "a", "text": 2}, "`text` is 2, but `trees` have their labels and words in themselves"),
        ({"tsv": "a", "labels": {}}, "at least 1 item"),
    ],
)
def test_settings_of_trees_that_make_no_sense(split: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Labelled.model_validate(split)
