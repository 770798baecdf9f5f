"""A line of JSON → the fields that are asked for; a ValueError says what is wrong with it."""

import json
from typing import Any


def read_row(text: str) -> dict[str, Any]:
    """A JSON object; a ValueError says why it is none."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the row is not valid JSON ({error})") from None
    if not isinstance(row, dict):
        raise ValueError("the row is not a JSON object")
    return row


def string_of(row: dict[str, Any], name: str, setting: str) -> str:
    if name not in row:
        raise ValueError(f"the object has no field {name!r}, which {setting} asks for")
    if not isinstance(row[name], str):
        raise ValueError(f"the field {name!r} holds {type(row[name]).__name__}, not a string")
    return str(row[name])


def joined_of(row: dict[str, Any], names: str | tuple[str, ...], setting: str) -> str:
    """The field; of `a|b` the first that is there and not null; of several, all of them with a space between."""
    if not isinstance(names, str):
        return " ".join(joined_of(row, name, setting) for name in names)
    *others, last = names.split("|")
    return string_of(row, next((name for name in others if row.get(name) is not None), last), setting)


def heads_of(row: dict[str, Any], name: str) -> str:
    """As one string; in the object they may stand as a list of numbers, too."""
    given = row.get(name)
    if isinstance(given, list):
        return " ".join(map(str, given))  # what is no number in it is found where the string is read
    return string_of(row, name, "data.heads_field")
