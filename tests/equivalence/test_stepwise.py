"""Stepwise = teacher-forced: one token at a time, a prefix at once, or all of the target give the same logits."""

import pytest
import torch
from torch import Tensor

from saccade.types import Encoded, Layout, Tokens
from tests.cases import DecoderCase, assert_same, every_decoder, name_of, whole

decoders = pytest.mark.parametrize("case", every_decoder(), ids=name_of)


@decoders
@torch.no_grad()
def test_stepwise_equals_teacher_forced(case: DecoderCase) -> None:
    decoder, encoded, input_BT = case.build(seed=0)
    forced_BTV = decoder(whole(input_BT), encoded)
    state = decoder.start(encoded, max_steps=input_BT.shape[1])
    for t, forced_BV in enumerate(forced_BTV.unbind(1)):
        logits_BV, state = decoder.step(input_BT[:, t], state)
        assert_same(logits_BV, forced_BV, f"step {t}")


@decoders
@torch.no_grad()
def test_prefill_equals_steps(case: DecoderCase) -> None:
    """However the prefix is cut, and whatever follows it; a state with room to spare is as good as a tight one."""
    decoder, encoded, input_BT = case.build(seed=1)
    forced_BTV = decoder(whole(input_BT), encoded)
    for cut in (1, 2, 4):
        state = decoder.start(encoded, max_steps=11)
        first_BTV, state = decoder.prefill(input_BT[:, :cut], state)
        second_BTV, state = decoder.prefill(input_BT[:, cut:-1], state)
        last_BV, _ = decoder.step(input_BT[:, -1], state)
        assert_same(torch.cat([first_BTV, second_BTV, last_BV[:, None]], dim=1), forced_BTV)


@decoders
@torch.no_grad()
def test_hypotheses_of_a_sentence_share_its_source(case: DecoderCase) -> None:
    """With beam hypotheses side by side, each is as if it were decoded alone with its own sentence."""
    decoder, encoded, input_BT = case.build(seed=2)
    beam, steps = 3, 4
    generator = torch.Generator().manual_seed(3)
    rows_N = torch.arange(len(input_BT)).repeat_interleave(beam)
    input_NT = torch.randint(2, case.of.vocabularies[1], (len(rows_N), steps), generator=generator)
    forced_NTV = decoder(whole(input_NT), _repeated(encoded, rows_N))
    state = decoder.start(encoded, max_steps=steps).widen(beam)
    for t in range(steps):
        logits_NV, state = decoder.step(input_NT[:, t], state)
        assert_same(logits_NV, forced_NTV[:, t])
    prefilled_NTV, _ = decoder.prefill(input_NT, decoder.start(encoded, max_steps=steps).widen(beam))
    assert_same(prefilled_NTV, forced_NTV)


@decoders
@torch.no_grad()
def test_a_state_follows_its_hypothesis(case: DecoderCase) -> None:
    """Reordered in mid-search, with sentences leaving, as beam search does it."""
    decoder, encoded, input_BT = case.build(seed=4)
    beam = 2
    generator = torch.Generator().manual_seed(5)
    rows_N = torch.arange(len(input_BT)).repeat_interleave(beam)
    input_NT = torch.randint(2, case.of.vocabularies[1], (len(rows_N), 4), generator=generator)
    _, state = decoder.prefill(input_NT[:, :2], decoder.start(encoded, max_steps=4).widen(beam))

    parents_N = torch.tensor([1, 0, 2, 2, 5, 4, 7, 7])
    state = state.select_hypotheses(parents_N)
    _, state = decoder.step(input_NT[:, 2], state)
    stay_B = torch.tensor([0, 2, 3])
    stay_N = torch.tensor([0, 1, 4, 5, 6, 7])
    logits_NV, _ = decoder.step(input_NT[stay_N, 3], state.select_sentences(stay_B, beam))

    history_NT = torch.cat([input_NT[parents_N, :2], input_NT[:, 2:]], dim=1)[stay_N]
    assert_same(logits_NV, decoder(whole(history_NT), _repeated(encoded, rows_N[stay_N]))[:, -1])


def _repeated(encoded: Encoded, rows_N: Tensor) -> Encoded:
    layout = Layout.padded(encoded.layout.lengths_B[rows_N], encoded.layout.longest)
    final = tuple({name: value[rows_N] for name, value in layer.items()} for layer in encoded.final)
    cells = None if encoded.cells is None else encoded.cells[rows_N]
    assert encoded.source is not None
    source = Tokens(encoded.source.ids[rows_N], layout)
    return Encoded(encoded.memory[rows_N], layout, final, cells, source)
