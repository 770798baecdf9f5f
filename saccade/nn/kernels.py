"""The fast twins and their range: every call into a fused kernel stands here, each beside the readable path it equals.

Chosen by what the tensors are, not by the version of torch:

| mechanism | readable | fast twin | range |
|---|---|---|---|
| dot-product attention | `scores.attend` | `triton_attention`, by sentence | packed, a GPU, heads 16 … 128 wide |
| | | `varlen_attn` (flash) | the same in half precision, sentences longer than `LONG` on average |
| | | `scaled_dot_product_attention` | everything dense, biases such as ALiBi's; dropout of weights on a GPU |
| window, BigBird | `patterns.*.may_look` | `triton_blocks`, only what is seen | a GPU, heads as above, blocks of 16 n |
| | | `patterns.by_blocks` through the dense kernels | everything |
| token vectors, places and dropout | the lines below `embed` | `triton_embedding`, in one pass | packed, on a GPU |
| bias, dropout, sum, norm | the lines below `residual_norm` | `triton_residual`, in one pass | a GPU, layer norm |
| bias, ReLU or GELU, and dropout | the lines below `activate` | `triton_residual`, in one pass | a GPU |
| output layer and cross-entropy | `loss.cross_entropy` | `linear_loss.linear_cross_entropy`, in chunks | everything |
| Elman, LSTM, GRU layer | `cells.*.step` in a loop | torch's fused recurrences (cuDNN, oneDNN) | if `cells.*.fused` |

Shapes: B sentences, H heads, T queries, S keys, K head width, I input width, D hidden width.
"""

import importlib.util
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn import masks, triton_attention, triton_blocks, triton_embedding, triton_residual
from saccade.nn.dropout import Dropout, relu_dropout
from saccade.nn.norms import Norm, normed
from saccade.nn.patterns import Mix, Pattern, by_blocks
from saccade.nn.scores import attend
from saccade.types import Layout

LONG = 256  # tokens a sentence, on average: above it the kernel made for short ones is slower than flash attention
Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]
HOLD = 1e4  # far beyond where a logistic gate is exactly 0 or 1, in every precision


@runtime_checkable
class Twinned(Protocol):
    """A part whose fast twin has a range; so that a run can say what lies outside of it, each answers for itself."""

    def without_twin(self, device: torch.device) -> list[str]:
        """In words, what of it the kernels for such a device do not take, though they take its plain form."""


def takes_heads(width: int) -> bool:
    """Whether attention over packed sentences has a kernel for heads as wide, on a GPU."""
    return width in triton_attention.HEAD_WIDTHS


def takes_pattern(pattern: Pattern, width: int) -> bool:
    """Whether such a pattern has a kernel for heads as wide, on a GPU."""
    return triton_blocks.takes(pattern, width)


def takes_norm(norm: Norm) -> TypeGuard[nn.LayerNorm]:
    return isinstance(norm, nn.LayerNorm) and norm.normalized_shape[-1] <= triton_residual.WIDEST


def takes_activation(activation: Activation) -> TypeGuard[triton_residual.Activation]:
    return activation in ("relu", "gelu")


FEW_ROWS = 4096


class Product(NamedTuple):
    """W x, and the bias that is still to be added to it, or None: a pass over memory that follows can add it too."""

    value: Tensor
    bias: Tensor | None

    def whole(self) -> Tensor:
        return self.value if self.bias is None else self.value + self.bias


def product(x: Tensor, layer: nn.Linear) -> Product:
    """`layer(x)`, its bias left out where `residual_norm` and `activate` have a kernel that adds it.

    There its gradient, a sum over all rows, costs no pass of its own either.
    """
    if triton_residual.available(x) and _pays(x):
        return Product(F.linear(x, layer.weight), layer.bias)
    return Product(layer(x), None)


def _pays(x: Tensor) -> bool:
    """Whether a pass over memory less is worth a kernel of ours, which takes longer to start than torch's.

    Not for the few rows that a search steps through: there, starting kernels is all that takes time.
    """
    return torch.is_grad_enabled() or x.numel() > FEW_ROWS * x.shape[-1]


def _rate(dropout: Dropout | None) -> float:
    """What it drops now."""
    return dropout.rate if dropout is not None and dropout.acts else 0.0


