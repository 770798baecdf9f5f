"""Text in, ids, the same text out; and what a recipe, a file or a caller may get wrong."""

import json
import pickle
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from saccade import config
from saccade.config import Section
from saccade.errors import UsageError
from saccade.text import (
    BpeDropout,
    BpeText,
    ByteText,
    CharText,
    TextConfig,
    TextPair,
    Tokenizer,
    UnigramText,
    WordText,
    train_tokenizers,
)
from saccade.text.learn import sample_lines
from saccade.types import END, PAD, SPECIALS, START, UNKNOWN

LINES = [
    "The cat sat on the mat; the other cats sat on the other mats.",
    "Übermäßig große Straßen führen übermäßig oft nach Köln.",
    "the price is 1234 and the number is 12345 <s> not </s> a tag <unk> <0x41> <pad>",
    "la niña y el niño cantan ▁ y bailan  con   dos    espacios",
    "\tindented by a tab, and ended by a space ",
] * 4
EVERY_KIND = ("char", "byte", "word", "bpe", "unigram")
LOSSLESS = ("char", "byte", "bpe", "unigram")
FORMS = ("none", "nfc", "nfkc")
HARD = (
    "",
    " ",
    "   ",
    " a  b ",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<0x41>",
    "<0x41",
    "▁a▁",
    "a\0b\t\n\r\n\x85\u2028\u2029c",
    "👩‍👩‍👧 🇩🇪 e\u0301 ﬁ Ａ",
    "שָׁלוֹם مرحبا",
    "\u0378\ue000\U0010ffff\ufffd",
    "ééẃẃ日本",
)
any_text = st.text(st.characters(exclude_categories=["Cs"]))


def section(kind: str, **settings: Any) -> TextConfig:
    sizes = {"char": 300, "word": 60, "bpe": 360, "unigram": 360}
    size = {"size": sizes[kind]} if kind in sizes else {}
    made: TextConfig = TypeAdapter(TextConfig).validate_python({"kind": kind, **size, **settings})
    return made


@cache
def trained(kind: str, normalize: str = "nfc", lowercase: bool = False) -> Tokenizer:
    return train_tokenizers(section(kind, normalize=normalize, lowercase=lowercase), LINES, [], seed=1).source


def check_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.normalise(text)
    assert all(len(SPECIALS) <= each < tokenizer.size for each in ids)


@pytest.mark.parametrize(("kind", "form", "lowercase"), list(product(LOSSLESS, FORMS, (False, True))))
def test_hard_texts_come_back(kind: str, form: str, lowercase: bool) -> None:
    for text in HARD:
        check_round_trip(trained(kind, form, lowercase), text)


@pytest.mark.parametrize(("kind", "form"), list(product(LOSSLESS, FORMS)))
@settings(max_examples=80, deadline=None)
@given(text=any_text)
def test_any_text_comes_back(kind: str, form: str, text: str) -> None:
    check_round_trip(trained(kind, form), text)


@pytest.mark.parametrize("kind", LOSSLESS)
@settings(max_examples=80, deadline=None)
@given(parts=st.lists(st.sampled_from([*SPECIALS, "<0x41>", "<", ">", "/", " ", "s", "▁", "the", "é", "ẃ", "\n"])))
def test_text_that_looks_like_tokens_is_plain_text(kind: str, parts: list[str]) -> None:
    check_round_trip(trained(kind, "none"), "".join(parts))


@pytest.mark.parametrize("text", [*SPECIALS, "a<s>b", "<0x41>"])
def test_words_that_look_like_specials_are_cut_apart(text: str) -> None:
    ids = train_tokenizers(section("word"), [text] * 3, [], seed=0).source.encode(text)
    assert len(ids) >= 3
    assert min(ids) > UNKNOWN


def test_nothing_is_changed_without_a_normal_form() -> None:
    for text in HARD:
        assert trained("bpe", "none").normalise(text) == text


