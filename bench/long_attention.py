"""Attention over long sequences: time and memory of each pattern beside full attention and Hugging Face's BigBird.

    python -m bench.long_attention [--lengths 1024,4096,…] [--tokens 65536] [--out FILE] [--device cuda]

Encoders of four blocks (768 wide, 12 heads, feed-forward 3,072) in bfloat16, forward and backward of one batch of about
as many tokens at every length. *Side by side*: the same pattern without its kernel, its blocks copied beside each other
for dense ones. A second table is attention alone, replayed from a CUDA graph. A third finds where the kernel made for
short sentences stops paying: packed sentences of one length, beside flash attention (`varlen_attn`) and padded dense
attention. Run it on a GPU; `--tiny` only tries the bench. Tables come last.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from bench.kernels import both_ways
from bench.kernels import seconds as device_seconds
from saccade.config import parse
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn import kernels, triton_attention, triton_blocks
from saccade.nn.dropout import Dropout
from saccade.nn.patterns import BigBird, Pattern, Window
from saccade.types import Layout, Tokens
from saccade.view.table import markdown

VOCABULARY = 1000
THEIRS = "Hugging Face BigBird"
PATTERNS: dict[str, dict[str, Any]] = {
    "full": {"kind": "full"},
    "window": {"kind": "window", "width": 192},
    "bigbird": {"kind": "bigbird", "block": 64, "window": 1, "global_blocks": 2, "random_blocks": 3},
    "linformer": {"kind": "linformer", "slots": 256},
}


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    inner: int


USUAL, SMALLEST = Shape(4, 768, 12, 3072), Shape(1, 32, 2, 64)


def encoder(shape: Shape, pattern: dict[str, Any], longest: int) -> TransformerEncoder:
    more = {"places": longest} if pattern["kind"] == "linformer" else {}
    side = {"layers": shape.layers, "width": shape.width, "heads": shape.heads, "feedforward": shape.inner}
    config = parse(TransformerConfig, {"kind": "transformer", "dropout": 0.0, **side, "pattern": pattern | more})
    return TransformerEncoder(config, VOCABULARY)


def big_bird(shape: Shape, longest: int) -> nn.Module:
    """Hugging Face's, with the same blocks; below 1,024 tokens it would silently be dense."""
    from transformers import BigBirdConfig, BigBirdModel

    config = BigBirdConfig(
        vocab_size=VOCABULARY, hidden_size=shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        intermediate_size=shape.inner, max_position_embeddings=longest, attention_type="block_sparse", block_size=64,
        num_random_blocks=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, use_cache=False,
    )  # fmt: skip
    model: nn.Module = BigBirdModel(config, add_pooling_layer=False)
    return model


def steps(shape: Shape, length: int, rows: int, device: torch.device) -> Iterator[tuple[str, Callable[[], None]]]:
    ids_BT = torch.randint(4, VOCABULARY, (rows, length), device=device)
    tokens = Tokens(ids_BT, Layout.padded([length] * rows, length).to(device))
    for name, pattern in PATTERNS.items():
        step = _ours(encoder(shape, pattern, length).to(device).train(), tokens)
        yield name, step
        if name in ("window", "bigbird"):
            yield f"{name}, side by side", patch.object(triton_blocks, "available", lambda *_: False)(step)
        del step  # and with it a model's memory
    if find_spec("transformers") is not None and length >= 1024:
        yield THEIRS, _theirs(big_bird(shape, length).to(device, torch.bfloat16).train(), ids_BT)


def _ours(model: TransformerEncoder, tokens: Tokens) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast(tokens.ids.device.type, torch.bfloat16):
            out = model(tokens).memory
        torch.autograd.backward(out.float().square().mean())

    return step


def _theirs(model: nn.Module, ids_BT: Tensor) -> Callable[[], None]:
    """Its weights are bfloat16, which autocast would not do without: under it, its scatters fail."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(model(input_ids=ids_BT).last_hidden_state.float().square().mean())

    return step


def timed(step: Callable[[], None], device: torch.device, repeats: int) -> tuple[float, float]:
    """Seconds of one step, the least of some; and the most memory that was held, in GiB."""
    for _ in range(2):
        step()
    best = float("inf")
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return best, torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0


@dataclass(frozen=True)
class Timed:
    length: int
    rows: int
    name: str
    took: float | None
    """Seconds of a step; None where memory did not suffice."""
    peak: float

    @property
    def each(self) -> float | None:
        """Seconds a token."""
        return None if self.took is None else self.took / (self.rows * self.length)


def patterns(shape: Shape, lengths: list[int], tokens: int, device: torch.device) -> list[Timed]:
    found = []
    for length in lengths:
        rows = max(1, tokens // length)
        for name, step in steps(shape, length, rows, device):
            try:
                took, peak = timed(step, device, repeats=4)
                found.append(Timed(length, rows, name, took, peak))
            except torch.OutOfMemoryError:
                found.append(Timed(length, rows, name, None, 0.0))
            print(found[-1], file=sys.stderr, flush=True)
            del step
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return found


def table(found: list[Timed]) -> str:
    """With how many times as fast as Hugging Face's each is, and what a token costs beside the shortest length."""
    at = {(each.length, each.name): each.each for each in found}
    shortest = min(each.length for each in found)
    faster, cost = "× Hugging Face", f"a token, × at {shortest:,}"
    lines = []
    for each in found:
        line = {"length": f"{each.length:,}", "batch": str(each.rows), "attention": each.name}
        theirs, before = at.get((each.length, THEIRS)), at.get((shortest, each.name))
        if each.each is None:
            lines.append(line | {"tokens/s": "out of memory"})
            continue
        line |= {"tokens/s": f"{1 / each.each:,.0f}", "peak GiB": f"{each.peak:.1f}"}
        line |= {faster: f"{theirs / each.each:.2f}"} if theirs is not None else {}
        line |= {cost: f"{each.each / before:.2f}"} if before is not None else {}
        lines.append(line)
    return markdown(lines, ["length", "batch", "attention", "tokens/s", faster, cost, "peak GiB"])


