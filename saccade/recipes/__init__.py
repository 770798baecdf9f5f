"""The recipes that come with Saccade, as text. Imports no torch."""

from importlib import resources


def shipped() -> list[str]:
    """Their names."""
    folder = resources.files("saccade") / "recipes"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def shipped_text(name: str) -> str:
    return (resources.files("saccade") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


def described(name: str) -> str:
    """What the recipe is for: its first line, which is a comment."""
    return shipped_text(name).partition("\n")[0].removeprefix("#").strip()


def schema_text() -> str:
    """The JSON schema of all settings, as `python -m saccade.cli.schema` wrote it."""
    return (resources.files("saccade") / "recipes" / "schema.json").read_text(encoding="utf-8")
