"""The one list of cases: every architecture and option that the laws are proved for.

An option that is missing here is an option that nobody tests; tests/contract/test_models.py holds the list complete.
Widths are small and unlike each other where they may be, so that a wrong one cannot pass unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.config import parse, parse_yaml
from saccade.data.parses import on_tokens
from saccade.models.build import build_translator
from saccade.models.encoders import EncoderConfig, RecurrentEncoder
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.translator import DecoderConfig, Translator, TranslatorConfig
from saccade.types import END, Batch, Encoded, Layout, Tokens

SOURCE_VOCABULARY, TARGET_VOCABULARY = 17, 13
SOURCE_LENGTHS, TARGET_LENGTHS = (5, 7, 1, 3), (4, 2, 6, 3)

RECIPES = """
elman, the plainest:
  encoder: {kind: elman, width: 5, bidirectional: false}
  decoder: {kind: elman, width: 5, bridge: copy}
elman, reversed and deep:
  encoder: {kind: elman, width: 6, layers: 2, reverse: true}
  decoder: {kind: elman, width: 5, layers: 2, bridge: linear}
elman, dot:
  encoder: {kind: elman, width: 6}
  decoder: {kind: elman, width: 6, attention: {score: dot}, bridge: zero}
elman, general, fed, deep:
  encoder: {kind: elman, width: 6, bidirectional: false}
  decoder: {kind: elman, width: 5, layers: 2, attention: {score: general}, feed_input: true, bridge: mean}
elman, additive:
  encoder: {kind: elman, width: 4, layers: 2, embedding: 3}
  decoder: {kind: elman, width: 5, embedding: 7, attention: {score: additive}}
gru, no attention, mean of the memory:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, bridge: mean}
gru, copied, reversed:
  encoder: {kind: gru, width: 6, layers: 2, reverse: true}
  decoder: {kind: gru, width: 6, layers: 2, bridge: copy}
gru, dot, fed:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 6, attention: {score: dot}, feed_input: true}
gru, general, from zeros:
  encoder: {kind: gru, width: 4, bidirectional: false, reverse: true}
  decoder: {kind: gru, width: 5, attention: {score: general}, bridge: zero}
gru, additive, fed, deep:
  encoder: {kind: gru, width: 6, embedding: 3}
  decoder: {kind: gru, width: 5, layers: 2, attention: {score: additive, width: 3}, feed_input: true, bridge: mean}
lstm, no attention:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5}
lstm, Sutskever's:
  encoder: {kind: lstm, width: 5, layers: 2, bidirectional: false, reverse: true}
  decoder: {kind: lstm, width: 5, layers: 2, bridge: copy}
lstm, mean of the memory, deeper decoder:
  encoder: {kind: lstm, width: 4}
  decoder: {kind: lstm, width: 5, layers: 2, bridge: mean}
lstm, decoder deeper than the encoder:
  encoder: {kind: lstm, width: 4}
  decoder: {kind: lstm, width: 5, layers: 3}
lstm, encoder deeper than the decoder:
  encoder: {kind: lstm, width: 4, layers: 3, bidirectional: false}
  decoder: {kind: lstm, width: 5}
lstm, dot:
  encoder: {kind: lstm, width: 6, layers: 2}
  decoder: {kind: lstm, width: 6, layers: 2, attention: {score: dot, scope: global}, bridge: copy}
lstm, Luong's:
  encoder: {kind: lstm, width: 6, layers: 2, bidirectional: false, reverse: true}
  decoder: {kind: lstm, width: 6, layers: 2, attention: {score: general}, feed_input: true, bridge: copy}
lstm, general, from zeros:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: general}, bridge: zero}
lstm, additive:
  encoder: {kind: lstm, width: 6, embedding: 5}
  decoder: {kind: lstm, width: 5, embedding: 3, attention: {score: additive, width: 7}, bridge: mean}
lstm, general, scaled decoder, output tied:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 6, scale_embedding: true, attention: {score: general}}
  tie: output
lstm, additive, fed, deep:
  encoder: {kind: lstm, width: 6, layers: 2}
  decoder: {kind: lstm, width: 5, layers: 2, attention: {score: additive}, feed_input: true}
