"""Text to token ids and back: char, byte, word, BPE and unigram tokenizers, learnt from the training text."""

from saccade.text.dropout import BpeDropout
from saccade.text.learn import train_tokenizers
from saccade.text.pair import TextPair
from saccade.text.recipe import (
    BpeSide,
    BpeText,
    ByteText,
    CharText,
    RunText,
    SideText,
    StreamText,
    TextConfig,
    UnigramText,
    WordSide,
    WordText,
    sides,
)
from saccade.text.stream import TextStream
from saccade.text.tokenizer import Tokenizer

__all__ = [
    "BpeDropout",
    "BpeSide",
    "BpeText",
    "ByteText",
    "CharText",
    "RunText",
    "SideText",
    "StreamText",
    "TextConfig",
    "TextPair",
    "TextStream",
    "Tokenizer",
    "UnigramText",
    "WordSide",
    "WordText",
    "sides",
    "train_tokenizers",
]
