"""Ids to text as they come, one at a time: nothing is handed out before its characters are whole."""

import codecs

from saccade.text.tokenizer import Tokenizer


class TextStream:
    """Put together, what `add` and `finish` hand out is what `Tokenizer.decode` makes of the same ids."""

    def __init__(self, tokenizer: Tokenizer, *, begun: bool = False) -> None:
        """`begun`: other words stand before the first id, and no space behind them."""
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = begun

    def add(self, each: int) -> str:
        """The characters that are whole with this id; none, where it only begins one."""
        part = self._tokenizer.spelling(each)
        if part and self._begun and self._tokenizer.is_set_off(each):
            part = b" " + part
        self._begun = self._begun or bool(part)
        return self._decoder.decode(part)

    def finish(self) -> str:
        """What is left: U+FFFD where a character was begun and did not end. A new text begins behind it."""
        self._begun = False
        return self._decoder.decode(b"", final=True)
