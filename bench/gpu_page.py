"""What the bench of training speed on a GPU found: a table, and a page that says how it was found."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata

import torch

from bench.gpu_timing import Measured
from saccade.view.table import markdown

COLUMNS = ["row", "batch", "who", "parameters", "target tok/s", "range", "source + target tok/s", "utilisation"]
COLUMNS += ["ms a step", "host ms", "peak GiB", "Saccade ÷ it", "our time ÷ its"]
MODELS = {
    "base": "Transformer base: 6+6 layers × 512, 8 heads, feed-forward 2,048, dropout 0.1",
    "small": "Transformer base in small batches, where the host limits",
    "tiny": "Transformer 3+3 × 256, 4 heads, feed-forward 1,024, dropout 0.3",
    "big": "Transformer big: 6+6 layers × 1,024, 16 heads, feed-forward 4,096, dropout 0.3",
    "lstm": "bi-LSTM + LSTM, 4+4 layers × 1,024, general attention, no input feeding",
    "feeding": "bi-LSTM + LSTM, 2+2 layers × 512, general attention, input feeding",
    "lm": "LSTM language model, 2 layers × 1,024, 128 lines of 64 tokens, dropout 0.2 between the layers",
}
METHOD = """\
Target tokens count with their sentence ends and without padding: the median of the rounds, with their range. A row's
contenders are built together, warm up for two rounds that do not count, and then take turns, round by round, on the
same sentences; a ratio is the median of the rounds' own. A batch is rows × longest side. Utilisation: the time that the
model's matrix products would take at the rate of a large one, over the time taken; three times those of a forward pass.
Host ms: until the call of an update returns that finds the device idle. Peak GiB leaves out what the other contenders
of the row hold.

All compute in bfloat16 with float32 weights unless said, a fused Adam, the gradient's norm cut at 1, and, but for `lm`,
label smoothing 0.1. Saccade's batches have no padding but for what fills them up to a size of CUDA graph (less than 1 %
of tokens), and are captured once a size has come twice; a row tells how fast sizes are that have not. The peers' are
padded and pinned ahead of time. Hugging Face's Marian has dropout where Saccade has it, and is compiled with
`torch.compile(dynamic=True)`; its choice of layers to drop, none here, is made between any two, so that it compiles in
pieces. `feeding` stands beside the same model's decoding step in a Python loop. In `lm`, torch's autocast runs cuDNN's
LSTM in float16; the twin with bf16 weights holds gradients and Adam's memory in bfloat16, too.
"""


@dataclass(frozen=True)
class Conditions:
    commit: str
    machine: str
    versions: str
    rate: float
    rounds: int
    updates: int
    command: str

    @staticmethod
    def now(device: torch.device, rate: float, rounds: int, updates: int, command: str) -> "Conditions":
        machine = torch.cuda.get_device_name(device) if device.type == "cuda" else f"a CPU ({platform.machine()})"
        named = [f"torch {torch.__version__}", f"Python {platform.python_version()}"]
        named += [f"{name} {_version(name)}" for name in ("triton", "transformers") if _version(name)]
        if device.type == "cuda":
            named.append(f"cuDNN {torch.backends.cudnn.version()}")  # type: ignore[no-untyped-call]
        commit = os.environ.get("SACCADE_COMMIT", "unknown")
        return Conditions(commit, machine, ", ".join(named), rate, rounds, updates, command)

    def line(self) -> str:
        return f"{self.machine} · {self.versions} · {self.commit} · a large bf16 product: {self.product()}"

    def product(self) -> str:
        return f"{self.rate / 1e12:.3g} TFLOP/s"


def table(found: list[Measured]) -> str:
    return markdown([_row(each) for each in found], COLUMNS)


def page(found: list[Measured], conditions: Conditions) -> str:
    rows = dict.fromkeys(each.row for each in found)
    return "\n".join(
        [
            "# Training speed on one GPU",
            "",
            METHOD,
            table(found),
            "",
            *(f"- `{row}`: {MODELS[row]}" for row in rows),
            "",
            f"- a large product in bfloat16: {conditions.product()}",
            f"- {conditions.rounds} rounds of {conditions.updates} updates, after two that do not count",
            f"- command: `{conditions.command}`",
            f"- machine: {conditions.machine}, {conditions.versions}",
            f"- commit: {conditions.commit}",
            "",
        ]
    )


def _row(each: Measured) -> dict[str, str]:
    ratio = each.speed_of_ours
    return {
        "row": each.row,
        "batch": f"{each.batch_tokens:,}",
        "who": each.who,
        "parameters": f"{each.parameters / 1e6:.1f}M",
        "target tok/s": f"{each.target_tokens_per_second:,.0f}",
        "range": f"{each.lowest:,.0f}–{each.highest:,.0f}",
        "source + target tok/s": f"{each.tokens_per_second:,.0f}",
        "utilisation": "" if each.utilisation is None else f"{each.utilisation:.1%}",
        "ms a step": f"{each.step_ms:.1f}",
        "host ms": f"{each.host_ms:.1f}",
        "peak GiB": f"{each.peak_gib:.1f}",
        "Saccade ÷ it": "" if ratio is None else f"{ratio:.2f}",
        "our time ÷ its": "" if ratio is None else f"{1 / ratio:.2f}",
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
