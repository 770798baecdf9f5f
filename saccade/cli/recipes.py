"""`init` and `settings`: recipes to start from, and everything that can stand in one. Both work without torch."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from saccade import presets
from saccade.cli.streams import say, tell, to_json
from saccade.errors import UsageError
from saccade.recipes import described, schema_text, shipped, shipped_text


def init(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe or a preset, one of those that --list shows.")
    ] = "translate",
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; - is stdout.")] = Path("train.yaml"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the recipes and presets that there are.")] = False,
) -> None:
    """Write a recipe to start from."""
    there = {name: described(name) for name in shipped()}
    there |= {name: f"Preset: {presets.described(name)}" for name in presets.trainable()}
    if list_:
        width = max(map(len, there))
        for name, told in there.items():
            say(f"{name:{width}}  {told}")
        return
    if recipe not in there:
        raise UsageError(f"{recipe}: is no recipe or preset that comes with Saccade. There are: {', '.join(there)}.")
    text = shipped_text(recipe) if recipe in shipped() else text_with(recipe)
    if str(out) == "-":
        say(text.rstrip("\n"))
        return
    try:
        with out.open("w" if overwrite else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{out}: is already there. Name another file with -o, or replace it with --overwrite."
        ) from None
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror or error}.") from None
    say(f"wrote {out}: {there[recipe]}")
    tell(f"next: edit {out}, then saccade train {out}")


def text_with(preset: str) -> str:
    """A recipe on files that begins with the preset, whose own lines stand below it to be copied from."""
    told = "\n".join(f"# {line}".rstrip() for line in presets.text_of(preset).splitlines())
    files = _FILES[presets.tree_of(preset)["task"]]
    return _WITH_PRESET.format(preset=preset, described=presets.described(preset), told=told, files=files)


_FILES = {
    "translate": """\
  kind: files
  train: {source: train.src, target: train.tgt}
  valid: {source: valid.src, target: valid.tgt}""",
    "classify": """\
  kind: files
  train: {tsv: train.tsv, label: 1, text: 2}
  valid: {tsv: valid.tsv, label: 1, text: 2}""",
    "language-model": """\
  kind: text
  train: train.txt
  valid: valid.txt""",
    "masked-language-model": """\
  kind: text
  train: train.txt  # empty lines stand between documents
  valid: valid.txt""",
}
_WITH_PRESET = """\
# {described}
# Edit the file names. What is added here comes before what the preset says.

preset: {preset}

data:
{files}

# The preset:
#
{told}
"""


def settings(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only settings whose dotted name begins so.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="The JSON schema of recipes, for editors.")] = False,
) -> None:
    """Show every setting of a recipe.

    Its dotted name, as --set takes it, its type, default and meaning.
    """
    if schema:
        say(schema_text().rstrip("\n"))
        return
    found = [row for row in rows_of(json.loads(schema_text())) if _under(row["setting"], prefix)]
    if not found:
        raise UsageError(f"{prefix}: no setting begins so. `saccade settings` shows all.")
    if as_json:
        say(to_json(found, indent=2))
        return
    section = ""
    for row in found:
        owner = row["setting"].rpartition(".")[0] + (f" with kind: {row['kind']}" if row["kind"] else "")
        owner += f" of task: {', '.join(row['tasks'])}" if row["tasks"] else ""
        if owner != section:
            say(f"{'' if not section else chr(10)}{owner or 'recipe'}")
            section = owner
        say(f"  {row['setting']}: {row['type']}{_default(row)}")
        say(f"      {row['description']}")
        if row["setting"] == presets.KEY:
            _tell_presets()


def _tell_presets() -> None:
    names, there = presets.names(), presets.trainable()
    width = max(map(len, names))
    for name in (*there, *(name for name in names if name not in there)):
        waits = "" if name in there else f" Waits for its task, {presets.tree_of(name)['task']}."
        say(f"        {name:{width}}  {presets.described(name)}{waits}")


def _under(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(prefix.rstrip(".") + ".")


def _default(row: dict[str, Any]) -> str:
    if row["required"]:
        return ", must be given"
    return f" = {to_json(row['default'])}" if row["default"] is not None else ", not set by default"


def rows_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings in a JSON schema, one row each; those of a section that comes in kinds once for every kind.

    A setting that is the same for several tasks is one row; `tasks` are those that have it, none where all do.
    """
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    recipes = _options(schema, schema["$defs"])
    for recipe in recipes:
        rows: list[dict[str, Any]] = []
        name = recipe["properties"]["task"]["const"]
        _walk(recipe, schema["$defs"], "", "", rows)
        for row in rows:
            tasks = found.setdefault(json.dumps(row), (row, []))[1]
            if name not in tasks:
                tasks.append(name)
    every = sorted(found.values(), key=lambda each: list(_PARTS).index(each[0]["setting"].partition(".")[0]))
    return [row | {"tasks": [] if len(tasks) == len(recipes) else tasks} for row, tasks in every]


_PARTS = (
    "preset", "task", "seed", "init_from", "freeze", "data", "text", "read", "model", "masking", "train", "decode",
    "metrics",
)  # fmt: skip
"""The order of a recipe."""


def _walk(section: dict[str, Any], defs: dict[str, Any], path: str, kind: str, rows: list[dict[str, Any]]) -> None:
    below = []
    instead = section.get("anyOf", [{}])[0]  # of the recipe: what must be given where there is no preset
    must = {*section.get("required", ()), *instead.get("required", ())}
    for name, field in section["properties"].items():
        full = f"{path}{name}"
        sections = [each for each in _options(field, defs) if "properties" in each]
        chooses = name == "kind"  # the schema has a default for it, but a section is told from its kin by nothing else
        own_default = None if sections or chooses else field.get("default")
        rows.append(
            {
                "setting": full,
                "kind": kind,
                "type": "section" if sections else _type(field, defs),
                "default": own_default,
                "required": chooses or name in must,
                "description": " ".join(field.get("description", "").split()),
            }
        )
        below += [(each, f"{full}.") for each in sections]
    for each, deeper in below:
        _walk(each, defs, deeper, _kind_of(each), rows)


def _options(field: dict[str, Any], defs: dict[str, Any]) -> list[dict[str, Any]]:
    """What a field may hold: one schema, or several."""
    if "$ref" in field:
        return [defs[field["$ref"].rpartition("/")[2]]]
    several = field.get("oneOf") or field.get("anyOf")
    return [option for each in several for option in _options(each, defs)] if several else [field]


def _kind_of(section: dict[str, Any]) -> str:
    field = section["properties"].get("kind", {})
    return " or ".join([field["const"]] if "const" in field else field.get("enum", ()))


def _type(field: dict[str, Any], defs: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_one_type(each) for each in _options(field, defs)))


_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _one_type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(map(_one_type, field["anyOf"]))
    if "const" in field:
        return str(field["const"])
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if field.get("type") == "null":
        return "null"
    bounds = " and ".join(f"{sign} {field[key]}" for key, sign in _BOUNDS.items() if key in field)
    kind = str(field.get("type", "value"))
    if kind == "array":
        items = field.get("prefixItems") or [field["items"]]
        kind = f"list of {' and '.join(dict.fromkeys(_one_type(item) for item in items))}"
    return f"{kind} {bounds}".rstrip()
