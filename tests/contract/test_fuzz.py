"""10,000 lines of trouble in, 10,000 answers out, in order: every verb that reads lines, from stdin and from a file.

Where an answer costs much, as in n-best lists, scores and texts, it is every third of them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import saccade
from tests.support import blanks, labels, language, tagging
from tests.support.cli import saccade_command, shake, write_corpus
from tests.support.fuzz import as_read, fuzzed

COUNT = 10_000
LINES = fuzzed(COUNT)
TEXTS = as_read(LINES)


def _translator(folder: Path) -> None:
    """With random weights over characters and bytes: it writes line breaks, NUL and broken UTF-8 itself."""
    done = saccade_command("train", write_corpus(folder), "-q", "--out", folder / "run")
    assert done.exit_code == 0, done.stderr
    shake(folder / "run", by=1.5, likes=b"\n\r\x00\xc3")


MADE: dict[str, Callable[[Path], object]] = {
    "translate": _translator,
    "tag": lambda folder: saccade.train(
        tagging.tag_recipe(tagging.write_tagged(folder), "lstm, cnn, crf"), folder / "run", device="cpu"
    ),
    "classify": lambda folder: saccade.train(
        labels.recipe(labels.write_labelled_corpus(folder)), folder / "run", device="cpu"
    ),
    "fill": lambda folder: saccade.train(blanks.recipe(blanks.write_text(folder)), folder / "run", device="cpu"),
    "language": lambda folder: saccade.train(language.recipe("gru"), folder / "run", device="cpu"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def run_of(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            MADE[kind](folder)
            made[kind] = folder / "run"
        return made[kind]

    return run_of


def answers(*arguments: str | Path, lines: list[bytes] = LINES, file: Path | None = None) -> list[bytes]:
    """What was answered, cut at line feeds alone; from `file` if it is given, else from stdin."""
    content = b"\n".join(lines) + b"\n"
    if file is not None:
        file.write_bytes(content)
    done = saccade_command(*arguments, stdin=b"" if file is not None else content)
    assert done.exit_code == 0, done.output[-2000:]
    assert "Traceback" not in done.stderr
    assert "not valid UTF-8" in done.stderr
    assert done.stdout_bytes.endswith(b"\n")
    return done.stdout_bytes[:-1].split(b"\n")


def objects(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_there_is_trouble_of_every_kind() -> None:
    assert len(LINES) == COUNT
    assert sum(len(line) >= 1_000_000 for line in LINES) >= 4
    assert fuzzed(COUNT) == LINES, "the same ones each time"
    joined = b"\n".join(LINES)
    for text in ("\x00", "\r", "\t", "\x85", "\u2028", "\u2029", "\x0b", "\ufeff", "\u202e", "👩", "</s>", "\x1b["):
        assert text.encode() in joined, repr(text)
    assert b"[" * 100_000 in joined
    assert b"\xed\xa0\x80" in joined
    assert not any(b"\n" in line for line in LINES)


SHORT = ("--max-length", "4", "--batch-tokens", "8192")


def test_translate_answers_each_line_in_its_place(folders: Callable[[str], Path]) -> None:
    rows = objects(answers("translate", folders("translate"), "--beam", "2", "-f", "jsonl", *SHORT))
    assert [row["source"] for row in rows] == TEXTS
    assert not any(mark in row["text"] for row in rows for mark in "\r\n")


def test_translate_writes_a_line_a_line(folders: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "in"
    found = answers("translate", folders("translate"), "-i", file, "--beam", "1", *SHORT, file=file)
    assert len(found) == COUNT
    assert not any(answer for answer, text in zip(found, TEXTS, strict=True) if not text)


def test_translate_numbers_the_lines_of_n_best_lists(folders: Callable[[str], Path]) -> None:
    lines = LINES[::3]
    found = answers("translate", folders("translate"), "--beam", "2", "-f", "nbest", *SHORT, lines=lines)
    cells = [line.split(b" ||| ") for line in found]
    assert {len(row) for row in cells} == {4}
    numbers = [int(row[0]) for row in cells]
    assert numbers == sorted(numbers)
    assert sorted(set(numbers)) == list(range(len(lines)))


def test_tag_loses_no_character(folders: Callable[[str], Path]) -> None:
    rows = objects(answers("tag", folders("tag"), "-f", "jsonl", lines=LINES[::3]))  # all of them: below
    assert [row["text"] for row in rows] == TEXTS[::3]
    for row in rows:
        assert "".join(word["text"] for word in row["words"]) == "".join(row["text"].split())


@pytest.mark.parametrize("format_", ["text", "conll"])
def test_tag_writes_a_sentence_a_line(folders: Callable[[str], Path], format_: str, tmp_path: Path) -> None:
    file = tmp_path / "in"
    found = answers("tag", folders("tag"), "-i", file, "-f", format_, "--words", file=file)
    assert (found.count(b"") if format_ == "conll" else len(found)) == COUNT


def test_classify_answers_each_line_in_its_place(folders: Callable[[str], Path]) -> None:
    rows = objects(answers("classify", folders("classify"), "-f", "jsonl"))
    assert [row["text"] for row in rows] == TEXTS


@pytest.mark.parametrize("format_", ["text", "tsv"])
def test_classify_writes_a_label_a_line(folders: Callable[[str], Path], format_: str, tmp_path: Path) -> None:
    file = tmp_path / "in"
    found = answers("classify", folders("classify"), "-i", file, "-f", format_, file=file)
    assert len(found) == COUNT
    assert {line.split(b"\t")[0] for line in found} <= {b"positive", b"negative"}
    assert {line.count(b"\t") for line in found} == {int(format_ == "tsv")}


def test_fill_answers_each_line_in_its_place(folders: Callable[[str], Path], tmp_path: Path) -> None:
    rows = objects(answers("fill", folders("fill"), "-f", "jsonl"))
    assert [row["source"] for row in rows] == TEXTS
    file = tmp_path / "in"
    found = answers("fill", folders("fill"), "-i", file, file=file)
    assert len(found) == COUNT
    for before, after in zip(TEXTS, found, strict=True):
        assert "[MASK]" in before or after.decode() == before, "a line without blanks stays as it is"


# Every token of a text is scored, however long it is: of the long lines the beginnings will do.
BEGINNINGS = [line[:2000] for line in LINES[::3]]


def test_score_answers_each_line_in_its_place(folders: Callable[[str], Path], tmp_path: Path) -> None:
    run = folders("language")
    rows = objects(answers("score", run, "-", "-f", "jsonl", lines=BEGINNINGS))
    assert len(rows) == len(BEGINNINGS)
    assert [len(row["tokens"]) == 1 for row in rows] == [not text for text in as_read(BEGINNINGS)]
    file = tmp_path / "in"
    found = answers("score", run, file, lines=BEGINNINGS, file=file)
    assert [float(line) for line in found] == pytest.approx([row["log_probability"] for row in rows], abs=1e-3)


def test_generate_answers_each_prompt_in_its_place(folders: Callable[[str], Path]) -> None:
    lines = [line[:40] for line in LINES[::3]]
    found = answers("generate", folders("language"), "-i", "-", "--max-tokens", "1", "-f", "jsonl", lines=lines)
    assert [row["prompt"] for row in objects(found)] == as_read(lines)
