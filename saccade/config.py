"""Recipes: read, override by dotted name, check, save, compare.

Each section of a recipe is a pydantic model that lives beside the class it builds; this file is only the machinery.
It imports no torch, so that a mistake in a recipe is told at once.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from saccade.errors import UsageError

Tree = dict[str, Any]
SectionT = TypeVar("SectionT", bound="Section")


class Section(BaseModel):
    """One part of a recipe: frozen, and closed to names it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)


class _StrictLoader(yaml.SafeLoader):
    """YAML as people write it: a name given twice is refused, and 1e-3 is a number."""


def _mapping_without_repeats(loader: _StrictLoader, node: yaml.MappingNode) -> Tree:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            continue  # the loader itself refuses a list or mapping as a name, and unfolds `<<: *other`
        key = loader.construct_object(key_node)
        if key in seen:
            line = key_node.start_mark.line + 1
            raise UsageError(f"line {line}: {key!r} is given twice in one section. Keep one of them.")
        seen.add(key)
    return {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)
# YAML 1.1 reads 1e-3 as a string because it lacks the dot; every recipe writes rates so.
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """To be copied by whoever asks: YAML takes a hundred times as long to read, and recipes are asked for often."""
    return yaml.load(text, Loader=_StrictLoader)


def _copied(value: Any) -> Any:
    match value:
        case dict():
            return {key: _copied(inner) for key, inner in value.items()}
        case list():
            return [_copied(inner) for inner in value]
        case _:
            return value


def parse_yaml(text: str, origin: str) -> Any:
    """The value of a YAML text; `origin` names it in errors."""
    try:
        return _copied(_parsed(text))
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None
    except (ValueError, RecursionError) as error:  # a date such as 2001-99-99; ten thousand brackets
        raise UsageError(f"{origin}: not valid YAML: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{origin}:{mark.line + 1}" if mark else origin
        raise UsageError(f"{place}: not valid YAML: {getattr(error, 'problem', error)}") from None


def read(path: Path) -> Tree:
    """A recipe file as a tree of plain values."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text; a recipe is a YAML file.") from None
    tree = parse_yaml(text, str(path))
    if not isinstance(tree, dict):
        raise UsageError(
            f"{path}: a recipe is a mapping of sections (task, data, text, model, …); this file holds {_kind(tree)}."
        )
    return tree


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case list():
            return "a list"
        case str():
            return f"the text {value[:40]!r}"
        case _:
            return repr(value)[:40]


def override(tree: Mapping[str, Any], setting: str, *, option: str = "--set") -> Tree:
    """A copy of the tree with one `dotted.name=value` set; the value is read as YAML.

    Giving a section another `kind` starts that section afresh: the settings of the old kind do not fit the new one.
    """
    name, equals, text = setting.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        example = "train.updates=500" if option == "--set" else "beam=4"
        raise UsageError(f"{option} {setting}: write it as name=value, for example {option} {example}.")
    return _with(tree, keys, parse_yaml(text, f"{option} {name}"), f"{option} {name}")


def _with(tree: Mapping[str, Any], keys: Sequence[str], value: Any, name: str) -> Tree:
    first, *rest = keys
    if not rest:
        if first == "kind" and tree.get("kind") not in (None, value):
            return {"kind": value}
        return {**tree, first: value}
    below = tree.get(first)
    if below is None:
        below = {}
    if not isinstance(below, Mapping):
        raise UsageError(f"{name}: {first} holds {below!r}, which has no setting {'.'.join(rest)!r}.")
    return {**tree, first: _with(below, rest, value, name)}


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Both trees in one; where they differ, `over` has its way, and `under` fills in what it leaves open.

    As with `override`, a section that `over` gives another `kind` is `over`'s alone. Lists are not joined.
    """
    if "kind" in over and under.get("kind", over["kind"]) != over["kind"]:
        return dict(over)
    both = {**under, **over}
    for key, value in over.items():
        below = under.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            both[key] = merged(below, value)
    return both


def parse(
    section: type[SectionT], tree: Mapping[str, Any], origin: str = "recipe", *, whole: str = "the recipe"
) -> SectionT:
    """The tree as a typed section, or an error that names the setting, its place and the nearest valid name.

    `whole`: what the section is called, where it is no recipe.
    """
    try:
        return section.model_validate(dict(tree))
    except ValidationError as error:
        problems = [dict(problem) for problem in error.errors()]
        lines = [_explain(section, problem, whole) for problem in problems]
        for here in reversed(range(1, len(lines))):
            if _are_of_one_value(*problems[here - 1 : here + 1]):
                tried, word = sorted((here - 1, here), key=lambda each: problems[each]["type"] == "literal_error")
                lines[here - 1] = f"{lines[tried].removesuffix('.')}; or it must be {_wanted(problems[word])}."
                del lines[here]
        raise UsageError("\n".join(f"{origin}: {line}" for line in lines)) from None


def _are_of_one_value(one: Tree, other: Tree) -> bool:
    """Whether a value was tried as a number or a switch, and as one of some words."""
    words = [str(each["loc"][-1]).startswith("literal[") for each in (one, other)]
    return any(words) and not all(words) and one["loc"][:-1] == other["loc"][:-1]


def _wanted(problem: Tree) -> str:
    """The words that a setting may be."""
    return str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")


def _explain(section: type[Section], problem: Tree, whole: str) -> str:
    path, owner, owner_name = _place(section, problem["loc"], whole)
    dotted = ".".join(path) or whole
    match problem["type"]:
        case "extra_forbidden":
            valid = list(owner.model_fields)
            near = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.5)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            return f"{dotted} is not a setting of {owner_name}.{hint}\n  settings of {owner_name}: {', '.join(valid)}"
        case "missing":
            return f"{dotted} is missing."
        case "union_tag_invalid":
            kinds = problem["ctx"]["expected_tags"].replace("'", "")
            tag = problem["ctx"]["tag"]
            near = difflib.get_close_matches(tag, kinds.split(", "), n=1, cutoff=0.5)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            return f"{dotted}.kind is {tag!r}; it must be one of {kinds}.{hint}"
        case "union_tag_not_found":
            return f"{dotted}.kind is missing."
        case "literal_error":
            wanted = _wanted(problem)
            near = difflib.get_close_matches(str(problem["input"]), wanted.split(", "), n=1, cutoff=0.5)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            return f"{dotted} is {problem['input']!r}; it must be one of {wanted}.{hint}"
        case "model_type" | "model_attributes_type":
            said = str(problem["input"]).lower()
            none = problem["input"] is not None and said in ("none", "no", "off", "false", "")
            hint = " Where there shall be none, write null." if none else ""
            return f"{dotted} is {_short(problem['input'])}; it must be a section, with settings under its name.{hint}"
        case "value_error":
            return f"{dotted}: {problem['ctx']['error']}" if path else str(problem["ctx"]["error"])
        case "tuple_type":
            return f"{dotted} is {_short(problem['input'])}; it must be a list, or one path where paths are wanted."
        case _:
            message = problem["msg"]
            return f"{dotted} is {_short(problem['input'])}: {message[0].lower()}{message[1:]}."


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _place(section: type[Section], location: Sequence[str | int], whole: str) -> tuple[list[str], type[Section], str]:
    """The dotted path of an error, and the section that owns its last name. Union tags in `location` are dropped."""
    path: list[str] = []
    owner, owner_name = section, whole
    options: dict[str, type[Section]] = {}
    value_is_next = False
    for part in location:
        if value_is_next and isinstance(part, str):  # pydantic names the tried type of a value as a step of its own
            continue
        if part in options:  # pydantic names the chosen kind as a step of its own
            owner, options = options[str(part)], {}
            continue
        path.append(str(part))
        field = owner.model_fields.get(str(part)) if isinstance(part, str) else None
        if field is None:
            continue
        inner = list(_sections_in(field.annotation))
        value_is_next = not inner
        options = {kind: each for each in inner for kind in _kinds(each)}
        if len(inner) == 1:
            owner = inner[0]
        if inner:
            owner_name = str(part)
    return path, owner, owner_name


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _sections_in(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType, list, tuple, dict):
        for argument in get_args(annotation):
            yield from _sections_in(argument)


