"""Hugging Face's Transformers of a recipe's shape, from nothing: Marian's, or M2M-100's with norms before each part.

Both have sinusoidal positions and one table of tokens for source, target and output. A recipe that neither can be is
refused.
"""

import importlib
import sys
from typing import Any

import torch
from torch import nn

from saccade.models.transformer_config import FullPattern, TransformerConfig
from saccade.models.translator import TranslatorConfig
from saccade.types import END, PAD, START

ALIKE = {
    "activation": "relu",
    "attention_dropout": 0.0,
    "epsilon": 1e-5,
    "gated": False,
    "norm_embedding": False,
    "norm_kind": "layer",
    "pattern": FullPattern(),
    "positions": "sinusoidal",
    "scale_embedding": True,
    "segments": 0,
}
"""What the settings of both sides must be."""


def network(config: TranslatorConfig, tokens: int) -> Any:
    """`tokens`: how many the vocabulary has, the reserved ones among them."""
    encoder, decoder = config.encoder, config.decoder
    if not (isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)):
        sys.exit("The peer is a Transformer; the recipe's model is not.")
    wanted = ALIKE | {name: getattr(encoder, name) for name in ("norm", "dropout", "width")}
    for side in (encoder, decoder):
        if other := {name: getattr(side, name) for name, value in wanted.items() if getattr(side, name) != value}:
            told = ", ".join(f"{name}: {wanted[name]} and not {value}" for name, value in other.items())
            sys.exit(f"The peer has {told}.")
    if config.tie != "all":
        sys.exit(f"The peer has one table of tokens for source, target and output (tie: all and not {config.tie}).")
    transformers: Any = importlib.import_module("transformers")
    same = {
        "vocab_size": tokens,
        "d_model": encoder.width,
        "encoder_layers": encoder.layers,
        "decoder_layers": decoder.layers,
        "encoder_attention_heads": encoder.heads,
        "decoder_attention_heads": decoder.heads,
        "encoder_ffn_dim": encoder.inner,
        "decoder_ffn_dim": decoder.inner,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "dropout": encoder.dropout,
        "activation_dropout": encoder.dropout,
        "attention_dropout": 0.0,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": 1024,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "bos_token_id": None,
        "decoder_start_token_id": START,
    }
    match encoder.norm:
        case "post":
            theirs = transformers.MarianConfig(share_encoder_decoder_embeddings=True, forced_eos_token_id=None, **same)
            model = transformers.MarianMTModel(theirs)
        case "pre":
            model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**same))
    _begin(model, encoder.width)
    return model


@torch.no_grad()
def _begin(model: Any, width: int) -> None:
    """First weights as those who train translators from nothing choose them (Glorot and Bengio 2010; fairseq, OpenNMT).

    The library's own, of a standard deviation of 0.02, are for models that are loaded: with them it learns far slower.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and name != "lm_head":  # that one is the table of tokens
            nn.init.xavier_uniform_(layer.weight)
    table = model.get_input_embeddings().weight
    nn.init.normal_(table, std=width**-0.5)
    table[PAD] = 0.0
