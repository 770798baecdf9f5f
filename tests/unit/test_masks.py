"""Lengths are the only truth: masks, places and orders derived from them, against loops over sentences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.nn import masks
from saccade.types import END, PAD, START, Batch, Layout, Tokens

lengths = st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(lambda each: max(each) > 0)


def example(of: list[int]) -> tuple[Tensor, Layout]:
    layout = Layout.padded(of)
    return torch.arange(1.0, len(of) * max(of) * 2 + 1).view(len(of), max(of), 2), layout


@given(lengths)
def test_real_tokens_stand_before_the_length(of: list[int]) -> None:
    layout = Layout.padded(of)
    valid = masks.valid_BT(layout)
    assert valid.tolist() == [[t < length for t in range(max(of))] for length in of]
    keys = masks.keys_B1S(layout)
    assert layout.even == (len(set(of)) == 1)
    assert (keys is None) == layout.even
    if keys is not None:
        assert torch.equal(keys[:, 0], valid)


@given(lengths, st.integers(0, 3))
def test_a_layout_may_be_wider_than_its_longest(of: list[int], more: int) -> None:
    layout = Layout.padded(of, longest=max(of) + more)
    assert masks.valid_BT(layout).sum(1).tolist() == of
    assert masks.valid_BT(layout).shape == (len(of), max(of) + more)
    assert layout.even == (more == 0 and len(set(of)) == 1)


@given(lengths)
def test_packing_and_padding_undo_each_other(of: list[int]) -> None:
    x, layout = example(of)
    packed = layout.packed()
    rows = masks.pack(x, packed)
    assert torch.equal(rows, torch.cat([x[b, :length] for b, length in enumerate(of)]))
    assert packed.offsets_B is not None
    for b, (begin, length) in enumerate(zip(packed.offsets_B.tolist(), of, strict=True)):
        assert torch.equal(rows[begin : begin + length], x[b, :length])
    again = masks.pad(rows, packed)
    assert torch.equal(again, x * masks.valid_BT(layout)[:, :, None])
    assert masks.pad(x, layout) is x
    assert masks.pack(x, layout) is x


@given(lengths)
def test_places_count_from_zero_in_each_sentence(of: list[int]) -> None:
    layout = Layout.padded(of)
    assert masks.positions(layout).tolist() == list(range(max(of)))
    assert masks.positions(layout.packed()).tolist() == [t for length in of for t in range(length)]


@given(lengths)
def test_reversing_turns_each_sentence_and_leaves_its_padding(of: list[int]) -> None:
    x, layout = example(of)
    turned = masks.reverse(x, layout)
    for b, length in enumerate(of):
        assert torch.equal(turned[b, :length], x[b, :length].flip(0))
        assert torch.equal(turned[b, length:], x[b, length:])
    assert torch.equal(masks.reverse(turned, layout), x)


@given(lengths)
def test_the_last_is_that_of_each_sentence(of: list[int]) -> None:
    x, layout = example(of)
    expected = [x[b, length - 1] if length else torch.zeros(2) for b, length in enumerate(of)]
    assert torch.equal(masks.last(x, layout), torch.stack(expected))


@given(st.integers(1, 5), st.integers(0, 4))
def test_causal_masks_see_the_past_and_themselves(queries: int, earlier: int) -> None:
    mask = masks.causal_TS(queries, queries + earlier, torch.device("cpu"))
    assert mask.tolist() == [[s <= t + earlier for s in range(queries + earlier)] for t in range(queries)]


def test_tokens_are_filled_up_with_pad() -> None:
    tokens = Tokens.of([[4, 5, END], [END], []])
    assert tokens.ids.tolist() == [[4, 5, END], [END, PAD, PAD], [PAD, PAD, PAD]]
    assert tokens.layout.lengths_B.tolist() == [3, 1, 0]
    assert tokens.count.item() == 4
    assert not tokens.layout.even


def test_the_decoder_reads_the_target_shifted_behind_start() -> None:
    batch = Batch(Tokens.of([[4, END], [END]]), Tokens.of([[5, 6, END], [7, END]]))
    assert batch.decoder_input.ids.tolist() == [[START, 5, 6], [START, 7, END]]
    assert batch.packed().decoder_input.ids.tolist() == [START, 5, 6, START, 7]


@given(lengths, st.data())
def test_rows_of_a_packed_batch_are_a_batch(of: list[int], data: st.DataObject) -> None:
    rows = [list(range(4, 4 + length)) for length in of]
    tokens = Tokens.of(rows).packed()
    assert tokens.packed() is tokens
    begin = data.draw(st.integers(0, len(of) - 1))
    end = data.draw(st.integers(begin + 1, len(of)))
    some, alone = tokens.rows(begin, end), Tokens.of(rows[begin:end]).packed()
    assert torch.equal(some.ids, alone.ids)
    for one, other in zip(vars(some.layout).values(), vars(alone.layout).values(), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


@given(lengths)
def test_gradients_go_through_packing_and_padding_unchanged(of: list[int]) -> None:
    x, layout = example(of)
    packed = layout.packed()
    x, rows = x.double().requires_grad_(), masks.pack(x, packed).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda y: masks.pack(y, packed), (x,))
    assert torch.autograd.gradcheck(lambda y: masks.pad(y, packed), (rows,))


@pytest.mark.parametrize("layout", [Layout.padded([2, 3]), Layout.padded([2, 3]).packed()])
def test_moving_a_layout_keeps_it(layout: Layout) -> None:
    moved = layout.to(torch.device("cpu"))
    assert moved.is_packed == layout.is_packed
    assert (moved.longest, moved.even) == (layout.longest, layout.even)
    assert torch.equal(moved.lengths_B, layout.lengths_B)
