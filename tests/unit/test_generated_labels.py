"""Generated labelled texts: reviews that no bag of words can tell apart, and ListOps by the published rule."""

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from saccade.data import listops, reviews
from saccade.data.listops import ListOpsData, value_of, words_of
from saccade.data.reviews import BAD, GOOD, NEGATIONS, ReviewsData
from saccade.errors import UsageError
from saccade.text.sentences import sentences

DATA = os.environ.get("SACCADE_DATA")
SPLITS = ("train", "valid", "test")

# ---- reviews


def verdict(sentence: str) -> str:
    """Read as a reader would: the clause that decides, its word, and whether it is negated."""
    plain = sentence.rstrip(".").removeprefix("Overall, ").lower()
    if plain.startswith("although "):
        clause = plain.partition(", ")[2]
    elif ", but " in plain:
        clause = plain.partition(", but ")[2]
    else:  # or there is one alone
        clause = plain.partition(", although ")[0]
    positive = clause.split()[-1] in GOOD
    assert positive != (clause.split()[-1] in BAD)
    negated = any(f" {negation} " in clause for negation in NEGATIONS)
    return "positive" if positive != negated else "negative"


@pytest.mark.parametrize("count", [1, 4])
def test_the_label_is_what_the_verdict_says(count: int) -> None:
    data = ReviewsData(train=300, sentences=count)
    for review in reviews.examples(data, "train"):
        told = sentences(review.text)
        assert len(told) == count
        decisive = told if count == 1 else [each for each in told if each.startswith("Overall, ")]
        assert [verdict(each) for each in decisive] == [review.label]


def test_a_bag_of_words_says_nothing() -> None:
    """When the clauses change places, the words are the same and the label is the other: each is as probable."""
    forms = {", but ": "{1}, but {0}", ", although ": "{1}, although {0}"}
    labels, alone = Counter[str](), 0
    for review in reviews.examples(ReviewsData(train=1000), "train"):
        plain = review.text.lower().rstrip(".")
        labels[review.label] += 1
        if "," not in plain:
            alone += 1
            continue
        if plain.startswith("although "):
            form, clauses = "although {1}, {0}", plain.removeprefix("although ").split(", ")
        else:
            joint = next(each for each in forms if each in plain)
            form, clauses = forms[joint], plain.split(joint)
        swapped = form.format(*clauses)
        assert sorted(swapped.replace(",", "").split()) == sorted(plain.replace(",", "").split())
        assert verdict(swapped) != review.label
    assert abs(labels["positive"] - 500) < 60
    assert abs(alone - 250) < 50


def test_reviews_are_a_function_of_their_place_and_splits_do_not_meet() -> None:
    data = ReviewsData()
    assert reviews.example(data, "valid", 7) == reviews.example(data, "valid", 7)
    assert reviews.example(data, "valid", 7) != reviews.example(data.model_copy(update={"seed": 2}), "valid", 7)
    clauses = {
        split: {frozenset(_clauses(each.text)) for each in reviews.examples(ReviewsData(train=3000), split)}
        for split in SPLITS
    }
    assert not clauses["train"] & (clauses["valid"] | clauses["test"])
    assert not clauses["valid"] & clauses["test"]


def _clauses(text: str) -> list[str]:
    plain = text.lower().rstrip(".").replace(", but ", ", ").replace(", although ", ", ")
    return plain.removeprefix("although ").split(", ")


# ---- ListOps


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MIN 4 7 2 ]", 2),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[SM 6 5 9 0 ]", 0),
        ("[MED 1 4 9 ]", 4),
        ("[MED 3 4 ]", 3),
        ("[MED 8 1 2 9 ]", 5),
        ("( ( ( ( ( [SM 6 ) 5 ) 9 ) 0 ) ] )", 0),
        ("MAX 2 9 MIN 4 7 X 0 X", 9),
    ],
)
def test_values_by_hand(expression: str, value: int) -> None:
    assert value_of(words_of(expression)) == value


@pytest.mark.parametrize("expression", ["", "1 2", "MAX", "MAX X", "X", "MAX 1 2", "MAX 1 X X", "12", "MUL 1 2 X", "²"])
def test_what_is_no_expression(expression: str) -> None:
    with pytest.raises(UsageError, match="the expression"):
        value_of(words_of(expression))


@pytest.mark.skipif(not DATA, reason="SACCADE_DATA names no folder")
def test_values_are_those_of_the_published_file() -> None:
    path = Path(DATA or "", "listops", "test_d20s.tsv.gz")
    with gzip.open(path, "rt", encoding="utf-8") as rows:
        for row in rows:
            label, expression = row.rstrip("\n").split("\t")
            assert value_of(words_of(expression)) == int(label)