def test_normal_forms_and_lowercase_by_hand() -> None:
    assert trained("bpe", "nfc").normalise("e\u0301ﬁ") == "éﬁ"
    assert trained("bpe", "nfkc").normalise("e\u0301ﬁＡ") == "éfiA"
    assert trained("bpe", "nfkc", True).normalise("Ａ\U0001d400") == "aa"
    assert trained("bpe", "none", True).normalise("ÄE\u0301") == "äe\u0301"
    # J with caron has no composed form, its small letter has: the form must be taken again after lowercasing
    assert trained("bpe", "nfc", True).normalise("J\u030c") == "\u01f0"


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_empty_text_has_no_tokens(kind: str) -> None:
    assert trained(kind).encode("") == []
    assert trained(kind).encode_batch([]) == []
    assert trained(kind).decode([]) == ""


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_batch_is_its_texts_one_by_one(kind: str) -> None:
    texts = [*HARD, *LINES]
    assert trained(kind).encode_batch(iter(texts)) == [trained(kind).encode(text) for text in texts]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_training_twice_gives_the_same_bytes(kind: str) -> None:
    made = section(kind, sample=50) if kind != "byte" else section(kind)
    words = ["ka", "to", "mi", "ré", "shu", "ló", "na", "xe", "o", "un"]
    rng = np.random.default_rng(0)
    lines = [" ".join("".join(rng.choice(words, size=rng.integers(1, 5))) for _ in range(9)) for _ in range(200)]
    texts = {train_tokenizers(made, lines, lines[:20], seed=3).source.to_json() for _ in range(4)}
    assert len(texts) == 1


def test_sizes() -> None:
    assert trained("byte").size == 4 + 256
    assert trained("bpe").size == 360
    assert trained("unigram").size <= 360
    assert trained("word").size == 60
    characters = Counter("".join(LINES))
    assert trained("char").size == min(300, 260 + len(characters))
    few = train_tokenizers(CharText(size=265), ["aaaa bbb ccé é"], [], seed=0).source
    assert few.pieces(range(260, 265)) == ["a", "␣", "b", "c", "é"]  # by count, then by code point


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
@pytest.mark.parametrize("lines", [[], [""], ["a"], ["a", "é\u0301", "\n"]])
def test_too_little_text_gives_a_smaller_vocabulary(kind: str, lines: list[str]) -> None:
    tokenizer = train_tokenizers(section(kind, size=500), lines, [], seed=0).source
    assert tokenizer.size < 270
    for line in lines:
        check_round_trip(tokenizer, line)


def test_rare_characters_are_spelt_in_bytes_and_never_bridged() -> None:
    lines = ["ab" + "x" * 8] * 3000 + ["ab" + chr(0x4E00 + each) + "cd" for each in range(3)]
    for kind in ("bpe", "unigram"):
        tokenizer = train_tokenizers(section(kind, size=280), lines, [], seed=0).source
        pieces = tokenizer.pieces(range(260, tokenizer.size))
        assert "一" not in pieces
        assert not any("bc" in piece for piece in pieces)
        assert tokenizer.pieces(tokenizer.encode("一")) == ["<E4>", "<B8>", "<80>"]


def test_a_known_word_comes_back_and_an_unknown_one_is_marked() -> None:
    tokenizer = train_tokenizers(WordText(size=50), ["The cat sat."], [], seed=0).source
    assert tokenizer.decode(tokenizer.encode("The cat sat.")) == "The cat sat."
    ids = tokenizer.encode("The dog sat.")
    assert ids.count(UNKNOWN) == 1
    assert tokenizer.decode(ids) == "The <unk> sat."
    assert tokenizer.decode([START, UNKNOWN, END]) == "<unk>"


def test_what_white_space_separates_is_one_token_wherever_it_stands() -> None:
    tokenizer = train_tokenizers(WordText(cut="spaces"), ["AH0 K AH0", "K I_TURN_LEFT"], [], seed=0).source
    assert tokenizer.pieces(range(4, tokenizer.size)) == ["AH0", "K", "I_TURN_LEFT"]  # by count, then by letter
    assert tokenizer.encode("  K\tAH0 \u3000 K ") == [5, 4, 5]
    assert tokenizer.decode([START, 5, 4, END, PAD]) == "K AH0"
    assert tokenizer.normalise(" K\tAH0\n") == "K AH0"
    assert tokenizer.decode(tokenizer.encode("AH0 Z K")) == "AH0 <unk> K"


