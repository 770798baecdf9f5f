"""What ensembles, a language model and the noisy channel bring on a task with few pairs and much target text.

    python -m bench.ensembles [--folder runs/ensembles] [--updates 500] [--page docs/results/ensembles.md]

Sentences of the generated grammar without their vowels → the sentences: 1,000 pairs, 10,000 sentences of target text.
Three small translators (LSTM, GRU, Transformer) share a vocabulary of characters; the language model takes their
tokenizer; the channel takes the vowels out. Weights of language model and channel are chosen on validation data.
Trained runs that are there already are used.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import saccade
from saccade.data.grammar import sentences
from saccade.metrics.names import MetricName
from saccade.recipe import parse_recipe

PAIRS, TEXT, HELD_OUT, LONGEST = 1000, 10_000, 300, 36
METRICS: tuple[MetricName, ...] = ("exact_match", "chrf")
BEAM = 5
RECURRENT = {
    kind: {
        "encoder": {"kind": kind, "width": 96, "embedding": 32, "bidirectional": True, "dropout": 0.2},
        "decoder": {"kind": kind, "width": 96, "embedding": 32, "dropout": 0.2, "attention": {"score": "general"}},
    }
    for kind in ("lstm", "gru")
}
BLOCKS = {"kind": "transformer", "layers": 2, "width": 96, "heads": 4, "feedforward": 192, "dropout": 0.1}
MODELS: dict[str, Any] = {**RECURRENT, "transformer": {"encoder": BLOCKS, "decoder": BLOCKS}}
WRITER = {"decoder": {"kind": "lstm", "layers": 1, "width": 192, "embedding": 32}}


def without_vowels(text: str) -> str:
    return re.sub("[aeiou]", "", text)


def write_data(folder: Path) -> None:
    """Distinct sentences: none of those held out is among the pairs or in the text."""
    made = [each for each in dict.fromkeys(sentences(1, "train", 8 * TEXT)) if len(each) <= LONGEST]
    parts = {"test": made[:HELD_OUT], "valid": made[HELD_OUT : 2 * HELD_OUT]}
    parts["train"] = made[2 * HELD_OUT : 2 * HELD_OUT + PAIRS]
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in parts.items():
        (folder / f"{split}.whole").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        bare = "".join(f"{without_vowels(line)}\n" for line in lines)
        (folder / f"{split}.bare").write_text(bare, encoding="utf-8")
    text = made[2 * HELD_OUT : 2 * HELD_OUT + TEXT]
    (folder / "text.whole").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def training(updates: int, rate: float) -> dict[str, Any]:
    return {
        "updates": updates,
        "batch_tokens": 1024,
        "validate_every": 100,
        "optimizer": {"kind": "adamw", "rate": rate},
        "schedule": {"kind": "inverse-sqrt", "warmup": 100},
    }


def recipe_of(name: str, updates: int) -> dict[str, Any]:
    if name == "lm":
        text = {"kind": "text", "train": "text.whole", "valid": "valid.whole"}
        shared = {"text": {"kind": "run", "run": "lstm"}, "train": training(updates, 5e-3)}
        return {"task": "language-model", "data": text, "model": WRITER, **shared}
    source, target = ("whole", "bare") if name == "channel" else ("bare", "whole")
    files = {split: {"source": f"{split}.{source}", "target": f"{split}.{target}"} for split in ("train", "valid")}
    model = MODELS["gru" if name == "channel" else name]
    return {
        "task": "translate",
        "data": {"kind": "files", **files},
        "text": {"kind": "char", "shared": True},
        "model": model,
        "train": training(updates, 3e-3 if name == "transformer" else 1e-2),
    }


def trained(folder: Path, name: str, updates: int) -> saccade.Model:
    if not (folder / name / "model.safetensors").exists():
        tree = recipe_of(name, updates)
        saccade.train(parse_recipe(tree), folder / name, base=folder, device="cpu", overwrite=True)
    return saccade.load(folder / name, "cpu")


def measured(model: saccade.Model, folder: Path, split: str) -> tuple[float, float]:
    lines = [(folder / f"{split}.{side}").read_text(encoding="utf-8").splitlines() for side in ("bare", "whole")]
    decode = model.decoding(beam=BEAM)
    found = model.evaluate(lines[0], lines[1], metrics=METRICS, decode=decode)
    return found["exact_match"].value, found["chrf"].value


def rows(folder: Path, updates: int) -> Iterator[tuple[str, saccade.Model]]:
    """What is measured, by name; the weights by the exact match on validation data."""
    lstm, gru, transformer = (trained(folder, name, updates) for name in MODELS)
    lm, channel = trained(folder, "lm", updates), trained(folder, "channel", updates)
    yield from {"LSTM": lstm, "GRU": gru, "Transformer": transformer}.items()
    yield "LSTM + GRU", saccade.ensemble([lstm, gru])
    yield "LSTM + Transformer", saccade.ensemble([lstm, transformer])
    all_three = saccade.ensemble([lstm, gru, transformer])
    yield "all three, log-linear", all_three
    yield "all three, linear", saccade.ensemble([lstm, gru, transformer], mix="linear")
    for name, model in (("LSTM", lstm), ("all three", all_three)):
        weight = max((0.05, 0.1, 0.2), key=lambda w: measured(saccade.fused(model, lm, weight=w), folder, "valid"))
        yield f"{name}, language model fused, λ = {weight}", saccade.fused(model, lm, weight=weight)
        pairs = [(a, b) for a in (0.3, 1.0) for b in (0.1, 0.3)]
        best = max(pairs, key=lambda pair: measured(_channelled(model, channel, lm, pair), folder, "valid"))
        yield (
            f"{name}, noisy channel, λ_ch = {best[0]}, λ_lm = {best[1]}",
            _channelled(model, channel, lm, best),
        )


def _channelled(
    model: saccade.Model, channel: saccade.Model, lm: saccade.Model, weights: tuple[float, float]
) -> saccade.Model:
    return saccade.reranked(model, channel=channel, channel_weight=weights[0], language_model=lm, lm_weight=weights[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/ensembles"))
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    write_data(asked.folder)
    table = ["| model | exact match | chrF |", "|---|---:|---:|"]
    for name, model in rows(asked.folder, asked.updates):
        exact, chrf = measured(model, asked.folder, "test")
        table.append(f"| {name} | {exact:.1f} | {chrf:.1f} |")
        print(table[-1], flush=True)
    if asked.page is not None:
        asked.page.write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
