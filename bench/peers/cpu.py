"""Training speed on one CPU thread, Saccade and its peers interleaved in one run.

    python -m bench.peers.install --peers-folder DIR
    python -m bench.peers.cpu --peers-folder DIR --models A,B,C --rounds 3 --updates 8

Every training is a process of its own; toolkits take turns, so that a change of the machine's speed meets all of them.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from bench.peers.floor import flops_per_target_token
from bench.peers.install import TORCH, python_of
from bench.peers.page import render
from bench.peers.toolkits import ABLE, HERE, NAMES, ModelName, Order
from bench.trial import commit

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
USUAL = ["saccade", "eole", "onmt", "fairseq", "hf"]


@dataclass(frozen=True)
class Measured:
    """One training of one toolkit, its first updates left out."""

    toolkit: str
    model: str
    per_cpu_second: float
    per_second: float
    tokens_per_update: float
    parameters: int
    peak_memory: int
    others: float
    """Which share of the machine others used meanwhile."""


def main() -> None:
    options = _options()
    peers = options.peers_folder.resolve()
    toolkits = [each for each in options.toolkits if each == "saccade" or python_of(peers, each).exists()]
    tokens = json.loads((peers / "data" / "tokens.json").read_text(encoding="utf-8"))
    measured: list[Measured] = []
    gflops: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for number in range(1, options.rounds + 1):
            gflops.append(_multiplies(peers))
            print(f"round {number}: {gflops[-1]:.1f} GFLOP/s", file=sys.stderr, flush=True)
            for model in options.models:
                for toolkit in toolkits:
                    if model in ABLE[toolkit]:
                        folder = Path(scratch, f"{toolkit}-{model}-{number}")
                        folder.mkdir()
                        order = Order(toolkit, model, options.warmup + options.updates, peers, folder)
                        measured.append(_train(order, options.warmup))
                        shutil.rmtree(folder)
                        print(_line(measured[-1]), file=sys.stderr, flush=True)
            _write(options, _result(options, number, measured, gflops, tokens["en"] / tokens["de"]))


def _write(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """After each round, so that a run that is stopped has told what it found."""
    page = render(result)
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.page:
        options.page.write_text(page, encoding="utf-8")
    if result["rounds"] == options.rounds:
        print(page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.cpu")
    parser.add_argument("--peers-folder", type=Path, required=True, help="where bench.peers.install put them")
    parser.add_argument("--toolkits", type=lambda text: text.split(","), default=USUAL, help=", ".join(ABLE))
    parser.add_argument("--models", type=lambda text: text.split(","), default=["A", "B", "C"], help="A,B,C")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=8, help="measured in each round")
    parser.add_argument("--warmup", type=int, default=3, help="updates before those")
    parser.add_argument("--out", type=Path, help="a .json for everything measured")
    parser.add_argument("--page", type=Path, help="where the page goes, such as docs/results/cpu-training.md")
    options = parser.parse_args()
    if min(options.rounds, options.updates, options.warmup) < 1:
        parser.error("--rounds, --updates and --warmup must be at least 1")
    if unknown := [each for each in options.models if each not in get_args(ModelName)]:
        parser.error(f"--models names {', '.join(unknown)}; there are A, B and C")
    if unknown := [each for each in options.toolkits if each not in ABLE]:
        parser.error(f"--toolkits names {', '.join(unknown)}; there are {', '.join(ABLE)}")
    return options


def _multiplies(peers: Path) -> float:
    command = [str(python_of(peers, "base")), str(HERE / "floor.py")]
    told = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=True)
    return float(told.stdout)


def _train(order: Order, warmup: int) -> Measured:
    env = os.environ | ONE_THREAD | {"SACCADE_DATA": str(order.data), "HF_HUB_OFFLINE": "1"}
    if order.toolkit != "saccade":
        env.pop("PYTHONPATH", None)
    log = order.folder / "log.txt"
    before = _busy_seconds()
    with log.open("w", encoding="utf-8") as told:
        process = subprocess.Popen(order.command(), env=env, cwd=order.folder, stdout=told, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    busy, capacity = (now - then for now, then in zip(_busy_seconds(), before, strict=True))
    record: dict[str, Any] = json.loads(order.record.read_text(encoding="utf-8")) if order.record.exists() else {}
    updates = record.get("updates", [])
    if status or len(updates) != order.updates or not all(each["tokens"] for each in updates):
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        sys.exit(f"{tail}\n{NAMES[order.toolkit]}, model {order.model}: status {status}, {len(updates)} updates")
    first, last = updates[warmup - 1], updates[-1]
    tokens = sum(each["tokens"] for each in updates[warmup:])
    return Measured(
        order.toolkit,
        order.model,
        per_cpu_second=tokens / (last["cpu"] - first["cpu"]),
        per_second=tokens / (last["wall"] - first["wall"]),
        tokens_per_update=tokens / (order.updates - warmup),
        parameters=record["parameters"],
        peak_memory=record["peak_memory"],
        others=max(0.0, busy - used.ru_utime - used.ru_stime) / capacity,
    )


def _busy_seconds() -> tuple[float, float]:
    """Processor time used by everybody since the machine started, and what there was; zeros where it is not told."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0, 1.0
    ticks = [int(each) for each in stat.read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / hertz, sum(ticks) / hertz


def _line(each: Measured) -> str:
    return (
        f"  {each.model} {NAMES[each.toolkit]}: {each.per_cpu_second:,.0f} tokens a CPU-second, {each.per_second:,.0f} "
        f"a second, {each.tokens_per_update:,.0f} an update, others {each.others:.0%}"
    )


def _result(
    options: argparse.Namespace, rounds: int, measured: list[Measured], gflops: list[float], sources_per_target: float
) -> dict[str, Any]:
    rate = statistics.median(gflops)
    models = {}
    for model in options.models:
        rows = {}
        for toolkit in dict.fromkeys(each.toolkit for each in measured if each.model == model):
            runs = [each for each in measured if each.model == model and each.toolkit == toolkit]
            rows[toolkit] = {
                "per_cpu_second": [each.per_cpu_second for each in runs],
                "per_second": [each.per_second for each in runs],
                "others": [each.others for each in runs],
                "tokens_per_update": statistics.mean(each.tokens_per_update for each in runs),
                "parameters": runs[0].parameters,
                "peak_memory": max(each.peak_memory for each in runs),
            }
        flops = flops_per_target_token(model, sources_per_target)
        models[model] = {"flops_per_token": flops, "floor": rate * 1e9 / flops, "toolkits": rows}
    return {
        "rounds": rounds,
        "updates": options.updates,
        "warmup": options.warmup,
        "gflops": gflops,
        "models": models,
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": TORCH.removeprefix("torch=="),
        "commit": commit(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} processors" if names else platform.processor()


if __name__ == "__main__":
    main()
