"""What the bench of training speed found, as a page: tables, what is equal, and what is not."""

import statistics
from typing import Any

from bench.peers.toolkits import NAMES

MODELS = {
    "A": "Transformer 3+3×256, feed-forward 1,024, 4 heads",
    "B": "bi-LSTM + LSTM 256, general attention, input feeding",
    "C": "bi-LSTM + LSTM 256, general attention, no input feeding",
}
INTRODUCTION = """\
# Training speed on one CPU thread, beside other toolkits

Multi30k English → German, 29,000 pairs in pieces of a joint BPE of 8,000. tokens/CPU-s: target tokens, sentence ends
counted and padding not, per second of processor time (user and system, all threads of the process): the median of the
rounds, with their range. Every training is a process of its own with one thread, and in each round the toolkits take
turns. The clocks are read after each step of the optimiser; the first updates, the start and the reading of data are
left out. Differences within the ranges are ties.
"""
METHOD = """\
## What is equal

Layers, widths, heads, one embedding for source, target and output; float32; Adam with β = (0.9, 0.98), for Hugging
Face AdamW without decay; the gradient's norm cut at 1; label smoothing 0.1; dropout 0.1, none on attention weights; a
nominal batch of 4,096 tokens; torch 2.13.0. Tokens are counted the same way for all, in the batch that enters the
model. B feeds the attentional vector of one step into the next, which is how fairseq's LSTM always works and what eole
and OpenNMT-py do unless told otherwise; C is told otherwise.

## What is not

- A batch of 4,096: rows × longest side for Saccade, eole, OpenNMT-py and fairseq; Hugging Face's trainer knows no token
  budget and gets 260 like-long sentences.
- Tokens: the peers read the same sentencepiece pieces, 15.77 a German sentence, from a vocabulary of 7,792 that occur
  (Hugging Face: 8,000). Saccade cuts the text with its own BPE of 8,000, 15.88 a sentence.
- fairseq holds unused copies of the encoder's weights, which its parameters count.
- Norms stand before the parts in Saccade, eole and OpenNMT-py, behind them in fairseq and Hugging Face; dropout inside
  the feed-forward part is left out by fairseq and Hugging Face. Both are as the toolkits come.
- Saccade has the processor take the tiniest numbers for zero while it trains; the peers are left as they are.
- eole's `architecture: rnn` quietly turns a bidirectional encoder into one that reads one way; the bench asks for
  `custom`, which does as told.

The floor is the time that the matrix products alone would take at the measured rate, forward and backward, on real
tokens alone; attention's own products are left out. Nothing reaches it: norms, softmax, dropout and the optimiser come
on top. Two processors of a cloud machine may be two threads of one core: processor time then depends on what others do.
"""


def render(result: dict[str, Any]) -> str:
    parts = [INTRODUCTION]
    for model, found in result["models"].items():
        medians = {name: statistics.median(row["per_cpu_second"]) for name, row in found["toolkits"].items()}
        table = _table(found, medians)
        parts += [f"## {model}: {MODELS[model]}", "", table, "", _against_best(found, medians), ""]
    return "\n".join([*parts, METHOD, *_conditions(result)])


def _table(found: dict[str, Any], medians: dict[str, float]) -> str:
    from saccade.view.table import markdown

    columns = ["toolkit", "tokens/CPU-s", "range", "Saccade ÷ it", "of the floor", "tokens/s", "tokens/update"]
    columns += ["parameters", "peak memory"]
    rows = []
    for name in sorted(medians, key=medians.__getitem__, reverse=True):
        row = found["toolkits"][name]
        rows.append(
            {
                "toolkit": NAMES[name],
                "tokens/CPU-s": f"{medians[name]:,.0f}",
                "range": f"{min(row['per_cpu_second']):,.0f}–{max(row['per_cpu_second']):,.0f}",
                "Saccade ÷ it": f"{medians['saccade'] / medians[name]:.2f}" if "saccade" in medians else "",
                "of the floor": f"{medians[name] / found['floor']:.0%}",
                "tokens/s": f"{statistics.median(row['per_second']):,.0f}",
                "tokens/update": f"{row['tokens_per_update']:,.0f}",
                "parameters": f"{row['parameters'] / 1e6:.2f}M",
                "peak memory": f"{row['peak_memory'] / 2**30:.2f} GiB",
            }
        )
    return markdown(rows, columns)


def _against_best(found: dict[str, Any], medians: dict[str, float]) -> str:
    floor = f"The floor: {found['flops_per_token'] / 1e6:.1f} MFLOP a token, {found['floor']:,.0f} tokens a second."
    rivals = {name: rate for name, rate in medians.items() if name != "saccade"}
    if "saccade" not in medians or not rivals:
        return floor
    best = max(rivals, key=rivals.__getitem__)
    return f"Saccade is {medians['saccade'] / rivals[best]:.2f} × the best peer, {NAMES[best]}. {floor}"


def _conditions(result: dict[str, Any]) -> list[str]:
    rows = [row for found in result["models"].values() for row in found["toolkits"].values()]
    others = [share for row in rows for share in row["others"]]
    gflops = result["gflops"]
    return [
        f"- {result['rounds']} rounds of {result['updates']} updates, after {result['warmup']} that are not counted",
        f"- matrix products of one core, float32: {statistics.median(gflops):.1f} GFLOP/s "
        f"({min(gflops):.1f}–{max(gflops):.1f} over the rounds)",
        f"- others used {min(others):.0%}–{max(others):.0%} of the machine meanwhile",
        "- commands: `python -m bench.peers.install --peers-folder DIR`, then "
        f"`python -m bench.peers.cpu --peers-folder DIR --models {','.join(result['models'])} "
        f"--rounds {result['rounds']} --updates {result['updates']}`",
        f"- machine: {result['processor']}, torch {result['torch']}, Python {result['python']}",
        f"- commit: {result['commit']}",
        "",
    ]