lstm, output tied:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: additive}}
  tie: output
lstm, all tied:
  encoder: {kind: lstm, width: 6, embedding: 5}
  decoder: {kind: lstm, width: 5, attention: {score: general}, feed_input: true}
  tie: all
gru, scaled encoder, all tied:
  encoder: {kind: gru, width: 6, scale_embedding: true}
  decoder: {kind: gru, width: 6, attention: {score: additive}}
  tie: all
gru encoder, lstm decoder, pretrained vectors:
  encoder: {kind: gru, width: 6, scale_embedding: true}
  decoder: {kind: lstm, width: 5, attention: {score: additive}}
  vectors: {path: vectors.txt}
lstm encoder, elman decoder:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: elman, width: 5, attention: {score: general}}
# ---- how recurrent decoders look at the source
lstm, scaled dot:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 6, attention: {score: scaled-dot}, feed_input: true}
gru, reduced rank:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {score: reduced-rank, rank: 2}}
lstm, reduced rank, its rank left out, gated:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 9, attention: {score: reduced-rank, gate: true}, feed_input: true}
elman, concat:
  encoder: {kind: elman, width: 6}
  decoder: {kind: elman, width: 5, attention: {score: concat, width: 4}}
gru, concat, fed:
  encoder: {kind: gru, width: 4}
  decoder: {kind: gru, width: 5, attention: {score: concat}, feed_input: true}
lstm, location:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: location, places: 7}}
gru, location, too few places:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {score: location, places: 3}, feed_input: true}
elman, location, places left out:
  encoder: {kind: elman, width: 6}
  decoder: {kind: elman, width: 5, attention: {score: location, scope: local-m, window: 2}}
lstm, cosine, learned temperature:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 6, attention: {score: cosine, temperature: learned}}
gru, cosine, fixed temperature:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 6, attention: {score: cosine, temperature: 0.5}, feed_input: true}
elman, cosine, temperature left out, predicted window:
  encoder: {kind: elman, width: 6}
  decoder: {kind: elman, width: 6, attention: {score: cosine, scope: local-p, window: 2}}
gru, mean of the memory at every step:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {score: mean}, feed_input: true}
lstm, mean of a window:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: mean, scope: local-m, window: 1, readout: concat}}
gru, last state at every step, Cho's:
  encoder: {kind: gru, width: 6, bidirectional: false}
  decoder: {kind: gru, width: 5, attention: {score: last, query: previous, readout: maxout}}
lstm, last state, fed:
  encoder: {kind: lstm, width: 6, layers: 2}
  decoder: {kind: lstm, width: 5, layers: 2, attention: {score: last, gate: true}, feed_input: true, bridge: zero}
lstm, local-m:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: general, scope: local-m, window: 1}}
gru, local-m, window left out, fed:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 6, attention: {score: dot, scope: local-m}, feed_input: true}
lstm, local-p:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: general, scope: local-p, window: 2}}
lstm, local-p, Luong's best:
  encoder: {kind: lstm, width: 6, layers: 2, bidirectional: false, reverse: true}
  decoder:
    {kind: lstm, width: 6, layers: 2, attention: {score: general, scope: local-p, window: 3}, feed_input: true,
     bridge: copy}
gru, local-p, renormalised:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {scope: local-p, window: 2, renormalise: true}}
transformer encoder, local-p, gated:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2}
  decoder: {kind: lstm, width: 5, attention: {scope: local-p, gate: true}, bridge: mean}
gru, Bahdanau's:
  encoder: {kind: gru, width: 6, embedding: 3}
  decoder:
    kind: gru
    width: 5
    embedding: 4
    attention: {score: additive, width: 7, query: previous, readout: maxout, readout_width: 3}
lstm, previous state asks, deep:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, layers: 2, attention: {score: general, query: previous}}
elman, previous state asks, concatenated:
  encoder: {kind: elman, width: 6}
  decoder: {kind: elman, width: 5, attention: {score: additive, query: previous, readout: concat}}
