"""Each Triton kernel beside its torch twin and beside the time that reading and writing its tensors once would take.

Run `python -m bench.kernels` on a machine with a GPU. Every call is captured in a CUDA graph and replayed, so that what
is timed is the device's work, with lengths drawn as a Europarl batch has them. The table comes last.

Shapes: B sentences, N tokens, H heads, K head width, D width, F inner width, V vocabulary.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.nn import triton_attention, triton_loss, triton_residual
from saccade.types import Layout

H, K, D, INNER, V = 8, 64, 512, 2048, 32_768
HALF = torch.bfloat16
DROPOUT, SMOOTHING = 0.1, 0.1


@dataclass(frozen=True)
class Case:
    name: str
    kernel: Callable[[], object]
    twin: Callable[[], object]
    bytes_moved: int


def seconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Of one call on the device: the median of replayed graphs."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            call()
    graph.replay()
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 5e3)
    return sorted(times)[repeats // 2]


def copy_rate() -> float:
    """Bytes a second, read and written, of a plain copy: what memory gives."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source))


def europarl_like(tokens: int) -> Layout:
    """Sentences of some 28 subwords on average, most between 5 and 60, until they hold `tokens`."""
    drawn = np.random.default_rng(0).gamma(2.0, 14.0, tokens // 8).round().clip(2, 128).astype(int)
    lengths = drawn[drawn.cumsum() <= tokens].tolist()
    return Layout.padded(lengths).packed().map(lambda x: x.cuda())


def both_ways(forward: Callable[[], Tensor], inputs: list[Tensor], slope: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward(), inputs, slope)


def attention_cases(layout: Layout, name: str) -> Iterator[Case]:
    N = int(layout.lengths_B.sum())
    qkv = torch.randn(N, 3, H, K, device="cuda", dtype=HALF, requires_grad=True)
    slope = torch.randn(N, H, K, device="cuda", dtype=HALF)
    ends = F.pad(layout.lengths_B.cumsum(0), (1, 0)).int()
    row = H * K * 2  # bytes
    for causal in (False, True):

        def kernel(causal: bool = causal) -> Tensor:
            return triton_attention.attend_self(qkv, layout, causal=causal)

        def twin(causal: bool = causal) -> Tensor:
            from torch.nn.attention.varlen import varlen_attn

            window = (-1, 0) if causal else (-1, -1)
            q, k, v = qkv.unbind(1)
            out = varlen_attn(q, k, v, ends, ends, layout.longest, layout.longest, window_size=window)
            assert isinstance(out, Tensor)
            return out

        kind = f"attention {name}{' causal' if causal else ''}"
        yield Case(f"{kind} forward", torch.no_grad()(kernel), torch.no_grad()(twin), N * 4 * row)
        # Forward: q, k, v in, out out. Backward: q, k, v, dout in, dq, dk, dv out.
        yield Case(f"{kind} both", both_ways(kernel, [qkv], slope), both_ways(twin, [qkv], slope), N * 11 * row)


def residual_cases(N: int) -> Iterator[Case]:
    x, r = (torch.randn(N, D, device="cuda", dtype=HALF, requires_grad=True) for _ in range(2))
    weight, bias = (torch.randn(D, device="cuda", requires_grad=True) for _ in range(2))
    slope = torch.randn(N, D, device="cuda", dtype=HALF)
    seed, inputs = torch.tensor(1, device="cuda"), [x, r, weight, bias]

    def kernel(dropout: float) -> Tensor:
        return triton_residual.residual_norm(x, r, weight, bias, dropout=dropout, seed=seed)[1]

    def plain(dropout: float) -> Tensor:
        return F.layer_norm(x + F.dropout(r, dropout), (D,), weight.to(HALF), bias.to(HALF))

    twin = torch.compile(plain)
    row = D * 2
    for dropout in (0.0, DROPOUT):
        name = f"residual + norm, dropout {dropout}"
        # Forward: x, r in, y, z out. Backward: dz, y in, dx (and dr) out.
        moved = N * row * (8 if dropout else 7)
        fast, slow = (lambda p=dropout: kernel(p)), (lambda p=dropout: twin(p))
        yield Case(f"{name} both", both_ways(fast, inputs, slope), both_ways(slow, inputs, slope), moved)


def activation_cases(N: int) -> Iterator[Case]:
    x = torch.randn(N, INNER, device="cuda", dtype=HALF, requires_grad=True)
    bias = torch.randn(INNER, device="cuda", requires_grad=True)
    slope = torch.randn(N, INNER, device="cuda", dtype=HALF)
    seed = torch.tensor(1, device="cuda")

    def kernel(activation: triton_residual.Activation) -> Tensor:
        return triton_residual.activate(x, bias, activation=activation, dropout=DROPOUT, seed=seed)

    def plain(activation: str) -> Tensor:
        act = F.relu if activation == "relu" else F.gelu
        return F.dropout(act(x + bias.to(HALF)), DROPOUT)

    twin = torch.compile(plain)
    kinds: tuple[triton_residual.Activation, ...] = ("relu", "gelu")
    for kind in kinds:
        fast, slow = (lambda a=kind: kernel(a)), (lambda a=kind: twin(a))
        moved = N * INNER * 2 * 5  # forward: in, out; backward: dout, saved in, dx out
        both = both_ways(fast, [x, bias], slope), both_ways(slow, [x, bias], slope)
        yield Case(f"bias + {kind} + dropout both", *both, moved)


def loss_cases(N: int) -> Iterator[Case]:
    logits = torch.randn(N, V, device="cuda", dtype=HALF)
    target = torch.randint(1, V, (N,), device="cuda")
    scale = torch.tensor(1.0, device="cuda")
    leaf = logits.clone().requires_grad_()

    def twin() -> object:
        loss = F.cross_entropy(leaf.float(), target, ignore_index=0, label_smoothing=SMOOTHING, reduction="sum")
        return torch.autograd.grad(loss, leaf)

    def kernel() -> object:
        return triton_loss.cross_entropy_inplace(logits, target, scale, smoothing=SMOOTHING)

    yield Case(f"cross-entropy, {N} × {V}", kernel, twin, N * V * 4)


def all_cases(tokens: int) -> Iterator[Case]:
    yield from attention_cases(europarl_like(tokens), "mixed")
    even = Layout.padded([25] * (tokens // 25)).packed().map(lambda x: x.cuda())
    yield from attention_cases(even, "of 25")
    yield from residual_cases(tokens)
    yield from activation_cases(tokens)
    yield from loss_cases(8192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=65_536)
    tokens = parser.parse_args().tokens
    if not (torch.cuda.is_available() and triton_residual.works()):
        sys.exit("bench.kernels needs a GPU and triton.")
    rate = copy_rate()
    rows = []
    for case in all_cases(tokens):
        fast, slow = seconds(case.kernel), seconds(case.twin)
        floor = case.bytes_moved / rate
        rows.append(f"{case.name:44} {fast * 1e6:9.0f} {slow * 1e6:9.0f} {slow / fast:8.2f} {fast / floor:8.2f}")
        print(rows[-1], flush=True)
    print(
        f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {tokens} tokens, copies {rate / 1e12:.2f} TB/s"
    )
    print(f"{'microseconds':44} {'kernel':>9} {'torch':>9} {'speed-up':>8} {'× floor':>8}")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
