"""The generated sentences: probabilities that are true, pairs that differ where they say, and files of pairs."""

import json
import math
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data import grammar
from saccade.data.grammar import entropy, log_probability, rules, sentence, sentences
from saccade.data.minimal_pairs import GROUPS, TEMPLATES, MinimalPair, generated, phenomena, read_pairs
from saccade.errors import UsageError
from saccade.metrics.contrast import contrast
from saccade.metrics.interval import wilson

SOME = list(sentences(1, "valid", 1500))


# ---- sentences


def test_rules_are_distributions_over_words_and_symbols_that_are_there() -> None:
    for symbol, some in rules().items():
        assert sum(weight for weight, _ in some) == pytest.approx(1.0), symbol
        for _, parts in some:
            for part in parts:
                assert part in rules() or part == part.lower(), part


def test_a_sentence_goes_by_seed_split_and_index_alone() -> None:
    assert SOME[:50] == list(sentences(1, "valid", 50)) == [sentence(1, "valid", i) for i in range(50)]
    assert SOME[:50] != list(sentences(2, "valid", 50))
    assert SOME[:50] != list(sentences(1, "test", 50))


def test_sentences_look_like_sentences() -> None:
    for text in SOME:
        assert text[0].isupper()
        assert text.endswith(".")
        assert text[1:-1] == text[1:-1].lower()
        assert "  " not in text
    assert sum(map(len, SOME)) / len(SOME) == pytest.approx(34, abs=2)


def test_the_grammar_makes_what_it_made() -> None:
    assert all(math.isfinite(log_probability(text)) for text in SOME[:300])
    for wrong in ("", ".", "The king sleeps", "the king sleeps.", "The king sleep.", "The king  sleeps.",
                  "King sleeps.", "The kings hurts himself.", "The KING sleeps.", "The king sleeps. "):  # fmt: skip
        assert log_probability(wrong) == -math.inf, wrong


def test_probabilities_by_hand() -> None:
    """S → NP_m VP_m; NP_m → DET_1 N_m, half of them the, one of six nouns; VP_m → SLEEPS_1, one of five."""
    assert log_probability("The king sleeps.") == pytest.approx(math.log(0.27 * 0.58 * 0.5 / 6 * 0.3 / 5))
    assert log_probability("These gates are heavy.") == pytest.approx(math.log(0.08 * (0.58 / 0.9) / 6 / 6 * 0.6 / 4))


def test_frequencies_are_those_probabilities() -> None:
    """Of the most frequent sentences, within four standard errors."""
    count = 30_000
    for text, seen in Counter(sentences(3, "train", count)).most_common(12):
        p = math.exp(log_probability(text))
        assert seen / count == pytest.approx(p, abs=4 * math.sqrt(p / count)), text


def test_the_entropy_is_the_mean_of_what_sentences_cost() -> None:
    costs = [-log_probability(text) for text in SOME[:800]]
    mean = sum(costs) / len(costs)
    error = math.sqrt(sum((cost - mean) ** 2 for cost in costs)) / len(costs)
    assert abs(mean - entropy()) < 4 * error
    assert entropy() == pytest.approx(13.9595, abs=1e-3)


# ---- minimal pairs


def test_the_groups_are_all_of_them() -> None:
    assert phenomena("all") == list(TEMPLATES)
    assert [name for group in GROUPS if group != "all" for name in phenomena(group)] == list(TEMPLATES)


@pytest.mark.parametrize("phenomenon", list(TEMPLATES))
def test_the_good_one_is_a_sentence_and_the_bad_one_is_not(phenomenon: str) -> None:
    pairs = [pair for pair in generated("all", 25) if pair.phenomenon == phenomenon]
    assert len(set(pairs)) == 25
    for pair in pairs:
        assert math.isfinite(log_probability(pair.good)), pair
        assert log_probability(pair.bad) == -math.inf, pair
        good, bad = pair.good.split(" "), pair.bad.split(" ")
        assert len(good) == len(bad)
        assert sum(one != other for one, other in zip(good, bad, strict=True)) == 1


