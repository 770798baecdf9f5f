"""Every two options of a Transformer that can be together are so in some model that keeps the laws."""

from typing import Any

import pytest
from pydantic import ValidationError

from saccade.models.translator import TranslatorConfig
from tests.cases import TranslatorCase, name_of
from tests.support import laws
from tests.support.pairs import Options, covering

RELATIVE = {"positions": "relative", "relative_distance": 2}
TREE = {"positions": "tree", "tree_distance": 2, "relative_distance": 2}
BIRD = {"kind": "bigbird", "block": 1, "window": 0, "global_blocks": 1, "random_blocks": 1}
LINFORMER = {"kind": "linformer", "slots": 3, "places": 6}
CHOICES: dict[str, dict[str, Any]] = {
    "positions": {
        "no positions": {"both": {"positions": "none"}},
        "sinusoidal": {},
        "learned": {"both": {"positions": "learned", "places": 5}},
        "relative": {"both": RELATIVE},
        "relative, keys": {"both": RELATIVE | {"relative_values": False, "relative_per_head": True}},
        "rotary": {"both": {"positions": "rotary"}},
        "rotary, halves": {"both": {"positions": "rotary", "rotary_pairs": "halves", "rotary_base": 50.0}},
        "alibi": {"both": {"positions": "alibi"}},
        "tree": {"encoder": TREE},
        "tree, relative, keys": {"encoder": TREE | {"tree": "relative", "relative_values": False}},
        "tree, absolute": {"encoder": TREE | {"tree": "absolute"}},
    },
    "norm kind": {kind: {"both": {"norm_kind": kind}} for kind in ("layer", "rms", "detached", "batch", "none")},
    "norm": {place: {"both": {"norm": place}} for place in ("pre", "post")},
    "activation": {each: {"both": {"activation": each}} for each in ("relu", "gelu", "gelu-tanh", "swish")},
    "gate": {"not gated": {}, "gated": {"both": {"gated": True}}},
    "pattern": {
        "full": {},
        "window": {"both": {"pattern": {"kind": "window", "width": 2}}},
        "bigbird": {"both": {"pattern": BIRD}},
        "linformer": {"encoder": {"pattern": LINFORMER | {"sharing": "none"}}},
        "linformer, layerwise": {"encoder": {"pattern": LINFORMER | {"sharing": "layerwise"}}},
    },
    "weights": {"kept": {}, "dropped": {"both": {"attention_dropout": 0.2}}},
    "embedding": {"scaled": {}, "as it is": {"both": {"scale_embedding": False}}},
    "entrance": {"bare": {}, "normed": {"both": {"norm_embedding": True}}},
    "tie": {tie: {"tie": tie} for tie in ("none", "output", "all")},
    "heads": {"2 of 4": {}, "1 of 8": {"both": {"heads": 1}}, "4 of 2": {"both": {"heads": 4}}},
    "depth": {"one": {}, "two": {"both": {"layers": 2}}},
}


def case_of(options: Options) -> TranslatorCase | None:
    """None where the recipe is refused."""
    chosen = [each[option] for each, option in zip(CHOICES.values(), options, strict=True)]

    def gathered(*names: str) -> dict[str, Any]:
        return {key: value for name in names for each in chosen for key, value in each.get(name, {}).items()}

    first = {"kind": "transformer", "width": 8, "heads": 2, "layers": 1, "dropout": 0.2}
    tree = {side: first | gathered("both", side) for side in ("encoder", "decoder")}
    tie = next(each["tie"] for each in chosen if "tie" in each)
    try:
        return TranslatorCase(", ".join(options), TranslatorConfig.model_validate(tree | {"tie": tie}))
    except ValidationError:
        return None


CASES, REFUSED = covering(CHOICES, case_of)
pairwise = pytest.mark.parametrize("case", CASES, ids=name_of)


def test_what_is_covered_is_what_can_be() -> None:
    """Pairs that no model has are those that are refused, and these alone."""
    inside = ("relative", "relative, keys", "rotary", "rotary, halves", "alibi")
    expected = {(place, pattern) for place in inside for pattern in ("linformer", "linformer, layerwise")}
    expected |= {(place, "bigbird") for place in ("relative", "relative, keys")}
    patterns = ("window", "bigbird", "linformer", "linformer, layerwise")
    expected |= {(place, pattern) for place in ("tree", "tree, relative, keys") for pattern in patterns}
    expected |= {("none", "normed")}
    assert expected == REFUSED


@pairwise
def test_stepwise_equals_teacher_forced(case: TranslatorCase) -> None:
    laws.stepwise_equals_teacher_forced(case)


@pairwise
def test_packed_and_filled_equal_padded(case: TranslatorCase) -> None:
    laws.packed_and_filled_equal_padded(case)


@pairwise
def test_fast_equals_readable(case: TranslatorCase) -> None:
    """In training: the same values are dropped; but of weights by blocks, others than of those with a mask."""
    by_blocks = any(part in case.name for part in ("window", "bigbird")) and "dropped" in case.name
    laws.fast_equals_readable(case, training=not by_blocks)


@pairwise
def test_every_weight_is_reached(case: TranslatorCase) -> None:
    laws.every_weight_is_reached(case)
