"""The store gives back what was put in, and never shows half of it."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from saccade.data.files import Counts, OnLong, Pair
from saccade.data.store import CHUNK_CHARACTERS, Store, write_store
from saccade.errors import SaccadeError, UsageError
from saccade.types import END


class Characters:
    """A token a character, numbered from 4, for texts of the characters below `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.batches: list[int] = []

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        self.batches.append(len(texts))
        ids = [min(ord(each) + 4, self.size - 1) for text in texts for each in text]
        return np.array(ids, dtype=np.uint32), np.array([len(text) for text in texts])


class OneToken:
    """A text is one token, however long."""

    size = 9

    def __init__(self) -> None:
        self.batches: list[int] = []

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        self.batches.append(len(texts))
        return np.full(len(texts), 4, dtype=np.uint32), np.ones(len(texts), dtype=np.int64)


SMALL, LARGE = 60_000, 1_200_000
texts = st.text(max_size=12)


def written(
    folder: Path,
    rows: list[tuple[str, str]],
    *,
    max_length: int = 99,
    on_long: OnLong = "drop",
    keep_text: bool = False,
    chunk: int = 3,
    sizes: tuple[int, int] = (SMALL, LARGE),
) -> tuple[Store, Counts]:
    counts = Counts()
    source, target = (Characters(size) for size in sizes)
    store = write_store(
        folder,
        rows,
        source,
        target,
        max_length=max_length,
        on_long=on_long,
        counts=counts,
        keep_text=keep_text,
        chunk=chunk,
    )
    return store, counts


@settings(deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=12), st.integers(1, 5), st.booleans())
def test_what_was_put_in_comes_out(rows: list[tuple[str, str]], chunk: int, keep_text: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, counts = written(Path(folder, "store"), rows, chunk=chunk, keep_text=keep_text)
        for held in (store, Store.open(store.folder)):
            assert len(held) == len(rows) == counts.kept == counts.lines
            for i, (source, target) in enumerate(rows):
                assert held.source(i).tolist() == [*Characters(SMALL).encode_flat([source])[0], END]
                assert held.target(i).tolist() == [*Characters(LARGE).encode_flat([target])[0], END]
                assert held.lengths[i].tolist() == [len(source) + 1, len(target) + 1]
                if keep_text:
                    assert held.text(i) == (source, target)
        assert (store.source(0).dtype.name, store.target(0).dtype.name) == ("uint16", "uint32")


@settings(deadline=None)
@given(st.data())
def test_rows_taken_together_are_the_rows(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(texts, texts), min_size=1, max_size=9))
    asked = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9)), dtype=np.int32)
    with tempfile.TemporaryDirectory() as folder:
        store, _ = written(Path(folder, "store"), rows)
        values, lengths = store.targets.take(asked)
        one_by_one = [store.target(i) for i in asked]
        assert values.tolist() == np.concatenate(one_by_one).tolist()
        assert lengths.tolist() == [len(row) for row in one_by_one]


def test_the_largest_id_of_each_width_survives(tmp_path: Path) -> None:
    at_most, above = 1 << 16, (1 << 16) + 1
    store, _ = written(tmp_path / "store", [("\U0010ffff", "\U0010ffff")], sizes=(at_most, above))
    assert (store.source(0).tolist(), store.source(0).dtype.name) == ([at_most - 1, END], "uint16")
    assert (store.target(0).tolist(), store.target(0).dtype.name) == ([above - 1, END], "uint32")


def test_long_pairs_are_dropped_cut_or_refused(tmp_path: Path) -> None:
    rows = [("abc", "d"), ("a", "bcde"), ("abc", "abc"), ("abcdef", "abcdef")]
    dropped, counts = written(tmp_path / "drop", rows, max_length=3)
    assert (len(dropped), counts.lines, counts.kept, counts.too_long_dropped) == (2, 4, 2, 2)
    assert counts.places == ["too_long_dropped pair 2", "too_long_dropped pair 4"]
    cut, counts = written(tmp_path / "cut", rows, max_length=3, on_long="cut", keep_text=True)
    assert (len(cut), counts.kept, counts.too_long_cut) == (4, 4, 2)
    assert cut.lengths.tolist() == [[4, 2], [2, 4], [4, 4], [4, 4]]
    assert cut.text(3) == rows[3]
    with pytest.raises(UsageError, match=r"^pair 2: 1 source and 4 target tokens; data.max_length allows 3\."):
        written(tmp_path / "refuse", rows, max_length=3, on_long="refuse")
    assert not (tmp_path / "refuse").exists()


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(st.tuples(texts, texts), min_size=1),
    most=st.integers(1, 12),
    on_long=st.sampled_from(["cut", "drop"]),
)
def test_long_rows_among_short_ones_are_cut_or_dropped_alone(
    rows: list[tuple[str, str]], most: int, on_long: OnLong
) -> None:
    fits = [max(map(len, row)) <= most for row in rows]
    expected = [(s[:most], t[:most]) for (s, t), whole in zip(rows, fits, strict=True) if whole or on_long == "cut"]
    with tempfile.TemporaryDirectory() as folder:
        if not expected:
            with pytest.raises(UsageError, match="no usable"):
                written(Path(folder, "store"), rows, max_length=most, on_long=on_long)
            return
        store, counts = written(Path(folder, "store"), rows, max_length=most, on_long=on_long)
        assert len(store) == counts.kept == len(expected)
        assert counts.too_long_cut + counts.too_long_dropped == fits.count(False)
        for i, (source, target) in enumerate(expected):
            assert store.source(i).tolist() == [*Characters(SMALL).encode_flat([source])[0], END]
            assert store.target(i).tolist() == [*Characters(LARGE).encode_flat([target])[0], END]


def test_readers_have_counted_their_pairs_already(tmp_path: Path) -> None:
    counts = Counts(lines=3, kept=2, empty=1)
    rows = [Pair("a", "b", "x:1"), Pair("abc", "b", "x:3")]
    tokenizer = Characters(SMALL)
    store = write_store(tmp_path / "s", rows, tokenizer, tokenizer, max_length=2, on_long="drop", counts=counts)
    expected = Counts(lines=3, kept=1, empty=1, too_long_dropped=1, places=["too_long_dropped x:3"])
    assert counts == store.counts == expected


def test_no_usable_pair_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no usable sentence pair is left: 0 rows read"):
        written(tmp_path / "none", [])
    with pytest.raises(UsageError, match=r"Pairs left out because a side is longer than max_length: 1 \(pair 1\)"):
        written(tmp_path / "none", [("abc", "abc")], max_length=2)
    assert list(tmp_path.iterdir()) == []


def test_a_pass_that_fails_leaves_the_old_store_as_it_was(tmp_path: Path) -> None:
    old, _ = written(tmp_path / "store", [("a", "b")])

    def breaks_off() -> Iterator[tuple[str, str]]:
        yield from [("c", "d")] * 10
        raise UsageError("the files are of unequal length")

    tokenizer = Characters(SMALL)
    with pytest.raises(UsageError, match="unequal"):
        write_store(
            old.folder, breaks_off(), tokenizer, tokenizer, max_length=9, on_long="drop", counts=Counts(), chunk=2
        )
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert Store.open(old.folder).source(0).tolist() == old.source(0).tolist()
    new, _ = written(tmp_path / "store", [("c", "d")])
    assert new.source(0).tolist() == [ord("c") + 4, END]


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="holds other files than a token store"):
        written(tmp_path, [("a", "b")])
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    (tmp_path / "file").write_text("")
    with pytest.raises(SaccadeError, match="cannot be written"):
        written(tmp_path / "file" / "store", [("a", "b")])


def test_a_damaged_store_is_not_opened(tmp_path: Path) -> None:
    store, _ = written(tmp_path / "store", [("abc", "d")])
    os.truncate(store.folder / "source.bin", 6)
    with pytest.raises(SaccadeError, match=r"source.bin: has 6 bytes, not 8\. Remove .* and resume"):
        Store.open(store.folder)
    (store.folder / "source.bin").unlink()
    with pytest.raises(SaccadeError, match=r"source.bin: has no bytes"):
        Store.open(store.folder)
    facts = json.loads((store.folder / "store.json").read_text())
    (store.folder / "store.json").write_text(json.dumps({**facts, "done": False}))
    with pytest.raises(UsageError, match="not a finished token store"):
        Store.open(store.folder)
    (store.folder / "store.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        Store.open(store.folder)
    (store.folder / "store.json").unlink()
    with pytest.raises(UsageError, match="no finished token store"):
        Store.open(store.folder)


def test_the_fingerprint_tells_content_not_chunks(tmp_path: Path) -> None:
    rows = [("ab", "c"), ("d", "ef"), ("g", "h")]
    one, _ = written(tmp_path / "one", rows, chunk=1)
    all_at_once, _ = written(tmp_path / "all", rows, chunk=10)
    moved_boundary, _ = written(tmp_path / "other", [("a", "c"), ("bd", "ef"), ("g", "h")])
    assert one.fingerprint == all_at_once.fingerprint != moved_boundary.fingerprint


def test_text_is_there_only_when_kept(tmp_path: Path) -> None:
    store, _ = written(tmp_path / "without", [("a", "b")])
    with pytest.raises(UsageError, match="without the raw text"):
        store.text(0)
    empty, _ = written(tmp_path / "empty", [("", "")], keep_text=True)
    assert empty.text(0) == ("", "")


def test_very_long_lines_make_smaller_chunks(tmp_path: Path) -> None:
    long = "a" * (CHUNK_CHARACTERS // 2)
    tokenizer = OneToken()
    rows = [(long, "b")] * 3
    write_store(tmp_path / "s", rows, tokenizer, tokenizer, max_length=9, on_long="drop", counts=Counts())
    assert tokenizer.batches == [2, 2, 1, 1]  # source and target of each chunk
