"""The bAbI tasks (Weston et al. 2016): a story and a question in, the answer out.

A file is a row of stories, whose lines are numbered from 1; a line with tabs is a question, its answer and the numbers
of the lines that support it. A source is the story up to the question, without the questions before it, and then the
question. Of an answer in parts, such as `apple,milk`, each part is a word: `apple, milk`.
"""

import re
import tarfile
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saccade.config import Names, Section
from saccade.data.counts import Counts
from saccade.data.files import File, Pair, locate
from saccade.data.parallel import OnLong
from saccade.errors import UsageError

TASKS = 20
_NAME = re.compile(r"(?:.*/)?qa(\d+)_[^/]*_(train|test)\.txt")
_LINE = re.compile(r"(\d+) (.*)")


class BabiData(Section):
    """Questions about short stories: the twenty bAbI tasks."""

    kind: Literal["babi"] = "babi"
    """The bAbI tasks."""
    folder: Annotated[str, Names.FILE] = "$SACCADE_DATA/babi-qa/en.tar.gz"
    """The folder with files such as qa1_single-supporting-fact_train.txt, or a tar file of it."""
    tasks: tuple[Annotated[int, Field(ge=1, le=TASKS)], ...] = tuple(range(1, TASKS + 1))
    """Which of the tasks, all trained together."""
    sentences: Annotated[int, Field(ge=1)] = 130
    """How many sentences of a story are read at most: the latest."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The share of the training stories that is not trained on but validated on."""
    max_length: Annotated[int, Field(ge=1)] = 1024
    """The most tokens a side may have, the end mark not counted."""
    on_long: OnLong = "drop"
    """What happens to a longer training pair: `cut` it, `drop` it, or `refuse` to train."""


def questions(data: BabiData, split: str, *, base: Path, counts: Counts) -> Iterator[Pair]:
    """The split's questions, task by task."""
    part = "test" if split == "test" else "train"
    files = _files(locate(data.folder, base))
    for task in data.tasks:
        if (task, part) not in files:
            raise UsageError(
                f"{data.folder}: has no file of task {task} for {part}, such as qa{task}_…_{part}.txt. Leave the task "
                "out of data.tasks, or put the file there."
            )
        name, text = files[task, part]
        yield from _of_file(data, split, name, text, counts)


def _of_file(data: BabiData, split: str, name: str, text: str, counts: Counts) -> Iterator[Pair]:
    story: list[str] = []
    number_of_story = 0
    for number, line in enumerate(text.split("\n"), start=1):
        found = _LINE.fullmatch(line.rstrip("\r"))
        if found is None:
            if line.strip():
                raise UsageError(f"{name}:{number}: a line of a story begins with its number; this is {line[:40]!r}.")
            continue
        if found[1] == "1":
            story, number_of_story = [], number_of_story + 1
        said, *answer = found[2].split("\t")
        if not answer:
            story.append(said.strip())
            continue
        counts.lines += 1
        if split != "test" and _held_out(f"{name} {number_of_story}", data.hold_out) != (split == "valid"):
            counts.other_split += 1
            continue
        counts.kept += 1
        source = " ".join([*story[-data.sentences :], said.strip()])
        yield Pair(source, ", ".join(answer[0].strip().split(",")), f"{name}:{number}")


def _held_out(story: str, share: float) -> bool:
    return int.from_bytes(blake2b(story.encode(), digest_size=8).digest(), "big") < share * 2**64


def _files(folder: File) -> dict[tuple[int, str], tuple[str, str]]:
    """(task, train or test) → name and text; of a tar file only what has such a name is read, and nothing unpacked."""
    try:
        if folder.path.is_dir():
            found = {path.name: path.read_bytes() for path in sorted(folder.path.glob("qa*.txt"))}
        else:
            found = _packed(folder.path)
    except (OSError, EOFError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{folder.name}: cannot be read: {reason.rstrip('.')} ({folder.path}).") from None
    named = ((name, _NAME.fullmatch(name), raw) for name, raw in found.items())
    return {(int(fits[1]), fits[2]): (name, raw.decode("utf-8", errors="replace")) for name, fits, raw in named if fits}


def _packed(path: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as packed:
        for member in packed:
            if member.isfile() and _NAME.fullmatch(member.name) and (stream := packed.extractfile(member)):
                found[member.name] = stream.read()
    return found
