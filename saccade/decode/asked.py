"""What a caller asks for instead of what a model's recipe says: to draw, to choose by risk, to search for text."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

from saccade import config
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError

LONGEST = 100_000
"""The most tokens that `DecodeConfig.max_length` takes."""
RISK_SAMPLES = 100
"""How many samples minimum Bayes risk is estimated from where nobody says."""


OF_A_SOURCE = {
    "max_length": "max_tokens says how long a text may become",
    "ratio": "max_tokens says how long a text may become",
    "extra": "max_tokens says how long a text may become",
    "min_ratio": "min_length says how long a text must become",
    "coverage": "there is no source to cover",
    "coverage_layer": "there is no source to cover",
    "whole_words": "phrases that must or must not be are asked of translators",
    "sample": "leave out beam to draw",
    "mbr": "it chooses among translations",
}
"""Settings of a search that a language model, which has no source, cannot hear."""


_OF_A_SEARCH = ("beam", "n_best", "settings")


class Drawing(TypedDict, total=False):
    """What may be given of `DrawConfig`; None: as the model's recipe has it."""

    samples: int | None
    seed: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical: float | None


class Sampling(Drawing, total=False):
    """What may be given of `SampleConfig`; None: as the model's recipe has it."""

    max_tokens: int | None
    stop: Literal["end", "line", "length"] | None


class Writing(Sampling, total=False):
    """What may be asked of a language model: with a beam, text is searched for, else it is drawn."""

    beam: int | None
    n_best: int | None
    settings: Sequence[str]
    """`name=value` of any other setting of `DecodeConfig`."""


class Translating(Drawing, total=False):
    """What may be asked of a translator: to draw, to choose by risk, or else to search."""

    beam: int | None
    n_best: int | None
    settings: Sequence[str]
    """`name=value` of any other setting of `DecodeConfig`."""
    mbr: Literal["chrf", "bleu"] | None
    """Choose among samples the one that is most like all others."""


def decoding(
    own_way: DecodeConfig, given: Translating, *, length_penalty: float | None, max_length: int | None
) -> DecodeConfig:
    """A model's own way to decode, with what is given instead."""
    asked = given.copy()
    beam, n_best, mbr = asked.pop("beam", None), asked.pop("n_best", None), asked.pop("mbr", None)
    settings = asked.pop("settings", ())
    own = {"beam": beam, "n_best": n_best, "alpha": length_penalty, "max_length": max_length}
    tree = config.plain(own_way)
    named = {setting.partition("=")[0].strip() for setting in settings}
    searched = beam is not None or "beam" in named
    if searched:
        tree |= {"sample": None, "mbr": None}
    for setting in settings:
        tree = config.override(tree, setting, option="--decode")
    tree |= {name: value for name, value in own.items() if value is not None}
    if length_penalty and "length" in named and tree["length"] == "none":
        raise UsageError(
            f"length_penalty: is {length_penalty:g}, but length=none has no exponent. Leave one of them out."
        )
    if "length" in named and "alpha" not in named and length_penalty is None and tree["length"] in ("none", "average"):
        tree["alpha"] = 1.0  # asked for by name: not with the exponent that another rule had
    if beam is not None and n_best is None:
        tree["n_best"] = min(tree["n_best"], beam)
    if length_penalty is not None and tree["length"] == "none":
        tree["length"] = "average"  # an exponent of no normalisation would not be heard
    drawn = {name: value for name, value in asked.items() if value is not None}
    tree = _with_drawing(tree, drawn, mbr=mbr, n_best=n_best)
    if searched and tree.get("sample") is not None and (tree["mbr"] or {}).get("candidates", "samples") == "samples":
        told = [*drawn, *(["mbr"] if mbr is not None else ())] or sorted(each for each in named if each != "beam")
        raise UsageError(
            f"beam: is {tree['beam']}, but {', '.join(told)} asks for samples, which are drawn and not searched for. "
            "Leave one of them out, or let minimum Bayes risk choose among both (mbr.candidates=both)."
        )
    return config.parse(DecodeConfig, tree, "decode", whole="decode")


def _with_drawing(
    tree: Mapping[str, Any], own: Mapping[str, Any], *, mbr: str | None, n_best: int | None
) -> dict[str, Any]:
    """The settings of `DecodeConfig` with what is given to draw by and to choose by."""
    if not own and mbr is None:
        return dict(tree)
    risk = tree.get("mbr")
    if mbr is not None:
        risk = {**(risk or {}), "utility": mbr}
    sample = {**(tree.get("sample") or {}), **own}
    if risk is not None and "samples" not in own and sample.get("samples", 1) < 2:
        sample["samples"] = RISK_SAMPLES
    return {**tree, "sample": sample, "mbr": risk, **({"n_best": 1} if n_best is None else {})}


def searching_or_drawing(asked: Writing) -> tuple[DecodeConfig | None, Sampling]:
    """How a language model's text is searched for, None where it is drawn; and what is asked of `SampleConfig`."""
    given = cast(Sampling, {name: value for name, value in asked.items() if name not in _OF_A_SEARCH})
    beam, n_best, settings = asked.get("beam"), asked.get("n_best"), asked.get("settings", ())
    return _searching(beam, n_best, settings, given), given


def _searching(
    beam: int | None, n_best: int | None, settings: Sequence[str], given: Mapping[str, Any]
) -> DecodeConfig | None:
    own = [name for name, value in given.items() if value is not None and (name, value) != ("stop", "end")]
    if beam is None:
        if n_best is not None or settings:
            name = "n_best" if n_best is not None else "decode"
            raise UsageError(f"{name}: is a setting of a search; text is drawn unless beam is given. Give beam, too.")
        return None
    if drawn := [name for name in own if name != "max_tokens"]:
        raise UsageError(
            f"beam: is {beam}, but {', '.join(drawn)} belongs to drawing. A search takes the most probable tokens and "
            "ends at the end mark alone: leave one or the other out."
        )
    tree: dict[str, Any] = {"max_length": LONGEST}  # the limit is max_tokens, which is seen to where texts are written
    for setting in settings:
        name = setting.partition("=")[0].partition(".")[0].strip()
        if name in OF_A_SOURCE:
            raise UsageError(f"decode {setting}: has no meaning for a language model: {OF_A_SOURCE[name]}.")
        tree = config.override(tree, setting, option="--decode")
    tree |= {"beam": beam} | ({} if n_best is None else {"n_best": n_best})
    return config.parse(DecodeConfig, tree, "decode", whole="decode")
