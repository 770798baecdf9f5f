"""Every two options of recurrent layers that can be together are so in some model that keeps the laws."""

from typing import Any

import pytest
from pydantic import ValidationError

from saccade.models.translator import TranslatorConfig
from tests.cases import TranslatorCase, name_of
from tests.support import laws
from tests.support.pairs import Options, covering

# ---- cells: every two of one cell's own settings are together in one of its forms

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "elman": {
        "activation": {each: {"activation": each} for each in ("tanh", "logistic", "identity", "relu")},
        "first": {"drawn": {}, "from identity": {"identity": True}},
        "norm": {"plain": {}, "normed": {"layer_norm": True}},
    },
    "lstm": {
        "forgetting": {"forgets": {}, "of 1997": {"forget_gate": False}},
        "peepholes": {"blind": {}, "peepholes": {"peepholes": True}},
        "norm": {"plain": {}, "normed": {"layer_norm": True}},
    },
    "gru": {
        "reset": {"after": {}, "before": {"reset": "before"}},
        "polarity": {"keep": {}, "update": {"polarity": "update"}},
        "norm": {"plain": {}, "normed": {"layer_norm": True}},
    },
    "lstmn": {"read": {"last read": {}, "not last read": {"last_read": False}}, "bias": {"plain": {}}},
}


def forms_of(kind: str) -> dict[str, dict[str, Any]]:
    choices = SETTINGS[kind]

    def form(options: Options) -> tuple[str, dict[str, Any]]:
        cell = {
            key: value
            for each, chosen in zip(choices.values(), options, strict=True)
            for key, value in each[chosen].items()
        }
        width = {"width": 12} if cell.get("activation") == "relu" else {}  # or too few are left above 0
        return " ".join((kind, *options)), {"kind": kind, "cell": cell} | width

    made, refused = covering(choices, form)
    assert not refused
    return dict(made)


FORMS = {name: form for kind in SETTINGS for name, form in forms_of(kind).items()}

# ---- a model: both sides have one form, so that every option meets it on either side

SAMPLED = {"sampling": {"kind": "linear", "start": 0.5, "slope": 0.0}}
CHOICES: dict[str, dict[str, Any]] = {
    "form": {name: {"both": form} for name, form in FORMS.items()},
    "direction": {
        "both ways": {},
        "forwards": {"encoder": {"bidirectional": False}},
        "backwards": {"encoder": {"bidirectional": False, "reverse": True}},
        "turned": {"encoder": {"reverse": True}},
    },
    "bridge": {bridge: {"decoder": {"bridge": bridge}} for bridge in ("linear", "copy", "mean", "zero")},
    "look": {
        "no attention": {},
        "general": {"decoder": {"attention": {"score": "general"}}},
        "fed": {"decoder": {"attention": {"score": "dot"}, "feed_input": True}},
        "previous": {"decoder": {"attention": {"query": "previous"}}},
        "deep fusion": {"decoder": {"fusion": "deep"}},
    },
    "depth": {
        "one": {},
        "two": {"both": {"layers": 2}},
        "two on one": {"decoder": {"layers": 2}},
        "one on two": {"encoder": {"layers": 2}},
    },
    "stack": {stack: {"both": {"stack": stack}} for stack in ("plain", "residual", "dense")},
    "drop": {
        "all kept": {},
        "dropout": {"both": {"dropout": 0.3}},
        "locked": {"both": {"dropout": 0.3, "locked": True}},
        "weights and words": {"both": {"weight_dropout": 0.4, "embedding_dropout": 0.2}},
    },
    "tokens": {"gold": {}, "sampled": {"decoder": SAMPLED}},
    "size": {"as it is": {}, "scaled": {"both": {"scale_embedding": True}}},
    "embedding": {
        "untied": {},
        "unlike": {"encoder": {"embedding": 4}, "decoder": {"embedding": 7}},
        "output tied": {"tie": "output"},
        "all tied": {"tie": "all"},
    },
}


def case_of(options: Options) -> TranslatorCase | None:
    """None where the recipe is refused."""
    chosen = [each[option] for each, option in zip(CHOICES.values(), options, strict=True)]

    def gathered(*names: str) -> dict[str, Any]:
        return {key: value for name in names for each in chosen for key, value in each.get(name, {}).items()}

    tie = next((each["tie"] for each in chosen if "tie" in each), "none")
    tree = {side: {"width": 6} | gathered("both", side) for side in ("encoder", "decoder")} | {"tie": tie}
    try:
        return TranslatorCase(", ".join(options), TranslatorConfig.model_validate(tree))
    except ValidationError:
        return None


CASES, REFUSED = covering(CHOICES, case_of)
pairwise = pytest.mark.parametrize("case", CASES, ids=name_of)


def test_every_cell_has_its_forms() -> None:
    assert {kind: sum(name.startswith(f"{kind} ") for name in FORMS) for kind in SETTINGS} == {
        "elman": 8, "lstm": 4, "gru": 4, "lstmn": 2,
    }  # fmt: skip


def test_what_is_covered_is_what_can_be() -> None:
    """Pairs that no model has are those that are refused, and these alone."""
    others = [name for name in FORMS if not name.startswith("lstmn ")]
    expected = {(form, "deep fusion") for form in others}
    expected |= {("copy", depth) for depth in ("two on one", "one on two")}
    expected |= {(drop, "sampled") for drop in ("locked", "weights and words")}
    expected |= {("zero", "no attention")}  # but with deep fusion, which is another option
    assert expected == REFUSED


@pairwise
def test_stepwise_equals_teacher_forced(case: TranslatorCase) -> None:
    laws.stepwise_equals_teacher_forced(case)


@pairwise
def test_packed_and_filled_equal_padded(case: TranslatorCase) -> None:
    laws.packed_and_filled_equal_padded(case)


@pairwise
def test_fast_equals_readable(case: TranslatorCase) -> None:
    """In training, where no token is guessed: the same weights and vectors are dropped."""
    laws.fast_equals_readable(case, training="sampled" not in case.name)


@pairwise
def test_every_weight_is_reached(case: TranslatorCase) -> None:
    laws.every_weight_is_reached(case)
