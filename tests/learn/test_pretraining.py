"""What pre-training is for: blanks are filled by what was read, and for whoever has read a few labels are enough."""

import random
from pathlib import Path
from typing import Any

import saccade
from saccade.recipe import parse_recipe
from tests.support.blanks import COLOURS, recipe, write_text

SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "ra", "si", "tu", "ve")
FRAMES = {
    "animal": ("the {} eats grass", "a {} sleeps at night", "the young {} ran away", "we feed the {} now"),
    "tool": ("the {} cuts wood", "a {} lies in the box", "the rusty {} broke apart", "we sell the {} now"),
}


def test_a_blank_that_only_one_word_fits_is_filled_by_it(tmp_path: Path) -> None:
    """The colour is known from the thing, wherever it stands."""
    corpus = write_text(tmp_path / "text", train=300)
    encoder = {"kind": "transformer", "layers": 1, "width": 32, "heads": 4, "dropout": 0.0}
    chosen = recipe(
        corpus, {"encoder": encoder}, "train.updates=120", "train.batch_tokens=512", "train.validate_every=120",
        "train.fingerprint=false",
    )  # fmt: skip
    saccade.train(chosen, tmp_path / "run", device="cpu")
    model = saccade.load(tmp_path / "run", "cpu")
    for thing, colour in COLOURS.items():
        for line in (f"the {thing} is so [MASK]", f"this {thing} is very [MASK]"):
            (best, *_) = model.fill(line).blanks[0]
            assert best.text == colour, line
            assert best.probability > 0.9, line
        assert model.fill(f"a [MASK] is quite {colour}").text == f"a {thing} is quite {colour}"


def words(draw: random.Random, count: int) -> list[str]:
    made = {"".join(draw.choices(SYLLABLES, k=3)) for _ in range(10 * count)}
    return draw.sample(sorted(made), count)


def write_nonce(folder: Path) -> None:
    """Text about invented animals and tools; labels of a few of them, and those of all others to be tested on."""
    draw = random.Random(3)
    every = words(draw, 48)
    kinds = {word: "animal" if i % 2 else "tool" for i, word in enumerate(every)}
    lines = [frame.format(word) for word, kind in kinds.items() for frame in FRAMES[kind]]
    folder.mkdir()
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in draw.sample(lines * 3, len(lines) * 3)))
    (folder / "valid.txt").write_text("".join(f"{line}\n" for line in lines[::7]))
    for split, some in (("train", every[:12]), ("valid", every[12:])):
        (folder / f"{split}.tsv").write_text("".join(f"{kinds[word]}\tthe {word}\n" for word in some))


TRAIN: dict[str, Any] = {
    "batch_tokens": 256, "workers": 0, "optimizer": {"kind": "adamw", "rate": 3e-3}, "schedule": {"kind": "constant"},
}  # fmt: skip


def labelled(folder: Path, name: str, **more: Any) -> float:
    """The share of unlabelled words that are called what they are."""
    tree = {
        "task": "classify",
        "data": {"kind": "files", **{split: {"tsv": str(folder / f"{split}.tsv")} for split in ("train", "valid")}},
        "model": {"kind": "sequence", "pooling": "mean"},
        "train": TRAIN | {"updates": 60, "validate_every": 60, "metric": "accuracy"},
    } | more
    return saccade.train(parse_recipe(tree), folder / name, device="cpu").best["accuracy"]


def test_few_labels_are_enough_for_an_encoder_that_has_read(tmp_path: Path) -> None:
    """Twelve labelled words of 48: of the others, only who has read of them can know what they are."""
    folder = tmp_path / "nonce"
    write_nonce(folder)
    encoder = {"kind": "transformer", "layers": 1, "width": 32, "heads": 4, "dropout": 0.1}
    tree = {
        "task": "masked-language-model",
        "data": {"kind": "text", "train": str(folder / "train.txt"), "valid": str(folder / "valid.txt")},
        "text": {"kind": "word", "size": 200},
        "model": {"encoder": encoder},
        "masking": {"share": 0.3},
        "train": TRAIN | {"updates": 400, "validate_every": 400},
    }
    saccade.train(parse_recipe(tree), folder / "read", device="cpu")
    tuned = labelled(folder, "tuned", init_from=str(folder / "read"))
    frozen = labelled(folder, "frozen", init_from=str(folder / "read"), freeze=True)
    own = {"kind": "sequence", "pooling": "mean", "encoder": encoder}
    scratch = labelled(folder, "scratch", model=own, text={"kind": "word", "size": 200})
    assert tuned >= 75, (tuned, frozen, scratch)
    assert frozen >= 75, (tuned, frozen, scratch)
    assert scratch <= 65, (tuned, frozen, scratch)
