"""Contenders that take turns: rounds of updates on the same batches, and what a round took of time and memory."""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.types import Batch

Step = Callable[[Batch], Tensor]  # one update; what it gives back is finite, or the update did nothing worth timing
WARM = 2
HOST_STEPS = 6
PROFILED_STEPS, KERNELS = 2, 25


@dataclass(frozen=True)
class Contender:
    who: str
    model: nn.Module
    step: Step
    batches: list[Batch]
    """Of one round."""
    flops: float | None = None
    """Matrix products of one round."""


@dataclass(frozen=True)
class Contest:
    """Who is compared with whom; the first is ours."""

    row: str
    batch_tokens: int
    builders: list[Callable[[], Contender]]


@dataclass(frozen=True)
class Measured:
    row: str
    batch_tokens: int
    who: str
    parameters: int
    target_tokens_per_second: float
    """Non-padding; the median of the rounds."""
    lowest: float
    highest: float
    tokens_per_second: float
    """Source and target."""
    step_ms: float
    """Of the device: from the first update of a round until all are done, over their number."""
    host_ms: float
    """Until the call of an update returns that finds the device idle; near `step_ms`, the host is the limit."""
    peak_gib: float
    """Weights, optimiser and gradients included, those of the other contenders not."""
    utilisation: float | None = None
    """Time that the matrix products alone would take at the rate of a large one, over the time taken."""
    speed_of_ours: float | None = None
    """Our rate over this one's: the median of the rounds' own ratios."""


@dataclass
class _Entrant:
    """A contender in the race, and what has been seen of it."""

    contender: Contender
    resident: int
    seconds: list[float]
    peak: int = 0

    @property
    def rates(self) -> list[float]:
        return [_targets(self.contender.batches) / each for each in self.seconds]


def race(contest: Contest, device: torch.device, *, rounds: int, rate: float, profile: bool = False) -> list[Measured]:
    """Each warms up for two rounds, in which kernels are built and graphs captured; then they go round in turn."""
    entrants = [_entered(build, device) for build in contest.builders]
    for _ in range(rounds):
        for entrant in entrants:
            _one_round(entrant, device)
    ours = entrants[0]
    found = [_measured(contest, each, ours, device, rate) for each in entrants]
    if profile:
        print_profile(contest.row, ours.contender, device)
    return found


def _entered(build: Callable[[], Contender], device: torch.device) -> _Entrant:
    before = _allocated(device)
    contender = build()
    entrant = _Entrant(contender, _allocated(device) - before, [])
    for _ in range(WARM):  # what graphs hold is taken here, and never again
        _one_round(entrant, device)
    gc.collect()
    return _Entrant(contender, _allocated(device) - before, [], entrant.peak)


def _one_round(entrant: _Entrant, device: torch.device) -> None:
    contender, before = entrant.contender, _allocated(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    synchronize(device)
    began = time.perf_counter()
    for batch in contender.batches:
        sign = contender.step(batch)
    synchronize(device)
    entrant.seconds.append(time.perf_counter() - began)
    if device.type == "cuda":
        own = entrant.resident + torch.cuda.max_memory_allocated(device) - before
        entrant.peak = max(entrant.peak, own)
    if not bool(sign.isfinite()):
        raise SystemExit(f"{contender.who}: the loss is not finite, so that its speed says nothing")


def _measured(contest: Contest, entrant: _Entrant, ours: _Entrant, device: torch.device, rate: float) -> Measured:
    contender, rates = entrant.contender, entrant.rates
    seconds, median = statistics.median(entrant.seconds), statistics.median(rates)
    targets, sources = _targets(contender.batches), sum(int(b.source.layout.lengths_B.sum()) for b in contender.batches)
    ratios = [mine / its for mine, its in zip(ours.rates, rates, strict=True)]
    return Measured(
        row=contest.row,
        batch_tokens=contest.batch_tokens,
        who=contender.who,
        parameters=sum(p.numel() for p in contender.model.parameters() if p.requires_grad),
        target_tokens_per_second=median,
        lowest=min(rates),
        highest=max(rates),
        tokens_per_second=median * (targets + sources) / targets,
        step_ms=1e3 * seconds / len(contender.batches),
        host_ms=_host_ms(contender, device),
        peak_gib=entrant.peak / 2**30,
        utilisation=None if contender.flops is None else contender.flops / seconds / rate,
        speed_of_ours=None if entrant is ours else statistics.median(ratios),
    )


def _host_ms(contender: Contender, device: torch.device) -> float:
    """Apart from the rounds: there a host that is ahead waits for room in the device's queue."""
    took = []
    for batch in contender.batches[:HOST_STEPS]:
        synchronize(device)
        began = time.perf_counter()
        contender.step(batch)
        took.append(time.perf_counter() - began)
    synchronize(device)
    return 1e3 * statistics.mean(took)


def print_profile(row: str, contender: Contender, device: torch.device) -> None:
    """The kernels that take most of a step; on a CPU, its operators."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    batches = contender.batches[:PROFILED_STEPS]
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        for batch in batches:
            contender.step(batch)
        synchronize(device)
    spent = [
        (each.self_device_time_total if on_gpu else each.self_cpu_time_total, each.count, each.key)
        for each in profiler.key_averages()
    ]
    spent.sort(reverse=True)
    total = sum(microseconds for microseconds, _, _ in spent) / 1e3 / len(batches)
    calls = sum(count for _, count, _ in spent) / len(batches)
    print(f"\n{row}, {contender.who}: {total:.2f} ms busy in {calls:.0f} kernels a step")
    for microseconds, count, key in spent[:KERNELS]:
        print(f"{microseconds / 1e3 / len(batches):9.3f} ms {count / len(batches):7.1f} × {key[:90]}")
    print(flush=True)


def forget(device: torch.device) -> None:
    """After a row: its models are gone; so shall be what they left in caches."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _targets(batches: list[Batch]) -> int:
    return sum(int(batch.target.layout.lengths_B.sum()) for batch in batches)
