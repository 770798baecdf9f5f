"""What the documentation says, held to the code: snippets run, commands parse, links, settings and tests are there.

In a snippet, `expression  # → value` says what the expression gives; the value is compared with its repr.
`python -m tests.docs.test_documentation` writes the table of settings in docs/recipes.md anew.
"""

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from saccade import config
from saccade.cli.main import app
from saccade.cli.recipes import rows_of
from saccade.errors import UsageError
from saccade.recipe import load_recipe, parse_recipe, schema
from saccade.recipes import shipped_text

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "mechanisms").glob("*.md")),
    *sorted((ROOT / "docs" / "tasks").glob("*.md")),
]
LINKED = [*PAGES, *(ROOT / "docs" / "results").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
RECIPES = ROOT / "docs" / "recipes.md"
BEGIN, END = "<!-- settings: made by `make settings` -->", "<!-- settings end -->"
PROGRAMS = {"cat", "gzip", "head", "pip", "sacrebleu", "sort", "tail", "zcat"}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str
    line: int
    """Where its text begins, counted from 1."""


def blocks(page: Path, *languages: str) -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    every = [Block(page, each[1], each[2], each.string[: each.start(2)].count("\n") + 1) for each in found]
    return [block for block in every if block.language in languages]


def inline(page: Path) -> list[str]:
    """What stands between single backticks, outside of blocks."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)


# ---- snippets


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Statement by statement, so that a traceback and a wrong value name their line in the page."""
    name = f"{block.page.name} from line {block.line}"
    lines = block.text.splitlines()
    for node in ast.parse(block.text, name).body:
        if isinstance(node, ast.Expr):
            value = eval(compile(ast.Expression(node.value), name, "eval"), namespace)
            _, arrow, said = lines[(node.end_lineno or 0) - 1].partition("  # → ")
            if arrow:
                assert repr(value) == said, f"{block.page.name}:{block.line + node.lineno - 1}"
        else:
            exec(compile(ast.Module([node], []), name, "exec"), namespace)  # noqa: S102 it is our own page


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda path: path.name)
def test_snippets_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in blocks(page, "python"):
        run(block, namespace)


def test_a_snippet_that_says_a_wrong_value_is_found(tmp_path: Path) -> None:
    for said, right in (("3", True), ("4", False)):
        block = Block(tmp_path, "python", f"x = 1\nx + 2  # → {said}\n", 1)
        if right:
            run(block, {})
        else:
            with pytest.raises(AssertionError):
                run(block, {})


# ---- commands


def commands(line: str) -> Iterator[list[str]]:
    """The commands of a shell line, without comment, redirections and variables in front."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    words.whitespace_split = True
    command: list[str] = []
    skip = False
    for word in (*words, ";"):
        if skip:
            skip = False
        elif word in ("<", ">", ">>"):
            skip = True
        elif set(word) <= set("|&;"):
            if command:
                yield command
            command = []
        elif command or not re.match(r"[A-Z_]+=", word):
            command.append(word)


def shown_commands(page: Path) -> Iterator[tuple[list[str], str | None]]:
    """Each command of the page, and what is shown as its output; None where it is only spoken of."""
    for block in blocks(page, "console", "sh", "bash", ""):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            for command in commands(line):
                yield command, output
    for code in inline(page):
        if code.startswith("saccade "):
            yield from ((command, None) for command in commands(code))


def check_saccade(arguments: list[str]) -> None:
    """Parse as the command would; a wrong name, option or value raises what the command would tell."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("saccade", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        if rest == ["--help"] or (not rest and hasattr(command, "resolve_command")):
            return  # the help of a command that is there
        context = command.make_context(name, rest, parent=context)


def check_command(command: list[str]) -> None:
    match command:
        case ["saccade"] | ["saccade", "--help"]:
            pass
        case ["saccade", *arguments]:
            check_saccade(arguments)
        case ["make", *targets]:
            made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            assert {target for target in targets if "=" not in target} <= set(made)
        case ["python", "-m", "pytest", *_] | ["pytest", *_]:
            pass
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case [program, *_]:
            assert program in PROGRAMS, f"{program} is not known here"


@every_page
def test_commands_are_there_with_their_options(page: Path) -> None:
    for command, output in shown_commands(page):
        try:
            check_command(command)
        except Exception as error:
            if output is None and type(error).__name__ == "MissingParameter":
                continue  # `saccade evaluate`: its name is enough to speak of it
            pytest.fail(f"{shlex.join(command)}: {getattr(error, 'message', None) or error!r}")


