"""How fast outputs are searched for, beside Hugging Face's `generate` on a model of the same size.

    python -m bench.decoding [--device cpu] [--sentences 256] [--rounds 3] [--out FILE]

Weights are random and END is out of reach, so that every output of every contender has the same number of tokens and
all do the same work. Tokens in, tokens out: no text. Contenders take turns; the median of the rounds is told.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.gpu_contenders import LstmShape, Shape, TransformerShape
from bench.gpu_timing import synchronize
from saccade.config import parse
from saccade.decode.settings import DecodeConfig, search
from saccade.lines import filled_up
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.replay import Begin, Replays
from saccade.translate import ROUND_SOURCE
from saccade.types import END, PAD, START, Hypothesis, Tokens
from saccade.view.table import markdown

VOCABULARY, LENGTH = 8000, 20
SHAPES: dict[str, Shape] = {
    "Transformer 3+3×256": TransformerShape(3, 256, 4, 1024, 0.0),
    "Transformer base": TransformerShape(6, 512, 8, 2048, 0.0),
    "LSTM 2+2×512, attention, input feeding": LstmShape(2, 512, feed_input=True),
}


@dataclass(frozen=True)
class Work:
    """Sentences in batches of like length, as every engine gets them."""

    batches: list[Tensor]
    beam: int

    @property
    def tokens(self) -> int:
        return LENGTH * sum(len(ids_BS) for ids_BS in self.batches)


def work(sentences: int, rows: int, beam: int, device: torch.device) -> Work:
    """12 to 25 tokens, 17 on average, sorted; the end mark comes on top."""
    generator = torch.Generator().manual_seed(1)
    lengths = (4 + 8 * torch.rand(sentences, generator=generator).exp()).int().sort().values.tolist()
    batches = []
    for begin in range(0, sentences, rows):
        some = lengths[begin : begin + rows]
        ids_BS = torch.randint(4, VOCABULARY, (len(some), max(some) + 1), generator=generator)
        for row_S, length in zip(ids_BS, some, strict=True):
            row_S[length], row_S[length + 1 :] = END, PAD
        batches.append(ids_BS.to(device))
    return Work(batches, beam)


def ours(shape: Shape, device: torch.device, half: bool) -> Callable[[Work], None]:
    torch.manual_seed(0)
    model = build_translator(parse(TranslatorConfig, shape.config()), VOCABULARY, VOCABULARY).to(device).eval()
    with torch.no_grad():
        model.output.bias[END] = -1e4
    if half:
        model = model.bfloat16()

    replays = Replays.on(device, model)

    @torch.inference_mode()
    def run(given: Work) -> None:
        config = DecodeConfig(beam=given.beam, max_length=LENGTH, ratio=100.0)
        for ids_BS in given.batches:
            with nullcontext() if replays is None else replays.lent() as begin:
                found = _searched(model, ids_BS, config, begin)
            assert all(len(row[0].tokens) == LENGTH for row in found)

    return run


def _searched(model: Translator, ids_BS: Tensor, config: DecodeConfig, begin: Begin | None) -> list[list[Hypothesis]]:
    """Padded to multiples of 8 where steps are replayed, as `Engine` does."""
    rows = [[each for each in row if each != PAD] for row in ids_BS.tolist()]
    longest = filled_up(max(map(len, rows)), 1 if begin is None else ROUND_SOURCE)
    state = model.start(model.encode(Tokens.of(rows, longest=longest).to(ids_BS.device)), LENGTH)
    return search(model.step, state, limits=[LENGTH] * len(ids_BS), config=config, begin=begin)


def hugging_face(shape: TransformerShape, device: torch.device, half: bool) -> Callable[[Work], None]:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=shape.width, encoder_layers=shape.layers, decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads, decoder_attention_heads=shape.heads, encoder_ffn_dim=shape.inner,
        decoder_ffn_dim=shape.inner, activation_function="relu", scale_embedding=True, max_position_embeddings=512,
        pad_token_id=PAD, eos_token_id=END, forced_eos_token_id=None, decoder_start_token_id=START,
    )  # fmt: skip
    model = MarianMTModel(config).to(device).eval()
    if half:
        model = model.bfloat16()

    @torch.inference_mode()
    def run(given: Work) -> None:
        for ids_BS in given.batches:
            found = model.generate(
                input_ids=ids_BS, attention_mask=(ids_BS != PAD).long(), num_beams=given.beam, do_sample=False,
                min_new_tokens=LENGTH, max_new_tokens=LENGTH,
            )  # fmt: skip
            assert found.shape[1] == LENGTH + 1

    return run


def measured(
    name: str, shape: Shape, given: Work, rows: int, rounds: int, device: torch.device, half: bool
) -> list[dict[str, str]]:
    contenders = {"saccade": ours(shape, device, half)}
    if isinstance(shape, TransformerShape):
        contenders["Hugging Face generate"] = hugging_face(shape, device, half)
    seconds: dict[str, list[float]] = {who: [] for who in contenders}
    for round_ in range(rounds + 1):
        for who, run in contenders.items():
            synchronize(device)
            begin = time.perf_counter()
            run(given)
            synchronize(device)
            if round_:  # the first is to warm up
                seconds[who].append(time.perf_counter() - begin)
    own = statistics.median(seconds["saccade"])
    return [
        {
            "model": name,
            "beam": str(given.beam),
            "rows": str(rows),
            "who": who,
            "sentences/s": f"{sum(map(len, given.batches)) / statistics.median(took):,.1f}",
            "tokens/s": f"{given.tokens / statistics.median(took):,.0f}",
            "range": f"{given.tokens / max(took):,.0f} – {given.tokens / min(took):,.0f}",
            "saccade is faster": "" if who == "saccade" else f"{statistics.median(took) / own:.2f} ×",
        }
        for who, took in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rows", default="64", help="sentences of a batch; several with commas")
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--models", default=",".join(map(str, range(len(SHAPES)))), help="by number, from 0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--half", action="store_true", help="weights in bfloat16")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    found = []
    for which in options.models.split(","):
        name, shape = list(SHAPES.items())[int(which)]
        for rows in map(int, options.rows.split(",")):
            for beam in map(int, options.beams.split(",")):
                given = work(options.sentences, rows, beam, device)
                found += measured(name, shape, given, rows, options.rounds, device, options.half)
    page = markdown(found, list(found[0]))
    print(page)
    if options.out is not None:
        options.out.write_text(page + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
