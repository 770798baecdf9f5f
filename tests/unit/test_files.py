"""Readers: any bytes in, every line accounted for."""

import gzip
import io
import json
import lzma
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from saccade import config
from saccade.data.check import Lengths, check
from saccade.data.files import Counts, FilesData, Line, OnBad, Pair, Parallel, lines, locate, pairs
from saccade.data.mismatch import first_without_partner
from saccade.errors import UsageError

TWO_FILES = Parallel(source=("s",), target=("t",))
any_line = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=12).map(lambda text: text.encode("utf-8")),
    st.sampled_from(
        [b"", b"\r", b"\r\r", b"\xef\xbb\xbf", b"\xef\xbb\xbfa\r", b"\0", b"\xff\xfe", "a\u2028b\x0bc\x85".encode()]
    ),
).map(lambda raw: raw.replace(b"\n", b""))
some_lines = st.lists(any_line, max_size=12)
same_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(
    folder: Path, split: Parallel = TWO_FILES, *, on_bad: OnBad = "refuse", trim: bool = False, keep_empty: bool = False
) -> tuple[list[Pair], Counts]:
    counts = Counts()
    got = list(pairs(split, base=folder, on_bad=on_bad, trim=trim, counts=counts, keep_empty=keep_empty))
    dropped = counts.empty + counts.too_long_dropped + counts.bad_rows + counts.trimmed
    assert counts.lines == counts.kept + dropped
    assert counts.kept == len(got)
    return got, counts


def put(folder: Path, source: bytes, target: bytes) -> Path:
    (folder / "s").write_bytes(source)
    (folder / "t").write_bytes(target)
    return folder


# ---- lines of a stream


@given(some_lines, st.booleans())
def test_as_many_lines_come_out_as_went_in(raw: list[bytes], ends_in_newline: bool) -> None:
    ends_in_newline = ends_in_newline or (bool(raw) and raw[-1] == b"")  # an empty last line needs its line feed
    stream = b"\n".join(raw) + (b"\n" if raw and ends_in_newline else b"")
    got = list(lines(io.BytesIO(stream)))
    assert len(got) == len(raw)
    for number, (line, before) in enumerate(zip(got, raw, strict=True)):
        text = before.decode("utf-8", errors="replace")
        if number == 0:
            text = text.removeprefix("\ufeff")
        assert line.text == text.removesuffix("\r")
        line.text.encode("utf-8")


@given(st.binary(max_size=60))
def test_lines_never_raise(stream: bytes) -> None:
    expected = stream.count(b"\n") + (not stream.endswith(b"\n") and stream != b"")
    assert len(list(lines(io.BytesIO(stream)))) == expected


def test_lines_tell_what_was_repaired() -> None:
    got = list(lines(io.BytesIO(b"\xef\xbb\xbfa\r\nb\n\xef\xbb\xbfc\xff\r\r\nd")))
    assert got == [
        Line("a", ("bom", "carriage_returns")),
        Line("b"),
        Line("\ufeffc\ufffd\r", ("carriage_returns", "invalid_utf8")),
        Line("d"),
    ]
    assert list(lines(io.BytesIO(b""))) == []


# ---- two files


@same_folder
@given(st.lists(st.tuples(any_line, any_line), max_size=10), st.sampled_from([gzip.compress, lzma.compress, bytes]))
def test_packed_files_read_like_plain_ones(
    tmp_path: Path, rows: list[tuple[bytes, bytes]], pack: Callable[[bytes], bytes]
) -> None:
    source, target = (b"".join(row[side] + b"\n" for row in rows) for side in (0, 1))
    if any(side.startswith((b"\x1f\x8b", b"\xfd7zXZ\0")) for side in (source, target)):
        return  # would be taken for packed itself
    plain, plain_counts = read(put(tmp_path, source, target), on_bad="repair", keep_empty=True)
    assert len(plain) == len(rows)
    assert [(pair.source, pair.target) for pair in plain] == [
        (one.text, other.text) for one, other in zip(lines(io.BytesIO(source)), lines(io.BytesIO(target)), strict=True)
    ]
    packed, packed_counts = read(put(tmp_path, pack(source), pack(target)), on_bad="repair", keep_empty=True)
    assert (packed, packed_counts) == (plain, plain_counts)


