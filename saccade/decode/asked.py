"""What a caller asks for instead of what a model's recipe says: by names, for sampling and for minimum Bayes risk."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from saccade.errors import UsageError

RISK_SAMPLES = 100
"""How many samples minimum Bayes risk is estimated from where nobody says."""


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


def with_drawing(
    tree: Mapping[str, Any], given: Mapping[str, Any], *, mbr: str | None, beam: int | None, n_best: int | None
) -> dict[str, Any]:
    """The settings of `DecodeConfig` with what is given to draw by and to choose by."""
    own = {name: value for name, value in given.items() if value is not None}
    if not own and mbr is None:
        return dict(tree)
    risk = tree.get("mbr")
    if mbr is not None:
        risk = {**(risk or {}), "utility": mbr}
    sample = {**(tree.get("sample") or {}), **own}
    if risk is not None and "samples" not in own and sample.get("samples", 1) < 2:
        sample["samples"] = RISK_SAMPLES
    if beam is not None and (risk or {}).get("candidates", "samples") == "samples":
        asked = ", ".join([*own, *(["mbr"] if mbr is not None else [])])
        raise UsageError(
            f"beam: is {beam}, but {asked} asks for samples, which are drawn and not searched for. Leave one of them "
            "out, or let minimum Bayes risk choose among the beam's outputs, too (mbr.candidates=both)."
        )
    return {**tree, "sample": sample, "mbr": risk, **({"n_best": 1} if n_best is None else {})}
