"""Lines that break something somewhere: the same ones each time, as many as are asked for."""

import random
import string
import unicodedata
from collections.abc import Iterator

from saccade.types import SPECIALS

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\ufeff\u200b\u200d\u200e\u200f\u202a\u202e\u2066\u2069"
"""Characters that end a line for some reader, that are not seen, or that turn what follows around."""
BROKEN = (
    b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf",  # overlong
    b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xed\xa0\xbd\xed\xb8\x80",  # surrogates, alone and in a pair
    b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80",  # beyond Unicode
    b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xff" * 50,  # cut off, begun in the middle
    b"\x1f\x8b\x08\x00", b"\xfd7zXZ\x00", b"PK\x03\x04", b"\xff\xfea\x00", b"\xef\xbb\xbf", b"\xef\xbb",
)  # fmt: skip
"""Bytes that are no UTF-8, or the beginning of some other kind of file."""
META = (
    *SPECIALS, "<s>", "</s>", "<pad>", "<unk>", "<mask>", "[MASK]", "[CLS] [SEP]", "<|endoftext|>", "<0x0A>", "<0A>",
    "▁a", "a@@ b", "##ing", "|||", "a ||| b ||| c", "0 ||| x ||| f= 1 ||| 1", "\\n", "\\u0000", "\\x00", "-", "--help",
    "O", "B-PER", "a/B-PER", "# text = a", "-DOCSTART- -X- O O", "1\ta\t_\t_",
    '{"a": "b"}', '{"text": "\\u2028"}', "[" * 100_000, '{"a":' * 500, "<script>alert(1)</script>", "&lt;&#0;",
    "'; DROP TABLE x; --", "%s%n{0}${x}`id`", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x08\x08\x7f", "=1+1", "NaN",
)  # fmt: skip
"""Text that means something to somebody."""
BLOCKS = (
    0x00C0, 0x0370, 0x0400, 0x0530, 0x05D0, 0x0620, 0x0710, 0x0905, 0x0985, 0x0A05, 0x0A85, 0x0B85, 0x0C05, 0x0C85,
    0x0D05, 0x0D85, 0x0E01, 0x0E81, 0x0F40, 0x1000, 0x10D0, 0x1200, 0x13A0, 0x1780, 0x1820, 0x3041, 0x30A1, 0x4E00,
    0xAC00, 0x1F300, 0x1F600, 0x20000, 0xE000, 0x10FF00,
)  # fmt: skip
"""Where scripts begin in Unicode; the last are private."""


def odd_lines(seed: int = 7) -> Iterator[bytes]:
    """Each kind of trouble, a few thousand lines in all; none is longer than 300,000 bytes."""
    draw = random.Random(seed)
    yield from (b"", b" ", b"\t", b"   \t ", b"\r", b"\r\r", b"a\rb", b"\x00", b"a\x00b", b"\x00a", b"a\x00")
    yield from (bytes([byte]) for byte in range(256) if byte != 0x0A)
    yield from (pair for pair in (draw.randbytes(2) for _ in range(1000)) if b"\n" not in pair)
    yield from _scripts(draw)
    for separator in SEPARATORS:
        yield f"before{separator}after".encode()
        yield separator.encode()
    for broken in BROKEN:
        yield broken
        yield b"ok " + broken + b" ok"
    yield "text as UTF-16".encode("utf-16-le")
    yield ("a" + "\u0301" * 1000).encode()
    yield "👩\u200d👩\u200d👧\u200d👦".encode() * 20
    yield "🏳️\u200d🌈 👍🏽 🇩🇪 \U000e0067".encode()
    yield from (unicodedata.normalize(form, "Ångström ﬁ ½").encode() for form in ("NFC", "NFD", "NFKC", "NFKD"))
    yield from (text.encode() for text in META)
    for length in (1, 1023, 1024, 1025, 32_767, 32_769, 65_535, 65_536, 65_537, 300_000):
        yield b"a" * length
    yield b" " * 70_000
    yield "é".encode() * 70_000
    yield from (b"" for _ in range(300))
    yield from (draw.randbytes(draw.randint(1, 40)).replace(b"\n", b"") for _ in range(1500))


def _scripts(draw: random.Random) -> Iterator[bytes]:
    """Words from blocks of Unicode, and letters of ASCII."""
    for start in BLOCKS:
        for _ in range(10):
            yield " ".join("".join(chr(start + draw.randrange(40)) for _ in range(6)) for _ in range(4)).encode()
    for _ in range(300):
        yield "".join(draw.choices(string.printable.replace("\n", ""), k=draw.randint(1, 60))).encode()


def fuzzed(count: int = 10_000, seed: int = 11) -> list[bytes]:
    """So many lines: all of the odd ones, lines of a megabyte, pieces of odd lines put together; in any order."""
    draw = random.Random(seed)
    held = list(odd_lines(seed))
    pieces = [line for line in held if 0 < len(line) < 200]
    held += [b"a" * 1_000_000, (b"b" * 99 + b" ") * 10_000, "\u2028".encode() * 350_000, b"\xff" * 1_000_000]
    held += [b"[MASK] " * 2_000, b"\t" * 1_000_000]
    while len(held) < count:
        held.append(b"".join(draw.choices(pieces, k=draw.randint(2, 5))))
    draw.shuffle(held)
    return held[:count]


def as_read(lines: list[bytes]) -> list[str]:
    """What the line contract says a line is: without its end, bad bytes as U+FFFD."""
    if lines and lines[0].startswith(b"\xef\xbb\xbf"):
        lines = [lines[0][3:], *lines[1:]]
    return [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]