def _seed(x: Tensor, dropout: Dropout) -> Tensor | None:
    """What a kernel keys its dropout by: drawn on the device, so that torch's generator governs it."""
    return torch.randint(1 << 62, (), device=x.device) if dropout.acts else None


def embed(
    ids: Tensor, table_VD: Tensor, place: Tensor | None, positions: Tensor | None, scale: float, dropout: Dropout
) -> Tensor:
    """Drop(table[ids] · scale + positions[place]), or + positions where there is no place."""
    at_places = positions is not None and place is not None and place.dim() == 1 and not positions.requires_grad
    if triton_embedding.available(ids, table_VD) and (positions is None or at_places):
        return triton_embedding.embed(
            ids, table_VD, place, positions, scale=scale, dropout=_rate(dropout), seed=_seed(table_VD, dropout)
        )
    x = F.embedding(ids, table_VD) * scale
    if positions is not None:
        x = x + (positions if place is None else positions[place])
    dropped: Tensor = dropout(x)
    return dropped


def residual_norm(
    x: Tensor, given: Product, norm: Norm, dropout: Dropout, layout: Layout
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum y = x + Drop(given), and its norm twice: for two readers, whose gradients are added on the way back."""
    if takes_norm(norm) and triton_residual.available(x) and _pays(x):
        return triton_residual.residual_norm(
            x, given.value, norm.weight, norm.bias,
            r_bias_D=given.bias, dropout=_rate(dropout), seed=_seed(x, dropout), epsilon=norm.eps,
        )  # fmt: skip
    y = x + dropout(given.whole())
    z = normed(norm, y, layout)
    return y, z, z


def residual(x: Tensor, given: Product, dropout: Dropout) -> Tensor:
    """The sum alone."""
    y: Tensor = x + dropout(given.whole())
    return y


def activate(given: Product, activation: Activation, dropout: Dropout, *, gated: bool = False) -> Tensor:
    """Drop(φ(given)), or Drop(φ(a) ⊙ b) of its halves a and b; what is given may be overwritten."""
    wide = given.value
    if triton_residual.available(wide) and _pays(wide) and not gated and takes_activation(activation):
        return triton_residual.activate(
            wide, given.bias, activation=activation, dropout=_rate(dropout), seed=_seed(wide, dropout)
        )
    wide = given.whole()
    if gated:
        gate, value = wide.chunk(2, dim=-1)
        product: Tensor = dropout(_activated(gate, activation) * value)
        return product
    if activation == "relu" and dropout.acts and wide.device.type == "cpu":
        return relu_dropout(wide, dropout.rate)
    inner: Tensor = dropout(_activated(wide, activation))
    return inner


def _activated(x: Tensor, activation: Activation) -> Tensor:
    match activation:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu-tanh":
            return F.gelu(x, approximate="tanh")
        case "swish":
            return F.silu(x)


def drops_weights(device: torch.device) -> bool:
    """Whether its kernels for attention can drop weights without holding them all."""
    return device.type == "cuda"


def self_attention(qkv: Tensor, layout: Layout, dropout: Dropout, *, causal: bool) -> Tensor:
    """Drop(softmax(q·k/√K)) v within each sentence, the weights never held: (…, 3, H, K) -> (…, H, K)."""
    if is_long(qkv, layout) and not dropout.acts:
        q, k, v = qkv.unbind(-3)
        return _long(q, k, v, layout, layout, causal=causal)
    if triton_attention.available(qkv, layout, layout):
        rate, seed = _rate(dropout), _seed(qkv, dropout)
        return triton_attention.attend_self(qkv, layout, causal=causal, dropout=rate, seed=seed)
    q_BTHK, k_BTHK, v_BTHK = masks.pad(qkv, layout).unbind(-3)
    return masks.pack(_dense(q_BTHK, k_BTHK, v_BTHK, layout, dropout, causal=causal), layout)


def cross_attention(q: Tensor, kv: Tensor, queries: Layout, keys: Layout, dropout: Dropout) -> Tensor:
    """The same with queries (…, H, K) from elsewhere than keys and values (…, 2, H, K)."""
    if is_long(q, queries) and is_long(kv, keys) and not dropout.acts:
        k, v = kv.unbind(-3)
        return _long(q, k, v, queries, keys, causal=False)
    if triton_attention.available(q, queries, keys):
        rate, seed = _rate(dropout), _seed(q, dropout)
        return triton_attention.attend_cross(q, kv, queries, keys, dropout=rate, seed=seed)
    k_BSHK, v_BSHK = masks.pad(kv, keys).unbind(-3)
    return masks.pack(_dense(masks.pad(q, queries), k_BSHK, v_BSHK, keys, dropout, causal=False), queries)


def is_long(x: Tensor, layout: Layout) -> bool:
    """Whether flash attention takes packed sentences, (N, …, K), and is faster than the kernel made for short ones.

    By the average, which is known on the host, not by the longest: one long sentence among many short ones would make
    all of them slow. It leaves rows that belong to no sentence as they are in memory, so that there must be none.
    """
    if not x.is_cuda or x.dtype not in (torch.bfloat16, torch.float16) or layout.slots_N is None:
        return False
    full = len(layout.slots_N) == len(x) > LONG * len(layout.lengths_B)
    return full and x.shape[-1] % 8 == 0 and x.shape[-1] <= 256 and (layout.even or _varlen() is not None)


@cache
def _varlen() -> tuple[Callable[..., Any], dict[bool, dict[str, Any]]] | None:
    """Flash attention over packed sentences, and how it is told whether to be causal; None where torch has none."""
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return None
    from torch.nn.attention.varlen import varlen_attn

    if "is_causal" in inspect.signature(varlen_attn).parameters:
        return varlen_attn, {False: {}, True: {"is_causal": True}}
    return varlen_attn, {False: {}, True: {"window_size": (-1, 0)}}


def _long(q_QHK: Tensor, k_SHK: Tensor, v_SHK: Tensor, queries: Layout, keys: Layout, *, causal: bool) -> Tensor:
    """Sentences that are all as long are a dense batch already, which is faster still."""
    if queries.even and keys.even:
        dense = ((q_QHK, queries), (k_SHK, keys), (v_SHK, keys))
        q, k, v = (x.view(-1, layout.longest, *x.shape[1:]) for x, layout in dense)
        return dot_product(q, k, v, None, causal).flatten(0, 1)
    flash = _varlen()
    assert flash is not None  # `is_long` asked
    call, options = flash
    ends = [F.pad(layout.lengths_B.cumsum(0, dtype=torch.int32), (1, 0)) for layout in (queries, keys)]
    out: Tensor = call(q_QHK, k_SHK, v_SHK, *ends, queries.longest, keys.longest, **options[causal])
    return out


def block_attention(
    qkv: Tensor,
    layout: Layout,
    pattern: Pattern,
    mix: Mix,
    dropout: Dropout,
    *,
    causal: bool,
    placed: bool,
    slopes_H: Tensor | None,
) -> Tensor:
    """Self-attention to what the pattern shows; `mix` takes it where there is no kernel.

    `placed`: places act on the scores; of those the kernel knows ALiBi's, by their slopes. It drops no weights.
    """
    if triton_blocks.available(qkv, pattern) and (slopes_H is not None or not placed) and not dropout.acts:
        return triton_blocks.attend(qkv, layout, pattern, causal=causal, slopes_H=slopes_H)
    q, k, v = (masks.pad(x, layout) for x in qkv.unbind(-3))
    return masks.pack(by_blocks(q, k, v, layout, pattern, mix, causal=causal, placed=placed), layout)


def _dense(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHK: Tensor, keys: Layout, dropout: Dropout, *, causal: bool) -> Tensor:
    """Padding stands behind the real tokens, so that a causal mask alone keeps it out of sight."""
    look_BS = None if causal or keys.even else masks.valid_BT(keys)
    may_look = None if look_BS is None else look_BS[:, None, None]
    return dot_product(q_BTHK, k_BSHK, v_BSHK, may_look, causal, dropout)


def dot_product(
    q_BTHK: Tensor,
    k_BSHK: Tensor,
    v_BSHK: Tensor,
    may_look: Tensor | None,
    causal: bool,
    dropout: Dropout | None = None,
) -> Tensor:
    """The padded form: `may_look` is broadcast to (B, H, T, S); rows that may look nowhere give zeros."""
    q_BHTK, k_BHSK, v_BHSK = (x.transpose(1, 2) for x in (q_BTHK, k_BSHK, v_BSHK))
    if may_look is None and not _by_weights(q_BHTK, dropout):
        rate = _rate(dropout)
        mixed_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=causal, dropout_p=rate)
        return mixed_BHTK.transpose(1, 2)
    if may_look is None and causal:
        may_look = masks.causal_TS(q_BTHK.shape[1], k_BSHK.shape[1], q_BTHK.device)
    return biased(q_BHTK, k_BHSK, v_BHSK, may_look, None, dropout).transpose(1, 2)


def shaded(q_BTHK: Tensor, k_BSHK: Tensor, v_BSHK: Tensor, shade: Tensor) -> Tensor:
    """Without dropout, with a mask that is made ready already (`masks.shade`), broadcast to (B, H, T, S)."""
    q_BHTK, k_BHSK, v_BHSK = (x.transpose(1, 2) for x in (q_BTHK, k_BSHK, v_BSHK))
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=shade.to(q_BTHK.dtype)).transpose(1, 2)


def _by_weights(q: Tensor, dropout: Dropout | None) -> bool:
    """To drop weights, a CPU's kernel would hold them all, too, and draw them one by one: nn/dropout.py."""
    return _rate(dropout) > 0.0 and not drops_weights(q.device)


def biased(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    may_look: Tensor | None,
    bias: Tensor | None,
    dropout: Dropout | None = None,
) -> Tensor:
    """The same with heads before tokens; `bias` is added to the scores, broadcast as `may_look` to (B, H, T, S)."""
    if _by_weights(q_BHTK, dropout):
        scores_BHTS = q_BHTK @ k_BHSK.mT * q_BHTK.shape[-1] ** -0.5
        return attend(scores_BHTS if bias is None else scores_BHTS + bias, v_BHSK, may_look, dropout)[0]
    nowhere = None if may_look is None else ~may_look.any(-1, keepdim=True)
    # A row that may look nowhere looks at everything, and what it sees is dropped: not every kernel is safe from NaN.
    seen = None if may_look is None or nowhere is None else may_look | nowhere
    if bias is not None:
        seen = bias if seen is None else bias.masked_fill(~seen, torch.finfo(bias.dtype).min)
        seen = seen.expand(len(q_BHTK), *q_BHTK.shape[1:3], k_BHSK.shape[2])
    out_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=seen, dropout_p=_rate(dropout))
    return out_BHTK if nowhere is None else out_BHTK.masked_fill(nowhere, 0.0)


Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # weight_ih, weight_hh, bias_ih, bias_hh


