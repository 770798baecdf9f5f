"""The characters of words → one vector a word.

Words come as the rows of a batch of characters, packed or padded.
Shapes: N words, M characters of all words, E width of a character, F width of a word.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.recurrent import RecurrentLayers
from saccade.types import Layout, Tokens

LENGTHS = (3, 6, 10, 16)
"""Characters up to which words are read together."""


def _table(vocabulary: int, width: int) -> nn.Embedding:
    """Uniform in ±√(3 / width), as in Ma & Hovy (2016): a variance of 1 / width."""
    table = nn.Embedding(vocabulary, width)
    reach = (3 / width) ** 0.5
    nn.init.uniform_(table.weight, -reach, reach)
    return table


class CharacterCnn(nn.Module):
    """The largest over all places of tanh(W [c₋₁; c₀; c₊₁] + b): Ma & Hovy (2016), section 2.1.

    Zeros stand on either side of a word. The filters see characters alone, no padding: most words are short, but the
    longest of a batch is not.
    """

    def __init__(
        self, vocabulary: int, width: int = 30, *, embedding: int = 30, window: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width, self.window = width, window
        self.table = _table(vocabulary, embedding)
        self.dropout = Dropout(dropout)
        self.filters = nn.Linear(window * embedding, width)

    def forward(self, inside: Tokens) -> Tensor:
        """(N, F); a word without characters has zeros."""
        inside = inside.packed()
        x_ME: Tensor = self.dropout(self.table(inside.ids))
        made_MF = self.filters(torch.cat(list(self._around(x_ME, inside)), dim=-1))
        lengths_N = inside.layout.lengths_B
        # unsafe: lengths are not read back from the device to be checked. Each word's are summed up by itself, so that
        # the gradient is the same each time, too.
        largest_NF = torch.segment_reduce(made_MF, "max", lengths=lengths_N, unsafe=True, initial=None)
        # tanh rises: that of the largest is the largest, and is taken once a word instead of once a character.
        return torch.where((lengths_N > 0)[:, None], largest_NF, 0.0).tanh()

    def _around(self, x_ME: Tensor, inside: Tokens) -> Iterator[Tensor]:
        """Each character's neighbours in its word, from left to right, itself among them."""
        place_M, lengths_N = masks.positions(inside.layout), inside.layout.lengths_B
        length_M = lengths_N.repeat_interleave(lengths_N, output_size=len(x_ME))
        for shift in range(-((self.window - 1) // 2), self.window // 2 + 1):
            there_M = place_M + shift
            within_M1 = ((there_M >= 0) & (there_M < length_M))[:, None]
            yield x_ME.roll(-shift, 0) * within_M1 if shift else x_ME


class CharacterLstm(nn.Module):
    """[→h at the word's end; ←h at its beginning] of a bidirectional LSTM: Lample et al. (2016), section 4.1."""

    def __init__(self, vocabulary: int, width: int = 50, *, embedding: int = 25, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.table = _table(vocabulary, embedding)
        self.dropout = Dropout(dropout)
        self.layers = RecurrentLayers("lstm", embedding, width, 1, bidirectional=True, dropout=0.0)

    def forward(self, inside: Tokens) -> Tensor:
        """(N, F); a word without characters has zeros.

        On a CPU each word that occurs is read once, together with words as long, unless its characters are dropped at
        random. A GPU reads all words side by side: to count them there would take longer.
        """
        if inside.ids.is_cuda or self.dropout.acts:
            return self._read(inside)
        places_N, some = _once(inside)
        return torch.cat([self._read(words) for words in some])[places_N]

    def _read(self, inside: Tokens) -> Tensor:
        x: Tensor = self.dropout(self.table(inside.ids))
        _, finals = self.layers(x, inside.layout)
        return torch.where((inside.layout.lengths_B > 0)[:, None], finals[0]["h"], 0.0)


def _once(inside: Tokens) -> tuple[Tensor, list[Tokens]]:
    """All words that occur, shortest first, in a few batches; and of each word that was given its place among them."""
    ids_NC = masks.pad(inside.ids, inside.layout)
    both_NC = torch.cat([inside.layout.lengths_B[:, None], ids_NC], dim=1)
    rows_UC, places_N = torch.unique(both_NC, dim=0, return_inverse=True)
    lengths_U = rows_UC[:, 0].contiguous()
    cuts = torch.searchsorted(lengths_U, torch.tensor(LENGTHS), right=True).tolist()
    some = []
    for begin, end in pairwise([0, *cuts, len(lengths_U)]):
        if begin < end:
            longest = max(1, int(lengths_U[end - 1]))
            some.append(Tokens(rows_UC[begin:end, 1 : longest + 1], Layout.padded(lengths_U[begin:end], longest)))
    return places_N, some
