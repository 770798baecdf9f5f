"""A Transformer of Hugging Face with its own trainer, beside a recipe of ours: the same tokens, batches and budget.

    python -m bench.peers.hugging_face --set row=europarl-160k --set recipe=europarl-transformer --seed 1 \
        [--device cuda] [--set train.updates=100]…

`row` names the metrics and test sets, `recipe` what stands beside it; all other changes are the recipe's own. The text
is cut by our tokenizer and the batches are those of our plan, padded; optimiser, rate, schedule, precision, smoothing,
clipping, validation and the moving average are as the recipe says. The model, the training loop and the search are
those of transformers. Prints a line of JSON as bench.trial does. Needs transformers and accelerate.

Shapes: B sentences, S source tokens, T target tokens.
"""

import argparse
import importlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bench.peers.hugging_face_models import network
from bench.peers.hugging_face_search import Search
from bench.prepared import made_by, prepared
from bench.row import read_row
from bench.test_sets import read_sides
from bench.trial import made_with, peak_memory
from saccade.data.batching import Plan, Rows
from saccade.data.files import Counts
from saccade.data.splits import split_pairs
from saccade.data.store import Store
from saccade.device import pick_device
from saccade.metrics.measure import measure
from saccade.models.flops import training_flops
from saccade.recipe import load_recipe
from saccade.tasks.translate import TranslateReady, TranslateRecipe
from saccade.train.loop import is_better
from saccade.train.optimizer import AdamConfig
from saccade.train.profile import matrix_rate
from saccade.train.schedule import InverseSqrtSchedule
from saccade.types import PAD, START

IGNORED = -100
WORKERS = 4
LOG_EVERY = 50
LARGE_PRODUCT = 8192


