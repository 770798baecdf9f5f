"""Alignments as sets of links: Pharaoh's format, how weights become links, and how links are scored."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bench.alignments import without_gold, words
from saccade.errors import UsageError
from saccade.inspect.links import above, argmax, argmax_of_source, grow_diag, links_of, merged
from saccade.metrics.links import (
    Gold,
    Link,
    Links,
    alignment_scores,
    check_range,
    read_gold,
    read_links,
    swapped,
    write_links,
)

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
GOLD = st.builds(Gold.of, LINKS, LINKS)
MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]))
)


def scored(found: Iterable[Link], sure: Iterable[Link], possible: Iterable[Link] = ()) -> tuple[float, float, float]:
    scores = alignment_scores([frozenset(found)], [Gold.of(sure, possible)])
    return scores["aer"].value / 100, scores["precision"].value / 100, scores["recall"].value / 100


# ---- scores


def test_error_rates_worked_by_hand() -> None:
    assert scored({(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 2), (2, 1)})[0] == pytest.approx(2 / 3)
    # A has 4 links, of which 2 are sure, 1 more is possible and 1 is wrong; of 3 sure ones, 1 is missed.
    found = {(0, 0), (1, 1), (2, 1), (3, 3)}
    aer, precision, recall = scored(found, {(0, 0), (1, 1), (4, 4)}, {(2, 1), (2, 2)})
    assert aer == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert precision == pytest.approx(3 / 4)
    assert recall == pytest.approx(2 / 3)


def test_all_sure_is_without_error_and_none_is_nothing_but() -> None:
    sure, possible = {(0, 0), (1, 1)}, {(2, 0), (2, 1)}
    for some in ((), [(2, 0)], [(2, 1)], [(2, 0), (2, 1)]):
        assert scored(sure | set(some), sure, possible) == (0.0, 1.0, 1.0)
    assert scored({(5, 5)}, sure, possible) == (1.0, 0.0, 0.0)
    assert scored(set(), sure) == (1.0, 0.0, 0.0)


def test_nothing_found_where_nothing_is_sure_is_without_error() -> None:
    assert scored(set(), set(), {(0, 0)})[0] == 0.0
    assert scored({(0, 0)}, set(), {(0, 0)})[0] == 0.0


@given(st.lists(st.tuples(LINKS, GOLD), min_size=1, max_size=6))
def test_scores_are_sums_over_all_pairs(pairs: list[tuple[Links, Gold]]) -> None:
    """Link by link, as the paper writes the sums."""
    gold = [(n, link) for n, (_, each) in enumerate(pairs) for link in each.possible]
    if not gold:
        return
    found = [(n, link) for n, (links, _) in enumerate(pairs) for link in links]
    sure = [(n, link) for n, (_, each) in enumerate(pairs) for link in each.sure]
    right_sure, right = sum(link in sure for link in found), sum(link in gold for link in found)
    scores = alignment_scores([links for links, _ in pairs], [each for _, each in pairs])
    total = len(found) + len(sure)
    assert scores["aer"].value == pytest.approx(100 * (1 - (right_sure + right) / total) if total else 0.0)
    assert scores["precision"].value == pytest.approx(100 * right / len(found) if found else 0.0)
    assert scores["recall"].value == pytest.approx(100 * right_sure / len(sure) if sure else 0.0)


@given(LINKS, LINKS.filter(bool))
def test_with_sure_links_alone_it_is_one_minus_f1(found: Links, sure: Links) -> None:
    aer, precision, recall = scored(set(found), set(sure))
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert aer == pytest.approx(1 - f1)


@given(st.lists(st.tuples(LINKS, GOLD), min_size=2, max_size=6).filter(lambda pairs: any(g.possible for _, g in pairs)))
def test_the_direction_and_the_order_of_pairs_change_nothing(pairs: list[tuple[Links, Gold]]) -> None:
    one = alignment_scores([a for a, _ in pairs], [g for _, g in pairs], confidence=False)
    other = alignment_scores(
        [swapped(a) for a, _ in reversed(pairs)], [g.swapped() for _, g in reversed(pairs)], confidence=False
    )
    assert {name: each.value for name, each in one.items()} == pytest.approx(
        {name: each.value for name, each in other.items()}
    )


def test_the_interval_comes_from_pairs_drawn_anew() -> None:
    right, wrong = frozenset({(0, 0)}), frozenset({(1, 1)})
    gold = [Gold.of({(0, 0)})] * 40
    score = alignment_scores([right, wrong] * 20, gold)["aer"]
    assert score.value == 50.0
    assert 30 < score.low < 45 < 55 < score.high < 70
    assert (score.count, score.signature) == (40, "found:40|sure:40|possible:0")
    assert np.isnan(alignment_scores([right], gold[:1])["aer"].low)
    assert np.isnan(alignment_scores([right] * 40, gold, confidence=False)["aer"].low)


def test_scores_refuse_what_does_not_pair_up() -> None:
    with pytest.raises(UsageError, match="2 alignments and 1 lines of gold"):
        alignment_scores([frozenset()] * 2, [Gold.of({(0, 0)})])
    with pytest.raises(UsageError, match="gold: has no link"):
        alignment_scores([frozenset({(0, 0)})], [Gold.of(())])


# ---- Pharaoh's format


@given(LINKS)
def test_what_is_written_is_read_again(links: Links) -> None:
    line = write_links(links)
    assert read_links(line) == links
    assert line == " ".join(sorted(line.split(), key=lambda link: tuple(map(int, link.split("-")))))


@given(GOLD, st.sampled_from("?p"), st.booleans())
def test_gold_is_read_from_0_and_from_1(gold: Gold, mark: str, one_based: bool) -> None:
    first = int(one_based)
    given_links = [f"{i + first}-{j + first}" for i, j in gold.sure]
    given_links += [f"{i + first}{mark}{j + first}" for i, j in gold.possible]  # the sure ones stand there twice
    assert read_gold(" ".join(given_links), first=first) == gold


def test_links_to_no_word_are_left_out_and_counted() -> None:
    gold = read_gold("0-1 1-0 1-1 0p2 2?2", first=1)
    assert gold == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}), null=3)
    assert read_gold("0-1 1-0").null == 0


@pytest.mark.parametrize(
    "wrong", ["1", "1-", "-1", "1_2", "a-b", "1-2-3", "1--2", "0x1-2", "1:2", "٣-١", "1-9999999999"]
)
def test_what_is_no_link_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=f"gold.txt line 3: {wrong[:20]!r} is no link; write `i-j`"):
        read_gold(f"0-0 {wrong}", "gold.txt line 3")


def test_found_links_are_never_merely_possible() -> None:
    with pytest.raises(UsageError, match=r"found line 1: has a possible link"):
        read_links("0-0 1?1", "found line 1")


def test_links_outside_of_the_pair_are_refused() -> None:
    check_range({(0, 0), (2, 1)}, 3, 2, "here")
    for outside in ((3, 0), (0, 2)):
        with pytest.raises(
            UsageError, match=f"here: the link {outside[0]}-{outside[1]} .* 3 source and 2 target words"
        ):
            check_range({(0, 0), outside}, 3, 2, "here")


# ---- weights to links


def test_words_are_made_of_their_pieces() -> None:
    """Target pieces a1 a2 | b; source pieces x | y1 y2 y3; worked by hand."""
    weights_ts = np.array([[0.5, 0.1, 0.2, 0.1], [0.1, 0.3, 0.3, 0.3], [0.25, 0.25, 0.25, 0.0]])
    merged_TS = merged(weights_ts, [0, 0, 1], [0, 1, 1, 1], (2, 2))
    np.testing.assert_allclose(merged_TS, [[(0.5 + 0.1) / 2, (0.4 + 0.9) / 2], [0.25, 0.5]])
    assert argmax(merged_TS) == {(1, 0), (1, 1)}
    np.testing.assert_allclose(merged(weights_ts, [0, 0, 2], [0, 2, 2, 2], (3, 3))[1], 0)  # a word without pieces


@given(MATRICES, st.data())
def test_merging_keeps_the_mass(weights_ts: np.ndarray, data: st.DataObject) -> None:
    """What is summed over the source is not lost; what is averaged over the target lies between its pieces."""
    t, s = weights_ts.shape
    target = sorted(data.draw(st.lists(st.integers(0, 3), min_size=t, max_size=t)))
    source = sorted(data.draw(st.lists(st.integers(0, 3), min_size=s, max_size=s)))
    merged_TS = merged(weights_ts, target, source, (4, 4))
    for j, i in itertools.product(range(4), range(4)):
        rows = [at for at, word in enumerate(target) if word == j]
        columns = [at for at, word in enumerate(source) if word == i]
        by_hand = [sum(weights_ts[row, column] for column in columns) for row in rows]
        assert merged_TS[j, i] == pytest.approx(sum(by_hand) / len(by_hand) if by_hand else 0.0)


@given(MATRICES, st.sampled_from([0.125, 0.2, 0.5, 1.0]))
def test_methods_are_what_they_say(weights_TS: np.ndarray, threshold: float) -> None:
    """Every link by brute force."""
    T, S = weights_TS.shape
    pairs = list(itertools.product(range(S), range(T)))
    by_row = {(i, j) for i, j in pairs if weights_TS[j, i] > 0 and _first_largest(weights_TS[j]) == i}
    by_column = {(i, j) for i, j in pairs if weights_TS[j, i] > 0 and _first_largest(weights_TS[:, i]) == j}
    assert argmax(weights_TS) == by_row == links_of(weights_TS, "argmax", threshold)
    assert argmax_of_source(weights_TS) == by_column
    assert links_of(weights_TS, "intersection", threshold) == by_row & by_column
    assert links_of(weights_TS, "union", threshold) == by_row | by_column
    enough = {(i, j) for i, j in pairs if weights_TS[j, i] >= threshold}
    assert above(weights_TS, threshold) == enough == links_of(weights_TS, "threshold", threshold)
    assert len(by_row) <= T
    assert len(by_column) <= S


def _first_largest(values: np.ndarray) -> int:
    return next(at for at, value in enumerate(values) if all(value >= other for other in values))


@given(LINKS, LINKS)
def test_growing_along_the_diagonal(one: Links, other: Links) -> None:
    """As the published pseudo-code goes over the whole matrix, target word by target word."""
    size, union = 6, one | other
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    alignment = {(e, f) for f, e in one & other}  # (target e, source f), as the pseudo-code has it
    added = True
    while added:
        added = False
        for e, f in itertools.product(range(size), range(size)):
            if (e, f) not in alignment:
                continue
            for down, right in neighbours:
                e_new, f_new = e + down, f + right
                free = not any(e_new == a for a, _ in alignment) or not any(f_new == b for _, b in alignment)
                if free and (f_new, e_new) in union and (e_new, f_new) not in alignment:
                    alignment.add((e_new, f_new))
                    added = True
    grown = grow_diag(one, other)
    assert grown == {(f, e) for e, f in alignment}
    assert one & other <= grown <= union


def test_growing_worked_by_hand() -> None:
    """From 0-0 to 1-0, since source 1 is free, to 1-1, since target 1 is, and on to 2-1; 4-4 touches nothing."""
    one, other = frozenset({(0, 0), (1, 1), (4, 4)}), frozenset({(0, 0), (2, 1), (1, 0)})
    assert grow_diag(one, other) == {(0, 0), (1, 0), (1, 1), (2, 1)}
    assert grow_diag(frozenset({(0, 0), (4, 4)}), frozenset({(0, 0)})) == {(0, 0)}
    assert grow_diag(frozenset(), frozenset({(0, 0)})) == frozenset()


def test_no_weights_no_links() -> None:
    for shape in ((0, 3), (3, 0), (0, 0), (2, 2)):
        for method in ("argmax", "intersection", "union", "grow-diag", "threshold"):
            assert links_of(np.zeros(shape), method, 0.2) == frozenset()


# ---- gold as it is published


@pytest.mark.parametrize(
    ("name", "pairs", "sure", "possible"),
    [
        ("de-en.europarl-bicici.tsv", 100, 1232, 0),
        ("en-fr.hansards.tsv", 447, 4038, 13400),
        ("ro-en.naacl03.tsv", 248, 6198, 0),
        ("zh-en.tsinghua.tsv", 450, 11238, 178),
    ],
)
def test_published_gold_is_read(name: str, pairs: int, sure: int, possible: int) -> None:
    """By the counts that their collection states; every link lies within its pair."""
    path = Path(os.environ.get("SACCADE_DATA", "nowhere"), "word-alignments", name)
    if not path.is_file():
        pytest.skip("SACCADE_DATA names no folder with word-alignments")
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    gold = [read_gold(links, f"{name} line {number}") for number, (_, _, links) in enumerate(rows, start=1)]
    for (source, target, _), each in zip(rows, gold, strict=True):
        check_range(each.possible, len(source.split(" ")), len(target.split(" ")), name)
    assert len(gold) == pairs
    assert sum(len(each.sure) for each in gold) == sure
    assert sum(len(each.possible - each.sure) for each in gold) == possible


def test_pairs_of_gold_are_known_in_any_dress() -> None:
    """As the measurement on Europarl keeps them out of training."""
    assert words("Herr Präsident, die EU’s 1.5 % (von 2000-2006) sind da!") == (
        "herr präsident , die eu 's 1.5 % ( von 2000-2006 ) sind da !"
    )
    gold = [("das ist gut .", "this is good ."), ("ja .", "yes .")]
    given_pairs = [("Das ist gut!", "This is fine."), ("Na gut.", "THIS IS GOOD"), ("Ja.", "Yes"), ("Nein.", "No.")]
    found = [0, 0, 0]
    assert list(without_gold(iter(given_pairs), gold, found)) == [("Nein.", "No.")]
    assert found == [1, 1, 1]
