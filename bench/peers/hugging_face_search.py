"""Translations of lines by Hugging Face's `generate`, within the limits that a recipe's `decode` sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from saccade.decode.settings import DecodeConfig
from saccade.text import TextPair
from saccade.types import END, PAD, START, UNKNOWN

BATCH_TOKENS = 262_144
"""Rows × beam × longest source of what is translated at once."""


@dataclass(frozen=True)
class Search:
    model: Any
    text: TextPair
    decode: DecodeConfig
    device: torch.device

    @torch.inference_mode()
    def __call__(self, lines: Sequence[str], *, beam: int) -> list[str]:
        """An output for each line, in their order; like-long lines are translated together."""
        sources = [[*self.text.source.encode(line), END] for line in lines]
        outputs = [""] * len(lines)
        longest_first = sorted(range(len(lines)), key=lambda place: -len(sources[place]))
        while longest_first:
            rows = max(1, BATCH_TOKENS // (beam * len(sources[longest_first[0]])))
            places, longest_first = longest_first[:rows], longest_first[rows:]
            for place, ids in zip(places, self._searched([sources[each] for each in places], beam), strict=True):
                outputs[place] = self.text.target.decode(
                    [each for each in ids if each not in (PAD, START, UNKNOWN, END)]
                )
        return outputs

    def _searched(self, sources: list[list[int]], beam: int) -> list[list[int]]:
        longest = max(map(len, sources))
        ids_BS = torch.tensor([each + [PAD] * (longest - len(each)) for each in sources], device=self.device)
        limit = min(self.decode.max_length, int(self.decode.ratio * longest) + self.decode.extra)
        ranked: dict[str, Any] = {}
        if beam > 1:  # by log P / |Y|^α, as `average` and `power`
            ranked = {"length_penalty": self.decode.alpha, "early_stopping": self.decode.stop == "count"}
        found: list[list[int]] = self.model.generate(
            input_ids=ids_BS,
            attention_mask=(ids_BS != PAD).long(),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=limit,
            suppress_tokens=[PAD, START, UNKNOWN],
            **ranked,
        ).tolist()
        return found
