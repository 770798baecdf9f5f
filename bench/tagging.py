"""How many words a second taggers tag on a CPU, raw lines in and tags, scores, spans and places out.

    python -m bench.tagging [--lines 4000] [--threads 1] [--page docs/results/tagging-speed.md]

Lines are those of UD English EWT's development data where SACCADE_DATA names the folder that has them, else generated
notices. Weights are random: speed does not depend on them.
"""

import argparse
import os
import platform
import time
from pathlib import Path
from statistics import median

import torch

from saccade.config import parse
from saccade.data.conll import ConlluData, TagCounts
from saccade.data.notices import NoticesData
from saccade.data.tagged import split_tagged
from saccade.models.build import build_tagger
from saccade.models.tagger import TaggerConfig, TaggerSizes
from saccade.tag import Engine, sizes_of
from saccade.text.tags import TagSet
from saccade.text.words import WordForm, WordList

MODELS = {
    "small BiLSTM (100 → 2×100), softmax": {"encoder": {"kind": "lstm", "width": 200, "embedding": 100}},
    "the same, character filters, CRF": {
        "encoder": {"kind": "lstm", "width": 200, "embedding": 100},
        "characters": {"kind": "cnn"},
        "output": {"kind": "crf"},
    },
    "the same, character LSTM, CRF (Lample et al. 2016)": {
        "encoder": {"kind": "lstm", "width": 200, "embedding": 100},
        "characters": {"kind": "lstm"},
        "output": {"kind": "crf"},
    },
    "Transformer 2×128, character filters, softmax": {
        "encoder": {"kind": "transformer", "layers": 2, "width": 128, "heads": 4},
        "characters": {"kind": "cnn"},
    },
}
ROUNDS = 5
ANCHORS = (
    "spaCy's large English pipeline tags 10,014 words/s on a CPU and Flair's 323 (spaCy's published facts & figures:\n"
    "10,000 comments of Reddit on a machine of theirs; neither the text nor the machine is ours)."
)


def sentences(count: int) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], str]:
    folder = os.environ.get("SACCADE_DATA")
    if folder and Path(folder, "ud-english-ewt").is_dir():
        files = "$SACCADE_DATA/ud-english-ewt/en_ewt-ud-{}.conllu.gz"
        data = ConlluData(train=files.format("train"), valid=files.format("dev"))
        name = "UD English EWT, development data"
    else:
        data = NoticesData(valid=count)  # type: ignore[assignment]
        name = "generated notices"
    train, valid = (list(split_tagged(data, s, base=Path(), counts=TagCounts())) for s in ("train", "valid"))
    lines = [row.words for row in valid]
    lines = (lines * (count // len(lines) + 1))[:count]
    return [row.words for row in train], lines, name


def engine_of(settings: dict[str, object], train: list[tuple[str, ...]]) -> Engine:
    config = parse(TaggerConfig, settings)
    words = WordList.of(train, form=WordForm(lowercase=True), characters=500 if config.characters else 0)
    tags = TagSet(("O", *(f"{p}-{t}" for t in ("PER", "LOC", "ORG", "MISC") for p in "BIES")), "bioes")
    torch.manual_seed(0)
    model = build_tagger(config, TaggerSizes.named(sizes_of(words, tags)), tags.steps()).eval()
    return Engine(model, words, tags, torch.device("cpu"))


def measure(engine: Engine, lines: list[str]) -> tuple[float, float]:
    """Words a second of the clock, and of the processor: medians."""
    engine.tag(lines[:200])
    by_clock, by_processor = [], []
    for _ in range(ROUNDS):
        clock, processor = time.perf_counter(), time.process_time()
        found = engine.tag(lines)
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        words = sum(len(each.words) for each in found)
        by_clock.append(words / clock)
        by_processor.append(words / processor)
    return median(by_clock), median(by_processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=4000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    train, given, name = sentences(asked.lines)
    lines = [" ".join(words) for words in given]
    rows = []
    for threads in asked.threads:
        torch.set_num_threads(threads)
        for model, settings in MODELS.items():
            clock, processor = measure(engine_of(settings, train), lines)  # type: ignore[arg-type]
            rows.append(f"| {model} | {threads} | {clock:,.0f} | {processor:,.0f} |")
            print(rows[-1], flush=True)
    table = "\n".join(["| model | threads | words/s | words/CPU-s |", "| --- | ---: | ---: | ---: |", *rows])
    if asked.page is not None:
        asked.page.write_text(page(table, name, len(lines)), encoding="utf-8")


def page(table: str, name: str, count: int) -> str:
    version = torch.__version__.split("+")[0]
    return f"""# Tagging speed on a CPU

{count:,} lines ({name}) from raw text to tags, probabilities, spans and their places, as
`saccade tag` makes them: cutting into words, looking them up, the model, the best path and the marginals of a CRF, and
the Python objects of the result. Batches of 4,096 words, float32, torch {version}, {platform.machine()}; the median of
{ROUNDS} rounds. words/CPU-s counts the processor time of all threads: where other programs share the machine, it says
more than the clock. Here the load before was {os.getloadavg()[2]:.1f} on {os.cpu_count()} cores.

{table}

{ANCHORS}

Measured by `python -m bench.tagging --page docs/results/tagging-speed.md` ([bench/tagging.py](../../bench/tagging.py)).
"""


if __name__ == "__main__":
    main()