def cast(weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor, like: Tensor) -> Weights:
    dtype = like.dtype
    return weight_ih.to(dtype), weight_hh.to(dtype), bias_ih.to(dtype), bias_hh.to(dtype)


def never_forgetting(weights: Weights) -> Weights:
    """From gates i, g, o to torch's i, f, g, o, with a forget gate that is exactly 1 whatever comes."""
    width = weights[1].shape[-1]

    def spread(x: Tensor, fill: float) -> Tensor:
        return torch.cat([x[:width], torch.full_like(x[:width], fill), x[width:]])

    weight_ih, weight_hh, bias_ih, bias_hh = weights
    return spread(weight_ih, 0.0), spread(weight_hh, 0.0), spread(bias_ih, HOLD), spread(bias_hh, 0.0)


def with_z_turned(weights: Weights) -> Weights:
    """Of a GRU whose gate lets the new state in, the one whose gate keeps the old: 1 − σ(a) = σ(−a)."""
    width = weights[1].shape[-1]

    def turned(x: Tensor) -> Tensor:
        return torch.cat([x[:width], -x[width : 2 * width], x[2 * width :]])

    weight_ih, weight_hh, bias_ih, bias_hh = weights
    return turned(weight_ih), turned(weight_hh), turned(bias_ih), turned(bias_hh)


def of_recurrence(x: Tensor) -> torch.dtype:
    """What a fused recurrence computes in: autocast's own choice for it on a GPU is float16, whatever it is asked for.

    On a CPU it is the inputs' precision, since oneDNN has no bfloat16 recurrence on processors without AVX-512.
    """
    return torch.get_autocast_dtype("cuda") if x.is_cuda and torch.is_autocast_enabled("cuda") else x.dtype


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
    """All tensors are in the precision of `of_recurrence` already.

    On a GPU: cuDNN copies weights that are not one block of memory and says so at every call; the copy is small.
    """
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        if x.is_cuda:
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        yield