gru, previous state asks a window, gated:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {query: previous, gate: true, scope: local-m, window: 2}}
lstm, concatenated readout, fed:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {readout: concat}, feed_input: true}
gru, concatenated readout, tied:
  encoder: {kind: gru, width: 4}
  decoder: {kind: gru, width: 5, embedding: 9, attention: {readout: concat}}
  tie: output
lstm, maxout of the current state:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, embedding: 3, attention: {score: general, readout: maxout}, feed_input: true}
lstm, narrow readout, tied:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, embedding: 4, attention: {readout: luong, readout_width: 4}}
  tie: output
lstm, doubly stochastic, Xu's:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {query: previous, gate: true, doubly_stochastic: 1.0}}
gru, doubly stochastic, at once:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 6, attention: {score: dot, doubly_stochastic: 0.3}}
lstm, coverage:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {coverage: 1.0}}
gru, coverage seen but not asked for, fed:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {coverage: 0.0}, feed_input: true}
gru, coverage of a window, previous state:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {coverage: 0.5, query: previous, scope: local-m, window: 2}}
lstm, hard:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {hard: {}}}
gru, hard, fed, gated:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {score: general, gate: true, hard: {entropy: 0.01}}, feed_input: true}
elman, hard, previous state, predicted window:
  encoder: {kind: elman, width: 6}
  decoder:
    kind: elman
    width: 5
    attention: {query: previous, scope: local-p, window: 3, renormalise: true, hard: {reward: 0.5, decay: 0.5}}
lstm, pointer:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, embedding: 4, attention: {pointer: true}}
gru, See's, fed, all tied:
  encoder: {kind: gru, width: 6, embedding: 5}
  decoder: {kind: gru, width: 5, attention: {pointer: true, coverage: 1.0}, feed_input: true}
  tie: all
transformer encoder, pointer, previous state:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2}
  decoder:
    kind: lstm
    width: 5
    attention: {query: previous, readout: maxout, pointer: true, doubly_stochastic: 0.5}
    bridge: mean
gru, scheduled sampling, linear:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {score: general}, sampling: {kind: linear, start: 0.5, floor: 0.5}}
lstm, scheduled sampling, exponential, a coin for each target, no attention:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, layers: 2, sampling: {kind: exponential, guess: greedy, coin: target}}
elman, scheduled sampling, inverse sigmoid, pointer:
  encoder: {kind: elman, width: 6}
  decoder:
    {kind: elman, width: 5, attention: {pointer: true}, feed_input: true,
     sampling: {kind: inverse-sigmoid, speed: 1.0, guess: greedy}}
gru, scheduled sampling, exponential, hard:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, attention: {hard: {}}, sampling: {kind: exponential, base: 0.9, guess: sample}}
lstm, scheduled sampling, linear, greedy, a coin for each target, coverage:
  encoder: {kind: lstm, width: 6}
  decoder:
    {kind: lstm, width: 5, attention: {coverage: 0.2},
     sampling: {kind: linear, start: 0.3, guess: greedy, coin: target}}
gru, scheduled sampling, inverse sigmoid, drawn, a coin for each target, Bahdanau's:
  encoder: {kind: gru, width: 6}
  decoder:
    {kind: gru, width: 5, attention: {query: previous, readout: maxout},
     sampling: {kind: inverse-sigmoid, guess: sample, coin: target}}

transformer, pre-norm:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 3, feedforward: 11}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 3, feedforward: 11}
transformer, the paper's, all tied:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post}
  tie: all
transformer, learned positions, gelu:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: learned, places: 11, activation: gelu}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 3, positions: learned, places: 11, activation: gelu}
transformer, too few learned positions:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: learned, places: 3, norm: post}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 1, positions: learned, places: 3, norm: post}
  tie: output
transformer, no positions, odd width:
  encoder: {kind: transformer, layers: 2, width: 9, heads: 3, positions: none, activation: gelu, norm: post}
  decoder: {kind: transformer, layers: 1, width: 5, heads: 5, positions: none, feedforward: 7}
