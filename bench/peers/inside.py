"""Runs in a toolkit's own environment: starts its own entry point unchanged and notes clocks and tokens per update.

    python inside.py TOOLKIT RECORD.json ARGUMENTS...

An optimiser hook, which torch offers to everybody, reads the clocks after each update; the target tokens are counted in
the batch as it enters the model. This file imports nothing of Saccade or of `bench`: their packages are not there.
"""

import atexit
import functools
import importlib
import json
import resource
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Record:
    """What one training did, update by update."""

    def __init__(self, path: str) -> None:
        self.path, self.parameters, self.tokens = path, 0, 0
        self.updates: list[dict[str, float]] = []

    def stepped(self, optimizer: Any, _arguments: Any, _named: Any) -> None:
        if not self.updates:
            weights = {id(each): each.numel() for group in optimizer.param_groups for each in group["params"]}
            self.parameters = sum(weights.values())
        used = resource.getrusage(resource.RUSAGE_SELF)  # all threads of the process
        clocks = {"wall": time.perf_counter(), "cpu": used.ru_utime + used.ru_stime}
        self.updates.append(clocks | {"tokens": self.tokens})
        self.tokens = 0

    def write(self) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = {"parameters": self.parameters, "peak_memory": peak, "updates": self.updates}
        Path(self.path).write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    sys.path.pop(0)  # this folder: its names must not hide a toolkit's
    toolkit, path, *arguments = sys.argv[1:]
    record = Record(path)
    atexit.register(record.write)
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(record.stepped)
    sys.argv = [toolkit, *arguments]
    match toolkit:
        case "saccade":
            _watch_saccade(record)
            _call("saccade.cli.main", "main")
        case "eole":
            _watch(record, "eole.models.model", "EncoderDecoderModel", "forward", _eole)
            _call("eole.bin.main", "main")
        case "onmt":
            _watch(record, "onmt.models.model", "NMTModel", "forward", _onmt)
            _call("onmt.bin.train", "main")
        case "fairseq":
            _watch(record, "fairseq.models.transformer", "TransformerModelBase", "forward", _fairseq)
            _watch(record, "fairseq.models.lstm", "LSTMModel", "forward", _fairseq)
            _call("fairseq_cli.train", "cli_main")
        case "hf":
            _watch(record, "transformers", "Seq2SeqTrainer", "compute_loss", _hf)
            runpy.run_path(str(Path(__file__).with_name("marian.py")), run_name="__main__")
        case "joeynmt":
            _watch(record, "joeynmt.model", "Model", "forward", _joeynmt)
            runpy.run_module("joeynmt", run_name="__main__")
        case _:
            sys.exit(f"TOOLKIT is {toolkit!r}, which this script does not know.")


def _call(module: str, function: str) -> None:
    getattr(importlib.import_module(module), function)()


def _watch(record: Record, module: str, kind: str, method: str, count: Callable[..., Any]) -> None:
    """Count the target tokens that a method of the toolkit is given, and then let it do its work."""
    owner = getattr(importlib.import_module(module), kind)
    original = getattr(owner, method)

    @functools.wraps(original)
    def counted(self: Any, *given: Any, **named: Any) -> Any:
        record.tokens += int(count(self, *given, **named))
        return original(self, *given, **named)

    setattr(owner, method, counted)


# What is counted is the same for all: tokens to be predicted, a sentence's end among them, without padding.


def _watch_saccade(record: Record) -> None:
    """Saccade's loop tells the target tokens of each update right after it."""
    loop = importlib.import_module("saccade.train.loop")
    run = loop.Trainer.run

    @functools.wraps(run)
    def told(*given: Any, **named: Any) -> Any:
        for event in run(*given, **named):
            if isinstance(event, loop.Updated):
                record.updates[-1]["tokens"] = int(event.tokens)
            yield event

    loop.Trainer.run = told


def _eole(model: Any, _src: Any, tgt: Any, *_: Any, **__: Any) -> Any:
    return (tgt[:, 1:] != model.tgt_pad_idx).sum()  # the first is a start token


def _onmt(model: Any, _src: Any, tgt: Any, *_: Any, **__: Any) -> Any:
    return (tgt[:, 1:] != model.decoder.embeddings.word_padding_idx).sum()  # the first is a start token


def _fairseq(model: Any, *_: Any, prev_output_tokens: Any, **__: Any) -> Any:
    return (prev_output_tokens != model.encoder.padding_idx).sum()  # the target, its end moved to the front


def _hf(_trainer: Any, _model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
    return (inputs["labels"] != -100).sum()


def _joeynmt(model: Any, *_: Any, **named: Any) -> Any:
    return (
        (named["trg"] != model.pad_index).sum() if "trg" in named else 0
    )  # decoding goes the same way without a target


if __name__ == "__main__":
    main()
