"""Dependency parses: read and checked, laid on tokens, kept in the store and in batches."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from saccade.data.batching import Plan, batches, collate
from saccade.data.check import check
from saccade.data.files import Counts, FilesData, OnBad, Pair, Parallel, pairs
from saccade.data.parses import check_heads, depth_of, line_of, on_tokens, read_heads, read_line
from saccade.data.sizes import filled, size_for
from saccade.data.store import Store, write_store
from saccade.errors import SaccadeError, UsageError
from saccade.text import (
    BpeText,
    ByteText,
    CharText,
    TextConfig,
    Tokenizer,
    UnigramText,
    WordText,
    train_tokenizers,
)
from saccade.text.dropout import BpeDropout
from saccade.types import END, Parse

CORPUS = ["the cat sat on the mat", "a hat, the rat", "Ünder the café 2019", "so what ?"] * 8
KINDS: dict[str, TextConfig] = {
    "char": CharText(), "byte": ByteText(), "word": WordText(size=40), "spaces": WordText(cut="spaces"),
    "bpe": BpeText(size=300),
    "unigram": UnigramText(size=300), "bpe, nfkc, lower": BpeText(size=300, normalize="nfkc", lowercase=True),
}  # fmt: skip


def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizers(KINDS[kind], CORPUS, CORPUS, seed=1).source


TOKENIZERS = {kind: tokenizer(kind) for kind in KINDS}
every_kind = pytest.mark.parametrize("kind", KINDS)


@st.composite
def trees(draw: st.DrawFn, most: int = 9) -> tuple[int, ...]:
    n = draw(st.integers(1, most))
    order = draw(st.permutations(range(n)))
    heads = [0] * n
    for at in range(1, n):
        heads[order[at]] = draw(st.sampled_from(order[:at])) + 1
    return tuple(heads)


# ---- heads of words


@given(trees())
def test_a_tree_is_read_as_it_was_written(heads: tuple[int, ...]) -> None:
    source = " ".join("w" for _ in heads)
    assert read_heads("  ".join(map(str, heads)), source) == heads
    assert read_line(line_of(source, heads)) == (source, heads)
    assert line_of(source, None) == source

    def depth(word: int) -> int:
        return 0 if heads[word] == 0 else 1 + depth(heads[word] - 1)

    assert depth_of(heads) == max(depth(word) for word in range(len(heads)))


def test_a_text_without_words_has_no_heads() -> None:
    assert read_line("") == ("", ())
    assert read_line("  \t") == ("  ", ())
    assert read_line("a\tb\t2 0") == ("a\tb", (2, 0))  # a tab in the text itself is white space as any other


@pytest.mark.parametrize(
    ("text", "source", "reason"),
    [
        ("2 x", "a b", r"the heads hold 'x'; each must be a whole number, the place of a word, or 0"),
        ("2 -1", "a b", "the heads hold '-1'"),
        ("2 ٣", "a b", "the heads hold '٣'"),
        ("0", "a b", "1 head for 2 words; each word has one"),
        ("0 1 1", "a b", "3 heads for 2 words"),
        ("", "a", "0 heads for 1 word"),
        ("0", " ", "1 head for 0 words"),
        ("0 3", "a b", "word 2 has the head 3; the words are 1 to 2, and 0 is the root"),
        ("2 1", "a b", "the heads go in a circle from word 1"),
        ("0 3 2", "a b c", "the heads go in a circle from word 2"),
        ("1", "a", "the heads go in a circle from word 1"),
        ("0 1 0", "a b c", "words 1 and 3 both have the head 0; a dependency tree has one root"),
    ],
)
def test_what_is_no_tree_is_refused(text: str, source: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_heads(text, source)


@given(st.lists(st.integers(-1, 6), max_size=6))
def test_exactly_the_trees_are_let_through(heads: list[int]) -> None:
    """By brute force: one root, and every way up ends there."""
    n = len(heads)

    def reaches_root(word: int) -> bool:
        for _ in range(n + 1):
            if word == 0:
                return True
            word = heads[word - 1]
        return False

    is_tree = all(0 <= head <= n for head in heads) and heads.count(0) == min(1, n)
    is_tree = is_tree and all(reaches_root(word) for word in range(1, n + 1))
    if is_tree:
        check_heads(heads, n)
    else:
        with pytest.raises(ValueError, match="head"):
            check_heads(heads, n)


# ---- words of tokens


@every_kind
def test_each_token_knows_its_word(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    text = " the  café, sat\ton\u00a0the mat "
    words = text.split()
    ids = tokenizer.encode(text)
    found = tokenizer.word_places(text, ids)
    assert len(found) == len(ids)
    assert found == sorted(found)
    assert set(found) == set(range(len(words)))
    if kind not in ("word", "spaces"):  # which lose unknown words
        for number, word in enumerate(words):
            mine = tokenizer.decode([each for each, of in zip(ids, found, strict=True) if of == number])
            assert mine.split() == tokenizer.normalise(word).split()
    assert tokenizer.word_places(text, ids[:3]) == found[:3]


@every_kind
@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\x1c\x1d\x1e\x1f"), max_size=25))
def test_any_text_has_its_tokens_words_in_order(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    found = tokenizer.word_places(text, ids)
    assert len(found) == len(ids)
    assert found == sorted(found)
    words = text.split()
    if words:
        assert set(found) == set(range(len(words)))
    if kind not in ("word", "spaces"):  # which lose unknown words
        for number, word in enumerate(words):
            mine = tokenizer.decode([each for each, of in zip(ids, found, strict=True) if of == number])
            assert mine.strip() == tokenizer.normalise(word).strip()


# ---- heads of tokens


def test_tokens_hang_where_their_words_hang() -> None:
    """the cat-s sleep: cats ← sleep, the ← cats; END is a root."""
    assert on_tokens((2, 3, 0), [0, 1, 1, 2]).tolist() == [[0, 2], [1, 4], [1, 4], [3, 0], [4, 0]]
    assert on_tokens((), [0, 0]).tolist() == [[0, 0], [1, 0], [2, 0]]  # white space alone
    assert on_tokens((), []).tolist() == [[0, 0]]


def test_a_word_whose_head_was_cut_off_hangs_on_the_nearest_ancestor_left() -> None:
    heads = (3, 5, 0, 2, 3)  # 1 → 3, 2 → 5 → 3, 4 → 2
    assert on_tokens(heads, [0, 1, 2, 3]).tolist() == [[0, 3], [1, 3], [2, 0], [3, 2], [4, 0]]
    assert on_tokens(heads, [0, 1]).tolist() == [[0, 0], [1, 0], [2, 0]]


@given(trees(), st.data())
def test_what_is_left_of_a_tree_has_no_circles(heads: tuple[int, ...], data: st.DataObject) -> None:
    words = [word for word in range(len(heads)) for _ in range(data.draw(st.integers(1, 3)))]
    kept = words[: data.draw(st.integers(0, len(words)))]
    rows = on_tokens(heads, kept).tolist()
    assert len(rows) == len(kept) + 1
    for place, (word, head) in enumerate(rows):
        assert word <= place
        assert rows[word] == [word, head]  # the word's first token stands for it
        steps = 0
        while head:
            assert rows[head - 1][0] == head - 1
            head, steps = rows[head - 1][1], steps + 1
            assert steps <= len(rows)


# ---- files

GOOD = [("the cat sleeps", "2 3 0"), ("go", "0"), ("so it goes", "3 3 0")]


def put(folder: Path, rows: Sequence[tuple[str, str]]) -> dict[str, Parallel]:
    """The same rows in each layout."""
    for name, lines in (
        ("s", [source for source, _ in rows]),
        ("t", [source.upper() for source, _ in rows]),
        ("h", [heads for _, heads in rows]),
        ("tsv", [f"{heads}\t{source}\t{source.upper()}" for source, heads in rows]),
        ("jsonl", [json.dumps({"source": s, "target": s.upper(), "heads": h}) for s, h in rows]),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {
        "h": Parallel(source="s", target="t", heads="h"),
        "tsv": Parallel(tsv="tsv", columns=(2, 3), heads_column=1),
        "jsonl": Parallel(jsonl="jsonl", heads_field="heads"),
    }


def read(folder: Path, split: Parallel, on_bad: OnBad = "refuse", *, trim: bool = False) -> tuple[list[Pair], Counts]:
    counts = Counts()
    got = list(pairs(split, base=folder, on_bad=on_bad, trim=trim, counts=counts))
    assert counts.lines == counts.kept + counts.empty + counts.bad_rows + counts.trimmed
    return got, counts


@pytest.mark.parametrize("layout", ["h", "tsv", "jsonl"])
def test_parses_come_with_their_pairs(tmp_path: Path, layout: str) -> None:
    split = put(tmp_path, GOOD)[layout]
    assert split.has_heads
    got, _ = read(tmp_path, split)
    assert [(pair.source, pair.target, pair.heads) for pair in got] == [
        (source, source.upper(), tuple(map(int, heads.split()))) for source, heads in GOOD
    ]


@pytest.mark.parametrize("layout", ["h", "tsv", "jsonl"])
def test_a_wrong_parse_is_refused_by_file_and_line_or_left_out(tmp_path: Path, layout: str) -> None:
    split = put(tmp_path, [GOOD[0], ("a b", "2 1"), GOOD[2]])[layout]
    with pytest.raises(UsageError) as caught:
        read(tmp_path, split)
    assert str(caught.value) == (
        f"{layout}:2: the heads go in a circle from word 1; a dependency tree has none. "
        "Fix the row, or set data.on_bad to repair to leave such rows out."
    )
    got, counts = read(tmp_path, split, "repair")
    assert [pair.source for pair in got] == [GOOD[0][0], GOOD[2][0]]
    assert counts.bad_rows == 1
    assert counts.places == [f"bad_rows {layout}:2"]


@pytest.mark.parametrize(("short", "long"), [("h", "s"), ("s", "h")])
def test_heads_of_unequal_count_are_refused_or_trimmed(tmp_path: Path, short: str, long: str) -> None:
    split = put(tmp_path, GOOD)["h"]
    for name in ("s", "t") if short == "s" else ("h",):
        kept = (tmp_path / name).read_text().splitlines(keepends=True)[:2]
        (tmp_path / name).write_text("".join(kept))
    numbers = (2, 3) if short == "s" else (3, 2)
    with pytest.raises(UsageError, match=f"s has {numbers[0]} lines and h has {numbers[1]}: line . of {long} is"):
        read(tmp_path, split)
    got, counts = read(tmp_path, split, trim=True)
    assert len(got) == 2
    assert counts.trimmed == 1


def test_heads_in_json_may_be_a_list(tmp_path: Path) -> None:
    (tmp_path / "jsonl").write_text('{"source": "a b", "target": "c", "heads": [2, 0]}\n')
    got, _ = read(tmp_path, Parallel(jsonl="jsonl", heads_field="heads"))
    assert got[0].heads == (2, 0)


@pytest.mark.parametrize(
    ("layout", "content", "reason"),
    [
        ("jsonl", '{"source": "a", "target": "b"}', "has no field 'heads', which data.heads_field asks for"),
        ("jsonl", '{"source": "a", "target": "b", "heads": 0}', "the field 'heads' holds int, not a string"),
        ("jsonl", '{"source": "a", "target": "b", "heads": [true]}', "the heads hold 'True'"),
        ("tsv", "a\tb", "the row has 2 columns; data.heads_column asks for column 3"),
    ],
)
def test_a_row_without_heads_is_refused(tmp_path: Path, layout: str, content: str, reason: str) -> None:
    (tmp_path / layout).write_text(content + "\n")
    split = Parallel(jsonl="jsonl", heads_field="heads") if layout == "jsonl" else Parallel(tsv="tsv", heads_column=3)
    with pytest.raises(UsageError, match=rf"^{layout}:1: .*{reason}.*Fix the row"):
        read(tmp_path, split)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tsv": "a", "heads": "h"}, "`heads` describes `source/target`, which is not given"),
        ({"source": "a", "target": "b", "heads_column": 3}, "`heads_column` describes `tsv`, which is not given"),
        ({"tsv": "a", "heads_field": "heads"}, "`heads_field` describes `jsonl`, which is not given"),
        ({"source": "a", "target": "b", "heads": ["h", "i"]}, "`heads` names 2 files and `source` 1 file"),
    ],
)
def test_heads_that_say_nothing_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Parallel.model_validate(settings)


def test_the_check_tells_of_trees(tmp_path: Path) -> None:
    splits = put(tmp_path, GOOD)
    data = FilesData(train=splits["h"], valid=splits["tsv"], test=Parallel(source="s", target="t"))
    report = check(data, tmp_path)
    assert report.usable
    depths = report.splits["train"].tree_depths
    assert depths is not None
    assert (depths.mean, depths.p50, depths.max) == (1.0, 1, 2)
    assert report.splits["valid"].tree_depths == depths
    assert report.splits["test"].tree_depths is None
    put(tmp_path, [GOOD[0], ("a b", "2"), ("c", "7")])
    assert [problem.partition(". ")[0] for problem in check(data, tmp_path).problems] == [
        "train: h:2: 1 head for 2 words; each word has one",
        "train: h:3: word 1 has the head 7; the words are 1 to 1, and 0 is the root",
        "valid: tsv:2: 1 head for 2 words; each word has one",
        "valid: tsv:3: word 1 has the head 7; the words are 1 to 1, and 0 is the root",
    ]


# ---- the store and batches

ROWS = [("the cat sat on the mat", (2, 3, 0, 6, 6, 3)), ("so what", (2, 0)), ("a hat, the rat", (2, 0, 4, 2))]


def stored(folder: Path, text: Tokenizer, *, max_length: int = 99, keep_text: bool = False) -> Store:
    rows = [Pair(source, source, f"row {number}", heads) for number, (source, heads) in enumerate(ROWS)]
    return write_store(
        folder, rows, text, text, max_length=max_length, on_long="cut", counts=Counts(lines=3, kept=3),
        keep_text=keep_text, words_of=text.word_places, chunk=2,
    )  # fmt: skip


def expected(text: Tokenizer, row: int, most: int = 99) -> list[list[int]]:
    source, heads = ROWS[row]
    ids = text.encode(source)[:most]
    rows: list[list[int]] = on_tokens(heads, text.word_places(source, ids)).tolist()
    return rows


@every_kind
@pytest.mark.parametrize("max_length", [3, 99])
def test_the_store_gives_back_the_parses(tmp_path: Path, kind: str, max_length: int) -> None:
    text = TOKENIZERS[kind]
    store = stored(tmp_path / "store", text, max_length=max_length, keep_text=True)
    Store.open(store.folder).verify()
    assert store.parses is not None
    assert store.parses.values.dtype == np.uint16
    for row, (source, heads) in enumerate(ROWS):
        assert store.text(row) == (source, source)
        assert store.heads(row) == heads
        assert store.parses[row].reshape(-1, 2).tolist() == expected(text, row, max_length)
        assert len(store.parses[row]) == 2 * len(store.source(row))


@pytest.mark.parametrize("name", ["parse.bin", "parse.idx"])
def test_damage_to_the_parses_is_found(tmp_path: Path, name: str) -> None:
    store = stored(tmp_path / "store", TOKENIZERS["char"])
    path = store.folder / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(SaccadeError, match=f"{name}: is not the file that was written"):
        Store.open(store.folder).verify()
    path.write_bytes(content[:-1])
    with pytest.raises(SaccadeError, match=f"{name}: has {len(content) - 1} bytes"):
        Store.open(store.folder)


def test_without_words_nothing_of_a_parse_is_written(tmp_path: Path) -> None:
    text = TOKENIZERS["char"]
    rows = [Pair(source, source, f"row {number}", heads) for number, (source, heads) in enumerate(ROWS)]
    bare = [pair._replace(heads=None) for pair in rows]
    made = [
        write_store(tmp_path / str(n), some, text, text, max_length=99, on_long="cut", counts=Counts(3, 3))
        for n, some in enumerate((rows, bare))
    ]
    assert made[0].facts["files"] == made[1].facts["files"]
    assert made[0].parses is None
    assert collate(made[0], np.arange(3)).source.parse is None
    with pytest.raises(UsageError, match="was written without a parse"):
        made[0].heads(0)


def test_a_pair_without_a_parse_is_refused_where_one_is_kept(tmp_path: Path) -> None:
    text = TOKENIZERS["char"]
    with pytest.raises(UsageError, match="pair 1: comes without a dependency parse"):
        write_store(
            tmp_path / "store", [("a", "b")], text, text, max_length=9, on_long="cut", counts=Counts(),
            words_of=text.word_places,
        )  # fmt: skip


def together(parse: Parse | None) -> list[list[int]]:
    assert parse is not None
    both: list[list[int]] = torch.stack([parse.words, parse.heads], dim=-1).tolist()
    return both


def test_batches_carry_their_parses(tmp_path: Path) -> None:
    text = TOKENIZERS["bpe"]
    batch = collate(stored(tmp_path / "store", text), np.array([2, 0, 1]))
    rows = [expected(text, row) for row in (2, 0, 1)]
    assert together(batch.source.parse) == [pair for row in rows for pair in row]
    assert batch.target.parse is None
    assert together(batch.rows(1, 3).source.parse) == rows[1] + rows[2]
    again = batch.holding(batch.flat())
    assert together(again.source.parse) == together(batch.source.parse)
    assert torch.equal(again.target.ids, batch.target.ids)
    assert together(batch.to(torch.device("cpu")).source.parse) == together(batch.source.parse)


@pytest.mark.parametrize("tight", [False, True])
def test_what_fills_a_batch_up_is_roots(tmp_path: Path, tight: bool) -> None:
    batch = collate(stored(tmp_path / "store", TOKENIZERS["char"]), np.arange(3))
    full = filled(batch, size_for(batch, tight=tight))
    real = len(batch.source.ids)
    assert len(full.source.ids) > real
    pairs_of = together(full.source.parse)
    assert len(pairs_of) == len(full.source.ids)
    assert pairs_of[:real] == together(batch.source.parse)
    places = [place for length in full.source.layout.lengths_B.tolist() for place in range(length)]
    assert pairs_of[real:] == [[place, 0] for place in places[real:]]


def test_dropped_merges_change_the_tokens_and_not_the_tree(tmp_path: Path) -> None:
    text = TOKENIZERS["bpe"]
    store = stored(tmp_path / "store", text, keep_text=True)
    dropout = BpeDropout(text, 0.5)
    encode: Callable[..., tuple[list[int], list[int]]] = lambda one, other, random: (  # noqa: E731
        dropout.encode(one, random),
        dropout.encode(other, random),
    )
    stream = batches(store, Plan(store.lengths, 999, seed=3), encode=encode, words_of=text.word_places)
    _, batch = next(stream)
    stream.close()
    begin, unlike = 0, 0
    for row, length in zip(batch.index, batch.source.layout.lengths_B.tolist(), strict=True):
        ids = batch.source.ids[begin : begin + length - 1].tolist()
        assert batch.source.ids[begin + length - 1] == END
        source, heads = ROWS[row]
        assert text.decode(ids) == source
        mine = on_tokens(heads, text.word_places(source, ids)).tolist()
        assert together(batch.source.parse)[begin : begin + length] == mine
        unlike += ids != text.encode(source)
        begin += length
    assert unlike