transformer, unlike widths, output tied:
  encoder: {kind: transformer, layers: 1, width: 10, heads: 5, activation: gelu}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post, activation: gelu}
  tie: output
transformer encoder, lstm decoder, mean:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2}
  decoder: {kind: lstm, width: 5, layers: 2, attention: {score: additive}, feed_input: true, bridge: mean}
transformer encoder, lstm decoder, from zeros:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 3, norm: post}
  decoder: {kind: lstm, width: 6, attention: {score: dot}, bridge: zero}
transformer encoder, gru decoder without attention:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: learned, places: 7}
  decoder: {kind: gru, width: 5, bridge: mean}
lstm encoder, transformer decoder:
  encoder: {kind: lstm, width: 4, layers: 2}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2}
gru encoder reversed, transformer decoder, all tied:
  encoder: {kind: gru, width: 4, embedding: 6, bidirectional: false, reverse: true}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm: post, positions: none}
  tie: all

# ---- forms of the recurrent cells, stacks and dropouts
elman, logistic:
  encoder: {kind: elman, width: 6, cell: {activation: logistic}}
  decoder: {kind: elman, width: 5, cell: {activation: logistic}, attention: {score: additive}}
elman, identity, normed:
  encoder: {kind: elman, width: 8, cell: {activation: identity, layer_norm: true}}
  decoder: {kind: elman, width: 7, layers: 2, cell: {activation: identity, layer_norm: true}, bridge: mean}
elman, relu, deep:
  encoder: {kind: elman, width: 12, layers: 2, cell: {activation: relu}}
  decoder: {kind: elman, width: 11, cell: {activation: relu}, attention: {score: general}, feed_input: true}
elman, relu from the identity, copied:
  encoder: {kind: elman, width: 12, bidirectional: false, cell: {activation: relu, identity: true}}
  decoder: {kind: elman, width: 12, cell: {activation: relu, identity: true}, bridge: copy}
elman, normed, fed, residual:
  encoder: {kind: elman, width: 8, layers: 2, embedding: 5, stack: residual, cell: {layer_norm: true}}
  decoder:
    {kind: elman, width: 7, layers: 2, stack: residual, attention: {score: additive}, feed_input: true,
     cell: {layer_norm: true}}
lstm of 1997:
  encoder: {kind: lstm, width: 6, cell: {forget_gate: false}}
  decoder: {kind: lstm, width: 5, layers: 2, cell: {forget_gate: false}}
lstm of 1997, fed, dense:
  encoder: {kind: lstm, width: 6, layers: 3, bidirectional: false, stack: dense, cell: {forget_gate: false}}
  decoder:
    {kind: lstm, width: 5, layers: 2, stack: dense, attention: {score: general}, feed_input: true,
     cell: {forget_gate: false}}
lstm, peepholes, no forget gate, normed:
  encoder: {kind: lstm, width: 8, cell: {forget_gate: false, peepholes: true, layer_norm: true}}
  decoder:
    {kind: lstm, width: 5, bridge: zero, attention: {score: additive}, cell: {forget_gate: false, peepholes: true}}
lstm, peepholes, fed:
  encoder: {kind: lstm, width: 6, layers: 2, reverse: true, cell: {peepholes: true}}
  decoder: {kind: lstm, width: 6, attention: {score: dot}, feed_input: true, cell: {peepholes: true, forget_bias: 0.0}}
lstm, normed, residual and dense:
  encoder: {kind: lstm, width: 8, layers: 2, stack: residual, cell: {layer_norm: true}}
  decoder: {kind: lstm, width: 5, layers: 3, embedding: 4, stack: dense, cell: {layer_norm: true}}
lstm, normed, fed:
  encoder: {kind: lstm, width: 6, cell: {forget_bias: 2.0}}
  decoder:
    {kind: lstm, width: 5, layers: 2, cell: {layer_norm: true, peepholes: true}, attention: {score: general},
     feed_input: true}
gru, reset before:
  encoder: {kind: gru, width: 6, cell: {reset: before}}
  decoder: {kind: gru, width: 6, cell: {reset: before}, attention: {score: dot}}