def test_each_side_is_cut_its_own_way(tmp_path: Path) -> None:
    made = config.parse(
        _Recipe, {"text": {"kind": "char", "target": {"kind": "word", "cut": "spaces", "size": 20}}}
    ).text
    assert not made.shared
    assert config.parse(_Recipe, {"text": config.plain(made)}).text == made
    pair = train_tokenizers(made, ["cat", "act"], ["K AE1 T", "AE1 K T"], seed=0)
    assert pair.source.pieces(pair.source.encode("cat")) == ["c", "a", "t"]
    assert pair.target.pieces(pair.target.encode("K AE1 T")) == ["K", "AE1", "T"]
    pair.save(tmp_path)
    assert TextPair.load(tmp_path) == pair


def test_decode_drops_the_specials_that_say_nothing() -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode([START, *ids, END, PAD, PAD]) == "the cat"
    assert tokenizer.decode([UNKNOWN]) == "<unk>"
    assert tokenizer.decode(np.array(ids).tolist()) == "the cat"


def test_one_wrong_byte_spoils_only_itself() -> None:
    tokenizer = trained("byte")
    ids = tokenizer.encode("né日")
    assert tokenizer.decode([*ids[:1], 4 + 0xFF, *ids[1:]]) == "n\ufffdé日"
    assert tokenizer.decode(ids[:-1]) == "né\ufffd"


@pytest.mark.parametrize("wrong", [-1, 360])
def test_an_id_outside_the_vocabulary_is_refused(wrong: int) -> None:
    for call in (trained("bpe").decode, trained("bpe").pieces):
        with pytest.raises(UsageError, match=rf"{wrong} is not an id .* 0 to 359"):
            call([5, wrong])


def test_pieces_are_readable() -> None:
    tokenizer = trained("char")
    assert tokenizer.pieces(tokenizer.encode("a \n日")) == ["a", "␣", "<0A>", "<E6>", "<97>", "<A5>"]
    with_newline = train_tokenizers(CharText(), ["a\n"], [], seed=0).source
    assert with_newline.pieces(with_newline.encode("a\n")) == ["a", "⏎"]
    assert tokenizer.pieces([PAD, START, END, UNKNOWN]) == list(SPECIALS)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_pieces_joined_are_the_text(kind: str) -> None:
    text = "The cat sat on the mat; the other cats sat on the other mats."
    tokenizer = trained(kind)
    assert "".join(tokenizer.pieces(tokenizer.encode(text))).replace("␣", " ") == text


def test_words_joined_are_the_text() -> None:
    for text in HARD:
        assert "".join(trained("bpe").words(text)) == trained("bpe").normalise(text)


@pytest.mark.parametrize("call", ["encode", "normalise", "words"])
def test_a_lone_surrogate_is_refused(call: str) -> None:
    with pytest.raises(UsageError, match="character 2 is the lone surrogate"):
        getattr(trained("bpe"), call)("a\ud800")


def test_a_lone_surrogate_in_many_texts_is_found() -> None:
    with pytest.raises(UsageError, match="text 2: character 1"):
        trained("bpe").encode_batch(["a", "\udfff"])
    with pytest.raises(UsageError, match="training text 'b"):
        train_tokenizers(BpeText(), ["a", "b\udfff"], [], seed=0)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_copy_is_equal(kind: str) -> None:
    tokenizer = trained(kind)
    for copy in (Tokenizer.from_json(tokenizer.to_json()), pickle.loads(pickle.dumps(tokenizer))):  # noqa: S301
        assert copy == tokenizer
        assert hash(copy) == hash(tokenizer)
        assert copy.encode_batch(HARD) == tokenizer.encode_batch(HARD)
    assert tokenizer != trained("bpe" if kind == "unigram" else "unigram")


def test_a_shared_pair_is_one_file(tmp_path: Path) -> None:
    pair = train_tokenizers(section("bpe"), LINES, ["zzz zzz zzz"] * 40, seed=1)
    assert pair.source is pair.target
    assert "zzz" in pair.source.pieces(range(pair.source.size))
    (tmp_path / "tokenizer_target.json").write_text("left from another run")
    assert [path.name for path in pair.save(tmp_path)] == ["tokenizer.json"]
    assert TextPair.load(tmp_path) == pair
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json"]


