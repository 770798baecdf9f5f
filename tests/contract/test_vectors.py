"""Pretrained word vectors in every task of words but tagging, whose own are in test_tagging.py."""

from pathlib import Path

import pytest
import torch
from torch import nn

import saccade
from saccade import checkpoint, config
from saccade.errors import UsageError
from saccade.recipe import parse_recipe
from saccade.text import TextPair
from saccade.types import UNKNOWN
from tests.support.tiny import recipe, write_corpus

VECTORS = "a 1 2 3 4 5 6 7 8\nelsewhere 8 7 6 5 4 3 2 1\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """One letter a word."""
    folder = write_corpus(tmp_path, shortest=2)
    for path in folder.iterdir():
        path.write_text("".join(" ".join(line) + "\n" for line in path.read_text().splitlines()))
    (folder / "vectors.txt").write_text(VECTORS)
    return folder


def row(run: Path, word: str) -> list[float]:
    model = saccade.load(run, "cpu").engine
    (number,) = model.text.source.encode(word)
    rows: list[float] = model.model.encoder.embed.table.weight[number].tolist()
    return rows


def test_a_translators_source_begins_with_them(corpus: Path, tmp_path: Path) -> None:
    """A word of the tokenizer has its vector with and without a space before it; frozen it stays."""
    text = "text={kind: word}"
    frozen = recipe(corpus, "lstm", text, f"model.vectors={{path: {corpus / 'vectors.txt'}, freeze: true}}")
    saccade.train(frozen, tmp_path / "frozen", device="cpu")
    assert row(tmp_path / "frozen", "a") == row(tmp_path / "frozen", " a") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "vectors for 2 of 16 words" in (tmp_path / "frozen" / "README.md").read_text()
    free = recipe(corpus, "lstm", text, f"model.vectors.path={corpus / 'vectors.txt'}", "train.updates=2")
    saccade.train(free, tmp_path / "free", device="cpu")
    assert row(tmp_path / "free", " a") == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8], abs=0.1)
    assert row(tmp_path / "free", " a") != [1, 2, 3, 4, 5, 6, 7, 8]
    assert saccade.verify(tmp_path / "free").ok
    (corpus / "vectors.txt").unlink()
    more = recipe(corpus, "lstm", text, f"model.vectors.path={corpus / 'vectors.txt'}", "train.updates=4")
    assert saccade.train(more, tmp_path / "free", resume=True, device="cpu").finished.update == 4


def test_a_transformers_vectors_are_read_as_they_are(corpus: Path, tmp_path: Path) -> None:
    """It multiplies them by √width when it reads them: in the table they are as much less."""
    settings = (f"model.vectors={{path: {corpus / 'vectors.txt'}, freeze: true}}", "text={kind: word}")
    saccade.train(recipe(corpus, "transformer", *settings, "train.updates=1"), tmp_path / "run", device="cpu")
    assert [8**0.5 * x for x in row(tmp_path / "run", " a")] == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8], rel=1e-5)


OTHERS = {
    "language-model": "{decoder: {kind: lstm, width: 8}}",
    "masked-language-model": "{encoder: {kind: lstm, width: 8}, tie: none}",
    "classify": "{kind: sequence, encoder: {kind: bag, width: 8}, pooling: mean}",
    "classify, hierarchical": (
        "{kind: hierarchical, words: {encoder: {kind: gru, width: 8}}, sentences: {encoder: {kind: gru, width: 8}}}"
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks_begin_with_them(name: str, corpus: Path, tmp_path: Path) -> None:
    """Frozen; of words that the file has, with and without a space before them."""
    task = name.partition(",")[0]
    lines = (corpus / "train.src").read_text().splitlines()
    (corpus / "labelled.tsv").write_text("".join(f"{'xy'[i % 2]}\t{line}\n" for i, line in enumerate(lines)))
    data = "{kind: text, train: train.src, valid: valid.src}"
    if task == "classify":
        data = "{kind: files, train: {tsv: labelled.tsv}, valid: {tsv: labelled.tsv}}"
    vectors = "vectors: {path: vectors.txt, freeze: true}"
    train = "{updates: 2, batch_tokens: 128, validate_every: 2, workers: 0}"
    model_tree = f"{OTHERS[name][:-1]}, {vectors}}}"
    text = f"{{task: {task}, data: {data}, text: {{kind: word}}, model: {model_tree}, train: {train}}}"
    tree = config.parse_yaml(text, name)
    run = saccade.train(parse_recipe(tree), tmp_path / "run", device="cpu", base=corpus).path
    model = checkpoint.load(run, torch.device("cpu")).model
    (table,) = (
        part.weight for part in model.modules() if isinstance(part, nn.Embedding) and not part.weight.requires_grad
    )
    tokenizer = TextPair.load(run).source
    assert table[tokenizer.encode(" a")[0]].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "vectors for " in (run / "README.md").read_text()


@pytest.mark.parametrize(
    ("cut", "size", "known"), [("signs", 100, 2), ("spaces", 100, 2), ("spaces", 13, 1), ("signs", 9, 0)]
)
def test_a_classifier_gives_ids_to_words_that_only_the_file_has(
    corpus: Path, tmp_path: Path, cut: str, size: int, known: int
) -> None:
    """As many as there is room for, behind the words of the training text, with their vectors."""
    lines = (corpus / "train.src").read_text().splitlines()
    (corpus / "labelled.tsv").write_text("".join(f"{'xy'[i % 2]}\t{line}\n" for i, line in enumerate(lines)))
    (corpus / "vectors.txt").write_text(
        VECTORS + "beyond 1 1 1 1 1 1 1 1\nelsewhere 0 0 0 0 0 0 0 0\nlast 2 2 2 2 2 2 2 2\n"
    )
    text = f"""
        task: classify
        data: {{kind: files, train: {{tsv: labelled.tsv}}, valid: {{tsv: labelled.tsv}}}}
        text: {{kind: word, cut: {cut}, size: {size}, lowercase: true}}
        model:
          kind: sequence
          encoder: {{kind: lstm, width: 8}}
          vectors: {{path: vectors.txt, freeze: true, more_words: 4}}
        train: {{updates: 2, batch_tokens: 128, validate_every: 2, workers: 0}}
    """
    run = saccade.train(parse_recipe(config.parse_yaml(text, "more")), tmp_path / "run", device="cpu", base=corpus).path
    tokenizer, before = TextPair.load(run).source, " " if cut == "signs" else ""
    model = checkpoint.load(run, torch.device("cpu")).model
    (table,) = (part.weight for part in model.modules() if isinstance(part, nn.Embedding))
    found = [ids for word in ("elsewhere", "Beyond", "last") if (ids := tokenizer.encode(before + word)) != [UNKNOWN]]
    assert len(found) == known  # the file's last word is its fifth
    assert [table[ids[0]].tolist() for ids in found] == [[8, 7, 6, 5, 4, 3, 2, 1], [1] * 8][:known]
    assert tokenizer.size <= size
    assert all(number >= tokenizer.size - known for (number,) in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("text={kind: char}",), "model.vectors has vectors of words, but text.kind is char"),
        (("text={kind: word}", "model.vectors.more_words=3"), "only tagging and classification give ids"),
        (
            ("text={kind: word}", "model.vectors.freeze=true", "model.tie=all", "model.decoder.attention={}"),
            "vectors.freeze holds the token vectors, but they are tied to the output",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(corpus: Path, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as error:
        recipe(corpus, "lstm", "model.vectors={path: vectors.txt}", *settings)
    assert message in str(error.value)
