"""The peer of Europarl's rows is given what our own models are given."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from torch import Tensor

from bench.peers import hugging_face as peer
from bench.peers.hugging_face import IGNORED, Batches
from bench.peers.hugging_face_models import network
from bench.prepared import prepared
from bench.row import Row, Setting, read_row, row_names
from bench.test_sets import read_sides
from saccade import config
from saccade.data.batching import Plan, collate
from saccade.data.files import Counts
from saccade.data.store import Store, write_store
from saccade.nn.masks import pad
from saccade.recipe import load_recipe
from saccade.tasks.translate import TranslateRecipe
from saccade.text import BpeText, train_tokenizers
from saccade.types import PAD, Tokens
from tests.support import tiny

PROGRAM = "bench.peers.hugging_face"
BESIDE = [(row, each) for row in map(read_row, row_names()) for each in row.settings if each.program == PROGRAM]


def _padded(tokens: Tokens) -> Tensor:
    return pad(tokens.ids, tokens.layout)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    pairs = [("a b c " * (1 + n % 5), "d e f g " * (1 + n % 3)) for n in range(40)]
    text = train_tokenizers(BpeText(size=300), [s for s, _ in pairs], [t for _, t in pairs], seed=1)
    return write_store(
        tmp_path / "store", pairs, text.source, text.target, max_length=99, on_long="refuse", counts=Counts()
    )


def test_the_peer_trains_on_our_batches_in_our_order(store: Store) -> None:
    plan = Plan(store.lengths, 64, seed=3)
    ours = [rows for epoch in range(9) for rows in (plan.epoch(epoch)[k] for k in range(len(plan.epoch(epoch))))]
    batches = Batches(store, plan, updates=len(plan.epoch(0)) + 2)
    assert len(batches) == len(plan.epoch(0)) + 2  # into the second epoch
    for number in range(len(batches)):
        given, batch = batches[number], collate(store, ours[number])
        source_BS, target_BT = _padded(batch.source), _padded(batch.target)
        assert given["input_ids"].equal(source_BS)
        assert given["attention_mask"].equal((source_BS != PAD).long())
        assert given["labels"].equal(target_BT.masked_fill(target_BT == PAD, IGNORED))
        counted = given["labels"] != IGNORED
        assert given["decoder_input_ids"][counted].equal(_padded(batch.decoder_input)[counted])


@pytest.mark.parametrize(("row", "setting"), BESIDE, ids=[row.name for row, _ in BESIDE])
def test_the_peer_stands_beside_a_model_that_it_can_be(row: Row, setting: Setting) -> None:
    pytest.importorskip("transformers")
    names = dict(change.split("=", 1) for change in setting.changes)
    assert names["row"] == row.name
    beside = next(each for each in row.settings if each.recipe == names["recipe"])
    changes = [change for change in setting.changes if change.split("=", 1)[0] not in ("row", "recipe")]
    for point, theirs in zip(setting.points, beside.points, strict=True):
        recipe, _ = load_recipe(names["recipe"], (*changes, *point))
        assert recipe == load_recipe(names["recipe"], (*beside.changes, *theirs))[0]
        assert isinstance(recipe, TranslateRecipe)
        assert recipe.train.metric == "bleu"
        network(recipe.model, 20)  # refuses what it cannot be


def test_a_test_set_is_two_files_or_two_columns(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes("\ufeffeins\r\n\nzwei".encode())
    (tmp_path / "t").write_bytes(b"one\nnothing\ntwo\n")
    (tmp_path / "both.tsv.gz").write_bytes(gzip.compress(b"one\teins\ntwo\tzwei\n"))
    assert read_sides((str(tmp_path / "s"), str(tmp_path / "t"))) == (["eins", "", "zwei"], ["one", "nothing", "two"])
    both = str(tmp_path / "both.tsv.gz")
    assert read_sides((f"{both}:2", f"{both}:1")) == (["eins", "zwei"], ["one", "two"])
    with pytest.raises(SystemExit, match=r"has 3 lines and .* has 2"):
        read_sides((str(tmp_path / "s"), f"{both}:1"))


def test_the_peer_takes_tokens_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that ours take, made once; what its training comes to is another matter."""
    corpus = tiny.write_corpus(tmp_path / "corpus")
    (tmp_path / "mine.yaml").write_text(config.to_yaml(config.plain(tiny.recipe(corpus, "transformer"))))
    monkeypatch.setattr(peer, "_trial", lambda ready, *_: {"pairs": ready.examples[0]})
    kept = tmp_path / "kept"
    ours = prepared(tiny.recipe(corpus, "lstm"), corpus, kept)
    given = ["--set", "row=europarl-160k", "--set", f"recipe={tmp_path / 'mine.yaml'}", "--seed", "3"]
    monkeypatch.setattr(sys, "argv", ["peer", *given, "--device", "cpu", "--prepared", str(kept)])
    peer.main()
    told = json.loads(capsys.readouterr().out)
    assert told["pairs"] == 240
    assert told["tokens_made"]["seed"] == 1
    assert [path for path in kept.iterdir() if path.is_dir()] == [ours]
