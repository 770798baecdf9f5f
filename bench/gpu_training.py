"""Training speed on one GPU, beside its peers in the same run and beside the floor.

    python -m bench.gpu_training --store RUN/data/train [--rows base,big,lstm,lm,feeding] [--updates 30]

Every row trains on the same real batches (a token store that `saccade train` has prepared) in bfloat16 and counts
non-padding target tokens a second; the peer of a row gets the same sentences, padded, in the same budget. Utilisation
is what the matrix products of the model alone would take at the rate measured for a large product, in the same run.
Prints a line of JSON a row and a table last.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.config import parse
from saccade.data.batching import Plan, batches
from saccade.data.store import Store
from saccade.models.build import build_translator
from saccade.models.flops import training_flops
from saccade.models.translator import Translator, TranslatorConfig
from saccade.train.loop import Progress, Trainer
from saccade.train.optimizer import make_optimizer
from saccade.train.profile import matrix_rate
from saccade.train.settings import TrainConfig
from saccade.types import Batch

ROUNDS = 5
Step = Callable[[Batch], None]


def transformer(width: int, heads: int, inner: int, dropout: float) -> dict[str, Any]:
    side = {"kind": "transformer", "layers": 6, "width": width, "heads": heads, "feedforward": inner}
    side |= {"dropout": dropout, "norm": "post"}
    return {"encoder": side, "decoder": dict(side), "tie": "all"}


def lstm(layers: int, width: int, *, feed_input: bool) -> dict[str, Any]:
    side = {"kind": "lstm", "layers": layers, "width": width, "dropout": 0.2}
    attention = {"attention": {"score": "general"}, "feed_input": feed_input}
    return {"encoder": side, "decoder": side | attention}


@dataclass(frozen=True)
class Measured:
    row: str
    who: str
    parameters: int
    batch_tokens: int
    target_tokens_per_second: float
    lowest: float
    highest: float
    tokens_per_second: float
    """Source and target."""
    utilisation: float | None
    peak_gib: float


@dataclass
class Bench:
    store: Store
    vocabulary: int
    device: torch.device
    updates: int
    rate: float
    """FLOP/s of a large product in bfloat16."""

    def batches(self, budget: int) -> list[Batch]:
        stream = batches(self.store, Plan(self.store.lengths, budget, seed=1))
        return [batch for _, batch in islice(stream, self.updates)]

    def measure(
        self, row: str, who: str, model: nn.Module, step: Step, some: list[Batch], flops: int, budget: int
    ) -> Measured:
        """Rounds over the same batches; the first, in which kernels are built and graphs captured, is left out."""
        target = sum(int(batch.target.layout.lengths_B.sum()) for batch in some)
        both = target + sum(int(batch.source.layout.lengths_B.sum()) for batch in some)
        seconds = []
        for number in range(ROUNDS + 1):
            if number == 1 and self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            for batch in some:
                step(batch)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        rates = [target / each for each in seconds[1:]]
        median = statistics.median(rates)
        peak = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0.0
        utilisation = flops / (target / median) / self.rate if flops else None
        parameters = sum(p.numel() for p in model.parameters())
        return Measured(
            row, who, parameters, budget, median, min(rates), max(rates), median * both / target, utilisation, peak
        )

    def saccade(self, row: str, config: dict[str, Any], budget: int) -> Iterator[Measured]:
        model = self._built(config)
        some = self.batches(budget)
        flops = sum(training_flops(model, batch.to(self.device)) for batch in some)
        train = TrainConfig(precision="bf16", smoothing=0.1, batch_tokens=budget, updates=10**9)
        optimizer = make_optimizer(train.optimizer, model)
        trainer = Trainer(model, optimizer, train, Progress(), seed=1, width=model.decoder.width, device=self.device)
        yield self.measure(row, "saccade", model, _trained(trainer), some, flops, budget)

    def _built(self, config: dict[str, Any]) -> Translator:
        torch.manual_seed(0)
        return build_translator(parse(TranslatorConfig, config), self.vocabulary, self.vocabulary).to(self.device)

    def marian(
        self, row: str, width: int, heads: int, inner: int, budget: int, *, compiled: bool
    ) -> Iterator[Measured]:
        """Hugging Face's Marian of the same size, padded batches, fused AdamW, compiled with dynamic shapes."""
        from transformers import MarianConfig, MarianMTModel

        config = MarianConfig(
            vocab_size=self.vocabulary, d_model=width, encoder_layers=6, decoder_layers=6,
            encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=inner, decoder_ffn_dim=inner,
            pad_token_id=0, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=2, dropout=0.1,
            activation_function="relu", max_position_embeddings=512, scale_embedding=True,
        )  # fmt: skip
        torch.manual_seed(0)
        model = MarianMTModel(config).to(self.device).train()
        forward = torch.compile(model, dynamic=True) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

        def step(batch: Batch) -> None:
            ids_BS, ids_BT = (_padded(side).to(self.device, non_blocking=True) for side in (batch.source, batch.target))
            labels_BT = ids_BT.masked_fill(ids_BT == 0, -100)
            start_B1 = torch.ones_like(ids_BT[:, :1])
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, torch.bfloat16):
                logits = forward(
                    input_ids=ids_BS,
                    attention_mask=(ids_BS != 0).long(),
                    decoder_input_ids=torch.cat([start_B1, ids_BT[:, :-1]], 1),
                ).logits
                loss = F.cross_entropy(logits.flatten(0, 1).float(), labels_BT.flatten(), label_smoothing=0.1)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        who = f"hugging face{', compiled' if compiled else ''}"
        yield self.measure(row, who, model, step, self.batches(budget), 0, budget)


