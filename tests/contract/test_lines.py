"""One line in, one line out: any bytes, in order, empty stays empty; only a line feed ends a line."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cli import saccade_command, shake, write_corpus
from tests.support.fuzz import as_read, odd_lines

SEARCHES = (["--beam", "1"], ["--beam", "4"])


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights over characters and bytes: it writes line breaks, NUL and broken UTF-8 itself."""
    folder = tmp_path_factory.mktemp("wild")
    done = saccade_command("train", write_corpus(folder), "-q", "--out", folder / "run")
    assert done.exit_code == 0, done.stderr
    shake(folder / "run", by=1.5, likes=b"\n\r\x00\xc3")
    return folder / "run"


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
