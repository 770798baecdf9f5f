"""Lines to labels: order, probabilities, batches, two texts, and lines of any content."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from saccade.classify import Engine
from saccade.data.labels import Labels
from saccade.data.readings import Reading
from saccade.errors import UsageError
from saccade.models.build import build_classifier
from saccade.text import ByteText, train_tokenizers
from tests.classifier_cases import _CONFIG

LABELS = Labels(("bad", "good", "other"))


def engine(settings: dict[str, Any], texts: int = 1, **reading: Any) -> Engine:
    config = _CONFIG.validate_python({"kind": "sequence"} | settings)
    text = train_tokenizers(ByteText(), [""], [""], 1).source
    torch.manual_seed(0)
    model = build_classifier(config, text.size, len(LABELS)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    limits = {"max_length": 60, "max_sentences": 5, "max_characters": 400} | reading
    return Engine(
        model, text, LABELS, Reading(config.reads, config.starts, config.ends, **limits), texts, torch.device("cpu")
    )


GRU = {"encoder": {"kind": "gru", "width": 8}, "pooling": "attention"}
HAN = {
    "kind": "hierarchical",
    "words": {"encoder": {"kind": "gru", "width": 8}},
    "sentences": {"encoder": {"kind": "gru", "width": 8}},
}
LINES = ["A film.", "", "x", "It is dull. It is long. Very long.", "\t", "ü\x00\u2028 <s>", "b" * 900, "A film."]


@pytest.mark.parametrize("config", [GRU, HAN], ids=["sequence", "hierarchical"])
def test_one_answer_a_line_whatever_it_holds(config: dict[str, Any]) -> None:
    """In the order of the lines, and as if each were alone."""
    using = engine(config)
    together = using.classify(LINES, top=None, batch_tokens=64)
    assert [each.texts for each in together] == [(line,) for line in LINES]
    for line, each in zip(LINES, together, strict=True):
        (alone,) = using.classify([line], top=None)
        assert [answer.label for answer in alone.answers] == [answer.label for answer in each.answers]
        for one, other in zip(alone.answers, each.answers, strict=True):
            assert one.probability == pytest.approx(other.probability, abs=1e-5)
        assert sum(answer.probability for answer in each.answers) == pytest.approx(1.0, abs=1e-5)
        assert [a.probability for a in each.answers] == sorted((a.probability for a in each.answers), reverse=True)
        assert each.cut == (len(line) == 900)
    assert using.classify([]) == []


def test_the_top_ones() -> None:
    using = engine(GRU)
    everything = using.classify(["A film."], top=None)[0]
    assert {answer.label for answer in everything.answers} == set(LABELS.names)
    assert using.classify(["A film."], top=2)[0].answers == everything.answers[:2]
    assert using.classify(["A film."], top=99)[0] == everything
    one = using.classify(["A film."])[0]
    assert (one.label, one.probability) == (everything.answers[0].label, everything.answers[0].probability)


def test_equal_labels_come_in_their_order() -> None:
    using = engine(GRU)
    with torch.no_grad():
        using.model.head.output.weight.zero_()
        using.model.head.output.bias.zero_()
    answers = using.classify(["x"], top=None)[0].answers
    assert [answer.label for answer in answers] == list(LABELS.names)


@pytest.mark.parametrize("pair", ["joined", "apart"])
def test_two_texts(pair: str) -> None:
    """As two, or with a tab between them; an empty line is two empty ones."""
    using = engine(GRU | {"pair": pair}, texts=2)
    assert using.classify(["one\tother"], top=None) == using.classify([("one", "other")], top=None)
    assert using.classify([""])[0].texts == ("", "")
    assert using.classify([("a", "b")], top=None) != using.classify([("b", "a")], top=None)
    with pytest.raises(UsageError, match=r"line 8 \('one'\) holds 1 text; the model reads a tab between two texts"):
        using.classify(["a\tb", "one"], first=7)
    with pytest.raises(UsageError, match=r"line 1 \('a'\) holds 3 texts"):
        using.classify(["a\tb\tc"])


def test_one_text_may_hold_tabs() -> None:
    using = engine(GRU)
    assert using.classify(["a\tb"])[0].texts == ("a\tb",)
    with pytest.raises(UsageError, match=r"holds 2 texts; the model reads one text in each line"):
        using.classify([("a", "b")])


def test_what_lies_beyond_the_most_that_is_read_is_not_read() -> None:
    using = engine(GRU, max_length=4)
    (long,), (short,) = using.classify(["abcdefgh"], top=None), using.classify(["abcd"], top=None)
    assert long.cut
    assert not short.cut
    assert long.answers == short.answers
    cut = replace(using, reading=replace(using.reading, max_characters=2))
    assert cut.classify(["abcd"], top=None)[0].answers == cut.classify(["ab"], top=None)[0].answers
