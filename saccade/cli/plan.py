"""`train --dry-run`: the resolved recipe, how large the model would be and what would be written; nothing is."""

from collections.abc import Mapping
from pathlib import Path

from saccade import config
from saccade.cli.streams import say, tell
from saccade.cli.words import amount, megabytes
from saccade.errors import UsageError
from saccade.recipe import Recipe
from saccade.run_paths import is_bare
from saccade.text import CharText

_FLOAT = 4
_NO_TOKENS = ("labels",)
"""Sizes that are of something else."""


def beginnings(recipe: Recipe, base: Path) -> list[tuple[str, str]]:
    """How each split begins; an error where there is nothing to train on."""
    found = [(str(split), begins) for split, begins in recipe.beginnings(base)]
    for split, begins in found:
        if split != "test" and begins.startswith("holds no"):
            raise UsageError(f"data.{split} {begins}: there is nothing to learn from. Is it the right file?")
    return found


def tell_plan(
    recipe: Recipe, base: Path, out: Path, prepared: Path | None = None, *, resume: bool, overwrite: bool
) -> None:
    if prepared is None:
        for split, begins in beginnings(recipe, base):
            tell(f"data: {split} {begins}")
        sizes, known = recipe.vocabularies(base)
    else:
        sizes, known = _sizes(recipe, base, prepared, out), True
    say(config.to_yaml(config.plain(recipe)).rstrip("\n"))
    count = parameters(recipe, sizes)
    about = "" if known else "about "
    words = " and ".join(f"{about}{size:,}" for size in dict.fromkeys(_tokens(sizes)))
    others = "".join(f", {size:,} {name}" for name, size in sizes.items() if name in _NO_TOKENS)
    why = (
        "" if known else f" (an estimate: the vocabulary is learnt from all of the data and may hold {_fewer(recipe)})"
    )
    tell(f"model: {about}{count:,} parameters ({amount(count)}) with {words} tokens{others}{why}")
    state = optimizer_floats(recipe) * count * _FLOAT
    tell(
        f"memory: {megabytes(count * _FLOAT)} weights + {megabytes(count * _FLOAT)} gradients + {megabytes(state)} "
        f"optimiser = {megabytes(2 * count * _FLOAT + state)}; what a batch needs comes on top"
    )
    tell_writes(recipe, out, checkpoint=count * _FLOAT + state, resume=resume, overwrite=overwrite)


def _sizes(recipe: Recipe, base: Path, prepared: Path, out: Path) -> dict[str, int]:
    """Of the vocabularies that were made there, if a training here would take them."""
    from saccade.train.prepared import PreparedTokens
    from saccade.train.ready import checked

    job, tokens = recipe.job(base), PreparedTokens(prepared)
    tokens.refuse_as_run(out)
    taken = checked(job, tokens)
    if job.initial is not None:
        job.initial.check(job.recipe)
    tell(f"data: {taken.told(prepared, job.seed)}")
    return dict(job.task.open(prepared).sizes)


def _tokens(sizes: Mapping[str, int]) -> list[int]:
    return [size for name, size in sizes.items() if name not in _NO_TOKENS]


def _fewer(recipe: Recipe) -> str:
    return "more" if isinstance(recipe.text, CharText) else "fewer"


def parameters(recipe: Recipe, sizes: Mapping[str, int]) -> int:
    """Counted on a model without storage."""
    import torch

    from saccade.models.build import build_model
    from saccade.weights import Undrawn

    with Undrawn(), torch.device("meta"):
        model = build_model(recipe.task, recipe.model, sizes)
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
    if out.exists() and (not out.is_dir() or not is_bare(out)):
        match resume, overwrite:
            case True, _:
                tell(f"would go on with the run in {out}")
            case _, True:
                tell(f"would remove the run in {out} first")
            case _:
                tell(f"would refuse to start: {out} is not empty (--resume, --overwrite or another --out)")
