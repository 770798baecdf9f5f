"""What all systems are compared on: the test split of the runs' own recipes, or files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from saccade import config
from saccade.checkpoint import RECIPE, Loaded, RunFolder, recorded_base
from saccade.data.conll import TagCounts
from saccade.data.counts import Counts as LabelCounts
from saccade.data.files import Counts, File, locate, mended, raw_lines
from saccade.data.parses import line_of
from saccade.data.splits import Split, files_of, grouped, groups, has_split, split_pairs
from saccade.data.texts import has_split as has_text
from saccade.data.texts import split_text
from saccade.errors import SaccadeError, UsageError
from saccade.metrics.buckets import count_words
from saccade.recipe import Recipe, load_recipe
from saccade.run_paths import run_of
from saccade.tag import read_tags
from saccade.tasks.classify import ClassifyRecipe
from saccade.tasks.language_model import LanguageModelRecipe
from saccade.tasks.tag import TagRecipe
from saccade.tasks.translate import TranslateRecipe
from saccade.text.tags import Scheme

BETWEEN = "\x1f"
"""What stands between two words: a word itself may hold a space."""
MOST_COUNTED = 1_000_000
"""Training examples whose words are counted."""


@dataclass(frozen=True)
class Lines:
    """A test set, line by line. The tags of a sentence are a line with spaces between."""

    inputs: list[str]
    """As a model is asked: with a parse behind a tab where it reads one, words of a sentence with BETWEEN between."""
    sources: list[str]
    """As they are shown."""
    references: list[tuple[str, ...]]
    """What is right; of a language model nothing."""
    origin: str


def read_file(path: Path) -> list[str]:
    """All lines of a plain, gzip or xz file; bytes that are no UTF-8 are read as U+FFFD."""
    return [
        mended(raw, number == 0)[0].decode("utf-8", errors="replace")
        for number, raw in enumerate(raw_lines(File(str(path), path)))
    ]


def broken_lines(path: Path) -> int:
    """How many lines of a file are no UTF-8."""
    count = 0
    for raw in raw_lines(File(str(path), path)):
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            count += 1
    return count


def recipe_of(run: Path) -> Recipe:
    folder = RunFolder.open(run_of(run))
    return load_recipe(str(folder.path / RECIPE))[0]


def same_lines(runs: Sequence[Path], split: Split, base: Path | None, files: Sequence[Path] = ()) -> Lines:
    """The test set of the first run, after all others were found to have the same."""
    found = [own_examples(run, split, base or recorded_base(run), files) for run in runs]
    for run, lines in zip(runs[1:], found[1:], strict=True):
        told = difference_of(found[0], lines)
        if told:
            raise UsageError(
                f"{runs[0]} and {run} do not have the same {split} data: {told}\n{_settings(runs[0], run)}"
                "Give one test set for all by --source and --reference."
            )
    # Where a run reads parses, its inputs hold them; the others are asked for the sources alone.
    parsed = next((lines for lines in found if lines.inputs != lines.sources), found[0])
    return replace(found[0], inputs=parsed.inputs)


def _settings(one: Path, other: Path) -> str:
    """How the data sections of two recipes differ, a line each."""
    trees = [config.plain(recipe_of(run).data) for run in (one, other)]
    changed = config.difference(*trees)
    return "".join(f"  data.{name}: {here!r} there, {there!r} here\n" for name, (here, there) in changed.items())


def difference_of(one: Lines, other: Lines) -> str:
    """The first place where two test sets differ, in words; empty where they are the same."""
    if len(one.sources) != len(other.sources):
        return f"they have {len(one.sources):,} and {len(other.sources):,} lines."
    for what in ("sources", "references"):
        for number, (here, there) in enumerate(zip(getattr(one, what), getattr(other, what), strict=True), start=1):
            if here != there:
                return f"line {number:,} of the {what} is {_short(here)} and {_short(there)}."
    return ""


def _short(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


# ---- of a run's own recipe, by task


def own_examples(run: Path, split: Split, base: Path, files: Sequence[Path] = ()) -> Lines:
    """The split as the recipe in the run folder has it; or `files`, read as the recipe's own are."""
    recipe = recipe_of(run)
    match recipe:
        case TranslateRecipe():
            return own_lines(run, split, base)
        case TagRecipe():
            return _tagged(recipe, run, split, base, files)
        case ClassifyRecipe():
            every = recipe.to_score(files, split, base, LabelCounts(), run_of(run))
            texts = ["\t".join(each.texts) for each in every]
            return Lines(texts, texts, [(each.label,) for each in every], _origin(files, split))
        case LanguageModelRecipe():
            return _text(recipe, run, split, base, files)
        case _:
            raise UsageError(
                f"{run}: is a run of the task {recipe.task}, which is not compared: its scores depend on which tokens "
                "are hidden, and not on lines alone. `saccade evaluate` tells them."
            )


def _origin(files: Sequence[Path], split: Split) -> str:
    return " ".join(map(str, files)) or split