def _trained(trainer: Trainer) -> Step:
    def step(batch: Batch) -> None:
        trainer._profiled_update(iter([(trainer.progress.cursor, batch)]))

    return step


def _padded(side: Any) -> Tensor:
    from saccade.nn.masks import pad

    return pad(side.ids, side.layout)


def rows(bench: Bench, wanted: list[str], budget: int) -> Iterator[Measured]:
    for row in wanted:
        match row:
            case "base":
                yield from bench.saccade(row, transformer(512, 8, 2048, 0.1), budget)
                yield from bench.marian(row, 512, 8, 2048, budget, compiled=False)
                yield from bench.marian(row, 512, 8, 2048, budget, compiled=True)
            case "big":
                yield from bench.saccade(row, transformer(1024, 16, 4096, 0.3), budget)
            case "lstm":
                yield from bench.saccade(row, lstm(4, 1024, feed_input=False), budget)
            case "feeding":
                yield from bench.saccade(row, lstm(2, 512, feed_input=True), budget)
            case _:
                raise SystemExit(f"--rows: there is no row {row!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="a prepared token store: RUN/data/train")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--rows", default="base,big,lstm,feeding")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--updates", type=int, default=30, help="batches of a round")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    bench = Bench(
        Store.open(arguments.store),
        arguments.vocabulary,
        device,
        arguments.updates,
        matrix_rate(device, torch.bfloat16),
    )
    found = []
    for measured in rows(bench, arguments.rows.split(","), arguments.batch_tokens):
        print(json.dumps(asdict(measured)), flush=True)
        found.append(measured)
    commit = os.environ.get("SACCADE_COMMIT", "")
    print(f"\n{torch.__version__} {commit} · a large bf16 product: {bench.rate / 1e12:.0f} TFLOP/s")
    print(f"{'row':<10}{'who':<24}{'params':>8}{'tgt tok/s':>12}{'range':>20}{'src+tgt':>12}{'of peak':>9}{'GiB':>7}")
    for each in found:
        share = "" if each.utilisation is None else f"{each.utilisation:.0%}"
        span = f"{each.lowest / 1e3:.0f}k–{each.highest / 1e3:.0f}k"
        print(
            f"{each.row:<10}{each.who:<24}{each.parameters / 1e6:>7.1f}M{each.target_tokens_per_second:>12,.0f}"
            f"{span:>20}{each.tokens_per_second:>12,.0f}{share:>9}{each.peak_gib:>7.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
