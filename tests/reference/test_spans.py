"""Spans and their scores equal seqeval's, digit for digit, on tags that follow a scheme and on tags that do not."""

import random
import warnings
from collections.abc import Callable
from typing import Any, Literal

import pytest

from saccade.errors import UsageError
from saccade.metrics.spans import SpanReport, accuracy, span_report
from saccade.text.tags import (
    Scheme,
    Span,
    TagSet,
    converted,
    fault,
    guess_scheme,
    is_written_so,
    read_spans,
    read_strictly,
    write_tags,
)

_WHY = "seqeval is not installed: pip install 'saccade[dev]'"
labelling = pytest.importorskip("seqeval.metrics.sequence_labeling", reason=_WHY)
strict_labelling = pytest.importorskip("seqeval.metrics.v1", reason=_WHY)
schemes = pytest.importorskip("seqeval.scheme", reason=_WHY)

Tags = list[str]


def drawn(draw: random.Random, prefixes: str, sentences: int = 12) -> list[Tags]:
    """Any tags in any order: most sequences are valid in no scheme."""
    types = ["PER", "LOC", "A-B"]
    every = ["O", "O", *(f"{prefix}-{type_}" for prefix in prefixes for type_ in types)]
    return [draw.choices(every, k=draw.randint(1, 9)) for _ in range(sentences)]


def near(draw: random.Random, gold: list[Tags], prefixes: str) -> list[Tags]:
    """The same tags with some changed, so that some spans are found."""
    return [
        [
            other if draw.random() < 0.3 else tag
            for tag, other in zip(tags, drawn(draw, prefixes, 1)[0] * 9, strict=False)
        ]
        for tags in gold
    ]


def assert_same_scores(report: SpanReport, gold: list[Tags], found: list[Tags], **options: Any) -> None:
    module = strict_labelling if "scheme" in options else labelling
    theirs: Callable[..., Any] = module.precision_recall_fscore_support
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, mine in (("micro", report.micro), ("macro", report.macro), ("weighted", report.weighted)):
            if not report.types:
                continue
            precision, recall, f1, support = theirs(gold, found, average=name, **options)
            assert (mine.precision, mine.recall, mine.f1, mine.gold) == (precision, recall, f1, support), name
        each = [(q.precision, q.recall, q.f1, q.gold) for _, q in sorted(report.types.items())]
        assert each == list(zip(*theirs(gold, found, average=None, **options), strict=True))


@pytest.mark.parametrize("prefixes", ["BI", "BIES", "I", "ES", "IE"])
@pytest.mark.parametrize("seed", range(40))
def test_equals_seqeval(prefixes: str, seed: int) -> None:
    draw = random.Random(seed)
    gold = drawn(draw, prefixes)
    found = near(draw, gold, prefixes)
    for tags in (*gold, *found):
        theirs = {(type_, begin, end + 1) for type_, begin, end in labelling.get_entities(tags)}
        assert set(read_spans(tags)) == theirs, tags
    report = span_report([read_spans(tags) for tags in gold], [read_spans(tags) for tags in found])
    assert_same_scores(report, gold, found)
    assert accuracy(gold, found).value == 100 * labelling.accuracy_score(gold, found)


@pytest.mark.parametrize("scheme", ["iob2", "bioes"])
@pytest.mark.parametrize("seed", range(60))
def test_equals_seqeval_in_strict_mode(scheme: Literal["iob2", "bioes"], seed: int) -> None:
    theirs = schemes.IOB2 if scheme == "iob2" else schemes.IOBES
    prefixes = "BI" if scheme == "iob2" else "BIES"
    draw = random.Random(seed)
    gold = drawn(draw, prefixes)
    found = near(draw, gold, prefixes)
    for tags in (*gold, *found):
        entities = {(each.tag, each.start, each.end) for each in schemes.Entities([tags], theirs).entities[0]}
        assert set(read_strictly(tags, scheme)) == entities, tags
    report = span_report(
        [read_strictly(tags, scheme) for tags in gold], [read_strictly(tags, scheme) for tags in found]
    )
    assert_same_scores(report, gold, found, scheme=theirs)


def test_types_that_change_without_a_beginning() -> None:
    """B-X I-Y: conlleval reads two spans, the strict reading one."""
    tags = ["B-PER", "I-LOC", "I-LOC", "O", "I-PER"]
    assert read_spans(tags) == [Span("PER", 0, 1), Span("LOC", 1, 3), Span("PER", 4, 5)]
    assert read_strictly(tags, "iob2") == [Span("PER", 0, 1)]


