"""Plain text from files: every byte accounted for; what ends in END; music as text."""

import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.config import parse
from saccade.data.chorales import ChoralesData, frames_of, line_of, pieces
from saccade.data.files import Counts
from saccade.data.grammar import GrammarData, sentences
from saccade.data.plain_text import Ends, Stretch, TextData, beginning, read_text, stretches
from saccade.data.texts import ends_of, has_split, split_text
from saccade.errors import UsageError

line_lists = st.lists(
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=6), max_size=8
)
every_end = st.sampled_from(["line", "paragraph", "file"])


def read(folder: Path, *names: str, ends: Ends = "line", on_bad: Any = "refuse") -> tuple[list[Stretch], Counts]:
    counts = Counts()
    return list(read_text(names, base=folder, ends=ends, on_bad=on_bad, counts=counts)), counts


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_files_are_read_one_behind_the_other(tmp_path: Path, pack: Any) -> None:
    (tmp_path / "a").write_bytes(pack(b"\xef\xbb\xbfone two\r\n\nth\0ree"))
    (tmp_path / "b").write_bytes(pack(b"vier\n"))
    got, counts = read(tmp_path, "a", "b")
    assert got == [Stretch("one two"), Stretch(""), Stretch("th\0ree"), Stretch("vier")]
    assert (counts.lines, counts.kept, counts.bom, counts.carriage_returns, counts.nul) == (4, 4, 1, 1, 1)
    got, _ = read(tmp_path, "a", "b", ends="file")
    assert got == [Stretch("one two\n", ended=False), Stretch("\n", ended=False), Stretch("th\0ree\n", ended=False),
                   Stretch(""), Stretch("vier\n", ended=False), Stretch("")]  # fmt: skip


def test_paragraphs_are_lines_joined_and_end_with_their_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n\n one\n two \n\t\n\nthree\n")
    (tmp_path / "b").write_text("four\n")
    got, _ = read(tmp_path, "a", "b", ends="paragraph")
    assert got == [Stretch("one two"), Stretch("three"), Stretch("four")]


