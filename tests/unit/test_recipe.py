"""What only a whole recipe can know: that its sections fit each other."""

from pathlib import Path

import pytest

from saccade.errors import UsageError
from tests.support.tiny import recipe


def test_copying_needs_one_vocabulary_for_both_sides() -> None:
    pointing = ("model.decoder.attention.pointer=true", "model.decoder.dropout=0.0")
    assert recipe(Path(), "lstm", *pointing).model.copies
    with pytest.raises(UsageError, match=r"pointer copies source tokens .* set text.shared to true"):
        recipe(Path(), "lstm", *pointing, "text.shared=false")