@pytest.mark.parametrize(
    "command",
    ["saccade trane dates", "saccade train dates --sett a=1", "saccade runs lst", "make tset", "saccade score"],
)
def test_a_command_that_is_not_there_is_found(command: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing|assert"):
        check_command(shlex.split(command))


# ---- settings


def known_settings() -> set[str]:
    return {row["setting"] for row in rows_of(schema())}


def setting_of(code: str) -> str | None:
    """The dotted setting that a piece of code names: `train.updates`, `model.tie=all`; not `train.yaml`, a file."""
    found = re.fullmatch(r"((data|text|read|model|train|decode)(\.[a-z_]+)+)(=.*| .*)?", code)
    if found is None or re.search(r"\.(yaml|yml|src|tgt|tsv|jsonl|json|py|safetensors|en|de|gz|xz|bin|idx)$", found[1]):
        return None
    return found[1]


@every_page
def test_every_setting_named_is_a_setting(page: Path) -> None:
    settings = known_settings()
    named = [name for code in inline(page) if (name := setting_of(code))]
    for command, output in shown_commands(page):
        for flag, value in pairwise(command):
            if flag == "--set" and "is not a setting" not in (output or ""):
                named.append(value.partition("=")[0])
    assert set(named) <= settings


@every_page
def test_recipes_shown_are_recipes(page: Path) -> None:
    """A whole one parses; a part of one, wherever it begins, names settings that are there."""
    known = known_settings()
    parts = known | {name.split(".", depth)[depth] for name in known for depth in range(1, name.count(".") + 1)}
    for block in blocks(page, "yaml"):
        tree = config.parse_yaml(block.text, f"{page.name}:{block.line}")
        if {"data", "text", "model"} <= tree.keys() or "preset" in tree:
            parse_recipe({"data": {"kind": "dates"}, **tree}, f"{page.name}:{block.line}")
        assert set(config.flatten(tree)) <= parts, f"{page.name}:{block.line}"


@every_page
def test_refusals_shown_are_what_is_told(page: Path, tmp_path: Path) -> None:
    for command, output in shown_commands(page):
        if command[:2] != ["saccade", "train"] or output is None or "is not a setting" not in output:
            continue
        recipe = Path(command[2])
        settings = tuple(value for flag, value in pairwise(command) if flag == "--set")
        (tmp_path / recipe.name).write_text(shipped_text("translate"), encoding="utf-8")
        with pytest.raises(UsageError) as refused:
            load_recipe(str(tmp_path / recipe.name), settings)
        assert str(refused.value).replace(str(tmp_path / recipe.name), str(recipe)) == output.strip()


# ---- links and names


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), f"{target} leads out of the project"
        if anchor:
            assert anchor in anchors(file), target


@every_page
def test_files_and_tests_named_are_there(page: Path) -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)", tests))
    for code in inline(page):
        if re.fullmatch(r"(saccade|tests|docs|bench)(/[\w.-]+)+/?", code):
            assert (ROOT / code).exists(), code
        if re.fullmatch(r"test_\w+", code):
            assert code in there, code


# ---- the table of settings


def settings_table() -> str:
    """Every section of a recipe as a table; sections that hold the same settings stand once."""
    rows = rows_of(schema())
    tables: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (path, kind, tasks), some in groupby(rows, key=_owner):
        tables.setdefault((kind, "\n".join(map(_line, some))), {}).setdefault(tasks, []).append(path)
    parts = []
    for (kind, lines), owners in tables.items():
        told_paths = (
            ", ".join(f"`{path}`" if path else "The recipe" for path in paths) + (f" of {tasks}" if tasks else "")
            for tasks, paths in owners.items()
        )
        heading = "; ".join(told_paths)
        told = f", kind {kind.replace(' or ', ', ')}" if kind else ""
        parts.append(f"### {heading}{told}\n\n| setting | type | default | meaning |\n|---|---|---|---|\n{lines}")
    return "\n\n".join(parts)


def _owner(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["setting"].rpartition(".")[0], row["kind"], ", ".join(row["tasks"])


def _line(row: dict[str, Any]) -> str:
    name = row["setting"].rpartition(".")[2]
    if row["required"] or name == "kind":  # which kind it is tells how the rest of a section is read
        default = "must be given"
    elif row["type"] == "section" or row["default"] is None:
        default = "–"
    else:
        default = f"`{config.to_yaml({'x': row['default']}).strip().removeprefix('x:').strip()}`"
        default = f"`{row['default']}`" if "\n" in default else default
    cells = (f"`{name}`", row["type"], default, row["description"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n\n{settings_table()}\n\n{END}{behind}"


def test_the_table_of_settings_is_that_of_the_code() -> None:
    text = RECIPES.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == with_table(text), "write it anew: make settings"


def test_the_table_holds_every_setting_with_its_default() -> None:
    table = settings_table()
    for name in known_settings():
        assert f"| `{name.rpartition('.')[2]}` |" in table
    assert "| `beam` | integer ≥ 1 and ≤ 512 | `5` |" in table
    assert re.search(r"^### `model\.encoder`.*`model\.decoder`.*, kind transformer$", table, re.MULTILINE)


if __name__ == "__main__":
    RECIPES.write_text(with_table(RECIPES.read_text(encoding="utf-8")), encoding="utf-8")