def main() -> None:
    options = _options()
    names = dict(change.split("=", 1) for change in options.set)
    changes = [change for change in options.set if change.split("=", 1)[0] not in ("row", "recipe")]
    recipe, base = load_recipe(names["recipe"], (*changes, f"seed={options.seed}"))
    if not isinstance(recipe, TranslateRecipe):
        sys.exit(f"recipe={names['recipe']} is no translation.")
    device = pick_device(options.device)
    with tempfile.TemporaryDirectory() as scratch:
        tokens = prepared(recipe, base, options.prepared or Path(scratch))
        told = _trial(recipe.make_task(base).open(tokens), base, names["row"], device) | made_by(tokens)
    print(json.dumps({"seed": options.seed, "settings": options.set} | told | made_with()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.hugging_face")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="where tokens are kept for all that read them")
    options = parser.parse_args()
    if missing := {"row", "recipe"} - {change.split("=", 1)[0] for change in options.set}:
        parser.error(f"--set {' and --set '.join(f'{name}=…' for name in sorted(missing))} must be given")
    return options


def _trial(ready: TranslateReady, base: Path, row_name: str, device: torch.device) -> dict[str, Any]:
    row, recipe = read_row(row_name), ready.recipe
    torch.manual_seed(recipe.seed)
    if not ready.pair.shared:
        sys.exit("The peer has one vocabulary for both sides; the recipe must share it (text.shared).")
    model = network(recipe.model, ready.pair.source.size).to(device)
    search = Search(model, ready.pair, recipe.decode, device)
    pairs = {split: list(split_pairs(recipe.data, split, base=base, counts=Counts())) for split in ("valid", "test")}
    sides = {split: ([each.source for each in some], [each.target for each in some]) for split, some in pairs.items()}
    watch = Watch(ready, model, device, lambda: measure("bleu", search(sides["valid"][0], beam=1), sides["valid"][1]))
    train(ready, model, watch, device)
    watch.load_best()
    metrics = row.metrics or recipe.metrics

    def scores(sources: Sequence[str], references: list[str]) -> list[dict[str, Any]]:
        outputs = search(sources, beam=recipe.decode.beam)
        return [measure(name, outputs, references).to_dict() for name in metrics]  # type: ignore[arg-type]

    rate = statistics.median(watch.rates) if watch.rates else None
    told = {
        "valid": watch.best,
        "metric": "bleu",
        "best_update": watch.best_update,
        "averaged": 0,
        "updates": watch.update,
        "tokens": watch.tokens,
        "seconds": watch.seconds,
        "target_tokens_per_second": rate,
        "parameters": sum(each.numel() for each in model.parameters() if each.requires_grad),  # sinusoids are none
        **peak_memory(device.type),
    }
    if rate and device.type == "cuda":
        told["utilisation"] = _utilisation(ready, rate, device)
    told["scores"] = scores(*sides["test"])
    return told | {"tests": {name: scores(*read_sides(files)) for name, files in row.tests.items()}}


def _utilisation(ready: TranslateReady, rate: float, device: torch.device) -> float:
    """Of the rate of a large product, by the products of our model of that size, which the peer has to do as well."""
    example = ready.example()
    flops = training_flops(ready.build().to(device), example.to(device)) / example.target.ids.numel()
    return rate * flops / matrix_rate(device, torch.bfloat16, LARGE_PRODUCT)


class Batches(torch.utils.data.Dataset[dict[str, Tensor]]):
    """The batches of our plan in its order, epoch after epoch, as many as there are updates; each padded."""

    def __init__(self, store: Store, plan: Plan, updates: int) -> None:
        self.store = store
        self.rows: list[Rows] = list(islice(_endless(plan), updates))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int) -> dict[str, Tensor]:
        if not 0 <= k < len(self):
            raise IndexError(k)
        rows = self.rows[k].tolist()
        source_BS = padded([self.store.source(row) for row in rows], PAD)
        labels_BT = padded([self.store.target(row) for row in rows], IGNORED)
        # The trainer's label smoothing takes the labels away from the model: what the decoder reads must be there.
        before_BT = labels_BT.roll(1, dims=1).masked_fill(labels_BT.roll(1, dims=1) == IGNORED, PAD)
        before_BT[:, 0] = START
        mask_BS = (source_BS != PAD).long()
        return {
            "input_ids": source_BS,
            "attention_mask": mask_BS,
            "decoder_input_ids": before_BT,
            "labels": labels_BT,
        }


def _endless(plan: Plan) -> Iterator[Rows]:
    for number in count():
        epoch = plan.epoch(number)
        yield from (epoch[k] for k in range(len(epoch)))


def padded(sentences: Sequence[Any], fill: int) -> Tensor:
    ids = np.full((len(sentences), max(map(len, sentences))), fill, dtype=np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = sentence
    return torch.from_numpy(ids)


@dataclass
class Watch:
    """What happens between updates: the clock, the moving average, and validation, which chooses the best weights."""

    ready: TranslateReady
    model: Any
    device: torch.device
    validate: Callable[[], Any]
    best: dict[str, float] = field(default_factory=dict)
    best_update: int = 0
    update: int = 0
    tokens: int = 0
    rates: list[float] = field(default_factory=list)
    batch_tokens: list[int] = field(default_factory=list)
    """Target tokens of each batch, END among them."""

    def __post_init__(self) -> None:
        self.weights = [each.detach() for each in self.model.parameters()]
        self.average = [each.clone() for each in self.weights]
        self.best_weights = self.average
        self.began = self.mark = time.perf_counter()
        self.counted = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def begin(self, batches: Batches) -> None:
        lengths_N = batches.store.lengths[:, 1]
        self.batch_tokens = [int(lengths_N[rows].sum()) for rows in batches.rows]
        self.began = self.mark = time.perf_counter()

    def after_update(self) -> bool:
        """Whether training goes on."""
        train = self.ready.recipe.train
        self.tokens += self.batch_tokens[self.update]
        self.update += 1
        kept = min(train.ema or 0.0, (1 + self.update) / (10 + self.update))
        torch._foreach_lerp_(self.average, self.weights, 1.0 - kept)
        if self.update % LOG_EVERY == 0:
            self._log()
        goes_on = self.update < train.updates and (train.minutes is None or self.seconds < 60 * train.minutes)
        if self.update % train.validate_every == 0 or not goes_on:
            self._validate()
        return goes_on

    def _log(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.rates.append((self.tokens - self.counted) / (now - self.mark))
        self.mark, self.counted = now, self.tokens
        print(f"{self.update}: {self.rates[-1]:,.0f} tokens/s, {self.seconds:.0f} s", file=sys.stderr, flush=True)

    @torch.no_grad()
    def _validate(self) -> None:
        """Of the averaged weights; the time counts as training's, but not in the rate."""
        began = time.perf_counter()
        own = [each.clone() for each in self.weights]
        torch._foreach_copy_(self.weights, self.average)
        self.model.eval()
        values = {"loss": self._loss(), "bleu": float(self.validate().value)}
        self.model.train()
        torch._foreach_copy_(self.weights, own)
        if is_better(values, self.best, "bleu"):
            self.best, self.best_update = values, self.update
            self.best_weights = [each.clone() for each in self.average]
        print(f"{self.update}: {values} on the validation data", file=sys.stderr, flush=True)
        self.mark += time.perf_counter() - began

    def _loss(self) -> float:
        """Nats a token, without smoothing, as ours is told."""
        store = self.ready.stores["valid"]
        plan = Plan(store.lengths, self.ready.recipe.train.planned_tokens, seed=0)
        total = 0.0
        batches = Batches(store, plan, len(plan.epoch(0)))
        for number in range(len(batches)):
            given = {name: each.to(self.device) for name, each in batches[number].items()}
            labels_BT = given.pop("labels")
            logits_NV = self.model(**given, use_cache=False).logits.flatten(0, 1).float()
            total += float(F.cross_entropy(logits_NV, labels_BT.flatten(), ignore_index=IGNORED, reduction="sum"))
        return total / float(store.lengths[:, 1].sum())

    @torch.no_grad()
    def load_best(self) -> None:
        torch._foreach_copy_(self.weights, self.best_weights)
        self.model.eval()


def train(ready: TranslateReady, model: Any, watch: Watch, device: torch.device) -> None:
    """With transformers' own trainer."""
    transformers: Any = importlib.import_module("transformers")
    recipe, cuda = ready.recipe, device.type == "cuda"
    settings, optimizer = recipe.train, recipe.train.optimizer
    if not (isinstance(optimizer, AdamConfig) and isinstance(settings.schedule, InverseSqrtSchedule)):
        sys.exit("the trainer is given AdamW and the inverse square root; the recipe has others.")
    batches = Batches(ready.stores["train"], _plan(ready), settings.updates)
    with tempfile.TemporaryDirectory() as nowhere:
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=nowhere,
            max_steps=settings.updates,
            learning_rate=optimizer.rate,
            lr_scheduler_type="inverse_sqrt",
            warmup_steps=settings.schedule.warmup,
            optim="adamw_torch_fused" if cuda else "adamw_torch",
            adam_beta1=optimizer.betas[0],
            adam_beta2=optimizer.betas[1],
            adam_epsilon=optimizer.epsilon,
            weight_decay=optimizer.decay,
            max_grad_norm=settings.clip or math.inf,
            label_smoothing_factor=settings.smoothing,
            bf16=settings.precision == "bf16",
            use_cpu=not cuda,
            seed=recipe.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = transformers.Seq2SeqTrainer(model=model, args=arguments, train_dataset=batches)
        trainer.remove_callback(transformers.PrinterCallback)  # it writes to stdout
        # Batches come whole: of like-long sentences within a number of tokens, which the trainer's own cannot be.
        trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(
            batches, batch_size=None, num_workers=WORKERS if cuda else 0, pin_memory=cuda
        )

        def after_update(_self: Any, _args: Any, _state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = not watch.after_update()

        trainer.add_callback(type("Watching", (transformers.TrainerCallback,), {"on_step_end": after_update}))
        watch.begin(batches)
        trainer.train()


def _plan(ready: TranslateReady) -> Plan:
    settings = ready.recipe.train
    return Plan(ready.stores["train"].lengths, settings.planned_tokens, ready.recipe.seed, settings.batch_sentences)


if __name__ == "__main__":
    main()
