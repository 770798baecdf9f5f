"""Documents are cut into sentences by the rules that the module states, and nothing of them is lost."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.text.sentences import sentences, spans


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", []),
        (" \t ", []),
        ("No end", ["No end"]),
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("One.\nTwo\r\nthree.", ["One.", "Two", "three."]),
        ("One.<br /><br />two<BR>Three", ["One.", "two", "Three"]),
        ("Dr. Smith met J. Doe, e.g. on Monday. He left.", ["Dr. Smith met J. Doe, e.g. on Monday.", "He left."]),
        ("See No. 5 there. No. Five is not six.", ["See No. 5 there.", "No.", "Five is not six."]),
        ('"Really?" she said. "Yes." (And so on.) Then.', ['"Really?" she said.', '"Yes."', "(And so on.)", "Then."]),
        ("Wait... what? Well... No.", ["Wait... what?", "Well...", "No."]),
        ("It costs 3.50 or v2.0. cheap", ["It costs 3.50 or v2.0. cheap"]),
        ("1. First. 2. Second.", ["1. First.", "2. Second."]),
        ("It was I. You knew.", ["It was I.", "You knew."]),
        ("a film . it is dull ! is it ? yes", ["a film .", "it is dull !", "is it ?", "yes"]),
        ("你好。我很好！「真的？」是的", ["你好。", "我很好！", "「真的？」", "是的"]),
        ("Ende. Über uns.", ["Ende.", "Über uns."]),
    ],
)
def test_by_rule(document: str, expected: list[str]) -> None:
    assert sentences(document) == expected


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("aB1 .!?…\n\"')(。<br/>-")))
def test_nothing_is_lost_and_nothing_stands_twice(document: str) -> None:
    """What lies between sentences is blank or a line break."""
    end = 0
    for begin, until in spans(document):
        assert begin >= end
        assert document[begin:until].strip() == document[begin:until] != ""
        assert not re.sub(r"(?i)<br\s*/?>|\s", "", document[end:begin])
        end = until
    assert not re.sub(r"(?i)<br\s*/?>|\s", "", document[end:])
    assert [part for sentence in sentences(document) for part in sentences(sentence)] == sentences(document)