gru, Chung's, fed:
  encoder: {kind: gru, width: 6, layers: 2, cell: {reset: before, polarity: update}}
  decoder:
    {kind: gru, width: 5, cell: {reset: before, polarity: update}, attention: {score: additive}, feed_input: true}
gru, the gate lets the new in:
  encoder: {kind: gru, width: 6, bidirectional: false, cell: {polarity: update}}
  decoder: {kind: gru, width: 6, cell: {polarity: update}, bridge: copy}
gru, normed, reset after, dense:
  encoder: {kind: gru, width: 8, layers: 3, embedding: 5, stack: dense, cell: {layer_norm: true}}
  decoder: {kind: gru, width: 5, layers: 2, stack: dense, bridge: mean, cell: {layer_norm: true, polarity: update}}
gru, normed, reset before, fed, residual:
  encoder: {kind: gru, width: 8, layers: 2, stack: residual, cell: {layer_norm: true, reset: before, polarity: update}}
  decoder:
    {kind: gru, width: 6, layers: 2, stack: residual, attention: {score: general}, feed_input: true,
     cell: {layer_norm: true, reset: before}}
dense gru encoder, transformer decoder:
  encoder: {kind: gru, width: 6, layers: 2, stack: dense}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2}
lstm, everything dropped, all tied:
  encoder:
    {kind: lstm, width: 6, layers: 2, embedding: 5, dropout: 0.3, locked: true, weight_dropout: 0.5,
     embedding_dropout: 0.2}
  decoder:
    {kind: lstm, width: 5, layers: 2, attention: {score: general}, feed_input: true, dropout: 0.3, locked: true,
     weight_dropout: 0.5, embedding_dropout: 0.2}
  tie: all
gru, locked and residual:
  encoder: {kind: gru, width: 6, layers: 2, bidirectional: false, stack: residual, dropout: 0.3, locked: true}
  decoder: {kind: gru, width: 6, layers: 2, stack: residual, bridge: copy, dropout: 0.3, locked: true}
lstmn, no attention between the two:
  encoder: {kind: lstmn, width: 6}
  decoder: {kind: lstmn, width: 5, layers: 2}
lstmn, shallow fusion:
  encoder: {kind: lstmn, width: 6, layers: 2, cell: {last_read: false}}
  decoder: {kind: lstmn, width: 5, attention: {score: additive}, cell: {forget_bias: 0.5}}
lstmn, shallow fusion, fed, copied:
  encoder: {kind: lstmn, width: 6, layers: 2, bidirectional: false, reverse: true}
  decoder: {kind: lstmn, width: 6, layers: 2, attention: {score: dot}, feed_input: true, bridge: copy}
lstmn, deep fusion:
  encoder: {kind: lstmn, width: 6}
  decoder: {kind: lstmn, width: 6, fusion: deep}
lstmn, deep fusion, from zeros, two layers, residual:
  encoder: {kind: lstmn, width: 6, layers: 2, stack: residual, reverse: true, embedding: 4}
  decoder:
    {kind: lstmn, width: 6, layers: 2, stack: residual, fusion: deep, bridge: zero, cell: {last_read: false},
     weight_dropout: 0.3}
  tie: output
transformer encoder, lstmn decoder:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2}
  decoder: {kind: lstmn, width: 5, attention: {score: general}, bridge: mean}
lstmn encoder, transformer decoder:
  encoder: {kind: lstmn, width: 4, bidirectional: false}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 3}
"""

TRANSFORMERS = """
relative, shared over heads:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 3, positions: relative, relative_distance: 2}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2, positions: relative, relative_distance: 2}
relative, keys only, for each head, post-norm:
  encoder:
    {kind: transformer, layers: 1, width: 6, heads: 2, norm: post, positions: relative, relative_distance: 1,
     relative_values: false, relative_per_head: true}
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, norm: post, positions: relative, relative_distance: 3,
     relative_values: false, relative_per_head: true, norm_kind: rms}
  tie: all
