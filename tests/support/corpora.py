"""A folder of data as the recipes for sequence to sequence find it: every corpus in its own format, a few lines."""

import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from saccade.data.cmudict import split_of

SIZES = {"train": 40, "valid": 6, "dev": 6, "test": 6}
LETTERS = {"a": "AE1", "b": "B", "c": "K", "d": "D", "e": "EH0", "o": "AO2", "t": "T", "n": "N"}
RECIPES = (
    "atis", "babi", "cogs", "cogs-generalisation", "conala", "dialogue", "django", "e2e", "g2p", "g2p-transformer",
    "parsing", "scan", "scan-transformer", "subjects",
)  # fmt: skip
"""Those that can be trained on what is written here."""
_NOUNS, _VERBS = ("cat", "dog", "hat", "boat", "note"), ("sees", "takes", "likes", "finds")


def write_corpora(folder: Path) -> Path:
    draw = random.Random(0)
    _dictionary(folder / "cmudict", draw)
    _scan_and_cogs(folder, draw)
    _code(folder, draw)
    _dialogue_and_subjects(folder, draw)
    _trees(folder / "ptb-parsed-sample", draw)
    _stories(folder / "babi-qa", draw)
    _facts_and_requests(folder, draw)
    return folder


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def _sentence(draw: random.Random) -> tuple[str, str, str]:
    return draw.choice(_NOUNS), draw.choice(_VERBS), draw.choice(_NOUNS)


def _dictionary(folder: Path, draw: random.Random) -> None:
    words: dict[str, set[str]] = {split: set() for split in ("train", "valid", "test")}
    while any(len(found) < SIZES[split] for split, found in words.items()):
        word = "".join(draw.choices(list(LETTERS), k=draw.randint(2, 6)))
        if len(words[split_of(word)]) < SIZES[split_of(word)]:
            words[split_of(word)].add(word)
    lines = []
    for word in sorted(set().union(*words.values())):
        lines.append(f"{word} {' '.join(LETTERS[letter] for letter in word)}")
        if word.startswith("a"):
            lines.append(f"{word}(2) {' '.join(LETTERS[letter] for letter in word[1:])} # another way to say it")
    _write(folder / "cmudict.dict", lines)


def _scan_and_cogs(folder: Path, draw: random.Random) -> None:
    def act() -> tuple[str, str]:
        verb, times = draw.choice(["walk", "jump", "turn left"]), draw.choice(["", " twice", " thrice"])
        count = {"": 1, " twice": 2, " thrice": 3}[times]
        return f"{verb}{times}", " ".join([f"I_{verb.upper().replace(' ', '_')}"] * count)

    def action() -> str:
        (one, ones), (other, others) = act(), act()
        return f"{one} and {other}\t{ones} {others}"

    def logical() -> str:
        who, does, what = _sentence(draw)
        return f"A {who} {does} a {what} .\t{does} . agent ( x _ 1 , {who} ) AND theme ( x _ 1 , {what} )\tkind"

    for split in ("train", "test"):
        _write(folder / "scan" / f"simple.{split}.tsv.gz", (action() for _ in range(4 * SIZES[split])))
    for name in ("train", "dev", "test", "varfree.train", "varfree.gen"):
        size = 4 * SIZES["train"] if name == "varfree.train" else SIZES.get(name, SIZES["test"])
        _write(folder / "cogs" / f"{name}.tsv.gz", (logical() for _ in range(size)))


def _code(folder: Path, draw: random.Random) -> None:
    def line(names: tuple[str, str]) -> str:
        name, value = draw.choice(_NOUNS), draw.choice(_NOUNS)
        return json.dumps({names[0]: f"set {name} to {value}", names[1]: f"{name} = {value}"})

    for name, split in (("train.jsonl.gz", "train"), ("dev.jsonl", "dev"), ("test.jsonl.gz", "test")):
        _write(folder / "django" / name, (line(("nl", "code")) for _ in range(SIZES[split])))
    for name, split in (("train.jsonl.gz", "train"), ("test.jsonl", "test")):
        rows = [json.loads(line(("intent", "snippet"))) for _ in range(2 * SIZES[split])]
        some = [row | {"rewritten_intent": f"{row['intent']} {n}" if n % 2 else None} for n, row in enumerate(rows)]
        _write(folder / "conala" / name, map(json.dumps, some))


def _dialogue_and_subjects(folder: Path, draw: random.Random) -> None:
    for name, split in (("train.tsv.gz", "train"), ("valid.tsv", "valid"), ("test.tsv", "test")):
        asked = [_sentence(draw) for _ in range(SIZES[split])]
        rows = (f"who {does} the {what}?\tthe {who} does." for who, does, what in asked)
        _write(folder / "cornell-dialog-pairs" / name, rows)
    for split in ("train", "dev", "test"):
        mails = [_sentence(draw) for _ in range(SIZES[split])]
        bodies = (f"Hello,\nthe {who} {does} a {what}.\nBye" for who, does, what in mails)
        found = ({"body": body, "subject": f"About the {mail[0]}"} for body, mail in zip(bodies, mails, strict=True))
        _write(folder / "aeslc" / f"{split}.jsonl.gz", map(json.dumps, found))


def _trees(folder: Path, draw: random.Random) -> None:
    def tree() -> str:
        who, does, what = _sentence(draw)
        subject = f"(NP-SBJ (DT a) (NN {who}))"
        return f"((S {subject} (VP (VBZ {does}) (NP (NN {what}) (NP (-NONE- *T*-1)))) (. .)))"

    documents = ["wsj_0001"] * SIZES["train"] + ["wsj_0160"] * SIZES["valid"] + ["wsj_0199"] * SIZES["test"]
    _write(folder / "wsj_0001-0199.trees.tsv.gz", (f"{document}\t{tree()}" for document in documents))


def _stories(folder: Path, draw: random.Random) -> None:
    def story() -> str:
        who, place = draw.choice(["Mary", "John"]), draw.choice(["park", "kitchen", "hall,garden"])
        return f"1 {who} went to the {place}.\n2 It was late.\n3 Where is {who}? \t{place}\t1\n"

    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "en.tar.gz", "w:gz") as archive:
        for task in range(1, 21):
            for part, count in (("train", 10), ("test", 1)):
                raw = "".join(story() for _ in range(count)).encode()
                member = tarfile.TarInfo(f"en/qa{task}_some-task_{part}.txt")
                member.size = len(raw)
                archive.addfile(member, io.BytesIO(raw))


def _facts_and_requests(folder: Path, draw: random.Random) -> None:
    def fact(write: Callable[[str], str]) -> str:
        place = draw.choice(_NOUNS)
        return f"name : {place} | Type : pub\t{write(place)}"

    ways: tuple[Callable[[str], str], ...] = (lambda p: f"{p} is a pub .", lambda p: f"There is a pub , {p} .")
    for split in ("train", "dev", "test"):
        _write(folder / "e2e-nlg" / f"{split}.tsv.gz", (fact(draw.choice(ways)) for _ in range(SIZES[split])))
    for name, split in (("train.tsv.gz", "train"), ("valid.tsv", "valid"), ("test.tsv", "test")):
        cities = [draw.choice(["boston", "new york"]) for _ in range(SIZES[split])]
        labels = {"boston": "B-to", "new york": "B-to I-to"}
        rows = (f"atis_flight\tfly to {city}\tO O {labels[city]}" for city in cities)
        _write(folder / "slots-atis" / name, rows)