def test_bad_bytes_are_refused_with_their_place_or_mended(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(UsageError, match=r"t:2: byte 3 of the line \(0xef\) is not valid UTF-8.*iconv -f latin1"):
        read(tmp_path, "t")
    got, counts = read(tmp_path, "t", on_bad="repair")
    assert got == [Stretch("fine"), Stretch("na\ufffdve")]
    assert (counts.invalid_utf8, counts.kept) == (1, 2)
    with pytest.raises(UsageError, match="gone: cannot be read"):
        read(tmp_path, "gone")


def test_parts_of_one_text_are_its_splits(tmp_path: Path) -> None:
    """Of 20 characters, ends counted, the first 13 (0.65): a line belongs to the part that it begins in."""
    (tmp_path / "a").write_text("0123\n5678\n")
    (tmp_path / "b").write_text("0123\n5678")
    tree = {"train": ["a", "b"], "parts": {"train": [0, 0.65], "valid": [0.65, 1], "test": [0.65, 1]}}
    data, counts = parse(TextData, tree), Counts()
    assert list(split_text(data, "train", base=tmp_path, counts=counts)) == [*map(Stretch, ("0123", "5678", "0123"))]
    assert (counts.lines, counts.kept, counts.other_split) == (4, 3, 1)
    for split in ("valid", "test"):
        assert list(split_text(data, split, base=tmp_path, counts=Counts())) == [Stretch("5678")]
    data = parse(TextData, {"train": ["a", "b"], "parts": {"train": [0, 0.65], "valid": [0.65, 1]}, "ends": "file"})
    got = list(split_text(data, "train", base=tmp_path, counts=Counts()))
    assert "".join(part.text for part in got) == "0123\n5678\n0123\n"
    assert not has_split(data, "test")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(line_lists, st.floats(0.05, 0.95))
def test_two_parts_are_the_whole(tmp_path: Path, lines: list[str], share: float) -> None:
    (tmp_path / "t").write_bytes("".join(line + "\n" for line in lines).encode())
    data = parse(TextData, {"train": "t", "parts": {"train": [0, share], "valid": [share, 1]}})
    assert data.parts is not None
    both = [
        list(read_text(["t"], base=tmp_path, ends="line", on_bad="refuse", counts=Counts(), part=part))
        for part in (data.parts.train, data.parts.valid)
    ]
    assert both[0] + both[1] == read(tmp_path, "t")[0]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({}, "valid is not given: name the files, or say by parts"),
        ({"valid": "v", "parts": {"train": [0, 0.9], "valid": [0.9, 1]}}, "leave valid and test out"),
        ({"parts": {"train": [0, 0.9], "valid": [0.8, 1]}}, "what is scored must not be learnt"),
        ({"parts": {"train": [0.1, 1], "valid": [0, 0.1], "test": [0.5, 0.6]}}, "what is scored must not be learnt"),
        ({"parts": {"train": [0, 0.9], "valid": [1, 0.9]}}, "a part ends behind its beginning"),
        ({"parts": {"train": [0, 0.9], "valid": [0.9, 1.1]}}, "less than or equal to 1"),
    ],
)
def test_splits_that_make_no_sense_are_refused(tree: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(TextData, {"train": "t", **tree})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(line_lists)
def test_nothing_is_lost_where_lines_or_files_end(lines: list[str]) -> None:
    assert [part.text for part in stretches(lines, "line")] == lines
    whole = list(stretches(lines, "file"))
    assert "".join(part.text for part in whole) == "".join(line + "\n" for line in lines)
    assert sum(part.ended for part in whole) == (1 if lines else 0)


@given(line_lists, every_end)
def test_a_prompt_is_the_beginning_of_the_text(lines: list[str], ends: Ends) -> None:
    """Read so far, it is what reading the whole text gives; but for what is still open."""
    text = "\n".join([*lines, "open"])
    got = beginning(text, ends)
    assert not got[-1].ended
    whole = [part for part in stretches([*lines, "open"], ends) if part.text]
    mine = [part for part in got if part.text]
    assert [part.text for part in mine[:-1]] == [part.text for part in whole[:-1]]
    assert mine[-1].text == whole[-1].text.removesuffix("\n")


def test_the_sections_say_where_text_comes_from(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a\nb\n")
    data = parse(TextData, {"train": "t", "valid": ["t", "t"], "ends": "file"})
    assert ends_of(data) == "file"
    assert [has_split(data, split) for split in ("train", "valid", "test")] == [True, True, False]
    assert len(list(split_text(data, "valid", base=tmp_path, counts=Counts()))) == 6
    with pytest.raises(UsageError, match=r"data.test is not given"):
        split_text(data, "test", base=tmp_path, counts=Counts())
    made, counts = GrammarData(test=5), Counts()
    got = list(split_text(made, "test", base=tmp_path, counts=counts))
    assert got == [Stretch(text) for text in sentences(1, "test", 5)]
    assert counts.kept == 5
    assert has_split(made, "test")


# ---- music


SONG = {"train": [[[60, 64, 67], [67, 60], []], [[21]]], "valid": [[[108, -1, -1, -1]]], "test": []}


def test_music_is_chords_between_bars(tmp_path: Path) -> None:
    (tmp_path / "song.json.gz").write_bytes(gzip.compress(json.dumps(SONG).encode()))
    data, counts = ChoralesData(file="song.json.gz"), Counts()
    got = list(pieces(data, "train", base=tmp_path, counts=counts))
    assert got == ["67 64 60 | 67 60 | |", "21 |"]
    assert [frames_of(line) for line in got] == [3, 1]
    assert counts.kept == 2
    assert list(pieces(data, "valid", base=tmp_path, counts=counts)) == ["108 | "[:5]]
    assert list(split_text(data, "test", base=tmp_path, counts=counts)) == []


def test_training_pieces_may_be_read_higher_and_lower(tmp_path: Path) -> None:
    (tmp_path / "song.json").write_text(json.dumps(SONG))
    data = ChoralesData(file="song.json", transpose=1)
    assert list(pieces(data, "train", base=tmp_path, counts=Counts()))[:3] == [
        "66 63 59 | 66 59 | |", "67 64 60 | 67 60 | |", "68 65 61 | 68 61 | |"]  # fmt: skip
    assert len(list(pieces(data, "valid", base=tmp_path, counts=Counts()))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "must hold an object of lists"),
        ('{"valid": []}', "has no 'train'; there are valid"),
        ('{"train": [[[300]]]}', r"train piece 1, frame 1: is \[300\]; a frame is a list of MIDI pitches"),
        ('{"train": [[[60], [true]]]}', "frame 2"),
        ('{"train": [[60]]}', "frame 1: is 60"),
        ('{"train": [5]}', "frame 1: is None"),
    ],
)
def test_music_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "song.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        list(pieces(ChoralesData(file="song.json"), "train", base=tmp_path, counts=Counts()))


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA is not set")
def test_the_chorales_have_the_frames_that_are_told_of() -> None:
    name = "$SACCADE_DATA/jsb-chorales/jsb-chorales-quarter.json.gz"
    if not Path(os.environ["SACCADE_DATA"], "jsb-chorales").is_dir():
        pytest.skip("the chorales are not there")
    told = {"train": (229, 13_807), "valid": (76, 4_602), "test": (77, 4_725)}
    for split, (count, frames) in told.items():
        got = list(pieces(ChoralesData(file=name), split, base=Path(), counts=Counts()))  # type: ignore[arg-type]
        assert (len(got), sum(map(frames_of, got))) == (count, frames)
        assert line_of([[60]], "") == "60 |"


def test_a_part_in_which_no_line_begins_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("short\n" + "long " * 40 + "\n", encoding="utf-8")
    data = parse(TextData, {"train": "a", "parts": {"train": [0, 0.5], "valid": [0.5, 1]}})
    assert len(list(split_text(data, "train", base=tmp_path, counts=Counts()))) == 2
    with pytest.raises(UsageError, match=r"data\.parts\.valid is \[0\.5, 1\.0\]: no line begins there"):
        list(split_text(data, "valid", base=tmp_path, counts=Counts()))
