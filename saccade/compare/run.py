"""`saccade.compare`: systems in, a comparison out."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from saccade.compare.facts import Training, differences, only_seed_differs, training_of
from saccade.compare.measured import (
    Tables,
    buckets_of,
    check_metrics,
    differences_of,
    frequency_table,
    remarks_on_answers,
    statistics_of,
    text_metrics,
)
from saccade.compare.names import Given, PathLike, names_of, place_of
from saccade.compare.remarks import of_bytes, of_what_was_made, remarks_of
from saccade.compare.result import BucketTable, Cell, Comparison, Seeds, System
from saccade.compare.systems import Asked, Produced, outputs_of, produce
from saccade.compare.testset import (
    BETWEEN,
    Lines,
    file_lines,
    recipe_of,
    same_lines,
    scheme_of,
    seen_words,
    table_lines,
)
from saccade.compare.verdict import verdict_of
from saccade.data.splits import Split
from saccade.errors import UsageError
from saccade.metrics.buckets import count_words
from saccade.metrics.names import USUAL
from saccade.metrics.significance import SEED, Paired, Test, against_first, check_test, holm
from saccade.run_paths import is_run, run_of
from saccade.tasks.translate import TranslateRecipe
from saccade.train.environment import environment
from saccade.view.numbers import lines_told


def compare(
    systems: Sequence[Given],
    *,
    source: Given | None = None,
    reference: Given | None = None,
    references: Sequence[Given] = (),
    tsv: PathLike | None = None,
    split: Split | None = None,
    base: PathLike | None = None,
    metrics: Sequence[str] | None = None,
    test: Test = "randomisation",
    resamples: int | None = None,
    seed: int = SEED,
    names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    group_seeds: bool = True,
    beam: int | None = None,
    length_penalty: float | None = None,
    max_length: int | None = None,
    decode: Sequence[str] = (),
    batch_tokens: int = 4096,
    device: str = "auto",
    examples: int = 10,
    buckets: int = 5,
    command: str = "",
    on_step: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare systems on one test set; the first is what all others are tested against.

    `systems`: run folders, which are asked for outputs on the spot, and files or lists of outputs, mixed freely.
    The test set: `source` and `reference` (`references`: further ones), or `tsv`, or else the `split` that all runs'
    recipes name, test where it is not said. Runs decode as their own recipes say, or all as `beam`, `length_penalty`,
    `max_length` and `decode`
    (`name=value`) say. `test`: bootstrap (Koehn 2004) or randomisation (Riezler and Maxwell 2005). Runs that differ in
    their seed alone are grouped, unless `group_seeds` is off; `groups` names further ones. `examples`: so many lines
    that differ most, each way; `buckets`: groups of lines at most. `on_step` hears of what is being done.
    """
    check_test(test, resamples, seed)
    _check_counts(examples, buckets)
    given = [place_of(each) for each in systems]
    if not given:
        raise UsageError("systems: there is none. Name run folders or files of outputs.")
    titles = names_of(given, names)
    runs = [each if isinstance(each, Path) and is_run(run_of(each)) else None for each in given]
    there = [run for run in runs if run is not None]
    task = _task(there)
    if task == "language-model" and len(there) < len(given):
        raise UsageError("a language model has no outputs that a file could hold: compare runs alone.")
    files = [each for each in (source, reference, *references, tsv) if each is not None]
    if split is not None and files:
        raise UsageError("--split chooses among the recipe's own data; leave it out where files are given.")
    lines = _test_set(there, task, source, reference, references, tsv, split or "test", base)
    asked = Asked(beam, length_penalty, max_length, tuple(decode), batch_tokens, device)
    if task == "translate":
        metrics = text_metrics(metrics, _own_metrics(there))
    else:
        check_metrics(task, metrics, spans=task == "tag" and all(scheme_of(run) != "none" for run in there))
    trained = [None if run is None else training_of(run) for run in runs]
    grouped = _groups(titles, trained, groups or {}, group_seeds)
    made, outputs = _outputs(given, runs, titles, lines, asked, on_step)
    on_step("scores and tests")
    of_answers = remarks_on_answers(task, titles, lines, outputs, made)
    tables, apart = statistics_of(task, metrics, lines, outputs, made)
    every = tuple(
        _system(title, each, produced, training, grouped.get(title), len(lines.inputs))
        for title, each, produced, training in zip(titles, given, made, trained, strict=True)
    )
    cells, seeds = _cells(tables, test, resamples, seed), _seeds(tables, titles, grouped)
    first, main = next(iter(tables.items()))
    by_word = _by_word(task, lines, outputs, made, there, base)
    return Comparison(
        task=task,
        test_set=lines.origin,
        lines=len(lines.inputs),
        metrics=tuple(tables),
        less_is_better=tuple(name for name, row in tables.items() if row[0].less_is_better),
        systems=every,
        cells=cells,
        seeds=tuple(seeds),
        buckets=(*buckets_of(lines, main, apart, buckets), *by_word),
        differences=tuple(
            differences_of(title, i, lines, outputs, apart, count=examples, ngrams=task == "translate")
            for i, title in enumerate(titles[1:], start=1)
        ),
        settings=differences([None if each is None else each.recipe for each in trained]),
        remarks=tuple(
            remarks_of(
                every,
                len(lines.inputs),
                _tested(cells),
                [*of_what_was_made(task, titles, outputs, made), *of_answers, *of_bytes([*given, *files])],
            )
        ),
        environment=environment(),
        command=command,
        outputs=tuple(tuple(each) for each in outputs),
        verdict=verdict_of(
            every, cells[0], [each for each in seeds if each.metric == first], less_is_better=main[0].less_is_better
        ),
    )


