"""Text to token ids and back: char, byte, word, space, BPE and unigram tokenizers, learnt from the training text."""

from saccade.text.dropout import BpeDropout
from saccade.text.learn import train_tokenizers
from saccade.text.pair import TextPair
from saccade.text.recipe import (
    BpeSide,
    BpeText,
    ByteText,
    CharText,
    SideText,
    SpaceText,
    TextConfig,
    UnigramText,
    WordText,
    sides,
)
from saccade.text.tokenizer import Tokenizer

__all__ = [
    "BpeDropout",
    "BpeSide",
    "BpeText",
    "ByteText",
    "CharText",
    "SideText",
    "SpaceText",
    "TextConfig",
    "TextPair",
    "Tokenizer",
    "UnigramText",
    "WordText",
    "sides",
    "train_tokenizers",
]
