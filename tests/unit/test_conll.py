"""Tagged files: what is read, what is counted, and how every kind of bad input is told."""

import gzip
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from saccade.data.conll import ConllData, ConlluData, TagCounts, Tagged, tagged_sentences
from saccade.errors import UsageError

EU = (
    "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n"
    "Peter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER\n"
)


def read(
    folder: Path, content: str | bytes, data: ConllData | ConlluData | None = None, **settings: Any
) -> tuple[list[Tagged], TagCounts]:
    (folder / "train.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    data = data or ConllData(train="train.txt", valid="valid.txt", **settings)
    counts = TagCounts()
    sentences = list(tagged_sentences(data, ("train.txt",), base=folder, counts=counts))
    assert_nothing_is_lost(counts)
    return sentences, counts


def assert_nothing_is_lost(counts: TagCounts) -> None:
    parts = "words blank documents comments ranges empty_nodes bad_rows left_out too_long_words"
    assert counts.lines == sum(getattr(counts, part) for part in parts.split())


def conllu(**settings: Any) -> ConlluData:
    return ConlluData(train="train.txt", valid="valid.txt", **settings)


def test_columns_and_documents(tmp_path: Path) -> None:
    sentences, counts = read(tmp_path, EU)
    assert sentences == [
        Tagged(("EU", "rejects"), ("B-ORG", "O"), "train.txt:3"),
        Tagged(("Peter", "Blackburn"), ("B-PER", "I-PER"), "train.txt:7"),
    ]
    assert (counts.lines, counts.sentences, counts.words, counts.documents, counts.blank) == (8, 2, 4, 1, 3)
    assert counts.sentences_told()[0] == "8 lines read, 2 sentences of 4 words kept."


@pytest.mark.parametrize(("column", "tags"), [(2, ("NNP", "VBZ")), (-2, ("B-NP", "B-VP")), (4, ("B-ORG", "O"))])
def test_the_column_is_chosen(tmp_path: Path, column: int, tags: tuple[str, ...]) -> None:
    sentences, _ = read(tmp_path, EU, tag=column)
    assert sentences[0].tags == tags


def test_separators(tmp_path: Path) -> None:
    assert read(tmp_path, "a  b\t O \n")[0][0] == Tagged(("a",), ("O",), "train.txt:1")
    assert read(tmp_path, "New York\tO\n", separator="tab")[0][0].words == ("New York",)
    assert read(tmp_path, "a\tb O\n", separator="space")[0][0].words == ("a\tb",)
    # no other character separates: a no-break space is part of a word, and so is a lone carriage return within a line
    assert read(tmp_path, "10\u00a0000 O\nx\u2028y O\n")[0][0].words == ("10\u00a0000", "x\u2028y")


def test_comments_only_where_asked_for(tmp_path: Path) -> None:
    """A # is a word of many corpora."""
    text = "# id 1\na O\n# O\n"
    assert read(tmp_path, "# O\na O\n")[0][0].words == ("#", "a")
    sentences, counts = read(tmp_path, text, comments=True)
    assert [sentence.words for sentence in sentences] == [("a",)]
    assert counts.comments == 2
    within = read(tmp_path, "a O\n# note O\nb O\n\nc O\n", comments=True)[0]
    assert [sentence.words for sentence in within] == [("a", "b"), ("c",)]


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("a O\nb\n", {}, r"train\.txt:2: the row has 1 column: data\.word \(1\) and data\.tag \(-1\) are the same"),
        ("a O\n", {"tag": 4}, r"train\.txt:1: the row has 2 columns; data\.tag asks for column 4\. Fix the row"),
        ("a O\n", {"word": -3}, r"train\.txt:1: the row has 2 columns; data\.word asks for column -3"),
        ("\tO\n", {"separator": "tab"}, r"train\.txt:1: the word is empty"),
        ("a\t\n", {"separator": "tab"}, r"train\.txt:1: the tag is empty"),
        ("a PER\n", {"scheme": "iob2"}, r"train\.txt:1: the tag 'PER' is none of iob2: O, B-TYPE or I-TYPE"),
        (b"a O\n\xff O\n", {}, r"train\.txt:2: byte 1 of the line \(0xff\) is not valid UTF-8"),
    ],
)
def test_bad_rows_are_refused_by_file_and_line(
    tmp_path: Path, content: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, content, **settings)


