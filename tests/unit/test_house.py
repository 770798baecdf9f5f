"""The house stands as it was drawn: imports go one way, and what must not be in it is not."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "saccade"
FILES = sorted(path for path in ROOT.rglob("*.py"))
LONGEST_FILE = 450

FLOOR = {"types", "config", "errors", "keyed", "replay", "run_paths", "__version__"}
BELOW_THE_LAB = {
    "text", "data", "nn", "models", "smt", "loss", "train", "checkpoint", "decode",
    "metrics", "evaluate", "inspect", "view", "lines", "translate", "fill", "classify", "generate", "likelihood", "tag",
    "constraints", "score_tags", "align", "tasks", "recipe", "device", "disk", "integrity", "partners", "rerank",
    "weights", "search_report", "model", "joint",
}  # fmt: skip
EVERYTHING = BELOW_THE_LAB | {"lab", "serve", "export", "api", "recipes", "presets", "compare"}

# part → what it may import beside itself and the floor
ARROWS: dict[str, set[str]] = {
    "text": set(),
    "data": {"text", "disk"},
    "nn": set(),
    "models": {"nn", "loss"},  # a decoder says what its own outputs cost
    "smt": {"text"},
    "loss": {"nn"},
    "train": {"text", "data", "models", "loss", "disk", "checkpoint"},
    "disk": set(),  # files that are whole or not there
    "weights": set(),  # the tensors of a model by their names
    "checkpoint": {"models", "text", "disk", "weights"},
    "integrity": {"text", "data", "disk", "checkpoint"},  # whether every file of a run folder is as it was saved
    "decode": set(),
    "metrics": set(),
    "device": set(),  # which device a name means
    "constraints": {"text", "decode"},  # phrases → what a search needs to see to them
    "lines": {"data", "decode"},  # what goes into a translator and comes out
    "translate": {
        "lines",
        "text",
        "data",
        "models",
        "checkpoint",
        "decode",
        "constraints",
        "metrics",
    },  # by which it chooses
    "tag": {"text", "data", "models", "checkpoint", "disk"},
    "score_tags": {"text", "metrics", "tag"},
    "fill": {"text", "data", "models", "checkpoint"},
    "classify": {"text", "data", "models", "checkpoint"},
    "evaluate": {"lines", "text", "data", "models", "checkpoint", "decode", "metrics", "translate"},
    "search_report": {"lines", "decode", "metrics", "translate"},  # a model and data → what its searches miss
    "likelihood": {"data", "models", "loss"},  # a language model and a text → what every token costs
    "generate": {"text", "data", "models", "decode", "metrics", "likelihood"},
    "partners": {"lines", "text", "data", "models", "decode", "translate", "generate"},  # who decides at every step
    "rerank": {"lines", "text", "decode", "translate", "evaluate", "generate"},  # who ranks whole outputs anew
    "inspect": {"models", "decode", "translate", "classify"},
    # a translator's attention → which word comes from which
    "align": {"lines", "text", "data", "translate", "inspect", "metrics"},
    "view": {"metrics"},
    # for each task its recipe, data, batches and validation; training itself knows none of them
    "tasks": {
        "text",
        "data",
        "models",
        "loss",
        "train",
        "disk",
        "checkpoint",
        "decode",
        "metrics",
        "translate",
        "tag",
        "score_tags",
        "fill",
        "classify",
        "evaluate",
        "generate",
        "likelihood",
        "presets",
    },
    "recipe": {"tasks", "recipes", "presets"},  # the recipes of all tasks: read, resolved, typed
    # Experiments are written as a user would write them, in the public interface; so the lab stands above it.
    "lab": BELOW_THE_LAB | {"api"},
    "serve": {"text", "checkpoint", "decode", "inspect", "view", "translate", "device"},
    "export": {"models", "checkpoint"},
    "recipes": set(),
    "presets": set(),
    "model": BELOW_THE_LAB - {"recipe", "model", "joint"},  # one class with a method for every verb
    "compare": BELOW_THE_LAB,  # runs and outputs side by side on one test set
    "joint": {"decode", "partners", "rerank", "model"},  # several runs as one model
    "api": EVERYTHING - {"api", "lab"},
    "cli": EVERYTHING,
    "__init__": {"api", "recipe", "lines", "translate", "joint"},
    "__main__": {"cli"},
}
FLOORS: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "keyed": set(),  # random bits by their key
    "replay": {"types", "errors"},  # kernels that are started as one
    "run_paths": {"errors"},  # which paths are runs, and which a checkpoint of one
    "config": {"errors"},
    "metrics": {"errors"},
}
# One file of a room: layers write into the notebook, inspection opens it.
ONE_FILE = {("inspect", "saccade.nn.watch")}


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def may_import(part: str) -> set[str]:
    assert part in ARROWS or part in FLOORS, (
        f"saccade/{part} has no arrow: say here and in the design what it may import"
    )
    return {part} | ARROWS.get(part, set()) | FLOORS.get(part, FLOOR)


def imported_modules(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Every module that a file names in an import: at the top, deferred, for types only, by string."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield node.lineno, alias.name if alias.name != "saccade" else f"saccade.{_only_version(source)}"
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, base]).rstrip(".")
                for alias in node.names:
                    yield node.lineno, f"{base}.{alias.name}"
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def _only_version(source: str) -> str:
    """What a plain `import saccade` is used for: the version, which anyone may know, or more."""
    used = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "saccade"
    }
    return "__version__" if used == {"__version__"} else "__init__"


def imported_parts(source: str, package: str) -> Iterator[tuple[int, str]]:
    own = package.split(".")[1] if "." in package else "__init__"
    for line, name in imported_modules(source, package):
        if any(own == part and f"{name}.".startswith(f"{module}.") for part, module in ONE_FILE):
            continue
        match name.split("."):
            case ["saccade", part, *_]:
                yield line, part


def package_of(path: Path) -> str:
    return ".".join(["saccade", *path.relative_to(ROOT).parent.parts])


def named(path: Path) -> str:
    return str(path.relative_to(ROOT.parent))


def faults(of: Callable[[Path], Sequence[object]]) -> dict[str, Sequence[object]]:
    """What is wrong in which file."""
    assert FILES
    return {named(path): wrong for path in FILES if (wrong := of(path))}


@cache
def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source_of(path))))


def test_imports_go_one_way() -> None:
    def wrong(path: Path) -> list[str]:
        part = part_of(path)
        allowed = may_import(part)
        found = imported_parts(source_of(path), package_of(path))
        return [f"line {line}: {part} → {other}" for line, other in found if other not in allowed]

    assert not faults(wrong)


def test_the_arrows_have_no_circle() -> None:
    remaining = {part: may_import(part) - {part} for part in ARROWS.keys() | FLOORS.keys()}
    del remaining["__init__"]  # it stands above everything and is imported by nobody
    while remaining:
        free = {part for part, needs in remaining.items() if not needs & remaining.keys()}
        assert free, f"these import each other: {sorted(remaining)}"
        remaining = {part: needs for part, needs in remaining.items() if part not in free}


@pytest.mark.parametrize(
    "source",
    [
        "import saccade.train.loop",
        "import saccade.train as t",
        "from saccade.train import loop",
        "from saccade.train.loop import run",
        "from saccade import train",
        "def f():\n    from saccade.train import loop",
        "if TYPE_CHECKING:\n    from saccade.train import loop",
        "from ..train import loop",
        "from .. import train",
        "import saccade.train.loop, os",
        "import importlib\nimportlib.import_module('saccade.train.loop')",
    ],
)
def test_the_walk_sees_every_way_to_import(source: str) -> None:
    assert "train" in {part for _, part in imported_parts(source, "saccade.decode")}
    assert "train" not in may_import("decode")


def test_the_walk_sees_one_room_only_from_inside() -> None:
    assert [part for _, part in imported_parts("from . import masks\nfrom .masks import pad", "saccade.nn")] == [
        "nn",
        "nn",
    ]
    assert list(imported_parts("import torch\nfrom collections import abc", "saccade.nn")) == []
    assert [part for _, part in imported_parts("import saccade\nsaccade.__version__", "saccade.nn")] == ["__version__"]
    assert [part for _, part in imported_parts("import saccade\nsaccade.train()", "saccade.nn")] == ["__init__"]
    assert list(imported_parts("from saccade.nn.watch import Watch", "saccade.inspect")) == []
    assert [part for _, part in imported_parts("from saccade.nn.masks import pad", "saccade.inspect")] == ["nn"]


# ---- what must not be there


def test_nothing_is_pickled() -> None:
    """Neither by torch, nor by the distributed checkpoint's default reader, nor by numpy."""
    forbidden = r"torch\.load\b|\b(c?[pP]ickle|dill|joblib|shelve|marshal)\b|FileSystemReader|allow_pickle\s*=\s*True"

    def pickling(path: Path) -> list[str]:
        lines = enumerate(source_of(path).splitlines(), start=1)
        return [f"line {number}: {line.strip()}" for number, line in lines if re.search(forbidden, line)]

    assert not faults(pickling)


