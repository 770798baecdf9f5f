"""One line in, one line out: any bytes, in order, empty stays empty; only a line feed ends a line."""

import json
import random
import string
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cli import saccade_command, shake, write_corpus

SEARCHES = (["--beam", "1"], ["--beam", "4"])


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights over characters and bytes: it writes line breaks, NUL and broken UTF-8 itself."""
    folder = tmp_path_factory.mktemp("wild")
    done = saccade_command("train", write_corpus(folder), "-q", "--out", folder / "run")
    assert done.exit_code == 0, done.stderr
    shake(folder / "run", by=1.5, likes=b"\n\r\x00\xc3")
    return folder / "run"


def odd_lines() -> Iterator[bytes]:
    """A few thousand lines that break something somewhere; the same each time."""
    draw = random.Random(7)
    yield from (b"", b" ", b"\t", b"   \t ", b"\r", b"\r\r", b"a\rb", b"\x00", b"a\x00b", b"\x00a", b"a\x00")
    yield from (bytes([byte]) for byte in range(256) if byte != 0x0A)
    yield from (bytes(pair) for pair in _pairs(draw, 500))
    yield from _scripts(draw)
    for separator in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\ufeff\u200d\u202e\u2066":
        yield f"before{separator}after".encode()
        yield separator.encode()
    for broken in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xff" * 50, b"\x1f\x8b\x08\x00"):
        yield broken
        yield b"ok " + broken + b" ok"
    yield "text as UTF-16".encode("utf-16-le")
    yield ("a" + "\u0301" * 1000).encode()
    yield "👩\u200d👩\u200d👧\u200d👦".encode() * 20
    yield unicodedata.normalize("NFD", "Ångström").encode()
    for text in ("<s>", "</s>", "<pad>", "<unk>", "<0x0A>", "▁a", "a@@ b", "##ing", "|||", "a ||| b", "\\n", "\\u0000"):
        yield text.encode()
    for text in (
        '{"a": "b"}',
        "[" * 5000,
        "<script>alert(1)</script>",
        "'; DROP TABLE x; --",
        "%s%n{0}",
        "\x1b[31mred",
    ):
        yield text.encode()
    for length in (1, 1023, 1024, 1025, 32_767, 32_769, 65_535, 65_536, 65_537, 300_000):
        yield b"a" * length
    yield b" " * 70_000
    yield "é".encode() * 70_000
    yield from (b"" for _ in range(300))
    yield from (draw.randbytes(draw.randint(1, 40)).replace(b"\n", b"") for _ in range(1500))


def _pairs(draw: random.Random, count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        first, second = draw.randrange(256), draw.randrange(256)
        if 0x0A not in (first, second):
            yield first, second


def _scripts(draw: random.Random) -> Iterator[bytes]:
    """Words from thirty blocks of Unicode, and letters of ASCII."""
    blocks = (
        0x00C0, 0x0370, 0x0400, 0x0530, 0x05D0, 0x0620, 0x0710, 0x0905, 0x0985, 0x0A05, 0x0A85, 0x0B85, 0x0C05, 0x0C85,
        0x0D05, 0x0D85, 0x0E01, 0x0E81, 0x0F40, 0x1000, 0x10D0, 0x1200, 0x13A0, 0x1780, 0x1820, 0x3041, 0x30A1, 0x4E00,
        0xAC00, 0x1F300,
    )  # fmt: skip
    for start in blocks:
        for _ in range(10):
            yield " ".join("".join(chr(start + draw.randrange(40)) for _ in range(6)) for _ in range(4)).encode()
    for _ in range(300):
        yield "".join(draw.choices(string.printable.replace("\n", ""), k=draw.randint(1, 60))).encode()


def as_read(lines: list[bytes]) -> list[str]:
    """What the line contract says a line is: without its end, bad bytes as U+FFFD."""
    if lines and lines[0].startswith(b"\xef\xbb\xbf"):
        lines = [lines[0][3:], *lines[1:]]
    return [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam"])
@pytest.mark.parametrize("last", [b"\n", b""], ids=["ended", "open"])
def test_every_odd_line_is_answered_in_its_place(wild: Path, search: list[str], last: bytes) -> None:
    lines = [*odd_lines(), b"the last"]
    assert len(lines) > 2900
    done = saccade_command(
        "translate", wild, "-f", "jsonl", "--max-length", "6", *search, stdin=b"\n".join(lines) + last
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout_bytes.endswith(b"\n")
    rows = [json.loads(line) for line in done.stdout_bytes[:-1].split(b"\n")]
    assert [row["source"] for row in rows] == as_read(lines)
    assert all(row["text"] == "" for row in rows if row["source"] == "")
    assert sum(bool(row["text"]) for row in rows) > 1500
    assert not any(mark in row["text"] for row in rows for mark in "\r\n")
    cut = {len(row["source"]) for row in rows if row["cut"]}
    assert {1025, 300_000} <= cut
    assert 1024 not in cut
    assert "not valid UTF-8" in done.stderr


def test_plain_text_has_as_many_lines_as_came_in(wild: Path) -> None:
    """Output is bytes to be split at line feeds; the model's own line breaks are not in it."""
    lines = [line for line in odd_lines() if len(line) < 1000]
    done = saccade_command("translate", wild, "--max-length", "30", "--beam", "1", stdin=b"\n".join(lines) + b"\n")
    outputs = done.stdout_bytes[:-1].split(b"\n")
    assert len(outputs) == len(lines)
    assert b"\r" not in done.stdout_bytes
    # The model did want to write line feeds, or the test would show nothing.
    tokens = [json.loads(line) for line in _jsonl(wild, lines[:400])]
    written = {token for row in tokens for each in row["hypotheses"] for token in each["tokens"]}
    assert {"<0A>", "<0D>"} <= written


def _jsonl(run: Path, lines: list[bytes]) -> list[bytes]:
    stdin = b"\n".join(lines) + b"\n"
    done = saccade_command("translate", run, "-f", "jsonl", "--max-length", "30", "--beam", "1", stdin=stdin)
    return done.stdout_bytes[:-1].split(b"\n")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from([b"", b"\r", b"a", b"\xff", b"\n"])).map(b"".join)))
def test_any_bytes_are_lines(wild: Path, content: bytes) -> None:
    done = saccade_command("translate", wild, "-f", "jsonl", "--beam", "1", "--max-length", "3", stdin=content)
    assert done.exit_code == 0, done.stderr
    lines = content.split(b"\n")
    expected = as_read(lines[:-1] if lines[-1] == b"" else lines)
    assert [json.loads(line)["source"] for line in done.stdout_bytes.split(b"\n")[:-1]] == expected


def test_blank_lines_stay_blank_lines(wild: Path) -> None:
    done = saccade_command("translate", wild, stdin=b"\n" * 100_000)
    assert done.stdout_bytes == b"\n" * 100_000


def test_arguments_that_are_no_text_are_answered(wild: Path) -> None:
    """The system hands over bytes that are no UTF-8 as lone surrogates."""
    done = saccade_command("translate", wild, "-f", "jsonl", "--max-length", "2", "caf\udce9", "", "a\nb")
    rows = [json.loads(line) for line in done.stdout_bytes.split(b"\n")[:-1]]
    assert [row["source"] for row in rows] == ["caf\ufffd", "", "a", "b"]
