"""Where no fast twin exists the run says so, once; and what is said is what happens."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import saccade
from saccade.config import parse
from saccade.models.build import build_tagger, build_translator
from saccade.models.tagger import TaggerConfig, TaggerSizes
from saccade.models.translator import Translator, TranslatorConfig
from saccade.nn import kernels, triton_attention, triton_blocks, triton_crf, triton_embedding, triton_residual
from saccade.train.events import Prepared
from saccade.types import Batch
from tests.cases import TranslatorCase, every_translator, name_of
from tests.support.cli import saccade_command, write_corpus
from tests.support.tiny import of_kind, recipe
from tests.support.tiny import write_corpus as write_letters

CPU, GPU = torch.device("cpu"), torch.device("cuda")
STEPWISE = "step by step"
SIDE = {"kind": "transformer", "layers": 1, "width": 32, "heads": 2}
PADDED, PASSES = "is computed on padded sentences", "takes several passes over memory"
HELD = "holds all of its weights"

WORDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": ({}, []),
    "gelu": ({"activation": "gelu", "norm": "post"}, []),
    "rotary": ({"positions": "rotary"}, []),
    "dropout": ({"attention_dropout": 0.3}, []),
    "narrow heads": ({"heads": 4}, [f"attention with heads 8 wide {PADDED}"]),
    "relative": (
        {"positions": "relative"},
        [f"self-attention with relative positions on the values {HELD}"],
    ),
    "relative, keys": (
        {"positions": "relative", "relative_values": False},
        [f"self-attention with relative positions {PADDED}"],
    ),
    "alibi": ({"positions": "alibi"}, [f"self-attention with alibi positions {PADDED}"]),
    "window": ({"pattern": {"kind": "window", "width": 2}}, []),
    "window, alibi": ({"pattern": {"kind": "window", "width": 2}, "positions": "alibi"}, []),
    "window, relative": (
        {"pattern": {"kind": "window", "width": 2}, "positions": "relative", "relative_values": False},
        [f"self-attention with relative positions and pattern window {PADDED}"],
    ),
    "bigbird": ({"pattern": {"kind": "bigbird", "block": 16, "window": 0, "global_blocks": 1}}, []),
    "bigbird of few tokens a block": (
        {"pattern": {"kind": "bigbird", "block": 2, "window": 0, "global_blocks": 1}},
        [f"self-attention with pattern bigbird {PADDED}"],
    ),
    "bigbird, alibi": (
        {"pattern": {"kind": "bigbird", "block": 2, "window": 0, "global_blocks": 1}, "positions": "alibi"},
        [f"self-attention with alibi positions and pattern bigbird {PADDED}"],
    ),
    "learned": ({"positions": "learned"}, ["learned positions take several passes over memory"]),
    "rms": ({"norm_kind": "rms"}, [f"residual sum with rms norm {PASSES}"]),
    "no norm": ({"norm_kind": "none"}, [f"residual sum with no norm {PASSES}"]),
    "swiglu": (
        {"activation": "swish", "gated": True},
        [f"feed-forward part with swish, gated {PASSES}"],
    ),
    "gelu-tanh": ({"activation": "gelu-tanh"}, [f"feed-forward part with gelu-tanh {PASSES}"]),
}
"""What a Transformer's side says on a GPU, where its heads are as wide as its kernels take but for what is named."""


def built(encoder: dict[str, Any], decoder: dict[str, Any]) -> Translator:
    torch.manual_seed(0)
    return build_translator(parse(TranslatorConfig, {"encoder": encoder, "decoder": decoder}), 17, 17)


def said(model: Translator, side: str, device: torch.device) -> list[str]:
    return [told.removeprefix(f"{side}: ") for told in model.without_twin(device) if told.startswith(f"{side}: ")]


@pytest.mark.parametrize("name", WORDS)
def test_each_part_of_a_transformer_answers_for_itself(name: str) -> None:
    settings, expected = WORDS[name]
    model = built(SIDE | settings, SIDE)
    assert said(model, "encoder", GPU) == expected
    assert said(model, "decoder", GPU) == []
    everywhere = [told for told in expected if HELD in told]
    everywhere += [f"attention with dropout {HELD}"] if "attention_dropout" in settings else []
    assert said(model, "encoder", CPU) == everywhere  # the CPU's dense kernels take all else


def test_linformer_and_cross_attention_answer_too() -> None:
    linformer = SIDE | {"pattern": {"kind": "linformer", "slots": 3, "places": 9}}
    model = built(linformer, SIDE | {"width": 24, "layers": 2})
    assert said(model, "encoder", GPU) == [f"self-attention with pattern linformer {PADDED}"]
    assert said(model, "decoder", GPU) == [f"attention with heads 12 wide {PADDED}"]  # once, of all layers


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "elman", "cell": {"activation": "relu"}}, []),
        ({"kind": "elman", "cell": {"activation": "logistic"}}, ["elman with activation logistic runs step by step"]),
        ({"kind": "elman", "cell": {"layer_norm": True}}, ["elman with layer norm runs step by step"]),
        ({"kind": "lstm", "cell": {"forget_gate": False}}, []),
        ({"kind": "lstm", "cell": {"peepholes": True}}, ["lstm with peepholes runs step by step"]),
        ({"kind": "lstm", "cell": {"layer_norm": True}}, ["lstm with layer norm runs step by step"]),
        ({"kind": "gru", "cell": {"polarity": "update"}}, []),
        ({"kind": "gru", "cell": {"reset": "before"}}, ["gru with reset before runs step by step"]),
        ({"kind": "gru", "cell": {"layer_norm": True}}, ["gru with layer norm runs step by step"]),
        ({"kind": "lstmn"}, ["lstmn runs step by step"]),
        ({"kind": "lstm", "attention": {"score": "general"}}, []),
        (
            {"kind": "lstm", "attention": {"pointer": True, "coverage": 1.0}, "feed_input": True},
            [
                "with input feeding the layers run step by step",
                "with coverage the layers run step by step",
                "with pointer the loss is taken without its fused form",
            ],
        ),
        (
            {"kind": "gru", "attention": {"query": "previous", "hard": {}}, "sampling": {"kind": "linear"}},
            [
                "with query previous the layers run step by step",
                "with scheduled sampling the layers run step by step",
                "with hard the loss is taken without its fused form",
            ],
        ),
    ],
)
@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_each_recurrent_part_answers_for_itself(
    settings: dict[str, Any], expected: list[str], device: torch.device
) -> None:
    """The same everywhere: cuDNN and oneDNN know the same cells."""
    model = built({"kind": "lstm", "width": 6}, settings | {"width": 6})
    assert model.without_twin(device) == [f"decoder: {told}" for told in expected]