def test_each_oddity_is_counted_with_its_place(tmp_path: Path) -> None:
    source = b"\xef\xbb\xbfone\r\ntwo\n\nfo\0ur\nfi\xffve\n \t\nseven"
    target = b"eins\nzwei\r\ndrei\nvier\nf\xc3\xbcnf\nsechs\nsieben"
    got, counts = read(put(tmp_path, source, target), on_bad="repair")
    assert [pair.source for pair in got] == ["one", "two", "fo\0ur", "fi\ufffdve", "seven"]
    assert got[3].target == "fünf"
    assert got[-1].place == "s:7"
    assert counts == Counts(
        lines=7,
        kept=5,
        bom=1,
        carriage_returns=2,
        nul=1,
        invalid_utf8=1,
        empty=2,
        places=[
            "bom s:1",
            "carriage_returns s:1",
            "carriage_returns t:2",
            "empty s:3",
            "nul s:4",
            "invalid_utf8 s:5",
            "empty s:6",
        ],
    )
    assert counts.sentences()[0] == "7 rows read, 5 pairs kept."
    assert "Pairs left out because a side is empty: 2 (s:3, s:6)." in counts.sentences()
    assert Counts(**json.loads(json.dumps(counts.to_dict()))) == counts


def test_places_of_a_kind_are_limited(tmp_path: Path) -> None:
    _, counts = read(put(tmp_path, b"\n" * 9, b"x\n" * 9))
    assert counts.empty == 9
    assert counts.places == [f"empty s:{n}" for n in (1, 2, 3, 4, 5)]
    assert counts.sentences()[1].endswith("9 (s:1, s:2, s:3, s:4, s:5, …).")


def test_bytes_that_are_not_utf8_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^t:2: byte 4 of the line \(0xe9\) is not valid UTF-8.*iconv -f latin1.*repair"
    ):
        read(put(tmp_path, b"a\nb\n", b"a\ncaf\xe9\n"))
    with pytest.raises(UsageError, match="iconv -f utf-16"):
        read(put(tmp_path, "a\n".encode("utf-16"), b"a\n"))


def test_unequal_files_are_refused_and_the_missing_line_is_found(tmp_path: Path) -> None:
    lengths = [(7 * i * i + 3 * i) % 61 + 4 for i in range(200)]
    source = [b"x" * n for n in lengths]
    target = [b"y" * (n + n // 5) for n in lengths]
    del target[141]
    folder = put(tmp_path, b"\n".join(source), b"\n".join(target) + b"\n")
    with pytest.raises(UsageError) as caught:
        read(folder)
    assert str(caught.value) == (
        "s has 200 lines and t has 199: line 142 of s is the first without a partner of plausible length.\n"
        "Nothing was written. Fix the files, or keep the first 199 pairs: --set data.trim=true when training, "
        "--trim when checking."
    )
    got, counts = read(folder, trim=True)
    assert (len(got), counts.lines, counts.trimmed) == (199, 200, 1)
    with pytest.raises(UsageError, match=r"^t has 199 lines and s has 200: line 142 of s is"):
        read(folder, Parallel(source=("t",), target=("s",)))


def test_lines_added_at_the_end_are_the_first_without_partner(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"s has 1 line and t has 3: line 2 of t is the first without a partner\."):
        read(put(tmp_path, b"one", b"eins\nzwei\ndrei\n"))
    with pytest.raises(UsageError, match="s has 0 lines and t has 1: line 1 of t"):
        read(put(tmp_path, b"", b"eins"))


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 300), min_size=40, max_size=120, unique=True),
    st.sets(st.integers(1, 39), min_size=1, max_size=4),
    st.booleans(),
)
def test_missing_lines_are_found_near_where_they_are(lengths: list[int], gone: set[int], block: bool) -> None:
    if block:
        gone = set(range(min(gone), min(gone) + 35)) & set(range(39))  # more than are searched for one by one
    short = [2 * length for i, length in enumerate(lengths) if i not in gone]
    found = first_without_partner(lengths, short, paired=len(short), beyond=len(gone))
    if len(gone) == 1:
        assert _cost(lengths, short, found - 1) <= _cost(lengths, short, min(gone)) + 1e-9
    else:
        assert 1 <= found <= len(short) + 1


