"""Lines of input as what is to be translated: each its text, or a JSON object that says more."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NoReturn

from saccade.cli.streams import argument_text
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.lines import Request

InputFormat = Literal["text", "jsonl"]
KEYS = ("text", "prefix", "must", "must_not")


def requests_of(
    lines: Sequence[str],
    form: InputFormat,
    *,
    prefix: str | None = None,
    must: Sequence[str] = (),
    must_not: Sequence[str] = (),
    first: int = 1,
) -> "list[Request]":
    """One request a line; `first` is the first line's number.

    `prefix` is that of every line that has none of its own; `must` and `must_not` hold for all, beside a line's own.
    """
    from saccade.lines import Request

    general = Request("", argument_text(prefix or ""), _arguments(must), _arguments(must_not))
    if form == "text":
        return [replace(general, text=line) for line in lines]
    return [_of_json(line, general, number) for number, line in enumerate(lines, start=first)]


def _arguments(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(argument_text(each) for each in texts)


def _with(own: tuple[str, ...], general: Sequence[str]) -> tuple[str, ...]:
    """A phrase that is asked for in both places is meant once."""
    return (*own, *(each for each in general if each not in own))


def _of_json(line: str, general: "Request", number: int) -> "Request":
    from saccade.lines import Request

    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        _refuse(number, line, f"is not JSON: {error}")
    if not isinstance(row, dict):
        _refuse(number, line, "is no JSON object")
    for key in row:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            _refuse(number, line, f"{key!r} is none of {', '.join(KEYS)}{hint}")
    if "text" not in row:
        _refuse(number, line, "has no 'text'")
    return Request(
        _text(row["text"], "text", number, line),
        _text(row.get("prefix", general.prefix), "prefix", number, line),
        _with(_texts(row.get("must", []), "must", number, line), general.must),
        _with(_texts(row.get("must_not", []), "must_not", number, line), general.must_not),
    )


def _text(value: object, key: str, number: int, line: str) -> str:
    if not isinstance(value, str):
        _refuse(number, line, f"{key!r} is {value!r:.40}, which is no text")
    # JSON can name half a character, which is no text: it is read as other bytes that are none.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _texts(value: object, key: str, number: int, line: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        _refuse(number, line, f"{key!r} is {value!r:.40}; it must be a list of texts")
    return tuple(_text(each, key, number, line) for each in value)


def _refuse(number: int, line: str, reason: str) -> NoReturn:
    raise UsageError(
        f"--input-format jsonl: line {number} ({line[:40]!r}): {reason}. "
        'Each line is one object, as {"text": "…", "prefix": "…"}.'
    )
