"""Input that does not end: what is held stays small, answers come as lines do, and in their order."""

import io
import json
import sys
import threading
from pathlib import Path

import pytest

import saccade
from saccade.cli.streams import READ_AT_ONCE, Input
from tests.support import language
from tests.support.cli import saccade_command, saccade_process, write_corpus

LINES, EVERY = 80_000, 1000
MOST_GROWTH = 12 << 20
"""Bytes; all the lines with their answers would take some 50 MB."""


class Endless(io.RawIOBase):
    """Numbered lines without an end; knows how much of them was asked for."""

    def __init__(self) -> None:
        self.given, self._number, self._rest = 0, 0, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        while len(self._rest) < len(buffer):
            self._rest += b"".join(b"line %d\n" % number for number in range(self._number, self._number + 1000))
            self._number += 1000
        size = len(buffer)
        buffer[:], self._rest = self._rest[:size], self._rest[size:]
        self.given += size
        return size


def test_no_more_is_read_than_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    chunks = Input(None).chunks(lines=50)
    number = handed = 0
    for _ in range(2000):
        for line in next(chunks):
            assert line == f"line {number}"
            number += 1
            handed += len(line) + 1
        assert endless.given - handed <= READ_AT_ONCE + io.DEFAULT_BUFFER_SIZE
    assert number == 100_000


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="how much memory a process holds is read from /proc")
def test_memory_stays_where_it_is(tmp_path: Path) -> None:
    done = saccade_command("train", write_corpus(tmp_path), "-q", "--out", tmp_path / "run", "--set", "train.updates=1")
    assert done.exit_code == 0, done.stderr
    process = saccade_process("translate", tmp_path / "run", "--beam", "1", "--max-length", "3", "--device", "cpu")
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, block = process.stdin, b"ab cd\n" + b"\n" * (EVERY - 1)

    def feed() -> None:
        for _ in range(LINES // EVERY):
            stdin.write(block)
        stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    answered, warm = 0, 0
    while some := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
        answered += some.count(b"\n")
        if not warm and answered > LINES // 5:
            warm = resident(process.pid)
        if answered < LINES:
            last = resident(process.pid)
    feeder.join()
    assert process.wait() == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    assert answered == LINES
    assert last - warm < MOST_GROWTH


def test_prompts_are_gone_on_with_as_they_come(tmp_path: Path) -> None:
    """And draw what they would draw, had all been there at once."""
    run = saccade.train(language.recipe("gru"), tmp_path / "run", device="cpu").path
    options = ("-i", "-", "--max-tokens", "4", "-f", "jsonl", "--device", "cpu")
    process = saccade_process("generate", run, *options)
    assert process.stdin is not None
    assert process.stdout is not None
    rows = []
    for prompt in ("the", "", "a\u2028b"):
        process.stdin.write(f"{prompt}\n".encode())
        process.stdin.flush()
        rows.append(json.loads(process.stdout.readline()))  # comes before the next prompt is written
        assert rows[-1]["prompt"] == prompt
    process.communicate()
    assert process.returncode == 0
    together = saccade_command("generate", run, *options, stdin="the\n\na\u2028b\n".encode())
    texts = [[each["text"] for each in json.loads(line)["samples"]] for line in together.stdout_bytes.split(b"\n")[:-1]]
    assert [[each["text"] for each in row["samples"]] for row in rows] == texts