# ---- what is said is what happens


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> Counter[str]:
    calls: Counter[str] = Counter()

    def counting(name: str, called: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            return called(*given, **named)

        return count

    for name in names:
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    return calls


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_fused_recurrences_and_dense_kernels_are_called_where_nothing_else_is_said(
    case: TranslatorCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = case.build().train(), case.batch().packed()
    recurrent = counted(monkeypatch, kernels, "elman", "lstm", "gru")
    dense = counted(monkeypatch, F, "scaled_dot_product_attention")
    encoded = model.encode(batch.source)
    fast = {"encoder": (recurrent.total(), dense.total())}
    recurrent.clear()
    dense.clear()
    model.decoder.loss(batch.decoder_input, encoded, batch.target, 0.0)
    fast["decoder"] = (recurrent.total(), dense.total())
    for side, (recurrences, attentions) in fast.items():
        told = said(model, side, CPU)
        if getattr(case.config, side).kind == "transformer":
            layers = getattr(case.config, side).layers
            across = layers if side == "decoder" and f"attention with dropout {HELD}" not in told else 0
            to_itself = attentions - across
            assert to_itself == 0 if any(HELD in each for each in told) else to_itself >= layers
        else:
            assert (recurrences == 0) == any(STEPWISE in each for each in told), told


@pytest.mark.gpu
@pytest.mark.parametrize("name", WORDS)
def test_kernels_are_called_on_a_gpu_where_nothing_else_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = WORDS[name]
    model, batch = built(SIDE | settings, SIDE).cuda().train(), packed_batch().to(GPU)
    attention = counted(monkeypatch, triton_attention, "attend_self")
    in_blocks = counted(monkeypatch, triton_blocks, "attend")
    around = counted(monkeypatch, triton_residual, "residual_norm", "activate")
    embedding = counted(monkeypatch, triton_embedding, "embed")
    model.encode(batch.source)
    told = " ".join(said(model, "encoder", GPU))
    assert (attention.total() + in_blocks.total() == 0) == ("attention with" in told)
    assert (around["residual_norm"] == 0) == ("residual sum" in told)
    assert (around["activate"] == 0) == ("feed-forward" in told)
    assert (embedding["embed"] == 0) == ("learned positions" in told)


@pytest.mark.parametrize("tags", [triton_crf.MOST_TAGS, triton_crf.MOST_TAGS + 1])
def test_a_crf_over_many_tags_says_so_on_a_gpu(tags: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse(TaggerConfig, {"encoder": {"kind": "lstm", "width": 6}, "output": {"kind": "crf"}})
    model = build_tagger(config, TaggerSizes(9, tags))
    assert model.without_twin(CPU) == []
    told = ["crf: sums over 65 tags, more than 64, launch several kernels a word"]
    assert model.without_twin(GPU) == (told if tags > triton_crf.MOST_TAGS else [])
    monkeypatch.setattr(triton_crf, "works", lambda: True)
    on_gpu = SimpleNamespace(is_cuda=True, dtype=torch.float64, shape=(2, 3, tags))
    assert triton_crf.available(on_gpu) == (tags <= triton_crf.MOST_TAGS)  # type: ignore[arg-type]


def packed_batch() -> Batch:
    return every_translator()[0].batch().packed()


# ---- the run says it


@pytest.mark.parametrize(("model", "parts"), [("lstm", 1), ("hard", 2), ("transformer", 0)])
def test_the_run_remarks_it(tmp_path: Path, model: str, parts: int) -> None:
    chosen = recipe(write_letters(tmp_path / "corpus", train=24, valid=4), model, "train.updates=1")
    (prepared,) = of_kind(list(saccade.training(chosen, tmp_path / "run", device="cpu")), Prepared)
    told = [remark for remark in prepared.remarks if "fast kernel" in remark]
    assert len(told) == min(parts, 1)
    assert sum(remark.count("decoder: ") for remark in told) == parts


def test_the_command_line_says_it_once(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    fed = ("--set", "model.decoder.feed_input=true", "--set", "train.updates=2")
    done = saccade_command("train", corpus, "--out", tmp_path / "run", "--device", "cpu", *fed)
    assert done.exit_code == 0, done.output
    line = "no fast kernel on cpu for all of it: decoder: with input feeding the layers run step by step"
    assert " ".join(done.output.split()).count(line) == 1
