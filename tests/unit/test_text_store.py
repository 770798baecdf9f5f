"""Text as tokens on disk: every token in its place, counted, found again."""

from pathlib import Path

import numpy as np
import pytest

from saccade.data import text_store
from saccade.data.columns import writing
from saccade.data.files import Counts
from saccade.data.plain_text import Stretch
from saccade.data.text_store import TextStore, write_text
from saccade.errors import UsageError
from saccade.text import CharText, train_tokenizers
from saccade.types import END

PARTS = [
    Stretch("a näive dog"),
    Stretch(""),
    Stretch("no end\n", ended=False),
    Stretch("日本", ended=False),
    Stretch(""),
]
TOKENIZER = train_tokenizers(CharText(size=280), [part.text for part in PARTS], (), seed=1).source


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_what_is_written_is_there(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_store, "CHUNK", chunk)
    counts = Counts(lines=5, kept=5)
    store = write_text(tmp_path / "train", PARTS, TOKENIZER, counts=counts, frames=lambda text: text.count("n"))
    rows = [[*TOKENIZER.encode(part.text), *[END][: part.ended]] for part in PARTS]
    assert store.text.tolist() == [each for row in rows for each in row]
    assert store.text.dtype == np.uint16
    assert [store.stretch(i).tolist() for i in range(len(store))] == rows
    assert store.measured == {
        "tokens": len(store.text), "words": 3 + 1 + 1 + 3 + 1 + 1, "characters": 12 + 1 + 7 + 2 + 1,
        "bytes": 13 + 1 + 7 + 6 + 1, "ends": 3, "frames": 3,
    }  # fmt: skip
    again = TextStore.open(tmp_path / "train")
    again.verify()
    assert again.fingerprint == store.fingerprint
    assert again.counts == counts
    facts = again.columns.facts
    assert (facts["rows"], facts["unit"], facts["tokens"]) == (5, "lines", {"text": len(store.text)})


def test_long_lines_are_not_held_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_store, "CHUNK_CHARACTERS", 10)
    one = write_text(tmp_path / "one", PARTS, TOKENIZER, counts=Counts())
    monkeypatch.undo()
    assert write_text(tmp_path / "other", PARTS, TOKENIZER, counts=Counts()).fingerprint == one.fingerprint


def test_nothing_and_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the valid text is empty. Check the files that data.valid names"):
        write_text(tmp_path / "valid", [], TOKENIZER, counts=Counts())
    assert not (tmp_path / "valid").exists()
    with writing(tmp_path / "pairs", {"source": "uint16"}) as writer:
        writer.facts = {"counts": Counts().to_dict()}
    with pytest.raises(UsageError, match="is no store of a text"):
        TextStore.open(tmp_path / "pairs")