relative, for each head, keys and values, the nearest alone:
  encoder:
    {kind: transformer, layers: 1, width: 6, heads: 2, positions: relative, relative_distance: 1, activation: swish}
  decoder:
    {kind: transformer, layers: 1, width: 10, heads: 5, positions: relative, relative_distance: 40,
     relative_per_head: true, gated: true}
rotary, interleaved:
  encoder: {kind: transformer, layers: 2, width: 8, heads: 2, positions: rotary, activation: gelu, gated: true}
  decoder: {kind: transformer, layers: 2, width: 12, heads: 3, positions: rotary, activation: gelu, gated: true}
rotary, halves, rms, swiglu:
  encoder:
    {kind: transformer, layers: 2, width: 8, heads: 2, positions: rotary, rotary_pairs: halves, rotary_base: 100.0,
     norm_kind: rms, activation: swish, gated: true, feedforward: 7}
  decoder:
    {kind: transformer, layers: 2, width: 8, heads: 1, positions: rotary, rotary_pairs: halves, norm: post,
     norm_kind: rms, activation: swish, gated: true, feedforward: 5}
alibi, heads no power of two:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 3, positions: alibi, activation: gelu-tanh}
  decoder: {kind: transformer, layers: 2, width: 5, heads: 5, positions: alibi, activation: gelu-tanh}
alibi, post-norm, detached:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: alibi, norm: post, norm_kind: detached}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2, positions: alibi, norm: post, norm_kind: detached}
  tie: output
detached, swish:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm_kind: detached, activation: swish}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 3, norm_kind: detached, activation: swish, positions: none}
batch norm:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm_kind: batch, scale_embedding: false}
  decoder:
    {kind: transformer, layers: 1, width: 6, heads: 3, norm_kind: batch, scale_embedding: false, positions: rotary}
batch norm, post:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm: post, norm_kind: batch, norm_embedding: true}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm: post, norm_kind: batch, positions: learned}
  tie: all
no norm:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm_kind: none, scale_embedding: false}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm_kind: none, norm: post, scale_embedding: false}
as in BERT and GPT-2:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, norm: post, activation: gelu, positions: learned, places: 9,
     scale_embedding: false, norm_embedding: true, epsilon: 1e-12}
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, activation: gelu-tanh, positions: learned, places: 9,
     scale_embedding: false, norm_embedding: true, norm_kind: rms}
window:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, pattern: {kind: window, width: 1}}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 3, pattern: {kind: window, width: 2}}
window, relative and alibi:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, pattern: {kind: window, width: 2}, positions: relative,
     relative_distance: 1, norm: post}
  decoder:
    {kind: transformer, layers: 1, width: 6, heads: 3, pattern: {kind: window, width: 1}, positions: alibi}
window, rotary, then relative:
  encoder: {kind: transformer, layers: 1, width: 8, heads: 2, pattern: {kind: window, width: 3}, positions: rotary}
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, pattern: {kind: window, width: 3}, positions: relative,
     relative_distance: 2, relative_per_head: true}
  tie: output
bigbird:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2,
     pattern: {kind: bigbird, block: 1, window: 1, global_blocks: 1, random_blocks: 2}}
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3,
     pattern: {kind: bigbird, block: 1, window: 0, global_blocks: 1, random_blocks: 1}}
bigbird, alibi and rotary:
  encoder:
    {kind: transformer, layers: 1, width: 6, heads: 2, positions: alibi,
     pattern: {kind: bigbird, block: 2, window: 0, global_blocks: 1, random_blocks: 1, seed: 3}}
  decoder:
    {kind: transformer, layers: 2, width: 8, heads: 2, positions: rotary,
     pattern: {kind: bigbird, block: 2, window: 0, global_blocks: 1, random_blocks: 1, seed: 5}}
bigbird without its parts, alibi:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, positions: learned, norm_kind: rms,
     pattern: {kind: bigbird, block: 2, window: 1, global_blocks: 0, random_blocks: 0}}
  decoder:
    {kind: transformer, layers: 1, width: 6, heads: 2, positions: alibi,
     pattern: {kind: bigbird, block: 1, window: 1, global_blocks: 0, random_blocks: 2, seed: 1}}