def random_spans(draw: random.Random, length: int) -> list[Span]:
    spans, place = [], 0
    while place < length:
        end = min(length, place + draw.randint(1, 3))
        if draw.random() < 0.6:
            spans.append(Span(draw.choice(["PER", "LOC"]), place, end))
        place = end
    return spans


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
def test_what_is_written_is_read(scheme: Scheme) -> None:
    """In every scheme; and written so, it is valid in that scheme, and each step of it allowed."""
    draw = random.Random(5)
    for _ in range(300):
        spans = random_spans(draw, draw.randint(0, 9))
        length = max((span.end for span in spans), default=0) + draw.randint(0, 2)
        tags = write_tags(spans, length, scheme)
        assert read_spans(tags) == spans
        assert is_written_so(tags, scheme)
        assert not any(fault(tag, scheme) for tag in tags)
        for other in ("iob1", "iob2", "bioes"):
            assert converted(converted(tags, other), scheme) == tags


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
def test_the_allowed_steps_are_those_of_valid_tags(scheme: Scheme) -> None:
    """Of all sequences of three tags, the ones whose steps are allowed are the ones the scheme writes."""
    prefixes = "BIES" if scheme == "bioes" else "BI"
    tags = TagSet(("O", *(f"{prefix}-{type_}" for prefix in prefixes for type_ in ("X", "Y"))), scheme)
    steps = tags.steps()
    assert steps is not None
    first, pairs, last = steps
    valid = 0
    for a, one in enumerate(tags.names):
        for b, two in enumerate(tags.names):
            for c, three in enumerate(tags.names):
                may = first[a] and pairs[a][b] and pairs[b][c] and last[c]
                assert may == is_written_so([one, two, three], scheme), (one, two, three)
                valid += may
    assert 0 < valid < len(tags) ** 3


def test_schemes_are_guessed() -> None:
    assert guess_scheme([["NOUN", "VERB"], ["O"]]) == "none"
    assert guess_scheme([["O", "O"]]) == "none"
    assert guess_scheme([["O", "B-X", "I-X"]]) == "iob2"
    assert guess_scheme([["O", "I-X", "B-X"]]) == "iob1"
    assert guess_scheme([["S-X", "O"], ["B-X", "E-X"]]) == "bioes"
    assert guess_scheme([["B-X", "X"]]) == "none"


@pytest.mark.parametrize(
    ("tag", "scheme", "reason"),
    [
        ("", "none", "empty"),
        ("PER", "iob2", "none of iob2"),
        ("E-PER", "iob2", "B-TYPE or I-TYPE"),
        ("B-", "iob1", "B-"),
    ],
)
def test_what_is_no_tag_is_told(tag: str, scheme: Scheme, reason: str) -> None:
    assert reason in fault(tag, scheme)


def test_the_strict_reading_refuses_other_prefixes() -> None:
    with pytest.raises(UsageError, match="'E-PER' is no tag of iob2"):
        read_strictly(["E-PER"], "iob2")


def test_tags_have_ids_from_one_and_a_file() -> None:
    tags = TagSet.of([["O", "O", "B-X"], ["B-A"]], "iob2")
    assert tags.ids == {"O": 1, "B-A": 2, "B-X": 3}
    assert tags.name(3) == "B-X"
    assert TagSet.from_json(tags.to_json(), "labels.json") == tags
    for text in ("{}", "[]", "{", '{"format": "saccade-tags-1", "scheme": "iob2", "tags": ["O", "O"]}'):
        with pytest.raises(UsageError, match=r"labels\.json: is no list of tags"):
            TagSet.from_json(text, "labels.json")


def test_scores_come_with_intervals() -> None:
    """Nothing found is 0, not an error; an interval holds the score."""
    gold = [[Span("X", 0, 1)], [Span("X", 1, 3)], [], [Span("Y", 0, 2)]] * 5
    half = [spans[:1] if number % 2 else [] for number, spans in enumerate(gold)]
    report = span_report(gold, half)
    score = report.score()
    assert score.low < score.value == 100 * report.micro.f1 < score.high
    assert report.types["Y"].gold == 5
    assert span_report(gold, [[]] * len(gold)).micro.f1 == 0.0
    assert span_report([], []).micro.f1 == 0.0
    assert span_report([[]], [[]]).macro.f1 == 0.0
    with pytest.raises(UsageError, match="must pair up"):
        span_report(gold, half[1:])
    with pytest.raises(UsageError, match="sentence 1 has 2 tags"):
        accuracy([["A", "B"]], [["A"]])


@pytest.mark.parametrize("scheme", ["iob2", "bioes"])
@pytest.mark.parametrize("seed", range(10))
def test_equals_the_strict_classification_report(scheme: Literal["iob2", "bioes"], seed: int) -> None:
    """What seqeval prints in strict mode, to all digits: each type, micro, macro and weighted means."""
    theirs = schemes.IOB2 if scheme == "iob2" else schemes.IOBES
    prefixes = "BI" if scheme == "iob2" else "BIES"
    draw = random.Random(100 + seed)
    gold = drawn(draw, prefixes, sentences=40)
    found = near(draw, gold, prefixes)
    mine = span_report(*([read_strictly(tags, scheme) for tags in side] for side in (gold, found)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        printed = strict_labelling.classification_report(gold, found, scheme=theirs, output_dict=True)
    rows = {**mine.types, "micro avg": mine.micro, "macro avg": mine.macro, "weighted avg": mine.weighted}
    assert printed.keys() == rows.keys()
    for name, row in rows.items():
        told = printed[name]
        assert (row.precision, row.recall, row.f1, row.gold) == (
            told["precision"], told["recall"], told["f1-score"], told["support"]
        )  # fmt: skip
