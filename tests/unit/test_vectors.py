"""Pretrained word vectors: every layout, who gets which, and how every kind of bad file is told."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from saccade.data.columns import Columns
from saccade.data.vectors import Vectors, opened_vectors, read_vectors, vector_words, write_vectors
from saccade.errors import UsageError
from saccade.types import SPECIALS

GLOVE = "the 1 2 3\nThe 4 5 6\ncat -1e-1 .5 0\n. . 7 8 9\n"
NAMES = [*SPECIALS, "The", "the", "THE", "Cat", "dog", " cat", ". ."]


def read(folder: Path, content: str | bytes, names: list[str] = NAMES) -> Vectors:
    (folder / "v.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_vectors("v.txt", names, base=folder)


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        "4 3\n" + GLOVE,
        GLOVE.replace("\n", " \r\n"),
        "\ufeff" + GLOVE,
        gzip.compress(GLOVE.encode(), mtime=0),
        GLOVE.replace(" ", "\t").replace(".\t.", ". ."),
    ],
    ids=["glove", "word2vec", "spaces at the end", "byte-order mark", "gzip", "tabs"],
)
def test_words_have_their_vectors(tmp_path: Path, content: str | bytes) -> None:
    """Exactly, else in small letters; a word may hold spaces; the words of a tokenizer may begin with one."""
    vectors = read(tmp_path, content)
    expected: dict[int, list[float]] = {
        4: [4, 5, 6],
        5: [1, 2, 3],
        6: [1, 2, 3],
        7: [-0.1, 0.5, 0],
        9: [-0.1, 0.5, 0],
        10: [7, 8, 9],
    }
    assert vectors.ids_N.tolist() == list(expected)
    assert vectors.rows_ND.tolist() == np.array(list(expected.values()), dtype=np.float32).tolist()
    coverage = vectors.coverage
    assert (coverage.words, coverage.exact, coverage.lowercase, coverage.in_file) == (7, 4, 2, 4)
    assert coverage.sentence("v.txt") == (
        "v.txt: vectors for 6 of 7 words (85.7 %), 2 of them in small letters; the file has 4."
    )


def test_an_exact_match_counts_wherever_it_stands(tmp_path: Path) -> None:
    assert read(tmp_path, "The 1\nthe 2\n", [*SPECIALS, "The"]).rows_ND.tolist() == [[1.0]]
    assert read(tmp_path, "the 2\nThe 1\n", [*SPECIALS, "The"]).rows_ND.tolist() == [[1.0]]


def test_of_a_word_that_stands_twice_the_first_counts(tmp_path: Path) -> None:
    vectors = read(tmp_path, "a 1\na 2\nb 3\n", [*SPECIALS, "a"])
    assert vectors.rows_ND.tolist() == [[1.0]]
    assert "Of 1 word that it has twice, the first." in vectors.coverage.sentence("v.txt")


@pytest.mark.parametrize("layout", ["strings", "bytes", "one text"])
def test_npz(tmp_path: Path, layout: str) -> None:
    words = {
        "strings": np.array(["the", "cat"]),
        "bytes": np.array([b"the", b"cat"]),
        "one text": np.array([b"the\ncat"]),
    }[layout]
    np.savez(tmp_path / "v.npz", words=words, vectors=np.array([[1, 2], [3, 4]], dtype=np.float16))
    vectors = read_vectors("v.npz", [*SPECIALS, "cat", "The"], base=tmp_path)
    assert vectors.ids_N.tolist() == [4, 5]
    assert vectors.rows_ND.tolist() == [[3, 4], [1, 2]]
    assert vectors.rows_ND.dtype == np.float32
    assert list(vector_words("v.npz", 5, base=tmp_path)) == ["the", "cat"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2 3\ncat 1 2\n", r"v\.txt:2: 2 numbers behind 'cat 1 2'; the lines before it have 3"),
        ("the 1 2 3\ncat 1 x 3\n", r"v\.txt:2: a vector must be of numbers: could not convert string to float: .*x"),
        ("the 1 2 3\ncat 1 nan 3\n", r"v\.txt:2: the vector holds a value that is no finite number"),
        ("the 1 2 3\n\ncat 1 2 3\n", r"v\.txt:2: the line is empty"),
        ("the\ncat\n", r"v\.txt:1: a word without a vector: 'the'\. Is it word vectors\?"),
        ("the 1 2 3\ncat 1 2 3 4\n", r"v\.txt:2: more numbers than the 3 that the lines before it have: 'cat 1 2 3 4'"),
        ("2 3\nthe 1 2 3 -4e-1\n", r"v\.txt:2: more numbers than the 3"),
        ("the 1 2 3\n 1 2 3\n", r"v\.txt:2: no word before the numbers: ' 1 2 3'"),
        ("the 1 2 3\n1 2 3\n", r"v\.txt:2: 2 numbers behind '1 2 3'"),
        ("", r"v\.txt: holds no word vectors"),
        ("4 3\n", r"v\.txt: holds no word vectors"),
        (gzip.compress(GLOVE.encode(), mtime=0)[:-9], r"v\.txt: cannot be read"),
        (b"PK\x03\x04 nonsense", r"v\.txt: cannot be read as \.npz"),
    ],
)
def test_bad_files_are_told_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, content)


def test_bad_npz_files_are_told(tmp_path: Path) -> None:
    words, rows = np.array(["the", "cat"]), np.ones((2, 3))

    def told(message: str, **arrays: object) -> None:
        np.savez(tmp_path / "v.npz", **arrays)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=message):
            read_vectors("v.npz", NAMES, base=tmp_path)

    told("has no array 'words'", vectors=rows)
    told(r"must be one row of decimal numbers a word; its shape is \(1, 3\)", words=words, vectors=rows[:1])
    told("its type int64", words=words, vectors=rows.astype(np.int64))
    told("cannot be read as", words=np.array(["the", None], dtype=object), vectors=rows)
    told("row 2: the vector holds a value", words=words, vectors=rows * np.array([[1], [np.inf]]))
    with pytest.raises(UsageError, match=r"none\.txt: cannot be read: No such file"):
        read_vectors("none.txt", NAMES, base=tmp_path)


def test_a_table_is_filled(tmp_path: Path) -> None:
    """Rows of words without a vector stay as they are; what reading multiplies with is divided out."""
    vectors = read(tmp_path, GLOVE)
    table = nn.Embedding(len(NAMES), 3)
    before = table.weight.detach().clone()
    vectors.fill(table, scale=2.0)
    found = torch.from_numpy(vectors.ids_N)
    torch.testing.assert_close(2.0 * table.weight[found], torch.from_numpy(vectors.rows_ND))
    others = [i for i in range(len(NAMES)) if i not in vectors.ids_N]
    assert torch.equal(table.weight[others], before[others])
    with pytest.raises(UsageError, match="the file's vectors have 3 numbers, the model's token vectors 5"):
        vectors.fill(nn.Embedding(len(NAMES), 5))


def test_they_are_kept_with_the_run(tmp_path: Path) -> None:
    vectors = read(tmp_path, GLOVE)
    write_vectors(tmp_path / "store", "v.txt", NAMES, base=tmp_path)
    (tmp_path / "v.txt").unlink()
    again = opened_vectors(Columns.open(tmp_path / "store"))
    assert again.ids_N.tolist() == vectors.ids_N.tolist()
    assert again.rows_ND.tolist() == vectors.rows_ND.tolist()
    assert again.coverage == vectors.coverage


def test_nothing_found_is_no_error(tmp_path: Path) -> None:
    vectors = read(tmp_path, GLOVE, [*SPECIALS, "zebra"])
    assert vectors.rows_ND.shape == (0, 3)
    assert vectors.coverage.exact == 0


def test_the_first_words_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(GLOVE)
    assert list(vector_words("v.txt", 2, base=tmp_path)) == ["the", "The"]
    assert list(vector_words("v.txt", 0, base=tmp_path)) == []
