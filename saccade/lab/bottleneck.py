"""Claim: a decoder that sees the source through one vector falls behind on long inputs; attention does not.

Setting: dates in sentences of up to 120 characters → ISO 8601. An LSTM encoder-decoder without attention, the same with
additive attention (Bahdanau et al. 2015) and a small Transformer, trained under one protocol and the same seconds each.
Since the generator knows which source characters each target character came from, attention is scored, not only shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.align import AlignConfig, Aligner
from saccade.api import Model, TrainedRun, load, recipe, train
from saccade.data.dates import DateExample, DatesData, examples
from saccade.metrics.alignment import AlignmentScore, alignment_error, combine
from saccade.metrics.interval import Interval, wilson
from saccade.metrics.links import Gold, alignment_scores
from saccade.metrics.score import Score
from saccade.text import Tokenizer
from saccade.train.events import Event
from saccade.types import Trace

LENGTHS = ((8, 20), (21, 40), (41, 80), (81, 120))
"""Bins of input length in characters, both ends included."""
ALIGNED = 200
"""Test examples whose attention is scored."""
SHOWN = (
    "on tuesday, the 3rd of march 1998",
    "Rendez-vous le 1er août 2011 à midi, salle 7.",
    "14.09.57",
    "5 Mayıs 2031 Pazartesi",
)


BATCH_TOKENS = 2048
"""The same for all; the learning rate is each recipe's own."""


@dataclass(frozen=True)
class Contestant:
    name: str
    recipe: str


CONTESTANTS = (
    Contestant("LSTM, no attention", "dates-lstm"),
    Contestant("LSTM + attention", "dates"),
    Contestant("Transformer", "dates-transformer"),
)


@dataclass(frozen=True)
class Share:
    """How many of how many, and what that says of all inputs (95 % Wilson interval); in percent."""

    right: int
    of: int

    @property
    def percent(self) -> float:
        return 100 * self.right / self.of if self.of else float("nan")

    @property
    def interval(self) -> Interval:
        return wilson(self.right, self.of)


@dataclass(frozen=True)
class Result:
    contestant: Contestant
    parameters: int
    updates: int
    seconds: float
    overall: Share
    by_length: tuple[Share, ...]
    alignment: AlignmentScore | None
    alignment_layer: int
    """Which decoder layer's attention, averaged over heads, lies closest to the known alignment; from 0."""
    links: dict[str, Score] | None
    """`date_links` of that layer: of each target character the most attended source character."""


@dataclass(frozen=True)
class Report:
    results: tuple[Result, ...]
    samples: tuple[tuple[str, tuple[str, ...]], ...]
    """An input, and each contestant's output for it."""
    traces: tuple[Trace, ...]
    gold: tuple[tuple[tuple[int, ...], ...] | None, ...]

    @property
    def verdict(self) -> str:
        plain, attentive = self.results[0].by_length, self.results[1].by_length
        longest = f"{LENGTHS[-1][0]}–{LENGTHS[-1][1]} characters"
        told = (
            f"on inputs of {longest} the LSTM without attention gets {plain[-1].percent:.1f} % right, "
            f"the one with attention {attentive[-1].percent:.1f} %"
        )
        if plain[-1].interval.high >= attentive[-1].interval.low:
            return f"The bottleneck is not felt here: {told}, and the intervals overlap."
        shortest = f"{plain[0].percent:.1f} % on {LENGTHS[0][0]}–{LENGTHS[0][1]} characters"
        if plain[-1].interval.high < plain[0].interval.low:
            return f"The bottleneck is felt, and more so the longer the input: {told}; the former gets {shortest}."
        return (
            f"The bottleneck is not what is seen here: {told}. But the former is behind on short inputs too "
            f"({shortest}): in these seconds it has not learnt the task, which says that it learns slowly, not that "
            "length is why."
        )