def _cost(long: list[int], short: list[int], at: int) -> float:
    """Brute force: the cost of taking line `at` of `long` as the one without a partner."""
    typical = np.median(np.log(np.array(long) + 5)) - np.median(np.log(np.array(short) + 5))
    kept = np.array(long[:at] + long[at + 1 :])
    distance = np.abs(np.log(kept + 5) - np.log(np.array(short) + 5) - typical) / 0.2
    return float(np.minimum(distance, 5).sum())


def test_scattered_missing_lines_the_first_is_found() -> None:
    lengths = [(37 * i * i + 11 * i) % 203 + 4 for i in range(2000)]
    for gone in ([100, 900, 1500], [3, 4, 5], list(range(50, 2000, 100)), list(range(700, 900))):
        short = [length for i, length in enumerate(lengths) if i not in gone]
        found = first_without_partner(lengths, short, paired=len(short), beyond=len(gone))
        assert abs(found - (gone[0] + 1)) <= 1


def test_unequal_pipes_are_refused_without_a_second_look(tmp_path: Path) -> None:
    for name, content in (("s", b"a\nb\nc\n"), ("t", b"A\nB\n")):
        os.mkfifo(tmp_path / name)
        threading.Thread(target=(tmp_path / name).write_bytes, args=(content,), daemon=True).start()
    with pytest.raises(UsageError, match=r"s has 3 lines and t has 2: line 3 of s is the first without a partner\."):
        read(tmp_path)


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    put(tmp_path, b"a\nb", b"1\n2")
    (tmp_path / "s2").write_bytes(b"c")
    (tmp_path / "t2").write_bytes(b"3")
    got, _ = read(tmp_path, Parallel(source=("s", "s2"), target=("t", "t2")))
    assert got == [Pair("a", "1", "s:1"), Pair("b", "2", "s:2"), Pair("c", "3", "s2:1")]


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5, 6, 99])
@pytest.mark.parametrize("layout", ["two files", "parsed", "tsv", "jsonl"])
def test_the_first_lines_are_read_and_no_others(tmp_path: Path, layout: str, first: int) -> None:
    """Over two files of three lines; one is empty, and where rows can be bad, one is."""
    every = [(f"a{number}", f"b{number}") for number in range(6)]
    every[1] = ("", "b1")
    bad = every[4]
    for file, three in (("1", every[:3]), ("2", every[3:])):
        written = {
            "s": [source for source, _ in three],
            "t": [target for _, target in three],
            "h": ["0" if source else "" for source, _ in three],
            "tsv": ["bad" if pair == bad else "\t".join(pair) for pair in three],
            "jsonl": ["{" if p == bad else json.dumps({"source": p[0], "target": p[1]}) for p in three],
        }
        for kind, rows in written.items():
            (tmp_path / f"{kind}{file}").write_text("\n".join(rows) + "\n")
    split = {
        "two files": Parallel(source=("s1", "s2"), target=("t1", "t2"), first=first),
        "parsed": Parallel(source=("s1", "s2"), target=("t1", "t2"), heads=("h1", "h2"), first=first),
        "tsv": Parallel(tsv=("tsv1", "tsv2"), first=first),
        "jsonl": Parallel(jsonl=("jsonl1", "jsonl2"), first=first),
    }[layout]
    got, counts = read(tmp_path, split, on_bad="repair")
    left_out = {every[1]} | ({bad} if layout in ("tsv", "jsonl") else set())
    assert [(pair.source, pair.target) for pair in got] == [pair for pair in every[:first] if pair not in left_out]
    assert counts.lines == min(first, 6)
    assert counts.not_there == max(0, first - 6)
    told = "Lines that `first` asks for beyond the end of the files, which have no more: 93."
    assert (told in counts.sentences()) == (first == 99)


def test_what_comes_after_the_first_lines_is_not_looked_at(tmp_path: Path) -> None:
    put(tmp_path, b"one\ntwo\nthree\n\xff\n", b"eins\nzwei\n")
    got, counts = read(tmp_path, Parallel(source=("s", "missing"), target=("t", "missing"), first=2))
    assert [pair.target for pair in got] == ["eins", "zwei"]
    assert counts.lines == 2
    with pytest.raises(UsageError, match="s has 4 lines and t has 2"):  # here the shorter ends before
        read(tmp_path, Parallel(source=("s",), target=("t",), first=3))


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"a\n" * 999, mtime=0)[:-9], lzma.compress(b"a\n" * 999)[:-9], None],
    ids=["cut gzip", "cut xz", "no file"],  # not the bytes: gzip notes the time, and workers must agree on the names
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        put(tmp_path, content, b"a\n" * 999)
    with pytest.raises(UsageError, match=r"^s: cannot be read: "):
        read(tmp_path)


