"""Learning tokenizers from the training text: a seeded sample, the library's trainers, one layout of ids.

The same text and seed give the same bytes. The pieces come from the library; the ids are ours: specials, bytes, pieces.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import tokenizers as library
from tokenizers import models, pre_tokenizers, trainers

from saccade.text import layout, units
from saccade.text.layout import RESERVED, BpeModel, TokenizerFile, UnigramModel, WordModel
from saccade.text.pair import TextPair
from saccade.text.recipe import BpeSide, ByteSide, CharSide, SideText, TextConfig, UnigramSide, WordSide, sides
from saccade.text.tokenizer import Tokenizer, refuse_surrogates
from saccade.types import SPECIALS

# Characters that make up this share of the text become pieces; the rest, a long tail in any text from the web, is spelt
# in bytes. The idea is SentencePiece's character coverage (Kudo and Richardson 2018).
COVERAGE = 0.9999
# A pair seen once tells nothing about other text.
LEAST_PAIRS = 2
# The library goes through a whole word for each pair it merges in it: a line without a space would take hours.
LONGEST_UNIT = 1000


def train_tokenizers(
    config: TextConfig, sources: Iterable[str], targets: Iterable[str], seed: int, *, given: Iterable[str] = ()
) -> TextPair:
    """The tokenizers for both sides, learnt from at most `config.sample` lines of each, of both together where shared.

    Each side is read once, the source first. `given`: of one shared vocabulary of words, words that get an id behind
    the others, as far as there is room, though they do not stand in the lines, because something is known of them.
    """
    if config.shared:
        both = _train(config, chain(sources, targets), seed, given)
        return TextPair(both, both, shared=True)
    of_source, of_target = sides(config)
    return TextPair(_train(of_source, sources, seed), _train(of_target, targets, seed), shared=False)


def sample_lines(lines: Iterable[str], count: int, seed: int) -> list[str]:
    """`count` lines, every choice of them equally likely, in the order they came (Vitter 1985, algorithm R)."""
    draw = random.Random(seed).random
    kept: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if number < count:
            kept.append((number, line))
            continue
        place = int(draw() * (number + 1))
        if place < count:
            kept[place] = (number, line)
    return [line for _, line in sorted(kept)]


def _train(config: SideText, lines: Iterable[str], seed: int, given: Iterable[str] = ()) -> Tokenizer:
    normalizer = layout.normalizer(config.normalize, config.lowercase)
    bytes_only = Tokenizer(TokenizerFile(normalizer=normalizer, model=_bpe([], [])).write())
    if isinstance(config, ByteSide):
        return bytes_only
    sample = sample_lines(lines, config.sample, seed)
    for line in sample:
        refuse_surrogates(line, f"training text {line[:40]!r}")
    text = [bytes_only.normalise(line) for line in sample]
    model: layout.Model
    match config:
        case CharSide():
            model = _bpe(_most_frequent(_count_characters(text), config.size - len(RESERVED)), [])
        case WordSide():
            room, least, more = config.size - len(SPECIALS), config.least, map(bytes_only.normalise, given)
            if config.cut == "spaces":
                words = _learn_words(text, room, least, pre_tokenizers.WhitespaceSplit(), given=more)
                return Tokenizer(TokenizerFile.at_spaces(normalizer, words).write())
            model = _learn_words(text, room, least, given=(f" {word}" for word in more))  # as most stand in a text
        case BpeSide():
            model = _learn_bpe(text, config.size - len(RESERVED))
        case UnigramSide():
            model = _learn_unigram(text, config.size - len(RESERVED))
    return Tokenizer(TokenizerFile(normalizer=normalizer, model=model).write())


def _count_characters(lines: Sequence[str]) -> Counter[str]:
    count: Counter[str] = Counter()
    for line in lines:
        count.update(line)
    return count


def _most_frequent(count: Counter[str], at_most: int) -> list[str]:
    return sorted(count, key=lambda piece: (-count[piece], piece))[:at_most]


def _alphabet(lines: Sequence[str], room: int) -> tuple[list[str], list[str]]:
    """The characters that become pieces, at most half of the room, and the text cut where any other stood.

    Cut, because the library's trainers would otherwise join the neighbours of a character they leave out.
    """
    count = _count_characters(lines)
    ranked = _most_frequent(count, len(count))
    wanted, covered, total = 0, 0, count.total()
    while covered < COVERAGE * total:
        covered += count[ranked[wanted]]
        wanted += 1
    wanted = min(wanted, max(1, room // 2))
    kept, rare = ranked[:wanted], ranked[wanted:]
    short = chain.from_iterable(map(_without_long_units, lines))
    if not rare:
        return kept, list(short)
    cut = rare[0]
    to_cut = str.maketrans(dict.fromkeys(rare, cut))
    return kept, [part for line in short for part in line.translate(to_cut).split(cut) if part]


def _without_long_units(line: str) -> list[str]:
    """The line; where it has a unit of more than `LONGEST_UNIT` characters, its parts with such units cut up."""
    if len(line) <= LONGEST_UNIT or max(map(len, units.cut(line))) <= LONGEST_UNIT:
        return [line]
    return [
        unit[begin : begin + LONGEST_UNIT] for unit in units.cut(line) for begin in range(0, len(unit), LONGEST_UNIT)
    ]


def _learn_bpe(lines: Sequence[str], room: int) -> BpeModel:
    alphabet, text = _alphabet(lines, room)
    trainer = trainers.BpeTrainer(
        vocab_size=room, min_frequency=LEAST_PAIRS, initial_alphabet=alphabet, show_progress=False
    )
    learnt = _run(models.BPE(), trainer, text)
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    return _bpe(pieces, [(left, right) for left, right in learnt["merges"]])


def _bpe(pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> BpeModel:
    reserved = set(RESERVED)
    kept = [(left, right) for left, right in merges if reserved.isdisjoint((left, right, left + right))]
    return BpeModel(vocab=_numbered(RESERVED, pieces), merges=kept)


def _learn_unigram(lines: Sequence[str], room: int) -> UnigramModel:
    """The library's pieces, with scores rounded to 4 digits.

    Each character also stands once as a line of its own, so that training never drops it: else the library's pruning
    may find too few pieces it can spare, and does not end. The library sums over words in an order that changes from
    run to run, so the last digits of its scores do too; rounding takes them off.
    """
    alphabet, text = _alphabet(lines, room)
    spared = len(alphabet) + 1  # the characters and the library's own unknown piece
    trainer = trainers.UnigramTrainer(vocab_size=max(room, spared), show_progress=False)
    learnt = _run(models.Unigram(), trainer, [*text, *alphabet])["vocab"]
    scores = {piece: round(score, 4) for piece, score in learnt}
    best = sorted(scores, key=lambda piece: (-scores[piece], piece))[:room]
    return UnigramModel(vocab=[(piece, scores.get(piece, 0.0)) for piece in _numbered(RESERVED, best)])


def _learn_words(
    lines: Sequence[str],
    room: int,
    least: int,
    cut: pre_tokenizers.PreTokenizer | None = None,
    *,
    given: Iterable[str] = (),
) -> WordModel:
    """A word that is spelt as a reserved token is that token, which takes no room."""
    trainer = trainers.WordLevelTrainer(vocab_size=room + len(SPECIALS), min_frequency=least, show_progress=False)
    learnt = _run(models.WordLevel(), trainer, lines, cut)["vocab"]
    ranked = [word for word in sorted(learnt, key=learnt.__getitem__) if word not in SPECIALS]
    every = dict.fromkeys(ranked[:room])
    more = (word for word in given if word not in SPECIALS and word not in every)
    every.update(dict.fromkeys(islice(dict.fromkeys(more), room - len(every))))
    return WordModel(vocab=_numbered(SPECIALS, list(every)))


def _numbered(reserved: Sequence[str], pieces: Sequence[str]) -> dict[str, int]:
    """Ids for the reserved tokens, then the pieces; a piece like a reserved one cannot arise, and would be lost."""
    return {piece: each for each, piece in enumerate(dict.fromkeys((*reserved, *pieces)))}


def _run(
    model: models.Model,
    trainer: trainers.Trainer,
    lines: Sequence[str],
    cut: pre_tokenizers.PreTokenizer | None = None,
) -> dict[str, Any]:
    """What the library's trainer made of the lines, as plain values."""
    whole = library.Tokenizer(model)
    whole.pre_tokenizer = cut or pre_tokenizers.Split(library.Regex(layout.WORDS), "isolated")
    whole.train_from_iterator(lines, trainer, length=len(lines))
    learnt: dict[str, Any] = json.loads(whole.to_str())["model"]
    return learnt