linformer, for each head:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, pattern: {kind: linformer, slots: 3, places: 7, sharing: none}}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2, pattern: {kind: full}}
linformer, headwise, post-norm:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, norm: post, pattern: {kind: linformer, slots: 4, places: 9}}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 1, positions: rotary, norm: post}
linformer, keys and values alike, too few places:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, positions: learned,
     pattern: {kind: linformer, slots: 2, places: 4, sharing: key-value}}
  decoder: {kind: gru, width: 5, attention: {score: additive}, bridge: mean}
linformer, one for all layers:
  encoder:
    {kind: transformer, layers: 3, width: 6, heads: 2,
     pattern: {kind: linformer, slots: 3, places: 8, sharing: layerwise}}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2}
window encoder, lstm decoder:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 3, pattern: {kind: window, width: 2}, positions: alibi}
  decoder: {kind: lstm, width: 5, attention: {score: general}, bridge: mean}
weights dropped:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, attention_dropout: 0.3}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 3, attention_dropout: 0.4, dropout: 0.0, norm: post}
weights dropped, relative, keys and values, then alone:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, attention_dropout: 0.2, positions: relative}
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, attention_dropout: 0.2, positions: relative,
     relative_values: false, relative_per_head: true}
weights dropped, window and rotary:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, attention_dropout: 0.3, positions: alibi,
     pattern: {kind: window, width: 2}}
  decoder: {kind: transformer, layers: 1, width: 8, heads: 2, attention_dropout: 0.1, positions: rotary}
weights dropped, tree and bigbird:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, attention_dropout: 0.3, positions: tree}
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, attention_dropout: 0.3,
     pattern: {kind: bigbird, block: 1, window: 0, global_blocks: 1, random_blocks: 1}}
weights dropped, linformer, lstm decoder:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, attention_dropout: 0.3,
     pattern: {kind: linformer, slots: 3, places: 7}}
  decoder: {kind: lstm, width: 5, attention: {score: general}, bridge: mean}
tree, both:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, positions: tree, tree_distance: 2, relative_distance: 2}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 3}
tree, absolute, in BERT's place:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: tree, tree: absolute, norm_embedding: true}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm: post}
  tie: all
tree, absolute, window:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, positions: tree, tree: absolute, norm: post,
     pattern: {kind: window, width: 2}}
  decoder: {kind: gru, width: 5, attention: {score: additive}, bridge: mean}
tree, relative, keys alone, odd width:
  encoder:
    {kind: transformer, layers: 2, width: 9, heads: 3, positions: tree, tree: relative, tree_distance: 3,
     relative_values: false, norm: post}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 3, positions: rotary}
tree, relative, for each head:
  encoder:
    {kind: transformer, layers: 1, width: 6, heads: 2, positions: tree, tree: relative, tree_distance: 1,
     relative_distance: 3, relative_per_head: true}
  decoder: {kind: lstm, width: 5, attention: {score: general, pointer: true}, bridge: mean}