def test_bits_flipped_in_a_packed_file_are_noticed(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(bytes(range(97, 123)) * 50 + b"\n", mtime=0))
    packed[20:24] = b"\xff\xff\xff\xff"
    with pytest.raises(UsageError, match=r"^s: cannot be read: "):
        read(put(tmp_path, bytes(packed), b"x\n"))


# ---- TSV and JSON lines


def test_tsv_takes_the_columns_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"1\ta\tA\textra\r\n2\tb\tB\n")
    got, counts = read(tmp_path, Parallel(tsv=("x.tsv",), columns=(3, 2)))
    assert [pair[:2] for pair in got] == [("A", "a"), ("B", "b")]
    assert counts.carriage_returns == 1


def test_tsv_rows_with_too_few_columns(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"a\tA\nb\nc\tC\n")
    with pytest.raises(
        UsageError, match=r"^x.tsv:2: the row has 1 column; data.columns asks for columns 1 and 2\. Fix"
    ):
        read(tmp_path, Parallel(tsv=("x.tsv",)))
    got, counts = read(tmp_path, Parallel(tsv=("x.tsv",)), on_bad="repair")
    assert [pair.source for pair in got] == ["a", "c"]
    assert (counts.bad_rows, counts.places) == (1, ["bad_rows x.tsv:2"])


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=6))
@same_folder
def test_jsonl_round_trip(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    content = "\n".join(json.dumps({"de": b, "en": a}, ensure_ascii=len(a) % 2 == 0) for a, b in rows)
    (tmp_path / "x.jsonl").write_text(content, encoding="utf-8", newline="")
    got, _ = read(tmp_path, Parallel(jsonl=("x.jsonl",), fields=("en", "de")), keep_empty=True)
    assert [(pair.source, pair.target) for pair in got] == rows


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
        ('["a", "b"]', "not a JSON object"),
        ('{"source": "a"}', "no field 'target'"),
        ('{"source": 1, "target": "b"}', "'source' holds int"),
        ('{"source": null, "target": "b"}', "'source' holds NoneType"),
    ],
)
def test_jsonl_rows_that_cannot_be_read(tmp_path: Path, row: str, reason: str) -> None:
    good = '{"source": "a", "target": "b"}'
    (tmp_path / "x.jsonl").write_text(f"{good}\n{row}\n{good}\n", encoding="utf-8")
    split = Parallel(jsonl=("x.jsonl",))
    with pytest.raises(UsageError, match=rf"^x.jsonl:2: .*{reason}"):
        read(tmp_path, split)
    got, counts = read(tmp_path, split, on_bad="repair")
    assert (len(got), counts.bad_rows) == (2, 1)


def test_half_a_character_in_json_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"source": "a\\ud800", "target": "\\ud83d\\ude00"}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"^x.jsonl:1: .*surrogate"):
        read(tmp_path, Parallel(jsonl=("x.jsonl",)))
    got, counts = read(tmp_path, Parallel(jsonl=("x.jsonl",)), on_bad="repair")
    assert got[0][:2] == ("a\ufffd", "😀")
    assert counts.invalid_utf8 == 1