def own_lines(run: Path, split: Split, base: Path) -> Lines:
    """Of a translator; empty lines count, since the model is asked for them, too."""
    recipe = recipe_of(run)
    assert isinstance(recipe, TranslateRecipe)
    data = recipe.data
    if not has_split(data, split):
        raise UsageError(
            f"{run}: its recipe names no {split} data. Give SOURCE and REFERENCE, or --split valid for the "
            "validation data."
        )
    _check_there(files_of(data, split), base)
    found = list(split_pairs(data, split, base=base, counts=Counts(), keep_empty=True))
    parsed = recipe.model.encoder.reads_parse
    inputs = [line_of(pair.source, pair.heads if parsed else None) for pair in found]
    references: list[tuple[str, ...]] = [(pair.target,) for pair in found]
    if groups(data):
        inputs, several = grouped(inputs, [pair.target for pair in found])
        references = list(several)
    return Lines(inputs, [line.rpartition("\t")[0] if parsed else line for line in inputs], references, split)


def _check_there(names: Sequence[str], base: Path) -> None:
    for name in names:
        if not locate(name, base).path.exists():
            raise UsageError(
                f"{name}: is not in {base}. The recipe names it relative to the folder it was trained from: go there, "
                "give that folder by --base, or give SOURCE and REFERENCE."
                if not Path(name).is_absolute()
                else f"{name}: is not there any more. Give SOURCE and REFERENCE."
            )


def _tagged(recipe: TagRecipe, run: Path, split: Split, base: Path, files: Sequence[Path]) -> Lines:
    rows = list(recipe.to_score(files, split, base, scheme_of(run), TagCounts()))
    if not rows:
        raise UsageError(f"{_origin(files, split)}: holds no sentence to score.")
    inputs = [BETWEEN.join(row.words) for row in rows]
    return Lines(
        inputs, [" ".join(row.words) for row in rows], [(" ".join(row.tags),) for row in rows], _origin(files, split)
    )


def scheme_of(run: Path) -> Scheme:
    return read_tags(run_of(run)).scheme


def _text(recipe: LanguageModelRecipe, run: Path, split: Split, base: Path, files: Sequence[Path]) -> Lines:
    """Each line by itself: what is compared is how well single lines are foretold, without what stands before them."""
    if files:
        texts = [line for file in files for line in read_file(file)]
    elif not has_text(recipe.data, split):
        raise UsageError(f"{run}: its recipe names no {split} text. Give one by --source, or --split valid.")
    else:
        every = split_text(recipe.data, split, base=base, counts=Counts())
        texts = [stretch.text.rstrip("\n") for stretch in every]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UsageError(f"{_origin(files, split)}: holds no text to score.")
    return Lines(texts, texts, [() for _ in texts], _origin(files, split))


# ---- files


def file_lines(source: Path | Sequence[str] | None, references: Sequence[Path | Sequence[str]]) -> Lines:
    """A test set in two or more files (or lists of lines) of as many lines each."""
    named = [("source", source)] if source is not None else []
    named += [("reference", each) for each in references]
    read = [(_name(each, what), _lines(each)) for what, each in named]
    (first, lines), *others = read
    for name, more in others:
        if len(more) != len(lines):
            raise UsageError(f"{first} has {len(lines):,} lines and {name} {len(more):,}; they must pair up.")
    if not lines:
        raise UsageError(f"{first}: is empty; there is nothing to score.")
    right = [more for _, more in read[len(read) - len(references) :]]
    sources = list(lines) if source is not None else ["" for _ in lines]
    return Lines(sources, sources, list(zip(*right, strict=True)), " ".join(name for name, _ in read))


def table_lines(path: Path) -> Lines:
    """A test set in one file of tab-separated columns: source, reference, and further references where there are."""
    rows = [line.split("\t") for line in read_file(path)]
    if not rows:
        raise UsageError(f"{path}: is empty; there is nothing to score.")
    for number, row in enumerate(rows, start=1):
        if len(row) < 2:
            raise UsageError(f"{path}:{number}: has no tab; each line must be a source, a tab and a reference.")
    sources = [row[0] for row in rows]
    return Lines(sources, sources, [tuple(row[1:]) for row in rows], str(path))


def _lines(given: Path | Sequence[str]) -> list[str]:
    return read_file(given) if isinstance(given, Path) else [str(line) for line in given]


def _name(given: Path | Sequence[str], what: str) -> str:
    return str(given) if isinstance(given, Path) else f"the {what} list"


# ---- words that training has seen


def seen_words(run: Path, base: Path | None) -> Counter[str] | None:
    """Of the training data's targets (of a tagger: its words); None where the data are not there any more."""
    recipe, at = recipe_of(run), base or recorded_base(run)
    try:
        match recipe:
            case TranslateRecipe():
                pairs = split_pairs(recipe.data, "train", base=at, counts=Counts())
                return count_words(pair.target for pair in islice(pairs, MOST_COUNTED))
            case TagRecipe():
                rows = recipe.sentences("train", at, TagCounts())
                return Counter(word for row in islice(rows, MOST_COUNTED) for word in row.words)
            case _:
                return None
    except SaccadeError:
        return None


def reads_parse(loaded: Loaded) -> bool:
    return bool(getattr(loaded.model, "reads_parse", False))