"""


@dataclass(frozen=True)
class TranslatorCase:
    name: str
    config: TranslatorConfig

    @property
    def vocabularies(self) -> tuple[int, int]:
        """One vocabulary where all is tied or something copied, else two unlike ones."""
        target = SOURCE_VOCABULARY if self.config.tie == "all" or self.config.copies else TARGET_VOCABULARY
        return SOURCE_VOCABULARY, target

    def build(self, seed: int = 0) -> Translator:
        """In evaluation mode, with no weight left at the 0 or 1 it may begin with."""
        torch.manual_seed(seed)
        model = build_translator(self.config, *self.vocabularies)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    def batch(self, seed: int = 0) -> Batch:
        return Batch(self.sources(SOURCE_LENGTHS, seed), tokens(TARGET_LENGTHS, self.vocabularies[1], seed + 1))

    def sources(self, lengths: tuple[int, ...] | list[int], seed: int = 0) -> Tokens:
        """Sentences that its encoder can read: with dependency trees where it looks at them."""
        return tokens(lengths, self.vocabularies[0], seed, parsed=self.config.encoder.reads_parse)


@dataclass(frozen=True)
class EncoderCase:
    name: str
    config: EncoderConfig
    of: TranslatorCase

    def build(self, seed: int = 0) -> tuple[RecurrentEncoder | TransformerEncoder, Tokens]:
        return self.of.build(seed).encoder, self.of.batch(seed).source


@dataclass(frozen=True)
class DecoderCase:
    name: str
    config: DecoderConfig
    of: TranslatorCase

    def build(self, seed: int = 0) -> tuple[RecurrentDecoder | TransformerDecoder, Encoded, Tensor]:
        """A decoder, what an encoder hands to it, and the tokens that are fed to it, as long in every row."""
        model, batch = self.of.build(seed), self.of.batch(seed)
        with torch.no_grad():
            encoded = model.encode(batch.source)
        target = tokens([6] * len(batch), self.of.vocabularies[1], seed + 2)
        return model.decoder, encoded, Batch(batch.source, target).decoder_input.ids


def tokens(lengths: tuple[int, ...] | list[int], vocabulary: int, seed: int = 0, *, parsed: bool = False) -> Tokens:
    """Random sentences that end in END; no special token inside. `parsed`: with random trees over random words."""
    generator = torch.Generator().manual_seed(seed)
    rows = [[*torch.randint(4, vocabulary, (length - 1,), generator=generator).tolist(), END] for length in lengths]
    return Tokens.of(rows, [random_parse(length, generator) for length in lengths] if parsed else None)


def random_parse(length: int, generator: torch.Generator) -> np.ndarray[Any, Any]:
    """Of so many tokens, END included: some neighbours are pieces of one word, and the words hang on each other."""
    begins = torch.rand(length - 1, generator=generator) < 0.7
    words = (begins.long().cumsum(0) - begins[:1].long()).tolist()
    count = words[-1] + 1 if words else 0
    order = torch.randperm(count, generator=generator).tolist()
    heads = [0] * count
    for at in range(1, count):
        heads[order[at]] = order[int(torch.randint(at, (), generator=generator))] + 1
    return on_tokens(tuple(heads), words)


def sentence(side: Tokens, b: int) -> Tokens:
    """One sentence of a padded batch, alone."""
    return sentences([(side, b)])


def sentences(chosen: Sequence[tuple[Tokens, int]]) -> Tokens:
    """Some sentences of padded batches as a batch of their own, no longer than the longest of them."""
    rows, parses = [], []
    for side, b in chosen:
        length = int(side.layout.lengths_B[b])
        rows.append(side.ids[b, :length].tolist())
        if side.parse is not None:
            parses.append(torch.stack([side.parse.words[b, :length], side.parse.heads[b, :length]], dim=1).numpy())
    return Tokens.of(rows, parses or None)


def whole(ids_BT: Tensor) -> Tokens:
    """Rows that are all as long."""
    return Tokens(ids_BT, Layout.padded([ids_BT.shape[1]] * len(ids_BT)))


def every_translator() -> list[TranslatorCase]:
    return list(_every_translator())


@cache  # thirty files ask while tests are collected
def _every_translator() -> tuple[TranslatorCase, ...]:
    recipes: dict[str, dict[str, Any]] = parse_yaml(RECIPES, "cases") | parse_yaml(TRANSFORMERS, "transformers")
    return tuple(TranslatorCase(name, parse(TranslatorConfig, tree, name)) for name, tree in recipes.items())


def every_encoder() -> list[EncoderCase]:
    """Every encoder of the list, once."""
    first = {case.config.encoder: case for case in reversed(every_translator())}
    return [EncoderCase(of.name, config, of) for config, of in reversed(first.items())]


def every_decoder() -> list[DecoderCase]:
    """Every decoder of the list; the same one twice where it reads an encoder of another family."""
    return [DecoderCase(case.name, case.config.decoder, case) for case in every_translator()]


def name_of(case: TranslatorCase | EncoderCase | DecoderCase) -> str:
    return case.name


def assert_same(actual: Tensor, expected: Tensor, what: str = "") -> None:
    """Equal but for the order in which float32 sums are taken."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=5e-5, msg=lambda reason: f"{what}: {reason}")
