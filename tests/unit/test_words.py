"""Words in: raw text cut into words, words looked up with their characters, words cut into pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.text import BpeText, ByteText, CharText, train_tokenizers
from saccade.text.cut import cut_words, split_words
from saccade.text.words import MOST_INSIDE, PiecesOfWords, WordForm, WordList
from saccade.types import SPECIALS, UNKNOWN, Tokens

# ---- raw text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada Lovelace lived in London.", "Ada|Lovelace|lived|in|London|."),
        ("I don't think it's 3.14, or 10:30!!", "I|do|n't|think|it|'s|3.14|,|or|10:30|!!"),
        ("See https://x.org/a?b=c. Write to me@x.co.uk...", "See|https://x.org/a?b=c|.|Write|to|me@x.co.uk|..."),
        ("the U.S. economy, e.g. O'Neill's", "the|U.S.|economy|,|e.g.|O'Neill|'s"),
        ("twenty-one (1996-08-22)", "twenty-one|(|1996-08-22|)"),
        ("can’t $5.50 50%", "ca|n’t|$|5.50|50|%"),
        ("a\u0301e\u0301 नमस्ते दुनिया! 東京タワー", "a\u0301e\u0301|नमस्ते|दुनिया|!|東京タワー"),
        ("", ""),
        (" \t\u00a0 ", ""),
        ("n't 's", "n't|'|s"),
    ],
)
def test_raw_text_is_cut_by_the_rules(text: str, words: str) -> None:
    assert [piece.text for piece in cut_words(text)] == [word for word in words.split("|") if word]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="a1.-'n t@:/\u0301 \n", max_size=40))
def test_every_character_is_in_one_word(text: str) -> None:
    """Words stand where they say, in order, and only white space stands between them."""
    for cut in (cut_words, split_words):
        end = 0
        for piece in cut(text):
            assert not text[end : piece.begin].strip()
            assert text[piece.begin : piece.end] == piece.text != ""
            end = piece.end
        assert not text[end:].strip()


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    for text in ("+-" * 20_000, "a" * 400_000, "1-" * 20_000 + "a", "www." + "." * 400_000, "@a." * 20_000):
        assert sum(len(piece.text) for piece in cut_words(text)) == len(text)


# ---- words and characters

SENTENCES = [["The", "cat", "saw", "the", "dog", "."], ["The", "cat", "in", "1996", "."], ["Café"]]


def ids(tokens: Tokens) -> list[list[int]]:
    lengths = tokens.layout.lengths_B.tolist()
    flat, rows = tokens.ids.tolist(), []
    for length in lengths:
        rows.append(flat[:length])
        flat = flat[length:]
    return rows


def test_frequent_words_come_first() -> None:
    words = WordList.of(SENTENCES)
    assert words.words[:3] == (".", "The", "cat")
    assert words.words[3:] == ("1996", "Café", "dog", "in", "saw", "the")
    assert list(words.rare) == list(range(7, 13))
    assert words.size == 4 + 9
    assert ids(words.read([["cat", "mouse"], [], ["."]])) == [[6, UNKNOWN], [], [4]]
    assert words.read([["cat"]]).inside is None


def test_the_form_of_words_leaves_characters_alone() -> None:
    words = WordList.of(SENTENCES, form=WordForm(lowercase=True, digits=True), characters=200)
    assert words.words[:4] == ("the", ".", "cat", "0000")
    assert words.knows("CAT")
    assert words.knows("2001")
    read = words.read([["The", "2001", "Cafe\u0301"]])
    assert read.ids.tolist()[:2] == [4, 7]
    assert read.ids[2] != UNKNOWN  # composed: the letters are one
    assert read.inside is not None
    letters = words.characters
    expected = [[*"The"], [None, None, None, "1"], [*"Café"]]
    assert ids(read.inside) == [
        [4 + letters.index(each) if each in letters else UNKNOWN for each in word] for word in expected
    ]


def test_only_so_many_words_and_those_often_enough() -> None:
    assert WordList.of(SENTENCES, least=2).words == (".", "The", "cat")
    assert WordList.of(SENTENCES, size=6).words == (".", "The")
    assert len(WordList.of(SENTENCES, characters=6).characters) == 2


def test_given_words_have_ids_behind_the_others() -> None:
    words = WordList.of(SENTENCES, given=["cat", "mouse", "Mouse", "mouse"], form=WordForm(lowercase=True))
    assert words.given == 1
    assert words.words[-1] == "mouse"
    assert words.knows("Mouse")
    assert not words.saw("mouse")
    assert words.saw("CAT")
    assert not words.saw("horse")
    assert words.words[words.rare.stop - len(SPECIALS) - 1] == "saw"


def test_a_word_that_was_not_seen_as_it_stands_may_be_read_in_small_letters() -> None:
    form = WordForm(lowercase="unseen", digits=True)
    words = WordList.of(SENTENCES, given=["mouse", "the"], form=form, characters=99)
    assert {"The", "the", "cat", "0000", "mouse"} <= set(words.words)
    as_they_stand = ids(words.read([["The", "the", "mouse"]]))[0]
    assert len(set(as_they_stand)) == 3
    assert ids(words.read([["The", "THE", "MOUSE"]]))[0] == as_they_stand
    assert ids(words.read([["CAT", "Cat", "cat"]]))[0] == ids(words.read([["cat"] * 3]))[0]
    assert ids(words.read([["HORSE", "1950"]]))[0] == [UNKNOWN, len(SPECIALS) + words.words.index("0000")]
    assert words.knows("Mouse")
    assert words.saw("cat")
    assert not words.saw("CAT")  # nobody told what stands in capitals there
    small, large = (words.read([[word]]).inside for word in ("cat", "CAT"))
    assert small is not None
    assert large is not None
    assert ids(large) != ids(small)
    assert WordList.from_json(words.to_json(), "words.json") == words


def test_long_words_lose_their_middle_and_none_is_without_characters() -> None:
    words = WordList.of([["a" * 5, "b"]], characters=10)
    inside = words.read([["a" * 50 + "c" * 50 + "b" * 50, "\u0301"]]).inside
    assert inside is not None
    assert inside.layout.lengths_B.tolist() == [MOST_INSIDE, 1]
    assert inside.ids.tolist()[: MOST_INSIDE // 2] == [4] * (MOST_INSIDE // 2)
    assert inside.ids.tolist()[MOST_INSIDE - 1] == 5
    assert inside.ids.tolist()[-1] == UNKNOWN


def test_the_list_comes_back_from_its_file() -> None:
    words = WordList.of(SENTENCES, form=WordForm(digits=True), characters=50, given=["x"])
    again = WordList.from_json(words.to_json(), "tokenizer.json")
    assert again == words
    assert ids(again.read(SENTENCES)) == ids(words.read(SENTENCES))


@pytest.mark.parametrize(
    "damage",
    [
        ("saccade-words-1", "other"),
        ('"given": 0', '"given": 99'),
        ('"digits": false', '"digits": 3'),
        ('"cat"', '"The"'),
        ('"cat"', "5"),
        ("{", "["),
    ],
)
def test_a_damaged_list_is_told(damage: tuple[str, str]) -> None:
    text = WordList.of(SENTENCES).to_json()
    assert damage[0] in text
    with pytest.raises(UsageError, match=r"tokenizer\.json: is no list of words"):
        WordList.from_json(text.replace(*damage), "tokenizer.json")


def test_half_characters_are_told() -> None:
    with pytest.raises(UsageError, match="lone surrogate"):
        WordList.of([["a\ud800"]])


# ---- pieces


@pytest.mark.parametrize("config", [BpeText(size=300), CharText(size=300), ByteText()], ids=lambda config: config.kind)
def test_words_are_cut_as_in_running_text(config: BpeText | CharText | ByteText) -> None:
    """All pieces of a sentence in a row are those of its words with spaces between them."""
    lines = [" ".join(sentence) for sentence in SENTENCES] * 3
    tokenizer = train_tokenizers(config, lines, [], seed=1).source
    pieces = PiecesOfWords(tokenizer)
    read = pieces.read(SENTENCES)
    assert read.ids.tolist() == [UNKNOWN] * 12
    assert read.inside is not None
    assert read.inside.layout.lengths_B.min() >= 1
    assert read.inside.ids.tolist() == [each for line in lines[:3] for each in tokenizer.encode(line)]
    assert pieces.read([[" "]]).inside is not None
