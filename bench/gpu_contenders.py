"""Models that train on the same sentences: ours, and those it is compared with.

All run in bfloat16 with a fused Adam and the gradient's norm cut at 1.
Shapes: B sentences, S source tokens, T target tokens, V vocabulary, D width.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.gpu_timing import Contender, Step
from saccade.config import parse
from saccade.data.batching import Plan, batches
from saccade.data.store import Store
from saccade.loss import cross_entropy, output_loss
from saccade.models.build import build_translator
from saccade.models.flops import TRAINING, training_flops
from saccade.models.translator import Translator, TranslatorConfig
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.masks import pad
from saccade.nn.recurrent import RecurrentLayers
from saccade.train.loop import Progress, Trainer
from saccade.train.numerics import autocast
from saccade.train.optimizer import AdamConfig, make_optimizer
from saccade.train.settings import TrainConfig
from saccade.types import END, PAD, START, Batch, Layout, Tokens

SMOOTHING, CLIP = 0.1, 1.0
FLOPS_BATCHES = 2


@dataclass(frozen=True)
class TransformerShape:
    layers: int
    width: int
    heads: int
    inner: int
    dropout: float

    def config(self) -> dict[str, Any]:
        side = {"kind": "transformer", "layers": self.layers, "width": self.width, "heads": self.heads}
        side |= {"feedforward": self.inner, "dropout": self.dropout, "norm": "post"}
        return {"encoder": side, "decoder": dict(side), "tie": "all"}


@dataclass(frozen=True)
class LstmShape:
    layers: int
    width: int
    feed_input: bool

    def config(self) -> dict[str, Any]:
        side = {"kind": "lstm", "layers": self.layers, "width": self.width, "dropout": 0.2}
        attention = {"attention": {"score": "general"}, "feed_input": self.feed_input}
        return {"encoder": side, "decoder": side | attention}


Shape = TransformerShape | LstmShape


@dataclass(frozen=True)
class LanguageModelShape:
    layers: int
    width: int
    rows: int
    steps: int
    dropout: float
    """Between the layers alone."""


@dataclass(frozen=True)
class Workshop:
    """Where contenders are built."""

    store: Store
    vocabulary: int
    device: torch.device
    updates: int
    """Batches of a round."""

    def batches(self, budget: int, count: int | None = None) -> list[Batch]:
        stream = batches(self.store, Plan(self.store.lengths, budget, seed=1))
        return [batch for _, batch in islice(stream, count or self.updates)]

    def saccade(self, shape: Shape, budget: int, some: list[Batch], *, captured: bool = True) -> Contender:
        """As `saccade train` updates: once it has seen a size of batch twice, or before."""
        model = self._translator(shape)
        flops = self._flops(model, some)
        config = TrainConfig(precision="bf16", smoothing=SMOOTHING, clip=CLIP, batch_tokens=budget, updates=10**9)
        optimizer = make_optimizer(config.optimizer, model)
        trainer = Trainer(model, optimizer, config, Progress(), seed=1, width=model.decoder.width, device=self.device)
        if trainer.gradient._graphs is not None:
            trainer.gradient._graphs.captures = captured

        def step(batch: Batch) -> Tensor:
            return trainer._profiled_update(iter([(trainer.progress.cursor, batch)])).nll

        return Contender("saccade" if captured else "saccade, sizes not seen before", model, step, some, flops)

    def marian(self, shape: TransformerShape, some: list[Batch], *, compiled: bool) -> Contender:
        """Hugging Face's Marian of the same size, with dropout where ours has it; batches are padded beforehand."""
        from transformers import MarianMTModel

        torch.manual_seed(0)
        model = MarianMTModel(self._marian_config(shape)).to(self.device).train()
        forward = torch.compile(model, dynamic=True) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.0, fused=True)

        def loss_of(batch: Batch) -> Tensor:
            ids_BS, ids_BT = batch.source.ids, batch.target.ids
            logits_BTV = forward(
                input_ids=ids_BS,
                attention_mask=(ids_BS != PAD).long(),
                decoder_input_ids=batch.decoder_input.ids,
                use_cache=False,
            ).logits
            gold_N = ids_BT.masked_fill(ids_BT == PAD, -100).flatten()
            return F.cross_entropy(logits_BTV.flatten(0, 1).float(), gold_N, label_smoothing=SMOOTHING)

        who = f"Hugging Face Marian, {'compiled' if compiled else 'eager'}"
        step = self._step(model, optimizer, loss_of)
        return Contender(who, model, step, [self._padded(batch) for batch in some])

    def _marian_config(self, shape: TransformerShape) -> Any:
        from transformers import MarianConfig

        return MarianConfig(
            vocab_size=self.vocabulary, d_model=shape.width, encoder_layers=shape.layers, decoder_layers=shape.layers,
            encoder_attention_heads=shape.heads, decoder_attention_heads=shape.heads, encoder_ffn_dim=shape.inner,
            decoder_ffn_dim=shape.inner, dropout=shape.dropout, activation_dropout=shape.dropout, attention_dropout=0.0,
            activation_function="relu", scale_embedding=True, max_position_embeddings=1024, pad_token_id=PAD,
            eos_token_id=END, forced_eos_token_id=END, decoder_start_token_id=START,
        )  # fmt: skip

    def naive_feeding(self, shape: LstmShape, some: list[Batch]) -> Contender:
        """The same model position by position: what a plain loop over the decoder's step costs."""
        model = self._translator(shape).train()
        optimizer = make_optimizer(AdamConfig(rate=1e-4), model)

        def loss_of(batch: Batch) -> Tensor:
            given_BT = batch.decoder_input.ids
            state = model.start(model.encode(batch.source), given_BT.shape[1])
            steps = []
            for last_B in given_BT.unbind(1):
                logits_BV, state = model.step(last_B, state)
                steps.append(logits_BV)
            loss = cross_entropy(torch.stack(steps, 1), batch.target, SMOOTHING)
            return loss.total / loss.tokens

        step = self._step(model, optimizer, loss_of)
        return Contender("saccade, step by step", model, step, [self._padded(batch) for batch in some])

    def language_model(self, shape: LanguageModelShape) -> Contender:
        """Our layers and our loss."""
        torch.manual_seed(0)
        embed = TokenEmbedding(self.vocabulary, shape.width)
        layers = RecurrentLayers(
            "lstm", shape.width, shape.width, shape.layers, bidirectional=False, dropout=shape.dropout
        )
        output = nn.Linear(shape.width, self.vocabulary)
        model = nn.ModuleList([embed, layers, output]).to(self.device).train()
        optimizer = make_optimizer(AdamConfig(kind="adam", rate=1e-4), model)
        nowhere = torch.zeros((), dtype=torch.long, device=self.device)

        def loss_of(batch: Batch) -> Tensor:
            x_BTD = embed(batch.decoder_input.ids, nowhere)
            out_BTD, _ = layers(x_BTD, batch.target.layout)
            loss = output_loss(out_BTD, output, batch.target)
            return loss.total / loss.tokens

        some = self._lines(shape)
        # A layer maps its input and its state to four gates; the output layer maps to the vocabulary.
        weights = shape.layers * 8 * shape.width**2 + shape.width * self.vocabulary
        flops = TRAINING * 2 * weights * shape.rows * shape.steps * len(some)
        return Contender("saccade", model, self._step(model, optimizer, loss_of), some, flops)

    def bare_language_model(self, shape: LanguageModelShape, *, half: bool) -> Contender:
        """The same in torch's own modules.

        Under autocast torch runs cuDNN's LSTM in float16, even where bfloat16 was asked for. With `half` it is bfloat16
        throughout instead: weights, and so gradients and Adam's memory, are held in it, which moves half the bytes.
        """
        torch.manual_seed(0)
        embed = nn.Embedding(self.vocabulary, shape.width)
        layers = nn.LSTM(shape.width, shape.width, shape.layers, batch_first=True, dropout=shape.dropout)
        output = nn.Linear(shape.width, self.vocabulary)
        model = nn.ModuleList([embed, layers, output]).to(self.device, torch.bfloat16 if half else None).train()
        optimizer = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), fused=True)

        def loss_of(batch: Batch) -> Tensor:
            # On most CPUs oneDNN has no LSTM in bfloat16.
            with nullcontext() if self.device.type == "cuda" else torch.backends.mkldnn.flags(enabled=False):
                out_BTD, _ = layers(embed(batch.decoder_input.ids))
            return F.cross_entropy(output(out_BTD).flatten(0, 1).float(), batch.target.ids.flatten())

        who = "bare torch, bf16 weights" if half else "bare torch, autocast"
        return Contender(who, model, self._step(model, optimizer, loss_of, cast=not half), self._lines(shape))

    def _step(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[Batch], Tensor], cast: bool = True
    ) -> Step:
        def step(batch: Batch) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with autocast("bf16" if cast else "fp32", self.device):
                loss = loss_of(batch.to(self.device))
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            return loss.detach()

        return step

    def _translator(self, shape: Shape) -> Translator:
        torch.manual_seed(0)
        config = parse(TranslatorConfig, shape.config())
        return build_translator(config, self.vocabulary, self.vocabulary).to(self.device)

    def _flops(self, model: Translator, some: list[Batch]) -> float:
        """Of a round: counted for some batches, since the readable path is slow, and scaled by their tokens."""
        counted = some[:FLOPS_BATCHES]
        flops = sum(training_flops(model, batch.to(self.device)) for batch in counted)
        tokens = [sum(int(batch.target.layout.lengths_B.sum()) for batch in part) for part in (some, counted)]
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return flops * tokens[0] / tokens[1]

    def _padded(self, batch: Batch) -> Batch:
        """Ahead of time, and in memory from which a copy needs no waiting: a peer's loader could do as much."""
        source, target = (Tokens(pad(side.ids, side.layout), side.layout.unpacked()) for side in _sides(batch))
        return self._pinned(Batch(source, target))

    def _pinned(self, batch: Batch) -> Batch:
        if self.device.type != "cuda":
            return batch
        source, target = (side.map(_pinned) for side in _sides(batch))
        return replace(batch, source=source, target=target)

    def _lines(self, shape: LanguageModelShape) -> list[Batch]:
        """Running text in even lines; there is no source."""
        layout, nothing = (Layout.padded([length] * shape.rows, length) for length in (shape.steps, 0))
        source = Tokens(torch.zeros(shape.rows, 0, dtype=torch.long), nothing)
        each = shape.rows * shape.steps
        running = torch.from_numpy(self.store.targets.values[: each * self.updates].astype("int64"))
        lines = running.view(self.updates, shape.rows, shape.steps)
        return [self._pinned(Batch(source, Tokens(ids_BT, layout))) for ids_BT in lines]


def _sides(batch: Batch) -> tuple[Tokens, Tokens]:
    return batch.source, batch.target


def _pinned(x: Tensor) -> Tensor:
    return x.pin_memory() if x.numel() else x
