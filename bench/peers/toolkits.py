"""The same three models in every toolkit's own words: what to write and what to call.

A: Transformer 3+3×256, feed-forward 1,024, 4 heads. B: bi-LSTM (128 each way) and LSTM of 256, Luong's general
attention, input feeding. C: B without input feeding. One embedding for source, target and output; 4,096 tokens a batch.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from bench.peers.install import python_of

HERE = Path(__file__).parent
BATCH_TOKENS = 4096
VOCABULARY = 8000
ModelName = Literal["A", "B", "C"]
ABLE: dict[str, str] = {"saccade": "ABC", "eole": "ABC", "onmt": "ABC", "fairseq": "AB", "hf": "A", "joeynmt": "ABC"}
"""Which models a toolkit has: fairseq's LSTM always feeds its input, Hugging Face has no recurrent translator."""
NAMES = {
    "saccade": "Saccade",
    "eole": "eole 0.6.4",
    "onmt": "OpenNMT-py 3.5.1",
    "fairseq": "fairseq 0.12.2",
    "hf": "Hugging Face transformers 5.22.2",
    "joeynmt": "JoeyNMT 2.3.0",
}


@dataclass(frozen=True)
class Order:
    """One training of one model by one toolkit, in a folder of its own."""

    toolkit: str
    model: ModelName
    updates: int
    peers: Path
    folder: Path

    @property
    def data(self) -> Path:
        return self.peers / "data"

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    def command(self) -> list[str]:
        python = sys.executable if self.toolkit == "saccade" else str(python_of(self.peers, self.toolkit))
        return [python, str(HERE / "inside.py"), self.toolkit, str(self.record), *self._arguments()]

    def _arguments(self) -> list[str]:
        match self.toolkit:
            case "saccade":
                return _saccade(self)
            case "eole":
                return ["train", "-c", self._written(_eole(self))]
            case "onmt":
                return ["-config", self._written(_onmt(self))]
            case "fairseq":
                return _fairseq(self)
            case "hf":
                return _hf(self)
            case "joeynmt":
                return ["train", self._written(_joeynmt(self)), "--skip-test"]
        raise ValueError(self.toolkit)

    def _written(self, tree: dict[str, Any]) -> str:
        path = self.folder / "settings.yaml"
        path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
        return str(path)

    def file(self, name: str) -> str:
        return str(self.data / name)


def _saccade(order: Order) -> list[str]:
    recipe = HERE / f"saccade-{'transformer' if order.model == 'A' else 'lstm'}.yaml"
    settings = [f"train.updates={order.updates}", f"train.batch_tokens={BATCH_TOKENS}"]
    if order.model == "C":
        settings.append("model.decoder.feed_input=false")
    given = [part for setting in settings for part in ("--set", setting)]
    return ["train", str(recipe), "--out", str(order.folder / "run"), "--device", "cpu", "--quiet", *given]


def _pairs(order: Order, split: str) -> dict[str, str]:
    return {"path_src": order.file(f"{split}.en"), "path_tgt": order.file(f"{split}.de")}


def _opennmt_training(order: Order) -> dict[str, Any]:
    """What OpenNMT-py and its successor eole call the same."""
    schedule: dict[str, Any] = {"learning_rate": 0.001}
    if order.model == "A":
        schedule = {"learning_rate": 1, "decay_method": "noam", "warmup_steps": 50}
    return schedule | {
        "batch_type": "tokens",
        "batch_size": BATCH_TOKENS,
        "bucket_size": 29000,
        "normalization": "tokens",
        "accum_count": [1],
        "num_workers": 0,
        "optim": "adam",
        "adam_beta2": 0.98,
        "max_grad_norm": 1,
        "label_smoothing": 0.1,
        "dropout": [0.1],
        "attention_dropout": [0.0],
        "train_steps": order.updates,
        "save_checkpoint_steps": order.updates,
        "valid_steps": 100_000,
    }


def _opennmt_text(order: Order) -> dict[str, Any]:
    return {
        "share_vocab": True,
        "src_vocab": order.file("vocabulary.tsv"),
        "tgt_vocab": order.file("vocabulary.tsv"),
        "src_vocab_size": VOCABULARY,
        "tgt_vocab_size": VOCABULARY,
        "overwrite": True,
        "report_every": 1000,
        "seed": 1,
    }


def _eole(order: Order) -> dict[str, Any]:
    training = _opennmt_training(order) | {
        "model_path": str(order.folder / "model"),
        "world_size": 1,
        "gpu_ranks": [],
        "compute_dtype": "fp32",
        "param_init_method": "xavier_uniform",
    }
    tied = {"share_embeddings": True, "share_decoder_embeddings": True, "hidden_size": 256}
    model: dict[str, Any]
    if order.model == "A":
        model = {"architecture": "transformer", "layers": 3, "heads": 4, "transformer_ff": 1024}
        model["embeddings"] = {"word_vec_size": 256, "position_encoding_type": "SinusoidalInterleaved"}
    else:
        # `architecture: rnn` would turn a bidirectional encoder into one that reads one way, without a word.
        cell = {"rnn_type": "LSTM", "layers": 1, "hidden_size": 256}
        model = {"architecture": "custom", "layers": 1, "input_feed": int(order.model == "B")}
        model["encoder"] = cell | {"encoder_type": "brnn"}
        model["decoder"] = cell | {"decoder_type": "rnn", "global_attention": "general"}
        model["embeddings"] = {"word_vec_size": 256, "position_encoding_type": None}
    data = {"train": _pairs(order, "train"), "valid": _pairs(order, "val")}
    return _opennmt_text(order) | {"n_sample": 0, "data": data, "training": training, "model": model | tied}