def test_only_the_command_line_prints() -> None:
    def printing(path: Path) -> list[str]:
        called = [node.func for node in nodes_of(path) if isinstance(node, ast.Call)]
        prints = [func.lineno for func in called if isinstance(func, ast.Name) and func.id == "print"]
        return [] if part_of(path) == "cli" else [f"line {line}" for line in prints]

    assert not faults(printing)


def test_files_can_be_read_in_one_go() -> None:
    def too_long(path: Path) -> list[int]:
        lines = len(source_of(path).splitlines())
        return [lines] if lines > LONGEST_FILE else []

    assert not faults(too_long)


def test_only_the_view_draws() -> None:
    def plotting(path: Path) -> list[str]:
        names = [name for _, name in imported_modules(source_of(path), package_of(path))]
        drawn = [name for name in names if name.split(".")[0] in ("matplotlib", "seaborn", "plotly")]
        return [] if part_of(path) == "view" else drawn

    assert not faults(plotting)


def test_decoding_asks_for_no_architecture() -> None:
    """Not by an import, nor by name."""

    def asking(path: Path) -> list[str]:
        names = {node.id for node in nodes_of(path) if isinstance(node, ast.Name)} if part_of(path) == "decode" else ()
        return [name for name in names if re.search(r"lstm|gru|transformer|recurrent|isinstance", name, re.IGNORECASE)]

    assert not faults(asking)


@pytest.mark.parametrize("module", ["saccade", "saccade.errors", "saccade.config", "saccade.cli.main"])
def test_help_need_not_wait_for_torch(module: str) -> None:
    if module == "saccade.cli.main" and importlib.util.find_spec(module) is None:
        pytest.skip("there is no command line yet")
    code = f"import sys, {module}; sys.exit(' '.join({{'torch', 'matplotlib'}} & sys.modules.keys()) or None)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