# ---- recipes


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({}, "none is given"),
        ({"tsv": "a", "jsonl": "b"}, "tsv and jsonl are given"),
        ({"source": "a", "target": "b", "tsv": "c"}, "source/target and tsv are given"),
        ({"source": "a"}, "`source` is given without `target`"),
        ({"target": "a"}, "`target` is given without `source`"),
        ({"source": ["a", "b"], "target": "c"}, "`source` names 2 files and `target` 1 file;"),
        ({"tsv": "a", "fields": ("x", "y")}, "`fields` describes `jsonl`"),
        ({"jsonl": "a", "columns": (2, 1)}, "`columns` describes `tsv`"),
        ({"tsv": "a", "columns": (0, 1)}, "greater than or equal to 1"),
        ({"tsv": []}, "at least 1 item"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(tree: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Parallel.model_validate(tree)


def test_the_resolved_recipe_reads_back() -> None:
    tree: dict[str, Any] = {"train": {"tsv": ["a", "b"]}, "valid": {"source": "c", "target": "d"}}
    data = config.parse(FilesData, tree)
    assert data.valid is not None
    assert (data.train.tsv, data.valid.source) == (("a", "b"), ("c",))
    assert config.parse(FilesData, config.plain(data)) == data
    with pytest.raises(UsageError, match="train: give either"):
        config.parse(FilesData, {**tree, "train": {}})


def test_only_the_data_variable_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_DATA", "/data")
    monkeypatch.setenv("HOME", "/home/me")
    assert locate("$SACCADE_DATA/a/b", tmp_path).path == Path("/data/a/b")
    assert locate("${SACCADE_DATA}/a", tmp_path).path == Path("/data/a")
    assert locate("$HOME/a", tmp_path).path == tmp_path / "$HOME/a"
    assert locate("$SACCADE_DATAX/a", tmp_path).path == tmp_path / "$SACCADE_DATAX/a"
    assert locate("/abs", tmp_path).path == Path("/abs")
    monkeypatch.delenv("SACCADE_DATA")
    with pytest.raises(UsageError, match="Set SACCADE_DATA to the folder with the data"):
        locate("$SACCADE_DATA/a", tmp_path)


# ---- the check of a whole data set


def test_check_counts_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, b"one two\nred\none two\nblue sky now\n", b"eins zwei\nrot\neins zwei\n" + b"x" * 90 + b"\n")
    (tmp_path / "v.tsv").write_bytes(b"red\tROT\ngreen\tgruen\nred\trot")
    data = FilesData(train=TWO_FILES, valid=Parallel(tsv=("v.tsv",)))
    report = check(data, tmp_path)
    assert report.usable
    train, valid = report.splits["train"], report.splits["valid"]
    assert (train.duplicates, train.seen_in_train, valid.duplicates, valid.seen_in_train) == (1, 0, 0, 2)
    assert (train.outliers, train.outlier_places) == (1, ("s:4",))
    assert train.source.words == Lengths(mean=2.0, p50=2, p99=3, max=3)
    assert train.source.characters == Lengths(mean=29 / 4, p50=7, p99=12, max=12)
    json.dumps(report.to_dict())


def test_check_collects_all_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    put(tmp_path, b"a\xff\nb\n" + b"c\xff\n" * 9, b"1\n2\n")
    (tmp_path / "v.tsv").write_bytes(b"no tab\nx\ty")
    data = FilesData(
        train=TWO_FILES, valid=Parallel(tsv=("v.tsv",)), test=Parallel(jsonl=("$SACCADE_DATA/x", "missing", "empty"))
    )
    (tmp_path / "empty").write_bytes(b"")
    report = check(data, tmp_path)
    assert [problem.split(" ")[:2] for problem in report.problems] == [
        ["train:", "s:1:"],
        ["train:", "s"],
        ["valid:", "v.tsv:1:"],
        ["test:", "$SACCADE_DATA/x:"],
        ["test:", "missing:"],
    ]
    assert report.splits["valid"].counts.kept == 1
    assert not report.usable
    mended = check(data.model_copy(update={"on_bad": "repair", "trim": True, "test": None}), tmp_path)
    assert mended.usable
    (tmp_path / "v.tsv").write_bytes(b"\t\n")
    assert "no usable sentence pair" in check(data, tmp_path).problems[-3]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_length_statistics_are_nearest_rank_percentiles(lengths: list[int]) -> None:
    got = Lengths.of(Counter(lengths))
    assert got.p50 == np.percentile(lengths, 50, method="inverted_cdf")
    assert got.p99 == np.percentile(lengths, 99, method="inverted_cdf")
    assert got.mean == pytest.approx(np.mean(lengths))
    assert got.max == max(lengths)


def test_a_path_that_is_no_text_is_told_in_words() -> None:
    with pytest.raises(UsageError, match="source is 5; it must be a list, or one path where paths are wanted"):
        config.parse(Parallel, {"source": 5, "target": "train.de"}, "recipe")
