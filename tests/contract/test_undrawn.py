"""A model that is filled with weights needs no first ones: built without them and filled, it is the same model."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import saccade
from saccade.models.build import (
    build_classifier,
    build_language_model,
    build_masked,
    build_tagger,
    build_translator,
)
from saccade.weights import Undrawn, kept, model_tensors, restore_model
from tests import classifier_cases, language_cases, masked_cases
from tests.cases import every_translator
from tests.support.cli import ROOT, parsed, write_corpus
from tests.tagger_cases import TAGS, every_tagger

Build = Callable[[], nn.Module]


def builders() -> dict[str, Build]:
    made: dict[str, Build] = {}

    def add(kind: str, case: Any, build: Callable[..., nn.Module], *sizes: Any) -> None:
        made[f"{kind}: {case.name}"] = lambda: build(case.config, *sizes)

    for translator in every_translator():
        add("translator", translator, build_translator, *translator.vocabularies)
    for language in language_cases.every_language_model():
        add("language model", language, build_language_model, language_cases.VOCABULARY)
    for masked in masked_cases.every_masked_model():
        add("masked", masked, build_masked, masked_cases.VOCABULARY)
    for classifier in classifier_cases.every_classifier():
        add("classifier", classifier, build_classifier, classifier_cases.VOCABULARY, classifier_cases.LABELS)
    for tagger in every_tagger():
        add("tagger", tagger, build_tagger, tagger.sizes, TAGS.steps())
    return made


BUILDERS = builders()


@pytest.mark.parametrize("name", BUILDERS)
def test_undrawn_and_filled_is_the_model(name: str) -> None:
    """Nothing is drawn; every weight has its place; what is made of settings alone is made."""
    model = BUILDERS[name]()
    before = torch.get_rng_state()
    with Undrawn():
        blank = BUILDERS[name]()
    assert torch.equal(torch.get_rng_state(), before)
    for parameter in blank.parameters():
        parameter.data.fill_(torch.nan)
    restore_model(blank, model_tensors(model), "memory")
    for some, other in (
        (blank.named_parameters(), model.named_parameters()),
        (blank.named_buffers(), model.named_buffers()),
    ):
        ours, theirs = dict(some), dict(other)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[each], theirs[each]) for each in ours)


@pytest.mark.parametrize("name", BUILDERS)
def test_undrawn_shapes_are_the_models(name: str) -> None:
    with Undrawn(), torch.device("meta"):
        shapes = kept(BUILDERS[name]())
    expected = kept(BUILDERS[name]())
    assert {each: (tensor.shape, tensor.dtype) for each, tensor in shapes.items()} == {
        each: (tensor.shape, tensor.dtype) for each, tensor in expected.items()
    }


WITHOUT_COMPILER = """
import os, sys, torch, traceback
sys.exit("torch imports it by itself") if "torch._dynamo" in sys.modules else None

class Refused:
    def find_spec(name, path=None, target=None):
        if name == "torch._dynamo":
            traceback.print_stack()
            os._exit(1)  # no `except` keeps it quiet

sys.meta_path.insert(0, Refused)
"""


@pytest.mark.skipif(
    tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13),
    reason="an older torch imports its compiler without being asked",
)
def test_no_run_needs_torchs_compiler_to_be_used_and_no_model_to_be_measured(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    saccade.train(parsed(recipe.read_text()), tmp_path / "run", device="cpu", base=tmp_path)
    code = (
        f"import saccade\nsaccade.load({str(tmp_path / 'run')!r}, 'cpu').translate(['ab'])\n"
        "from saccade.weights import Undrawn\n"
        "from tests.contract.test_undrawn import BUILDERS\n"
        "for build in BUILDERS.values():\n"
        "    with Undrawn(), torch.device('meta'):\n"
        "        build()\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER + code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