def test_a_pair_of_two_is_two_files(tmp_path: Path) -> None:
    pair = train_tokenizers(section("bpe", shared=False), LINES, ["zzz zzz zzz"] * 40, seed=1)
    assert "zzz" not in pair.source.pieces(range(pair.source.size))
    assert "zzz" in pair.target.pieces(range(pair.target.size))
    assert [path.name for path in pair.save(tmp_path)] == ["tokenizer.json", "tokenizer_target.json"]
    assert TextPair.load(tmp_path) == pair


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tokenizer.json: cannot be read"):
        TextPair.load(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8"):
        TextPair.load(tmp_path)


DAMAGE: dict[str, tuple[tuple[str, ...], Any]] = {
    "special moved": (("model", "vocab", "<pad>"), 300),
    "gap": (("model", "vocab", "a"), 10_000),
    "id beyond 32 bits": (("model", "vocab", "a"), 2**40),
    "empty piece": (("model", "vocab", ""), 360),
    "unknown merge": (("model", "merges"), [["q", "qq"]]),
    "prefix that the library aborts on": (("model", "continuing_subword_prefix"), "x"),
    "no byte fallback": (("model", "byte_fallback"), False),
    "dropout": (("model", "dropout"), 0.5),
    "other model": (("model", "type"), "WordPiece"),
    "added token": (("added_tokens",), [{"id": 1, "content": "<s>", "special": True}]),
    "other normalizer": (("normalizer",), {"type": "StripAccents"}),
    "other cut": (("pre_tokenizer",), {"type": "Whitespace"}),
    "other decoder": (("decoder",), {"type": "Fuse"}),
    "truncation": (("truncation",), {"max_length": 3}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused(name: str) -> None:
    (*way, last), value = DAMAGE[name]
    tree = json.loads(trained("bpe").to_json())
    place = tree
    for key in way:
        place = place[key]
    assert place.get(last) != value
    place[last] = value
    with pytest.raises(UsageError, match=r"here\.json: not a tokenizer made by Saccade"):
        Tokenizer.from_json(json.dumps(tree), "here.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"model": {"type": "BPE"}}', "[" * 100_000, "\ud800"])
def test_what_is_no_tokenizer_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a tokenizer made by Saccade"):
        Tokenizer.from_json(text)


def test_a_file_is_read_as_it_was_checked() -> None:
    tree = json.loads(trained("word").to_json())
    del tree["model"]["unk_token"]  # has one possible value, which the library would not fill in
    assert Tokenizer.from_json(json.dumps(tree)) == trained("word")


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.99])
def test_a_file_cut_short_is_refused(cut: float) -> None:
    text = trained("unigram").to_json()
    with pytest.raises(UsageError, match="not a tokenizer made by Saccade"):
        Tokenizer.from_json(text[: int(cut * len(text))])


def test_a_unigram_file_with_a_piece_twice_or_no_number_is_refused() -> None:
    for piece, score in (("<s>", -1.0), ("new", float("nan"))):
        tree = json.loads(trained("unigram").to_json())
        tree["model"]["vocab"].append([piece, score])
        with pytest.raises(UsageError, match="not a tokenizer made by Saccade"):
            Tokenizer.from_json(json.dumps(tree))


@settings(max_examples=60, deadline=None)
@given(text=any_text, probability=st.floats(0, 0.99), seed=st.integers(0, 9))
@example(text=" ".join(LINES), probability=0.3, seed=0)
def test_dropout_loses_nothing_and_repeats(text: str, probability: float, seed: int) -> None:
    tokenizer = trained("bpe")
    ids = BpeDropout(tokenizer, probability).encode(text, np.random.default_rng(seed))
    assert tokenizer.decode(ids) == tokenizer.normalise(text)
    assert ids == BpeDropout(tokenizer, probability).encode(text, np.random.default_rng(seed))


def test_dropout_does_not_depend_on_what_was_encoded_before() -> None:
    fresh, used = BpeDropout(trained("bpe"), 0.4), BpeDropout(trained("bpe"), 0.4)
    used.encode(LINES[1], np.random.default_rng(5))
    assert [fresh.encode(line, np.random.default_rng(1)) for line in LINES] == [
        used.encode(line, np.random.default_rng(1)) for line in LINES
    ]


def test_more_dropout_makes_more_tokens() -> None:
    text = " ".join(LINES)
    lengths = [
        len(BpeDropout(trained("bpe"), probability).encode(text, np.random.default_rng(0)))
        for probability in (0.0, 0.2, 0.5, 0.999)
    ]
    assert lengths == sorted(set(lengths))
    assert lengths[0] == len(trained("bpe").encode(text))


def test_dropout_refuses_what_it_cannot_do() -> None:
    for probability in (-0.1, 1.0, float("nan")):
        with pytest.raises(UsageError, match=r"probability is .* at least 0 and less than 1"):
            BpeDropout(trained("bpe"), probability)
    with pytest.raises(UsageError, match="needs a BPE tokenizer; this one is Unigram"):
        BpeDropout(trained("unigram"), 0.1)


def test_the_sample_is_one_pass_in_order_and_bounded() -> None:
    lines = iter(str(number) for number in range(1000))
    sample = sample_lines(lines, 50, seed=2)
    numbers = [int(line) for line in sample]
    assert len(set(numbers)) == 50
    assert numbers == sorted(numbers)
    assert numbers[-1] >= 50
    assert next(lines, None) is None
    assert sample_lines("abc", 5, seed=0) == ["a", "b", "c"]


def test_every_line_is_as_likely_as_any_other() -> None:
    trials = 4000
    seen = Counter(line for seed in range(trials) for line in sample_lines("abcdefghij", 3, seed))
    # 0.3 of the trials each; one standard deviation is sqrt(0.3 · 0.7 / trials) = 0.0072
    assert all(abs(seen[line] / trials - 0.3) < 5 * 0.0072 for line in "abcdefghij")


def test_the_sample_decides_what_is_learnt() -> None:
    lines = [chr(0x4E00 + number) for number in range(100)]
    sizes = [train_tokenizers(CharText(sample=count), lines, lines, seed=0).source.size for count in (1, 10, 1000)]
    assert sizes[0] == 261
    assert 266 <= sizes[1] <= 270
    assert sizes[2] == 360
    one, other = (train_tokenizers(CharText(sample=10), lines, [], seed).source for seed in (0, 1))
    assert one != other


class _Recipe(Section):
    text: TextConfig = BpeText()


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
def test_a_size_without_room_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UsageError, match=r"text\.size: 260 is too small: 4 special tokens and 256 byte tokens"):
        config.parse(_Recipe, {"text": {"kind": kind, "size": 260}})
    tight: TextConfig = config.parse(_Recipe, {"text": {"kind": kind, "size": 261}}).text
    tokenizer = train_tokenizers(tight, LINES, [], seed=0).source
    assert tokenizer.size == 261
    check_round_trip(tokenizer, LINES[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "word", "size": 4}, r"text\.size is 4"),
        ({"kind": "bpe", "dropout": 1.0}, r"text\.dropout is 1\.0"),
        ({"kind": "bpe", "dropout": -0.1}, r"text\.dropout is -0\.1"),
        ({"kind": "unigram", "sample": 0}, r"text\.sample is 0"),
        ({"kind": "byte", "size": 300}, r"text\.size is not a setting of text"),
        ({"kind": "unigram", "dropout": 0.1}, r"text\.dropout is not a setting of text"),
        ({"kind": "char", "normalize": "nfkd"}, r"text\.normalize is 'nfkd'; .* nfkc"),
        ({"kind": "bpa"}, "Did you mean `bpe`"),
        ({"kind": "char", "shared": True, "target": {"kind": "word"}}, "target says how targets are cut, but shared"),
        ({"kind": "char", "target": {"kind": "wrod"}}, "Did you mean `word`"),
        ({"kind": "char", "target": {"kind": "word", "shared": False}}, r"text\.target\.shared is not a setting"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.parse(_Recipe, {"text": settings})


@pytest.mark.parametrize("kind", [CharText, ByteText, WordText, BpeText, UnigramText])
def test_every_setting_is_described_and_the_defaults_hold(kind: type[Section]) -> None:
    made = kind()
    assert next(iter(kind.model_fields)) == "kind"
    assert all(field.description for field in kind.model_fields.values())
    assert config.parse(_Recipe, {"text": config.plain(made)}).text == made
    with pytest.raises(ValidationError):
        setattr(made, "shared", False)  # noqa: B010