def test_what_stands_between_is_of_the_other_number() -> None:
    for pair in generated("agreement", 30, seed=4):
        if pair.phenomenon == "agreement-preposition":
            words = pair.good[:-1].split(" ")
            nouns = [kind for word in words for kind, names in grammar.NOUNS.items() if word in names.split()]
            assert len({grammar.NUMBER[kind] for kind in nouns}) == 2, pair


def test_pairs_go_by_their_seed_and_end_where_there_are_no_more() -> None:
    assert list(generated("pronoun", 5, 1)) == list(generated("pronoun", 5, 1))
    assert list(generated("pronoun", 5, 1)) != list(generated("pronoun", 5, 2))
    first = list(islice(generated("agreement", 20), 20))
    assert first == list(islice(generated("agreement", 100), 20))
    many = [pair for pair in generated("reflexive", 900) if pair.phenomenon == "reflexive-gender"]
    assert 100 < len(set(many)) == len(many) < 900


# ---- files of pairs


def test_pairs_are_read_from_columns_and_objects() -> None:
    lines = [
        "good one\tbad one",
        "g\tb\tagreement",
        "",
        json.dumps({"good": "{g}", "bad": "b\t", "phenomenon": "tabs", "other": 1}),
    ]
    assert list(read_pairs(lines, "pairs.tsv", with_source=False)) == [
        MinimalPair("good one", "bad one"),
        MinimalPair("g", "b", "agreement"),
        MinimalPair("{g}", "b\t", "tabs"),
    ]
    with_source = ["s\tg\tb", json.dumps({"source": "s", "good": "g", "bad": "b"})]
    assert list(read_pairs(with_source, "-", with_source=True)) == [MinimalPair("g", "b", source="s")] * 2


@pytest.mark.parametrize(
    ("line", "with_source", "message"),
    [
        ("alone", False, "pairs.tsv:2: the row has 1 tab-separated columns; it must be good, bad"),
        ("a\tb\tc\td", False, "4 tab-separated columns"),
        ("a\tb", True, "it must be source, good, bad and, if you like, phenomenon"),
        ('{"good": "a"}', False, "no field 'bad', which --contrast asks for"),
        ('{"good": "a", "bad": 1}', False, "'bad' holds int, not a string"),
        ('{"good": "a", "bad": "b"}', True, "no field 'source'"),
        ("{", False, "not valid JSON"),
    ],
)
def test_rows_that_are_no_pairs_are_refused_with_their_place(line: str, with_source: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(read_pairs(["", line], "pairs.tsv", with_source=with_source))


# ---- ranking


@given(st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0), st.sampled_from(["a", "b", "all"])), min_size=1))
def test_the_share_ranked_right_by_phenomenon(rows: list[tuple[float, float, str]]) -> None:
    good, bad, names = (list(column) for column in zip(*rows, strict=True))
    found = contrast(good, bad, names)
    assert list(found) == [name for name in dict.fromkeys(names) if name != "all"] + ["all"]
    for name, score in found.items():
        mine = [(one, other) for one, other, of in rows if of == name or name == "all"]
        right = sum(one > other for one, other in mine)
        assert score.count == len(mine)
        assert score.value == pytest.approx(100 * right / len(mine))
        assert (score.low, score.high) == pytest.approx(tuple(100 * each for each in wilson(right, len(mine))))


def test_a_tie_is_not_right_and_nothing_is_refused() -> None:
    assert contrast([-1.0, -2.0], [-1.0, -3.0], ["x", "x"])["x"].value == 50.0
    with pytest.raises(UsageError, match="no pairs"):
        contrast([], [], [])
    with pytest.raises(UsageError, match="1 good, 0 bad"):
        contrast([1.0], [], ["a"])
