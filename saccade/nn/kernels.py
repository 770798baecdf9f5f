"""The fast twins and their range: every call into a fused kernel stands here, each beside the readable path it equals.

Chosen by what the tensors are, not by the version of torch:

| mechanism | readable | fast twin | range |
|---|---|---|---|
| dot-product attention | `attention.attend` | `scaled_dot_product_attention` | everything dense |
| output layer and cross-entropy | `loss.cross_entropy` | `linear_loss.linear_cross_entropy`, in chunks | everything |
| Elman, LSTM, GRU layer | `recurrent.*.step` in a loop | torch's fused recurrences (cuDNN, oneDNN) | torch's variants |

Shapes: B sentences, H heads, T queries, S keys, K head width, I input width, D hidden width.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.nn import masks
from saccade.types import Layout

HOLD = 1e4  # far beyond where a logistic gate is exactly 0 or 1, in every precision


def attention(q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, *, causal: bool = False) -> Tensor:
    """softmax(q·k/√K) v of each sentence, without ever holding the weights: (…, H, K), laid out as the queries.

    With `causal`, queries and keys are the same tokens. Padding stands behind the real tokens, so that a causal mask
    alone keeps it out of sight.
    """
    q_BTHK, k_BSHK, v_BSHK = masks.pad(q, queries), masks.pad(k, keys), masks.pad(v, keys)
    look_BS = None if causal or keys.even else masks.valid_BT(keys)
    may_look = None if look_BS is None else look_BS[:, None, None]
    mixed_BTHK = dot_product(q_BTHK, k_BSHK, v_BSHK, may_look, causal)
    return masks.pack(mixed_BTHK, queries)


def dot_product(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHK: Tensor, may_look: Tensor | None, causal: bool) -> Tensor:
    """The padded form: `may_look` is broadcast to (B, H, T, S); rows that may look nowhere give zeros."""
    q_BHTK, k_BHSK, v_BHSK = (x.transpose(1, 2) for x in (q_BTHK, k_BSHK, v_BSHK))
    if may_look is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=causal).transpose(1, 2)
    out_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=may_look)
    return out_BHTK.masked_fill(~may_look.any(-1, keepdim=True), 0.0).transpose(1, 2)


Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # weight_ih, weight_hh, bias_ih, bias_hh


def lstm(x_BTI: Tensor, h_BD: Tensor, c_BD: Tensor, weights: Weights, valid_BT: Tensor | None) -> tuple[Tensor, Tensor]:
    """One direction of one layer: its outputs (B, T, D) and its cell state (B, D) at each sentence's own end.

    The fused kernels hand back only the cell state at the last step, for a short sentence behind its padding. An extra
    input that is 1 on padding drives the forget gate to exactly 1 and the input gate to exactly 0, so that the cell
    state is carried to the last step unchanged; no packing, no sorting, no synchronisation.
    """
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    if valid_BT is not None:
        width = len(weight_hh) // 4
        # Eight columns, not one: tensor cores want widths that are multiples of eight.
        column_G1 = x_BTI.new_zeros(4 * width, 1)  # filled there: a list of numbers would have to be waited for
        column_G1[:width], column_G1[width : 2 * width] = -HOLD, HOLD
        padding_BT1 = (~valid_BT).to(x_BTI.dtype)[:, :, None]
        weight_ih = torch.cat([weight_ih.to(x_BTI.dtype), F.pad(column_G1, (0, 7))], dim=1)
        x_BTI = torch.cat([x_BTI, F.pad(padding_BT1, (0, 7))], dim=2)
    with _fused(x_BTI):
        out_BTD, _, c_1BD = torch.lstm(
            x_BTI, (h_BD[None], c_BD[None]), (weight_ih, weight_hh, bias_ih, bias_hh), True, 1, 0.0, True, False, True
        )
    return out_BTD, c_1BD[0]


def gru(x_BTI: Tensor, h_BD: Tensor, weights: Weights) -> Tensor:
    with _fused(x_BTI):
        out_BTD, _ = torch.gru(x_BTI, h_BD[None], weights, True, 1, 0.0, True, False, True)
    return out_BTD


def elman(x_BTI: Tensor, h_BD: Tensor, weights: Weights, activation: str) -> Tensor:
    """`activation` is tanh or relu: the two that torch fuses."""
    fused = torch.rnn_tanh if activation == "tanh" else torch.rnn_relu
    with _fused(x_BTI):
        out_BTD, _ = fused(x_BTI, h_BD[None], weights, True, 1, 0.0, True, False, True)
    return out_BTD


@contextmanager
def _fused(x: Tensor) -> Iterator[None]:
    """On a GPU: cuDNN copies weights that are not one block of memory and says so at every call; the copy is small.

    On a CPU: autocast off, since oneDNN has no bfloat16 recurrence on processors without AVX-512.
    """
    if not x.is_cuda:
        with torch.autocast(x.device.type, enabled=False):
            yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        yield
