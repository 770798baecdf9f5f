"""Words by their characters: against the equations written out, and torch's own convolution."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.nn.characters import CharacterCnn, CharacterLstm
from saccade.types import Tokens

WORDS = [[4, 5, 6], [7], [5, 5, 5, 5, 8, 9], [9, 4]]


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_the_cnn_is_a_convolution_and_its_largest_value(window: int) -> None:
    """Ma & Hovy (2016): with zeros on either side of the word; each word by torch's conv1d, alone."""
    torch.manual_seed(0)
    cnn = CharacterCnn(10, 6, embedding=4, window=window).double()
    convolution = nn.Conv1d(4, 6, window).double()
    with torch.no_grad():
        convolution.weight.copy_(cnn.filters.weight.view(6, window, 4).transpose(1, 2))
        assert convolution.bias is not None
        convolution.bias.copy_(cnn.filters.bias)
    before, behind = (window - 1) // 2, window // 2
    for words in (Tokens.of(WORDS), Tokens.of(WORDS).packed()):
        found_NF = cnn(words)
        for n, word in enumerate(WORDS):
            x_1EC = nn.functional.pad(cnn.table(torch.tensor(word)).t()[None], (before, behind))
            assert_close(found_NF[n], convolution(x_1EC).tanh().amax(-1)[0])


def test_the_lstm_gives_its_last_states_from_both_ends() -> None:
    """Lample et al. (2016), against torch's LSTM on copied weights, each word alone."""
    torch.manual_seed(0)
    lstm = CharacterLstm(10, 6, embedding=4).double()
    theirs = nn.LSTM(4, 3, bidirectional=True, batch_first=True).double()
    with torch.no_grad():
        for suffix, cells in (("", lstm.layers.forwards), ("_reverse", lstm.layers.backwards)):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{name}_l0{suffix}").copy_(getattr(cells[0], name))
    for words in (Tokens.of(WORDS), Tokens.of(WORDS).packed()):
        found_NF = lstm(words)
        for n, word in enumerate(WORDS):
            _, (h_2_1_3, _) = theirs(lstm.table(torch.tensor([word])))
            assert_close(found_NF[n], h_2_1_3.flatten())


@pytest.mark.parametrize("kind", [CharacterCnn, CharacterLstm])
def test_a_word_without_characters_is_zeros(kind: type[CharacterCnn] | type[CharacterLstm]) -> None:
    torch.manual_seed(0)
    module = kind(10, 6, embedding=4)
    found_NF = module(Tokens.of([[4, 5], [], [6]]))
    assert not found_NF[1].any()
    found_NF.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    assert_close(found_NF[::2], module(Tokens.of([[4, 5], [6]])))


def test_sizes_are_the_papers() -> None:
    """Ma & Hovy: 30 filters of width 3 over characters of 30; Lample: 25 and 25 over characters of 25."""
    assert sum(p.numel() for p in CharacterCnn(100).parameters()) == 100 * 30 + 30 * (3 * 30 + 1)
    assert sum(p.numel() for p in CharacterLstm(100).parameters()) == 100 * 25 + 2 * 4 * 25 * (25 + 25 + 2)
    assert CharacterCnn(100).table.weight.abs().max() <= (3 / 30) ** 0.5