@settings(max_examples=40, deadline=None)
@given(index=st.integers(0, 10**6), depth=st.integers(2, 6), arguments=st.integers(2, 6), split=st.sampled_from(SPLITS))
def test_what_is_generated_keeps_to_the_rule(index: int, depth: int, arguments: int, split: str) -> None:
    data = ListOpsData(depth=depth, arguments=arguments, shortest=2, longest=120)
    made = listops.example(data, split, index)
    tokens = made.text.split()
    assert 2 < len(tokens) < 120
    assert str(value_of(tokens)) == made.label
    assert listops.split_of(tokens) == split
    waiting: list[int] = []
    deepest = 1
    for token in tokens:
        if token == listops.CLOSE:
            assert 2 <= waiting.pop() <= arguments
        elif waiting:
            waiting[-1] += 1
        if token in listops.OPERATORS:
            waiting.append(0)
        deepest = max(deepest, len(waiting) + (token.isdigit()))
    assert deepest <= depth
    assert listops.example(data, split, index) == made


def test_the_arenas_own_rule() -> None:
    """Lengths within bounds; all ten values; operators at the rate of one node in four, digits evenly."""
    data = ListOpsData(train=40)
    made = list(listops.examples(data, "train"))
    tokens = [token for each in made for token in each.text.split()]
    assert all(500 < len(each.text.split()) < 2000 for each in made)
    count = Counter(tokens)
    operators, digits = sum(count[name] for name in listops.OPERATORS), sum(count[str(d)] for d in range(10))
    assert count[listops.CLOSE] == operators
    assert 0.15 < operators / (operators + digits) < 0.25  # long trees have as many inner nodes as fill them
    assert max(count[str(d)] for d in range(10)) < 1.1 * min(count[str(d)] for d in range(10))


def test_what_was_generated_is_kept_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same expressions as without; each made once, also where a run ended early or has fewer or other splits."""
    monkeypatch.setattr(listops, "PART", 8)
    settings = {"train": 30, "valid": 5, "depth": 4, "arguments": 4, "shortest": 3, "longest": 40}
    data = ListOpsData(**settings, keep="kept")
    fresh = {split: list(listops.examples(ListOpsData(**settings), split)) for split in ("train", "valid")}
    next(iter(listops.examples(data, "train", tmp_path)))  # one that looks at the beginning alone
    made: list[int] = []

    def counted(data: ListOpsData, split: str, index: int) -> listops.ListOp:
        made.append(index)
        return fresh[split][index]

    monkeypatch.setattr(listops, "example", counted)
    assert list(listops.examples(data, "train", tmp_path)) == fresh["train"]
    assert sorted(made) == list(range(8, 30))
    assert list(listops.examples(data, "train", tmp_path)) == fresh["train"]
    assert list(listops.examples(data.model_copy(update={"train": 16}), "train", tmp_path)) == fresh["train"][:16]
    assert len(made) == 22
    assert list(listops.examples(data, "valid", tmp_path)) == fresh["valid"]
    assert sorted(made[22:]) == list(range(5))
    assert not list(tmp_path.rglob(".*"))  # nothing is left half written
    other = listops.examples(data.model_copy(update={"seed": 2}), "train", tmp_path)
    assert len(list(other)) == 30
    assert len(made) == 57


def test_two_writers_of_one_kept_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that writes the same part while another is about to put its own in place: both end well, and alike."""
    data = ListOpsData(train=5, depth=4, shortest=3, longest=40, keep=str(tmp_path))
    replace, others = Path.replace, list[list[listops.ListOp]]()

    def interrupted(temporary: Path, file: Path) -> Path:
        if not others:
            others.append([])
            others[0] += listops.examples(data, "train")
        return replace(temporary, file)

    monkeypatch.setattr(Path, "replace", interrupted)
    assert list(listops.examples(data, "train")) == others[0]
    assert len(others[0]) == 5
    assert not list(tmp_path.rglob(".*"))


def test_a_kept_file_that_cannot_be_put_in_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(temporary: Path, file: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(UsageError, match=r"cannot be written: No space left on device"):
        list(listops.examples(ListOpsData(train=5, depth=4, shortest=3, longest=40, keep=str(tmp_path)), "train"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_kept_file_that_is_not_whole_is_told(tmp_path: Path) -> None:
    data = ListOpsData(train=5, depth=4, shortest=3, longest=40, keep=str(tmp_path))
    list(listops.examples(data, "train"))
    (file,) = tmp_path.rglob("*.tsv")
    file.write_text(file.read_text().partition("\n")[0] + "\n")
    with pytest.raises(UsageError, match=r"has 1 lines in place of 5. Remove it"):
        list(listops.examples(data, "train"))
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match=r"cannot be read: .* Remove it"):
        list(listops.examples(data, "train"))
    with pytest.raises(UsageError, match=r"data\.keep: .* cannot be written: .* Name another folder"):
        list(listops.examples(data.model_copy(update={"keep": __file__}), "train"))


def test_bounds_that_no_tree_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops, "ENOUGH", 1000)
    with pytest.raises(UsageError, match="none had more than 500 and fewer than 600 tokens"):
        listops.example(ListOpsData(depth=2, arguments=2, shortest=500, longest=600), "train", 0)
    with pytest.raises(ValidationError, match="no length lies between"):
        ListOpsData(shortest=9, longest=10)
    with pytest.raises(UsageError, match="must be one of train, valid, test"):
        listops.example(ListOpsData(), "dev", 0)
    with pytest.raises(UsageError, match="must be one of train, valid, test"):
        reviews.example(ReviewsData(), "dev", 0)