def _outputs(
    given: Sequence[Path | Sequence[str]],
    runs: Sequence[Path | None],
    titles: Sequence[str],
    lines: Lines,
    asked: Asked,
    on_step: Callable[[str], None],
) -> tuple[list[Produced | None], list[list[str]]]:
    """Files first: what is wrong with them is told before any model is asked."""
    if asked.changes and not any(runs):
        raise UsageError("how to decode is said of runs; there are only files of outputs. Leave it out.")
    ready = [[] if runs[i] else outputs_of(each, titles[i], lines) for i, each in enumerate(given)]
    made: list[Produced | None] = []
    for run, title in zip(runs, titles, strict=True):
        if run is not None:
            on_step(f"{title}: {lines_told(len(lines.inputs))}")
        made.append(None if run is None else produce(run, lines, asked))
    return made, [each if produced is None else produced.outputs for produced, each in zip(made, ready, strict=True)]


def _check_counts(examples: int, buckets: int) -> None:
    if examples < 0:
        raise UsageError(f"examples is {examples}; it must be 0 or more.")
    if buckets < 1:
        raise UsageError(f"buckets is {buckets}; it must be at least 1.")


# ---- systems


def _task(runs: Sequence[Path]) -> str:
    tasks = {run: recipe_of(run).task for run in runs}
    if len(set(tasks.values())) > 1:
        told = ", ".join(f"{run} {task}" for run, task in tasks.items())
        raise UsageError(f"runs of unlike tasks cannot be compared: {told}. Compare those of one task.")
    return next(iter(tasks.values()), "translate")


def _own_metrics(runs: Sequence[Path]) -> Sequence[str]:
    recipe = recipe_of(runs[0]) if runs else None
    return recipe.metrics if isinstance(recipe, TranslateRecipe) else USUAL


# ---- the test set


def _test_set(
    runs: Sequence[Path],
    task: str,
    source: Given | None,
    reference: Given | None,
    references: Sequence[Given],
    tsv: PathLike | None,
    split: Split,
    base: PathLike | None,
) -> Lines:
    right = [*([] if reference is None else [reference]), *references]
    at = None if base is None else Path(base)
    if tsv is not None:
        if source is not None or right or task != "translate":
            raise UsageError("tsv holds sources and references of text; leave out source and reference.")
        return table_lines(_file(tsv))
    if task != "translate":
        if right:
            raise UsageError(f"reference: what is right for the task {task} stands in the source file itself.")
        files = [] if source is None else [_file(source)]
        return same_lines(runs, split, at, files)
    if source is None and not right:
        if not runs:
            raise UsageError("there are only files of outputs: give the right ones by --reference.")
        return same_lines(runs, split, at)
    if not right:
        raise UsageError("source is given without reference; give what is right, too.")
    if source is None and runs:
        raise UsageError("reference is given without source, which the runs must be asked; give both.")
    opened = file_lines(None if source is None else _read(source), [_read(each) for each in right])
    if any(_reads_parse(run) for run in runs):
        return replace(opened, sources=[line.rpartition("\t")[0] or line for line in opened.inputs])
    return opened


def _reads_parse(run: Path) -> bool:
    return bool(recipe_of(run).model.encoder.reads_parse)


def _file(given: Given) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise UsageError("source: of this task it must be a file as the recipe's own are.")
    if not Path(given).is_file():
        raise UsageError(f"{given}: is not there, or no file.")
    return Path(given)


def _read(given: Given) -> Path | Sequence[str]:
    return _file(given) if isinstance(given, str | os.PathLike) else given


# ---- numbers


