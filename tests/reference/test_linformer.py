"""Linformer = its equation in double precision; with the identity it is full attention."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.models.transformer_config import TransformerConfig, stack_of
from saccade.nn.attention import SelfAttention
from saccade.nn.linformer import Linformer, Sharing
from saccade.nn.masks import pack, valid_BT
from saccade.nn.watch import Watch
from saccade.types import Layout

H, K, T, M = 2, 3, 7, 4
sharings = pytest.mark.parametrize("sharing", ["none", "headwise", "key-value", "layerwise"])
paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])


def attention(slots: int = M, places: int = 9, sharing: Sharing = "headwise") -> tuple[SelfAttention, Linformer]:
    torch.manual_seed(0)
    linformer = Linformer(slots, places, H, sharing)
    return SelfAttention(H * K, H, slots=linformer).double(), linformer


def looked(multi: SelfAttention, x_BTD: Tensor, layout: Layout, watched: bool = False) -> Tensor:
    return multi.look(multi.project(x_BTD), layout, causal=False, watch=Watch() if watched else None)


@paths
@sharings
@torch.no_grad()
def test_it_is_the_equation(sharing: Sharing, watched: bool) -> None:
    """softmax(q (E k)ᵀ / √K) F v of each sentence by itself: keys and values of its own tokens alone."""
    multi, linformer = attention(sharing=sharing)
    torch.nn.init.normal_(multi.of_input.bias)
    x_BTD, lengths = torch.randn(3, T, H * K, dtype=torch.float64), [7, 2, 4]
    out = looked(multi, x_BTD, Layout.padded(lengths), watched)
    for b, n in enumerate(lengths):
        for h in range(H):
            q, k, v = (part[:n, h] for part in multi.project(x_BTD)[b].unbind(1))
            at = h if sharing == "none" else 0
            E, F = linformer.of_keys_HML[at, :, :n], linformer.of_values_HML[at, :, :n]
            expected = (q @ (E @ k).T / math.sqrt(K)).softmax(-1) @ (F @ v)
            assert_close(out[b, :n, h], expected)


@paths
@torch.no_grad()
def test_with_the_identity_it_is_full_attention(watched: bool) -> None:
    multi, linformer = attention(slots=T, places=T)
    full = SelfAttention(H * K, H).double()
    full.load_state_dict({name: w for name, w in multi.state_dict().items() if "slots" not in name})
    x_BTD, even = torch.randn(2, T, H * K, dtype=torch.float64), Layout.padded([T, T])
    assert not torch.allclose(looked(multi, x_BTD, even), looked(full, x_BTD, even), atol=1e-3)
    for matrix in (linformer.of_keys_HML, linformer.of_values_HML):
        matrix.copy_(torch.eye(T))
    assert_close(looked(multi, x_BTD, even, watched), looked(full, x_BTD, even))


@torch.no_grad()
def test_one_slot_of_equal_weights_is_the_mean_value() -> None:
    multi, linformer = attention(slots=1, places=T)
    for matrix in (linformer.of_keys_HML, linformer.of_values_HML):
        matrix.fill_(1 / T)
    x_BTD, even = torch.randn(2, T, H * K, dtype=torch.float64), Layout.padded([T, T])
    values_BTHK = multi.project(x_BTD)[:, :, 2]
    assert_close(looked(multi, x_BTD, even), values_BTHK.mean(1, keepdim=True).expand(-1, T, -1, -1))


@torch.no_grad()
def test_slots_have_no_order_and_values_are_linear() -> None:
    multi, linformer = attention()
    x_BTD, layout = torch.randn(2, T, H * K, dtype=torch.float64), Layout.padded([T, 4])
    before = looked(multi, x_BTD, layout)
    order = torch.tensor([2, 0, 3, 1])
    for matrix in (linformer.of_keys_HML, linformer.of_values_HML):
        matrix.copy_(matrix[:, order].clone())
    assert_close(looked(multi, x_BTD, layout), before)
    linformer.of_values_HML.mul_(3.0)
    assert_close(looked(multi, x_BTD, layout), 3 * before)


@sharings
@torch.no_grad()
def test_packed_equals_padded_and_padding_is_never_seen(sharing: Sharing) -> None:
    multi, _ = attention(sharing=sharing)
    x_BTD, layout = torch.randn(3, T, H * K, dtype=torch.float64), Layout.padded([7, 2, 4])
    valid, packed = valid_BT(layout), layout.packed()
    out = looked(multi, x_BTD, layout)[valid]
    assert_close(looked(multi, pack(x_BTD, packed), packed), out)
    other = x_BTD.masked_fill(~valid[:, :, None], 1e6)
    assert torch.equal(looked(multi, other, layout)[valid], out)


@torch.no_grad()
def test_tokens_beyond_the_places_share_the_last() -> None:
    multi, linformer = attention(places=5)
    x_BTD, even = torch.randn(1, T, H * K, dtype=torch.float64), Layout.padded([T])
    swapped = x_BTD[:, [0, 1, 2, 3, 6, 4, 5]]
    assert_close(looked(multi, swapped, even)[:, :4], looked(multi, x_BTD, even)[:, :4])
    assert linformer.columns(linformer.of_keys_HML, T).shape == (1, M, T)


@torch.no_grad()
def test_what_is_watched_is_the_share_of_each_tokens_value() -> None:
    multi, watch = attention()[0], Watch()
    x_BTD, layout = torch.randn(2, T, H * K, dtype=torch.float64), Layout.padded([T, 4])
    qkv = multi.project(x_BTD)
    out_BTHK = multi.look(qkv, layout, causal=False, watch=watch, kind="encoder")
    (shares_BHTS,) = watch.attention["encoder"]
    assert_close(torch.einsum("bhts,bshk->bthk", shares_BHTS, qkv[:, :, 2]), out_BTHK)
    assert (shares_BHTS[1, :, :, 4:] == 0).all()


@pytest.mark.parametrize(
    ("sharing", "matrices"), [("none", 24 * 2), ("headwise", 24), ("key-value", 12), ("layerwise", 1)]
)
def test_there_are_as_many_matrices_as_the_paper_says(sharing: Sharing, matrices: int) -> None:
    """Section 4: of 12 layers 24, 12 and 1; without sharing as many for each of the two heads here."""
    pattern = {"kind": "linformer", "slots": 3, "places": 5, "sharing": sharing}
    config = TransformerConfig.model_validate({"layers": 12, "width": 4, "heads": 2, "pattern": pattern})
    plain = config.model_copy(update={"pattern": TransformerConfig().pattern})
    counts = [
        sum(p.numel() for p in stack_of(c, memory_width=None, causal=False).parameters()) for c in (config, plain)
    ]
    assert counts[0] - counts[1] == matrices * 3 * 5