def _onmt(order: Order) -> dict[str, Any]:
    tree = _opennmt_text(order) | _opennmt_training(order)
    tree |= {"share_embeddings": True, "share_decoder_embeddings": True, "hidden_size": 256, "word_vec_size": 256}
    tree |= {"data": {"train": _pairs(order, "train"), "valid": _pairs(order, "val")}}
    tree |= {"save_data": str(order.folder), "save_model": str(order.folder / "model")}
    if order.model == "A":
        tree |= {"encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True}
        return tree | {"layers": 3, "heads": 4, "transformer_ff": 1024, "param_init": 0, "param_init_glorot": True}
    tree |= {"encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "LSTM", "layers": 1}
    return tree | {"global_attention": "general", "input_feed": int(order.model == "B")}


def _fairseq(order: Order) -> list[str]:
    settings: dict[str, Any] = {
        "task": "translation",
        "source-lang": "en",
        "target-lang": "de",
        "encoder-embed-dim": 256,
        "decoder-embed-dim": 256,
        "dropout": 0.1,
        "optimizer": "adam",
        "adam-betas": "(0.9, 0.98)",
        "clip-norm": 1.0,
        "lr": 1e-3,
        "lr-scheduler": "inverse_sqrt",
        "warmup-updates": 50,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": 0.1,
        "max-tokens": BATCH_TOKENS,
        "max-update": order.updates,
        "num-workers": 0,
        "log-format": "none",
        "seed": 1,
        "save-dir": order.folder / "model",
    }
    if order.model == "A":
        settings |= {"arch": "transformer_iwslt_de_en", "encoder-layers": 3, "decoder-layers": 3}
        settings |= {"encoder-attention-heads": 4, "decoder-attention-heads": 4}
        settings |= {"encoder-ffn-embed-dim": 1024, "decoder-ffn-embed-dim": 1024}
    else:
        settings |= {"arch": "lstm", "encoder-layers": 1, "decoder-layers": 1, "encoder-hidden-size": 128}
        settings |= {"decoder-hidden-size": 256, "decoder-out-embed-dim": 256}
    switches = ["--cpu", "--share-all-embeddings", "--no-epoch-checkpoints", "--disable-validation"]
    if order.model == "B":
        switches.append("--encoder-bidirectional")
    return [order.file("fairseq"), *switches, *(f"--{name}={value}" for name, value in settings.items())]


def _hf(order: Order) -> list[str]:
    sentences = 260  # × 15.8 target tokens of the mean sentence ≈ 4,096: there is no token budget to set
    return [str(order.data), str(order.updates), str(sentences), str(order.folder / "model")]


def _joeynmt(order: Order) -> dict[str, Any]:
    side = {
        "max_length": 100,
        "level": "bpe",
        "voc_file": order.file("vocabulary.txt"),
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": order.file("bpe.model")},
    }
    specials = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    specials_at = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}
    part: dict[str, Any] = {"embeddings": {"embedding_dim": 256}, "dropout": 0.1}
    encoder: dict[str, Any]
    decoder: dict[str, Any]
    if order.model == "A":
        block = {"type": "transformer", "num_layers": 3, "num_heads": 4, "hidden_size": 256, "ff_size": 1024}
        part |= {"embeddings": {"embedding_dim": 256, "scale": True}, "layer_norm": "pre"}
        encoder = decoder = part | block
    else:
        cell = {"type": "recurrent", "rnn_type": "lstm", "num_layers": 1}
        encoder = part | cell | {"hidden_size": 128, "bidirectional": True}
        decoder = part | cell | {"hidden_size": 256, "hidden_dropout": 0.1, "init_hidden": "bridge"}
        decoder |= {"attention": "luong", "input_feeding": order.model == "B"}
    return {
        "name": order.model,
        "joeynmt_version": "2.3.0",
        "model_dir": str(order.folder / "model"),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": order.file("raw.train"),
            "dev": order.file("raw.val"),
            "dataset_type": "plain",
            "src": side | {"lang": "en"},
            "trg": side | {"lang": "de"},
            "special_symbols": specials | specials_at,
        },
        "testing": {"beam_size": 1, "batch_size": 64, "batch_type": "sentence", "max_output_length": 5},
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "learning_rate": 0.001,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 50,
            "clip_grad_norm": 1.0,
            "loss": "crossentropy",
            "label_smoothing": 0.1,
            "normalization": "tokens",
            "batch_size": BATCH_TOKENS,
            "batch_type": "token",
            "epochs": 100,
            "updates": order.updates,
            "validation_freq": order.updates,
            "logging_freq": 1,
            "early_stopping_metric": "loss",
            "overwrite": True,
        },
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": encoder, "decoder": decoder},
    }