def _cells(tables: Tables, test: Test, resamples: int | None, seed: int) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for systems in tables.values():
        drawn, paired = against_first(systems, test=test, resamples=resamples, seed=seed)
        raised = iter(holm([each.p for each in paired if each is not None]))
        signature = _signature(systems[0].signature, test, len(drawn[0]), paired, seed)
        rows.append(
            tuple(
                Cell(
                    replace(table.score(values), signature=signature),
                    each,
                    float("nan") if each is None else next(raised),
                )
                for table, values, each in zip(systems, drawn, paired, strict=True)
            )
        )
    return tuple(rows)


def _signature(
    signature: str | None, test: Test, resamples: int, paired: Sequence[Paired | None], seed: int
) -> str | None:
    """sacrebleu's, with what its own tests add to it."""
    if signature is None or "|version:" not in signature:
        return signature
    trials = [each.resamples for each in paired if each is not None and test == "randomisation"]
    added = f"|bs:{resamples}{f'|ar:{trials[0]}' if trials else ''}|seed:{seed}"
    first, _, rest = signature.partition("|")
    return f"{first}{added}|{rest}"


def _by_word(
    task: str,
    lines: Lines,
    outputs: Sequence[list[str]],
    made: Sequence[Produced | None],
    runs: Sequence[Path],
    base: PathLike | None,
) -> list[BucketTable]:
    """Words as often seen in the training data of the first run that has them; else in the references.

    Of a tagger else in the test set's own sentences: its references are tags.
    """
    if task not in ("translate", "tag"):
        return []
    at = None if base is None else Path(base)
    seen = next((found for run in runs if (found := seen_words(run, at)) is not None), None)
    where = "the training data" if seen is not None else "the test set" if task == "tag" else "the references"
    if seen is None and task == "tag":
        seen = Counter(word for line in lines.inputs for word in line.split(BETWEEN))
    elif seen is None:
        seen = count_words(each for right in lines.references for each in right)
    table = frequency_table(task, lines, outputs, made, seen, where)
    return [] if table is None else [table]


def _tested(cells: Sequence[Sequence[Cell]]) -> Paired | None:
    return next((cell.paired for row in cells for cell in row if cell.paired is not None), None)


def _system(
    title: str,
    given: Path | Sequence[str],
    made: Produced | None,
    trained: Training | None,
    group: str | None,
    lines: int,
) -> System:
    if made is None or trained is None:
        path = isinstance(given, Path)
        return System(title, str(given) if path else "a list of lines", "file" if path else "lines", group)
    seconds = max(made.seconds, 1e-9)
    return System(
        title, str(given), "run", group,
        model=trained.model, seed=trained.seed, parameters=made.parameters, updates=trained.updates,
        trained_seconds=trained.seconds, trained_tokens=trained.tokens, trained_on=trained.machine,
        seconds=made.seconds, lines_per_second=lines / seconds, tokens_per_second=made.tokens / seconds,
        decode=made.decode,
    )  # fmt: skip


# ---- seeds


def _groups(
    titles: Sequence[str], trained: Sequence[Training | None], named: Mapping[str, Sequence[str]], by_seed: bool
) -> dict[str, str]:
    """System → group: those that are named, then runs whose recipes differ in their seed alone."""
    found: dict[str, str] = {}
    for group, members in named.items():
        for member in members:
            if member not in titles or member in found:
                raise UsageError(
                    f"group {group!r} has {member!r}, which is no system, or in a group already; the systems are "
                    f"{', '.join(titles)}."
                )
            found[member] = group
    left = [(title, each) for title, each in zip(titles, trained, strict=True) if each and title not in found]
    while by_seed and left:
        (title, first), *left = left
        alike = [name for name, each in left if only_seed_differs(first, each)]
        left = [(name, each) for name, each in left if name not in alike]
        if alike:
            group = _common([title, *alike], first.model, set(found.values()))
            found |= dict.fromkeys([title, *alike], group)
    return found


def _common(titles: Sequence[str], model: str, taken: set[str]) -> str:
    """What the names have in common in front of their numbers; else the model in words."""
    bare = {re.sub(r"[-_. ]*(seed)?[-_. ]*\d*$", "", title) for title in titles}
    name = bare.pop() if len(bare) == 1 else ""
    name = name or model or "seeds"
    number = 2
    while name in taken:
        name = f"{name.rstrip('0123456789 ')} {number}"
        number += 1
    return name


def _seeds(tables: Tables, titles: Sequence[str], grouped: Mapping[str, str]) -> list[Seeds]:
    found = []
    for group in dict.fromkeys(grouped.values()):
        members = [i for i, title in enumerate(titles) if grouped.get(title) == group]
        for metric, row in tables.items():
            if len(members) > 1:
                values = tuple(row[i].value() for i in members)
                found.append(Seeds(group, metric, tuple(titles[i] for i in members), values))
    return found