def alone(shape: Shape, lengths: list[int], tokens: int) -> list[dict[str, str]]:
    """Microseconds of attention alone, forward / forward and backward, both ways and causal."""
    found = []
    seen: dict[str, Pattern | None] = {
        "full": None, "window": Window(192), "bigbird": BigBird(shape.heads, 64, 1, 2, 3, seed=0, layer=0)
    }  # fmt: skip
    for length in lengths:
        rows, width = max(1, tokens // length), shape.width // shape.heads
        layout = Layout.padded([length] * rows).to(torch.device("cuda"))
        qkv = torch.randn(rows, length, 3, shape.heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        slope = torch.randn(rows, length, shape.heads, width, device="cuda", dtype=torch.bfloat16)
        line = {"length": f"{length:,}"}
        for name, causal in ((name, causal) for causal in (False, True) for name in seen):

            def call(
                pattern: Pattern | None = seen[name], causal: bool = causal, qkv: Tensor = qkv, layout: Layout = layout
            ) -> Tensor:
                if pattern is None:
                    return kernels.self_attention(qkv, layout, Dropout(0.0), causal=causal)
                return triton_blocks.attend(qkv, layout, pattern, causal=causal)

            took = device_seconds(torch.no_grad()(call)), device_seconds(both_ways(call, [qkv], slope))
            line[f"{name}, causal" if causal else name] = " / ".join(f"{each * 1e6:,.0f}" for each in took)
        print(line, file=sys.stderr, flush=True)
        found.append(line)
    return found


def by_length(tokens: int, heads: int = 8, width: int = 64) -> list[dict[str, str]]:
    """Microseconds of attention alone, forward and backward, at an even length."""
    from torch.nn.attention.varlen import varlen_attn

    found = []
    for length in (32, 64, 128, 256, 512, 1024, 2048, 4096):
        layout = Layout.padded([length] * (tokens // length)).packed().map(lambda x: x.cuda())
        N = tokens // length * length
        qkv = torch.randn(N, 3, heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        slope = torch.randn(N, heads, width, device="cuda", dtype=torch.bfloat16)
        ends = torch.arange(0, N + 1, length, device="cuda", dtype=torch.int32)

        def kernel(qkv: Tensor = qkv, layout: Layout = layout) -> Tensor:
            return triton_attention.attend_self(qkv, layout)

        def flash(qkv: Tensor = qkv, ends: Tensor = ends, length: int = length) -> Tensor:
            q, k, v = qkv.unbind(1)
            out = varlen_attn(q, k, v, ends, ends, length, length)
            assert isinstance(out, Tensor)
            return out

        def dense(qkv: Tensor = qkv, length: int = length) -> Tensor:
            q, k, v = qkv.view(-1, length, 3, heads, width).unbind(2)
            return kernels.dot_product(q, k, v, None, causal=False).reshape(-1, heads, width)

        took = {name: device_seconds(both_ways(each, [qkv], slope)) for name, each in
                (("kernel", kernel), ("varlen flash", flash), ("dense", dense))}  # fmt: skip
        found.append({"length": f"{length:,}", **{name: f"{each * 1e6:,.0f}" for name, each in took.items()}})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="1024,2048,4096,8192,16384,32768,65536")
    parser.add_argument("--tokens", type=int, default=65_536, help="of a batch, at least one sequence")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="write the tables there, too")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    device, shape = torch.device(given.device), SMALLEST if given.tiny else USUAL
    lengths = [int(each) for each in given.lengths.split(",")]
    page = table(patterns(shape, lengths, given.tokens, device))
    if device.type == "cuda" and not given.tiny:
        found = alone(shape, lengths, given.tokens)
        page += "\n\n" + markdown(found, list(found[0]))
        page += "\n\n" + markdown(by_length(given.tokens), ["length", "kernel", "varlen flash", "dense"])
        _, whole = torch.cuda.mem_get_info(device)
        page += f"\n\n{torch.cuda.get_device_name(device)}, {whole / 2**30:.0f} GiB, torch {torch.__version__}"
    print(page)
    if given.out is not None:
        given.out.write_text(page + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
