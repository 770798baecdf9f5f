"""Text to token ids and back: char, byte, word, BPE and unigram tokenizers, learnt from the training text."""

from saccade.text.dropout import BpeDropout
from saccade.text.learn import train_tokenizers
from saccade.text.pair import TextPair
from saccade.text.recipe import BpeText, ByteText, CharText, TextConfig, UnigramText, WordText
from saccade.text.stream import TextStream
from saccade.text.tokenizer import Tokenizer

__all__ = [
    "BpeDropout",
    "BpeText",
    "ByteText",
    "CharText",
    "TextConfig",
    "TextPair",
    "TextStream",
    "Tokenizer",
    "UnigramText",
    "WordText",
    "train_tokenizers",
]