def _kinds(section: type[Section]) -> tuple[str, ...]:
    field = section.model_fields.get("kind")
    return get_args(field.annotation) if field else ()


class Names(Enum):
    """Marks a setting, by `Annotated`, whose value names something on the disk, or of which each value does."""

    FILE = "a file or a folder, which is read"
    RUN = "a run, whose tokenizers are taken"
    PLACE = "where something is kept that would be made anew just so"


def named(section: Section, within: str = "") -> Iterator[tuple[str, Names]]:
    """The dotted names of the settings that are marked so, of several values each; and what they name."""
    for name, field in type(section).model_fields.items():
        mark = next((each for each in field.metadata if isinstance(each, Names)), None) or _mark(field.annotation)
        for place, value in _values(f"{within}{name}", getattr(section, name)):
            if isinstance(value, Section):
                yield from named(value, f"{place}.")
            elif mark is not None and isinstance(value, str):
                yield place, mark


def _values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        case tuple() | list():
            yield from ((f"{name}[{number}]", each) for number, each in enumerate(value))
        case _:
            yield name, value


def _mark(annotation: Any) -> Names | None:
    if get_origin(annotation) is Annotated:
        for each in annotation.__metadata__:
            if isinstance(each, Names):
                return each
    return next((mark for argument in get_args(annotation) if (mark := _mark(argument))), None)


def plain(section: Section) -> Tree:
    """Every setting of the section, defaults included, as plain values."""
    return section.model_dump(mode="json")


def to_yaml(tree: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True, width=110)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The tree as `dotted.name: value`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, each with its two values (None where a side lacks it)."""
    first, second = flatten(one), flatten(other)
    names = [*first, *(name for name in second if name not in first)]
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}
