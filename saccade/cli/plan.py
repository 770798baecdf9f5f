"""`train --dry-run`: the resolved recipe, how large the model would be and what would be written; nothing is."""

from itertools import islice
from pathlib import Path

from saccade import config
from saccade.cli.streams import say, tell
from saccade.cli.words import amount, megabytes
from saccade.data.files import Counts, Pair
from saccade.data.splits import Split, has_split, split_pairs
from saccade.recipe import Recipe
from saccade.text import ByteText, CharText, train_tokenizers

SAMPLE = 2000
"""Pairs that a vocabulary is estimated from."""
_FLOAT = 4


def tell_plan(recipe: Recipe, base: Path, out: Path, *, resume: bool, overwrite: bool) -> None:
    for split, pair in first_pairs(recipe, base).items():
        shown = "holds no pair" if pair is None else f"begins {pair.source[:40]!r} → {pair.target[:40]!r}"
        tell(f"data: {split} {shown}")
    say(config.to_yaml(config.plain(recipe)).rstrip("\n"))
    source, target, known = vocabularies(recipe, base)
    count = parameters(recipe, source, target)
    about = "" if known else "about "
    words = f"{about}{source:,} tokens" if source == target else f"{about}{source:,} and {target:,} tokens"
    why = (
        "" if known else f" (an estimate: the vocabulary is learnt from all of the data and may hold {_fewer(recipe)})"
    )
    tell(f"model: {about}{count:,} parameters ({amount(count)}) with {words}{why}")
    state = optimizer_floats(recipe) * count * _FLOAT
    tell(
        f"memory: {megabytes(count * _FLOAT)} weights + {megabytes(count * _FLOAT)} gradients + {megabytes(state)} "
        f"optimiser = {megabytes(2 * count * _FLOAT + state)}; what a batch needs comes on top"
    )
    tell_writes(recipe, out, checkpoint=count * _FLOAT + state, resume=resume, overwrite=overwrite)


def _fewer(recipe: Recipe) -> str:
    return "more" if isinstance(recipe.text, CharText) else "fewer"


def first_pairs(recipe: Recipe, base: Path) -> dict[Split, Pair | None]:
    """The beginning of every split, so that a file that cannot be read is told before anything is done."""
    splits: tuple[Split, ...] = ("train", "valid", "test")
    there = [split for split in splits if has_split(recipe.data, split)]
    return {split: next(split_pairs(recipe.data, split, base=base, counts=Counts()), None) for split in there}


def vocabularies(recipe: Recipe, base: Path) -> tuple[int, int, bool]:
    """Sizes of the two vocabularies, and whether they are known for sure."""
    text = recipe.text
    if isinstance(text, (CharText, ByteText)):
        pairs = list(islice(split_pairs(recipe.data, "train", base=base, counts=Counts()), SAMPLE))
        learnt = train_tokenizers(text, [p.source for p in pairs], [p.target for p in pairs], recipe.seed)
        return learnt.source.size, learnt.target.size, isinstance(text, ByteText)
    return text.size, text.size, False


def parameters(recipe: Recipe, source: int, target: int) -> int:
    """Counted on a model without storage."""
    import torch

    from saccade.models.build import build_translator

    with torch.device("meta"):
        model = build_translator(recipe.model, source, target)
    return sum(parameter.numel() for parameter in model.parameters())


def optimizer_floats(recipe: Recipe) -> int:
    """Numbers that are remembered of each weight beside it, at most: the optimiser's, and the moving average."""
    averaged = 0 if recipe.train.ema is None else 1
    optimizer = recipe.train.optimizer
    match optimizer.kind:
        case "adam" | "adamw" | "muon":
            return averaged + 2
        case "nt-asgd":
            return averaged + 1
        case "sgd":
            return averaged + (1 if optimizer.momentum else 0)


def tell_writes(recipe: Recipe, out: Path, *, checkpoint: int, resume: bool, overwrite: bool) -> None:
    kept = max(recipe.train.keep, recipe.train.average)
    tell(
        f"would write {out}: model, tokenizer, token stores, log and {kept} checkpoints of {megabytes(checkpoint)} each"
    )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        match resume, overwrite:
            case True, _:
                tell(f"would go on with the run in {out}")
            case _, True:
                tell(f"would remove the run in {out} first")
            case _:
                tell(f"would refuse to start: {out} is not empty (--resume, --overwrite or another --out)")
