"""The model card: what a run folder says of itself to whoever finds it."""

from typing import Any

from saccade.config import to_yaml
from saccade.train.events import Finished, Prepared


def card(recipe: dict[str, Any], prepared: Prepared, finished: Finished) -> str:
    """Markdown with the front matter that model hubs read."""
    front = {"library_name": "saccade", "pipeline_tag": "translation", "tags": ["sequence-to-sequence"]}
    sides = [f"{recipe['model'][side]['kind']} {side}" for side in ("encoder", "decoder")]
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
# {finished.path.name}

{sides[0]} → {sides[1]}, {prepared.parameters:,} parameters, text as {recipe["text"]["kind"]} tokens
({prepared.vocabularies[0]:,} source, {prepared.vocabularies[1]:,} target).

## Data

Trained on {prepared.pairs:,} pairs ({recipe["data"]["kind"]}).

{remarks}
## Training

{finished.update:,} updates, {finished.tokens:,} target tokens, {finished.seconds:.0f} seconds on {prepared.device},
seed {recipe["seed"]}. {chosen}
The whole recipe is train.yaml, the log metrics.jsonl.

## Use

    saccade translate {finished.path.name} < input.txt > output.txt

## Limits

It has seen nothing but the data above: on other text, expect worse. It has no notion of what it does not know.
"""
