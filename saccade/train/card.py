"""The model card: what a run folder says of itself to whoever finds it."""

from collections.abc import Mapping
from typing import Any

from saccade.config import to_yaml
from saccade.train.events import Finished, Prepared

_HUB = {
    "translate": "translation",
    "language-model": "text-generation",
    "masked-language-model": "fill-mask",
    "classify": "text-classification",
    "tag": "token-classification",
}
"""Task → what model hubs call it, where that is another name."""
_USE = {
    "translate": "saccade translate RUN < input.txt > output.txt",
    "language-model": "saccade generate RUN --samples 3",
    "masked-language-model": 'saccade fill RUN "a line with a [MASK] in it"',
    "classify": "saccade classify RUN < texts.txt > labels.txt",
    "tag": "saccade tag RUN < input.txt > output.txt",
}
"""Task → the command that a model of it is for."""


def _sides(model: dict[str, Any]) -> list[str]:
    """The parts of a model, in the order that data pass through them."""
    levels = [f"{model[level]['encoder']['kind']} over {level}" for level in ("words", "sentences") if level in model]
    return levels + [f"{model[side]['kind']} {side}" for side in ("encoder", "decoder") if side in model]


def card(recipe: dict[str, Any], prepared: Prepared, finished: Finished) -> str:
    """Markdown with the front matter that model hubs read."""
    task = recipe["task"]
    front = {"library_name": "saccade", "pipeline_tag": _HUB.get(task, task), "tags": [task]}
    sides = _sides(recipe["model"])
    sizes = ", ".join(f"{size:,} {what}" for what, size in prepared.vocabularies.items())
    scores = ", ".join(f"{name} {value:.4g}" for name, value in finished.best.items())
    made = f"mean of {finished.averaged} checkpoints" if finished.averaged else f"update {finished.best_update:,}"
    chosen = (
        f"The weights are those of the best validation ({made}): {scores}.\nThese numbers chose the model, so they are "
        "not a test; `saccade evaluate` scores it on other data."
        if finished.best
        else "It was stopped before its first validation; the weights are the last."
    )
    remarks = "".join(f"- {remark}\n" for remark in prepared.remarks)
    return f"""---
{to_yaml(front)}---
# {finished.path.absolute().name}

{" → ".join(sides)}, {prepared.parameters:,} parameters, text as {_tokens(recipe["text"])} ({sizes}).

## Data

Trained on {prepared.examples:,} {prepared.unit} ({recipe["data"]["kind"]}).

{remarks}
## Training

{finished.update:,} updates, {finished.tokens:,} tokens, {finished.seconds:.0f} seconds on {prepared.device},
seed {recipe["seed"]}. {chosen}
The whole recipe is train.yaml, the log metrics.jsonl.

## Use

    {_USE.get(task, "saccade info RUN").replace("RUN", finished.path.absolute().name)}

## Limits

It has seen nothing but the data above: on other text, expect worse. It has no notion of what it does not know.
"""


def _tokens(text: Mapping[str, Any]) -> str:
    return f"the tokens of {text['run']}" if text["kind"] == "run" else f"{text['kind']} tokens"
