"""Words that white space separates, and text that is put together id by id."""

import gzip
import os
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.text import (
    BpeText,
    ByteText,
    CharText,
    TextConfig,
    TextPair,
    TextStream,
    Tokenizer,
    WordText,
    train_tokenizers,
)
from saccade.types import END, PAD, SPECIALS, START, UNKNOWN

LINES = [" mr. <unk> does n't own N stocks ", " the u.s. economy , mr. jones says , is n't <unk> "]
SPACES = WordText(cut="spaces", size=40)
words = st.lists(st.sampled_from(["the", "n't", "u.s.", "ζ", *SPECIALS, "<0x41>", "\x1c", "never-seen"]), max_size=8)


@cache
def trained(kind: str) -> Tokenizer:
    configs: dict[str, TextConfig] = {
        "spaces": SPACES,
        "word": WordText(size=30),
        "byte": ByteText(),
        "char": CharText(size=270),
        "bpe": BpeText(size=290),
    }
    return train_tokenizers(configs[kind], [*LINES, "naïve 日本 日本"], [], seed=1).source


def test_a_treebank_line_has_one_token_a_word() -> None:
    tokenizer = trained("spaces")
    ids = tokenizer.encode(LINES[0])
    assert len(ids) == 7
    assert tokenizer.pieces(ids) == ["mr.", "<unk>", "does", "n't", "own", "N", "stocks"]
    assert ids[1] == UNKNOWN  # the text's own mark of a rare word is that of ours
    assert tokenizer.decode(ids) == LINES[0].strip()
    assert tokenizer.decode([START, *ids, END, PAD]) == LINES[0].strip()


def test_where_a_word_stands_does_not_change_it() -> None:
    tokenizer = trained("spaces")
    assert tokenizer.encode("mr. mr. \t mr.") == 3 * tokenizer.encode("mr.")


@settings(deadline=None)
@given(words, st.sampled_from([" ", "  ", "\t", " \u3000", "\n"]))
def test_reserved_words_are_never_read(parts: list[str], space: str) -> None:
    tokenizer = trained("spaces")
    text = space.join(parts)
    ids = tokenizer.encode(text)
    assert tokenizer.encode_batch([text]) == [ids]
    flat, counts = tokenizer.encode_flat([text, "the", text])
    assert flat.tolist() == [*ids, *tokenizer.encode("the"), *ids]
    assert counts.tolist() == [len(ids), 1, len(ids)]
    assert min(ids, default=UNKNOWN) >= UNKNOWN
    assert len(ids) == len(parts)
    known = [part if part in tokenizer.pieces(range(4, tokenizer.size)) else "<unk>" for part in parts]
    assert tokenizer.decode(ids) == " ".join(known)
    assert tokenizer.normalise(text) == " ".join(parts)
    assert tokenizer.word_places(text, ids) == list(range(len(ids)))


def test_a_reserved_word_takes_no_room() -> None:
    vocabulary = train_tokenizers(WordText(cut="spaces", size=6), ["<unk> <unk> <s> a a b c"], [], seed=0).source
    assert vocabulary.pieces(range(vocabulary.size)) == [*SPECIALS, "a", "b"]


@pytest.mark.parametrize("cut", ["spaces", "signs"])
def test_a_rare_word_has_an_id_where_it_is_often_enough_or_given(cut: Literal["spaces", "signs"]) -> None:
    def known(least: int, *given: str) -> list[str]:
        config = WordText(cut=cut, size=40, least=least)
        tokenizer = train_tokenizers(config, ["the cat", "the dog and the cat"], [], seed=1, given=given).source
        return [word for word in ("cat", "dog", "cow") if tokenizer.encode(f"the {word}")[-1] != UNKNOWN]

    assert known(1) == ["cat", "dog"]
    assert known(2) == ["cat"]
    assert known(3) == []
    assert known(2, "dog", "cow") == ["cat", "dog", "cow"]


def test_saved_and_read_again(tmp_path: Path) -> None:
    tokenizer = trained("spaces")
    TextPair(tokenizer, tokenizer, shared=True).save(tmp_path)
    again = TextPair.load(tmp_path).source
    assert again == tokenizer
    assert again.encode(LINES[1]) == tokenizer.encode(LINES[1])


def test_other_vocabularies_are_not_cut_at_spaces() -> None:
    whole = trained("bpe").to_json()
    wrong = whole.replace(whole[whole.index('"pre_tokenizer"') : whole.index('"post_processor"')],
                          '"pre_tokenizer": {"type": "WhitespaceSplit"},\n ')  # fmt: skip
    with pytest.raises(UsageError, match="pre_tokenizer or decoder is another"):
        Tokenizer(wrong)


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="SACCADE_DATA is not set")
def test_the_penn_treebank_has_the_tokens_of_the_papers() -> None:
    file = Path(os.environ["SACCADE_DATA"], "ptb", "ptb.test.txt.gz")
    if not file.exists():
        pytest.skip(f"{file} is not there")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    tokenizer = train_tokenizers(WordText(cut="spaces"), lines, [], seed=1).source
    assert sum(map(len, tokenizer.encode_batch(lines))) + len(lines) == 82_430


# ---- streams


@pytest.mark.parametrize("kind", ["spaces", "word", "byte", "char", "bpe"])
@settings(deadline=None)
@given(st.data())
def test_id_by_id_is_the_whole(kind: str, data: st.DataObject) -> None:
    tokenizer = trained(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=20))
    stream = TextStream(tokenizer)
    for _ in range(2):  # a second text begins anew
        parts = [stream.add(each) for each in ids]
        assert "".join([*parts, stream.finish()]) == tokenizer.decode(ids)


def test_a_character_comes_when_it_is_whole() -> None:
    tokenizer, stream = trained("byte"), TextStream(trained("byte"))
    assert [stream.add(each) for each in tokenizer.encode("aé日")] == ["a", "", "é", "", "", "日"]
    assert stream.finish() == ""
    assert [stream.add(each) for each in tokenizer.encode("日")[:2]] == ["", ""]
    assert stream.finish() == "\ufffd"
