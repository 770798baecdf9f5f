"""Outputs → numbers: statistics of lines by task, groups of lines and words, and where two systems differ most."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from saccade.compare.result import BucketTable, Differences, Example
from saccade.compare.systems import Produced
from saccade.compare.testset import BETWEEN, Lines
from saccade.errors import UsageError
from saccade.metrics.buckets import (
    Bucket,
    WordScore,
    by_difficulty,
    by_frequency,
    by_value,
    ngram_differences,
    tags_by_frequency,
)
from saccade.metrics.names import TEXT_METRICS, USUAL, WITHOUT_REFERENCE
from saccade.metrics.statistics import (
    LineStatistics,
    label_accuracy,
    label_statistics,
    span_statistics,
    surprise_statistics,
    tag_statistics,
    text_tables,
)
from saccade.text.tags import Scheme, converted, read_spans

Tables = dict[str, list[LineStatistics]]
"""By metric: of each system."""
TagRows = list[list[str]]
BY_THEMSELVES = frozenset({
    "wer", "cer", "per", "rouge_1", "rouge_2", "rouge_l", "answer_f1", "bracket_f1", "slot_f1",
})  # fmt: skip
"""Metrics of text that tell something of a single line; for the others lines are told apart by chrF."""
LONGEST_SHOWN = 1000
"""Characters of an example."""
MOST_STRANGERS = 200
"""Unlike answers of classifiers that are no label of the test set. Each is a label of macro-F1, as scikit-learn has it,
and a column in its table: of files of other text there would be as many as lines."""


# ---- statistics


def statistics_of(
    task: str,
    metrics: Sequence[str] | None,
    lines: Lines,
    outputs: Sequence[list[str]],
    made: Sequence[Produced | None],
) -> tuple[Tables, list[LineStatistics]]:
    """Each metric of each system; and what single lines are told apart by."""
    match task:
        case "translate":
            return _of_text(metrics, lines, outputs)
        case "tag":
            tables = _of_tags(lines, outputs, made)
        case "classify":
            tables = _of_labels(lines, outputs)
        case _:
            tables = _of_surprise(made)
    if task == "classify" and "macro_f1" in (metrics or ()) and "macro_f1" not in tables:
        raise UsageError(
            f"metrics: macro_f1 is a mean over labels, but {strangers(lines, outputs):,} unlike answers are no label "
            f"of the test set (there may be {MOST_STRANGERS}). Are these files of labels, one a line?"
        )
    chosen = {name: tables[name] for name in _chosen(metrics, list(tables))}
    apart = tables["accuracy"] if "accuracy" in tables else chosen[next(iter(chosen))]
    return chosen, apart


def check_metrics(task: str, metrics: Sequence[str] | None, *, spans: bool) -> None:
    """Of other tasks than translation, before any model is asked. `spans`: whether the tags write them."""
    match task:
        case "tag":
            known = ["f1", "accuracy"] if spans else ["accuracy"]
        case "classify":
            known = ["accuracy", "macro_f1"]
        case _:
            known = ["perplexity_per_word", "perplexity_per_byte"]
    _chosen(metrics, known)


def _chosen(metrics: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    names = list(known) if metrics is None else list(metrics)
    if set(names) - set(known) or not names or len(set(names)) < len(names):
        raise UsageError(f"metrics is {','.join(names)!r}; it must be a list out of {', '.join(known)}, each once.")
    return names


def text_metrics(metrics: Sequence[str] | None, own: Sequence[str] = USUAL) -> list[str]:
    """Those that are asked for, checked; or those of a recipe that can be compared."""
    if metrics is None:
        kept: list[str] = [name for name in own if name in TEXT_METRICS and name not in WITHOUT_REFERENCE]
        return kept or [name for name in USUAL if name in TEXT_METRICS]
    known = [name for name in TEXT_METRICS if name not in WITHOUT_REFERENCE]
    wrong = [name for name in metrics if name not in known]
    if wrong or not metrics or len(set(metrics)) < len(metrics):
        told = {
            "perplexity": " perplexity is of a model's own tokens, and files have none.",
            **{name: f" {name} is no sum over lines, and has no test." for name in WITHOUT_REFERENCE},
        }
        reason = "".join(told.get(name, "") for name in wrong)
        raise UsageError(
            f"metrics is {','.join(metrics)!r}; it must be a list out of {', '.join(known)}, each once.{reason}"
        )
    return list(metrics)


def _of_text(
    metrics: Sequence[str] | None, lines: Lines, outputs: Sequence[list[str]]
) -> tuple[Tables, list[LineStatistics]]:
    names = text_metrics(metrics)
    tables: Tables = {
        name: text_tables(name, outputs, lines.references)  # type: ignore[arg-type]
        for name in names
    }
    if names[0] in BY_THEMSELVES:
        return tables, tables[names[0]]
    if "chrf" in tables:
        return tables, tables["chrf"]
    return tables, text_tables("chrf", outputs, lines.references)


def strangers(lines: Lines, outputs: Sequence[list[str]]) -> int:
    """How many unlike answers are no label of the test set."""
    return len({label for each in outputs for label in each} - {right[0] for right in lines.references})


def _of_labels(lines: Lines, outputs: Sequence[list[str]]) -> Tables:
    true = [right[0] for right in lines.references]
    if strangers(lines, outputs) > MOST_STRANGERS:
        return {"accuracy": [label_accuracy(true, each) for each in outputs]}
    labels = sorted({label for each in outputs for label in each})
    both = [label_statistics(true, each, labels) for each in outputs]
    return {"accuracy": [one for one, _ in both], "macro_f1": [other for _, other in both]}


def _of_tags(lines: Lines, outputs: Sequence[list[str]], made: Sequence[Produced | None]) -> Tables:
    """As they are written, as `saccade evaluate` scores them; where models write unlike schemes, all in IOB2."""
    gold, found = _tag_rows(lines, outputs, made)
    tables = {"accuracy": [tag_statistics(gold, each) for each in found]}
    if "none" in _schemes(made):
        return tables
    right = [read_spans(tags) for tags in gold]
    spans = [span_statistics(right, [read_spans(tags) for tags in each]) for each in found]
    return {"f1": spans, **tables}


def _tag_rows(
    lines: Lines, outputs: Sequence[list[str]], made: Sequence[Produced | None]
) -> tuple[TagRows, list[TagRows]]:
    """The right tags in the scheme that models write, and outputs as they are, ill-formed tags among them."""
    schemes = _schemes(made)
    scheme: Scheme = "none" if "none" in schemes or not schemes else "iob2" if len(schemes) > 1 else next(iter(schemes))
    gold = [converted(right[0].split(" "), scheme) for right in lines.references]
    found = [[line.split(" ") if line else [] for line in each] for each in outputs]
    if len(schemes) > 1:
        found = [[converted(tags, scheme) for tags in each] for each in found]
    return gold, found


def _schemes(made: Sequence[Produced | None]) -> set[Scheme]:
    return {each.scheme for each in made if each is not None}


def remarks_on_answers(
    task: str, titles: Sequence[str], lines: Lines, outputs: Sequence[list[str]], made: Sequence[Produced | None]
) -> list[str]:
    """What becomes of answers that are not of the kind that the test set has."""
    schemes = _schemes(made)
    if task == "tag" and len(schemes) > 1:
        told = ", ".join(sorted(schemes))
        if "none" in schemes:
            return [
                f"The taggers do not all write spans ({told}): tags are compared as they are written, and no spans."
            ]
        return [
            f"The taggers write spans in unlike schemes ({told}): the spans of all, and of the references, were "
            "written in IOB2 before tags were compared. `saccade evaluate` scores each in its own."
        ]
    if task != "classify":
        return []
    known = {right[0] for right in lines.references}
    unknown = [sum(label not in known for label in each) for each in outputs]
    count = strangers(lines, outputs)
    left_out = (
        f"macro-F1 is left out: it is a mean over labels, and {count:,} unlike answers are no label of the test set."
    )
    return [left_out] * (count > MOST_STRANGERS) + [
        f"{title}: {count:,} of {len(each):,} answers are no label of the test set."
        for title, count, each in zip(titles, unknown, outputs, strict=True)
        if count
    ]


def _of_surprise(made: Sequence[Produced | None]) -> Tables:
    """By word and by byte: numbers that do not depend on how a model cuts text into tokens."""
    signature = "ends:counted|lines:alone"
    known = [each.surprise for each in made if each is not None]
    return {
        f"perplexity_per_{unit[:-1]}": [
            surprise_statistics(f"perplexity_per_{unit[:-1]}", each["nats"], each[unit], signature, places)
            for each in known
        ]
        for unit, places in (("words", 2), ("bytes", 3))
    }


# ---- groups


def buckets_of(
    lines: Lines, main: Sequence[LineStatistics], apart: Sequence[LineStatistics], most: int
) -> list[BucketTable]:
    """By the length of the source, and by difficulty."""
    title, lengths = _lengths(lines)
    tables = []
    if len(set(lengths)) > 1:
        tables.append(_by_lines(f"length in {title}", title, by_value(lengths, most), main))
    if len(lines.sources) >= 2 * most:
        scores_MN = np.stack([each.each() for each in apart])
        if len(np.unique(scores_MN.mean(0))) > 1:
            groups = by_difficulty(scores_MN, less_is_better=apart[0].less_is_better, most=most)
            title = f"difficulty (mean {apart[0].label} of a line over all systems)"
            tables.append(_by_lines(title, "difficulty", groups, main))
    return tables


def _lengths(lines: Lines) -> tuple[str, list[int]]:
    """In words; in characters where nearly all have as many words."""
    sources = any(lines.sources)
    texts = lines.sources if sources else [right[0] for right in lines.references]
    side = "source" if sources else "reference"
    words = [len(text.split()) for text in texts]
    if len(set(words)) > 3:
        return f"{side} words", words
    return f"{side} characters", [len(text) for text in texts]


def _by_lines(title: str, column: str, groups: Sequence[Bucket], main: Sequence[LineStatistics]) -> BucketTable:
    return BucketTable(
        title,
        column,
        main[0].label,
        "lines",
        tuple(each.label for each in groups),
        tuple(len(each.rows) for each in groups),
        tuple(tuple(table.value(each.rows) for table in main) for each in groups),
    )


def frequency_table(
    task: str,
    lines: Lines,
    outputs: Sequence[list[str]],
    made: Sequence[Produced | None],
    seen: Counter[str],
    where: str,
) -> BucketTable | None:
    """Words of references by how often they were seen; a group that some system lacks counts 0 there."""
    if task == "translate":
        found = [by_frequency(each, lines.references, seen) for each in outputs]
        metric, unit = "word F1", "reference words"
    elif task == "tag":
        words = [line.split(BETWEEN) for line in lines.inputs]
        gold, tagged = _tag_rows(lines, outputs, made)
        found = [tags_by_frequency(words, gold, each, seen) for each in tagged]
        metric, unit = "accuracy", "words"
    else:
        return None
    order = {group.label: group for groups in found for group in groups if group.right}
    labels = sorted(order, key=lambda label: int(label.removeprefix("≥ ").split("–")[0].replace(",", "")))
    by_label: list[dict[str, WordScore]] = [{group.label: group for group in groups} for groups in found]
    return BucketTable(
        f"how often a word was seen in {where}",
        "seen",
        metric,
        unit,
        tuple(labels),
        tuple(max(groups[label].right for groups in by_label if label in groups) for label in labels),
        tuple(tuple(groups[label].f1 if label in groups else 0.0 for groups in by_label) for label in labels),
    )


# ---- where systems differ


def differences_of(
    name: str,
    number: int,
    lines: Lines,
    outputs: Sequence[list[str]],
    apart: Sequence[LineStatistics],
    *,
    count: int,
    ngrams: bool,
) -> Differences:
    """System `number` against the first."""
    theirs_N, ours_N = apart[0].each(), apart[number].each()
    gain_N = theirs_N - ours_N if apart[0].less_is_better else ours_N - theirs_N
    order = np.argsort(-gain_N, kind="stable")
    better = [int(i) for i in order[:count] if gain_N[i] > 0]
    worse = [int(i) for i in np.argsort(gain_N, kind="stable")[:count] if gain_N[i] < 0]

    def example(i: int) -> Example:
        one, other = (outputs[0][i], outputs[number][i]) if outputs[0] else ("", "")
        return Example(
            i + 1, _short(lines.sources[i]), tuple(_short(each) for each in lines.references[i][:3]),
            _short(one), _short(other), float(theirs_N[i]), float(ours_N[i]),
        )  # fmt: skip

    more, less = ((), ()) if not ngrams else ngram_differences(
        outputs[0], outputs[number], lines.references, count=count
    )  # fmt: skip
    return Differences(
        name, apart[0].label, int((gain_N > 0).sum()), int((gain_N < 0).sum()), int((gain_N == 0).sum()),
        tuple(map(example, better)), tuple(map(example, worse)),
        tuple((_short(each.ngram), each.system, each.baseline) for each in more),
        tuple((_short(each.ngram), each.system, each.baseline) for each in less),
    )  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