def test_what_is_repaired_is_counted(tmp_path: Path) -> None:
    """A sentence with a bad row is left out as a whole; bad bytes and line ends are mended."""
    content = b"\xef\xbb\xbfa O\r\n\r\nb O\nc\nd O\n\n\xff O\ne\0 O\n"
    sentences, counts = read(tmp_path, content, on_bad="repair")
    assert [sentence.words for sentence in sentences] == [("a",), ("\ufffd", "e\0")]
    assert (counts.bad_rows, counts.left_out, counts.bom, counts.carriage_returns) == (1, 2, 1, 2)
    assert (counts.invalid_utf8, counts.nul) == (1, 1)
    told = " ".join(counts.sentences_told())
    assert "Rows that could not be read: 1 (train.txt:4)." in told
    assert "left out with them: 2" in told


def test_all_problems_at_once(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\n\nb O\nc\n")
    problems: list[str] = []
    data = ConllData(train="train.txt", valid="train.txt")
    found = list(tagged_sentences(data, data.train, base=tmp_path, counts=TagCounts(), problems=problems))
    assert found == []
    assert [problem.split(":")[1] for problem in problems] == ["1", "4"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a O", "b", "", " ", "-DOCSTART- O", "# c", "\t", "x\ty z", "a O\r"]), max_size=12))
def test_no_line_is_lost_whatever_the_file_holds(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.getbasetemp()
    for ending in ("", "\n"):
        text = "\n".join(lines) + ending
        _, counts = read(folder, text, on_bad="repair")
        assert counts.lines == text.count("\n") + bool(text and not text.endswith("\n"))


ROW = "{}\t{}\t_\t{}\tNN\tCase=Nom|Number=Sing\t0\troot\t_\tSpaceAfter=No\n"


def rows(*cells: tuple[str, str, str]) -> str:
    return "".join(ROW.format(*each) for each in cells)


def test_conllu(tmp_path: Path) -> None:
    """Ranges and empty nodes are no words; comments are passed over; a form may hold spaces."""
    text = (
        "# text = vámonos al mar\n"
        + rows(("1-2", "vámonos", "_"), ("1", "vamos", "VERB"), ("2", "nos nos", "PRON"), ("2.1", "x", "_"))
        + "\n"
        + rows(("1", "mar", "NOUN"))
    )
    sentences, counts = read(tmp_path, text, conllu())
    assert [(sentence.words, sentence.tags) for sentence in sentences] == [
        (("vamos", "nos nos"), ("VERB", "PRON")),
        (("mar",), ("NOUN",)),
    ]
    assert (counts.ranges, counts.empty_nodes, counts.comments, counts.sentences) == (1, 1, 1, 2)


@pytest.mark.parametrize(
    ("column", "tag"),
    [
        ("upos", "VERB"),
        ("xpos", "NN"),
        ("feats", "Case=Nom|Number=Sing"),
        ("feats.Number", "Sing"),
        ("feats.Gender", "_"),
        ("misc.SpaceAfter", "No"),
        ("deprel", "root"),
        ("lemma", "_"),
    ],
)
def test_any_column_of_conllu(tmp_path: Path, column: str, tag: str) -> None:
    sentences, _ = read(tmp_path, rows(("1", "ve", "VERB")), conllu(column=column))
    assert sentences[0].tags == (tag,)


@pytest.mark.parametrize("column", ["pos", "id", "upos.Number", "feats.", ""])
def test_no_such_column_of_conllu(column: str) -> None:
    with pytest.raises(ValidationError, match="is no column of CoNLL-U"):
        conllu(column=column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tve\n", r"train\.txt:1: the row has 2 columns; CoNLL-U has 10, separated by tabs"),
        (rows(("1", "a", "X"), ("3", "b", "X")), r"train\.txt:2: the row's number is '3'; word 2 of the sentence"),
        (rows(("one", "a", "X")), r"train\.txt:1: the row's number is 'one'"),
    ],
)
def test_bad_conllu(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, text, conllu())
    _, counts = read(tmp_path, text, conllu(on_bad="repair"))
    assert counts.bad_rows == 1


def test_files_may_be_compressed_and_many(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress(f"word{number} O\n".encode()))
    data = ConllData(train=("1.gz", "2.gz"), valid="x")
    found = list(tagged_sentences(data, data.train, base=tmp_path, counts=TagCounts()))
    assert [sentence.words[0] for sentence in found] == ["word1", "word2"]
    with pytest.raises(UsageError, match=r"none\.txt: cannot be read: No such file"):
        list(tagged_sentences(data, ("none.txt",), base=tmp_path, counts=TagCounts()))


def test_there_is_no_column_zero() -> None:
    with pytest.raises(ValidationError, match="there is no column 0"):
        ConllData(train="a", valid="b", tag=0)


def test_every_count_is_told() -> None:
    """A kind of thing that is counted but never told would be lost after all."""
    for each in fields(TagCounts):
        if each.name in ("places", "blank"):
            continue
        counts = TagCounts()
        setattr(counts, each.name, 7)
        assert "7" in " ".join(counts.sentences_told()), each.name