def bottleneck(
    out: Path, *, seconds: float, on_event: Callable[[Contestant, Event], None], settings: Sequence[str] = ()
) -> Report:
    """Train the three, score them on unseen days, and trace a few examples."""
    trained: list[TrainedRun] = []
    for contestant in CONTESTANTS:
        chosen = recipe(
            contestant.recipe,
            "train.updates=1000000",
            "train.average=0",
            f"train.batch_tokens={BATCH_TOKENS}",
            f"train.minutes={seconds / 60}",
            "train.validate_every=250",
            "data.valid=300",
            *settings,
        )
        trained.append(
            train(
                chosen,
                out / contestant.recipe,
                overwrite=True,
                on_event=lambda event, contestant=contestant: on_event(contestant, event),  # type: ignore[misc]
            )
        )
    assert isinstance(chosen.data, DatesData)
    test = list(examples(chosen.data.seed, "test", chosen.data.test))
    models = [load(run.path) for run in trained]
    results = tuple(
        _score(contestant, model, run, test)
        for contestant, model, run in zip(CONTESTANTS, models, trained, strict=True)
    )
    samples = tuple((line, tuple(model.translate(line).text for model in models)) for line in SHOWN)
    traces, gold = zip(*_traces(results, models, test), strict=True)
    return Report(results, samples, traces, gold)


def _score(contestant: Contestant, model: Model, run: TrainedRun, test: Sequence[DateExample]) -> Result:
    outputs = model.translate([each.source for each in test])
    right = [each.target == output.text for each, output in zip(test, outputs, strict=True)]
    by_length = []
    for low, high in LENGTHS:
        inside = [ok for ok, each in zip(right, test, strict=True) if low <= len(each.source) <= high]
        by_length.append(Share(sum(inside), len(inside)))
    layer, alignment = _alignment(model, test[:ALIGNED])
    settings = AlignConfig(unit="token", layer=layer + 1)
    return Result(
        contestant,
        model.parameters,
        run.finished.update,
        run.finished.seconds,
        Share(sum(right), len(right)),
        tuple(by_length),
        alignment,
        layer,
        None if alignment is None else date_links(model.aligner(settings), test[:ALIGNED]),
    )


def _alignment(model: Model, test: Sequence[DateExample]) -> tuple[int, AlignmentScore | None]:
    """Layer by layer, heads averaged; the best layer counts."""
    by_layer: dict[int, list[AlignmentScore]] = {}
    for each in test:
        trace = model.explain(each.source, each.target)
        if "cross" not in trace.attention:
            return 0, None
        gold = token_alignment(each, model.engine.text.source)
        for layer, weights_HTS in enumerate(trace.attention["cross"]):
            by_layer.setdefault(layer, []).append(alignment_error(weights_HTS.mean(0)[:-1], gold))
    pooled = {layer: combine(scores) for layer, scores in by_layer.items()}
    best = min(pooled, key=lambda layer: pooled[layer].argmax_error)
    return best, pooled[best]


def token_alignment(example: DateExample, source: Tokenizer) -> list[list[int]]:
    """The alignment in tokens: a character outside the vocabulary is several byte tokens."""
    begins, count = [], 0
    for character in example.source:
        begins.append(count)
        count += len(source.encode(character))
    begins.append(count)
    return [[token for at in places for token in range(begins[at], begins[at + 1])] for places in example.alignment]


def date_links(aligner: Aligner, test: Sequence[DateExample]) -> dict[str, Score]:
    """AER, precision and recall of links between characters; `aligner` links tokens.

    A link is sure where one source character alone decides the target's, and possible where several do together. The
    hyphens come from nowhere and are not scored.
    """
    found = aligner.align([each.source for each in test], [each.target for each in test])
    links, gold = [], []
    for one, each in zip(found, test, strict=True):
        places = token_alignment(each, aligner.engine.text.source)
        sure = [(at[0], j) for j, at in enumerate(places) if len(at) == 1]
        gold.append(Gold.of(sure, [(i, j) for j, at in enumerate(places) for i in at]))
        links.append(frozenset((i, j) for i, j in one.links if places[j]))
    return alignment_scores(links, gold)


def _traces(
    results: Sequence[Result], models: Sequence[Model], test: Sequence[DateExample]
) -> Iterator[tuple[Trace, tuple[tuple[int, ...], ...] | None]]:
    """A short and a longer test example, seen by every model that has attention."""
    chosen = [next(each for each in test if low <= len(each.source) <= high) for low, high in ((18, 30), (41, 60))]
    for each in chosen:
        for result, model in zip(results, models, strict=True):
            if result.alignment is None:
                continue
            trace = model.explain(each.source, each.target)
            title = f"{result.contestant.name}: {each.source} → {each.target}"
            gold = (*map(tuple, token_alignment(each, model.engine.text.source)), ())
            yield Trace(trace.source, trace.target, trace.attention, title), gold
