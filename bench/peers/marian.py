"""Model A with Hugging Face's own trainer: Marian from scratch; runs in that environment.

    python marian.py FOLDER_OF_PIECES UPDATES SENTENCES_A_BATCH OUT

The trainer has no token budget: a batch is a fixed number of sentences. Its own grouping by length begins with the
longest, and a few updates would not stand for all; so like-long pairs are given together, the groups in random order.
"""

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PAD, END = 0, 3
IGNORED = -100
Pair = dict[str, list[int]]


def main() -> None:
    pieces, updates, sentences, out = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    transformers: Any = importlib.import_module("transformers")
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=8000,
            d_model=256,
            encoder_layers=3,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=1024,
            decoder_ffn_dim=1024,
            activation_function="relu",
            dropout=0.1,
            max_position_embeddings=256,
            scale_embedding=True,
            pad_token_id=PAD,
            decoder_start_token_id=PAD,
            eos_token_id=END,
            bos_token_id=None,
            forced_eos_token_id=None,
        )
    )

    def collate(pairs: list[Pair]) -> dict[str, Tensor]:
        sources = _padded([pair["input_ids"] for pair in pairs], PAD)
        labels = _padded([pair["labels"] for pair in pairs], IGNORED)
        # Label smoothing takes the labels away from the model, which then cannot make its own inputs.
        inputs = model.prepare_decoder_input_ids_from_labels(labels)
        return {
            "input_ids": sources,
            "attention_mask": (sources != PAD).long(),
            "decoder_input_ids": inputs,
            "labels": labels,
        }

    settings = transformers.Seq2SeqTrainingArguments(
        output_dir=out,
        use_cpu=True,
        max_steps=updates,
        per_device_train_batch_size=sentences,
        train_sampling_strategy="sequential",
        label_smoothing_factor=0.1,
        learning_rate=1e-3,
        adam_beta2=0.98,
        lr_scheduler_type="inverse_sqrt",
        warmup_steps=50,
        max_grad_norm=1.0,
        logging_steps=1000,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    trainer = transformers.Seq2SeqTrainer(
        model=model, args=settings, train_dataset=_grouped(_pairs(pieces), sentences), data_collator=collate
    )
    trainer.train()


def _grouped(pairs: list[Pair], size: int) -> list[Pair]:
    in_order = sorted(pairs, key=lambda pair: (len(pair["labels"]), len(pair["input_ids"])))
    groups = [in_order[begin : begin + size] for begin in range(0, len(in_order), size)]
    random.Random(1).shuffle(groups)
    groups.sort(key=lambda group: len(group) < size)  # an incomplete one would shift those behind it
    return [pair for group in groups for pair in group]


def _pairs(pieces: Path) -> list[Pair]:
    vocabulary = _lines(pieces / "vocabulary.txt")
    id_of = {piece: number for number, piece in enumerate(vocabulary, start=END + 1)}

    def encoded(side: str) -> list[list[int]]:
        return [[id_of[piece] for piece in line.split(" ")] + [END] for line in _lines(pieces / f"train.{side}")]

    return [
        {"input_ids": source, "labels": target} for source, target in zip(encoded("en"), encoded("de"), strict=True)
    ]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _padded(rows: list[list[int]], filler: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


if __name__ == "__main__":
    main()
