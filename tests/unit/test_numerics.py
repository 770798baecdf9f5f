"""What a training sets for the whole process, and that it puts everything back."""

import os

import pytest
import torch

from saccade.train.numerics import numerics
from saccade.train.settings import Precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")  # nothing is computed: no GPU is needed


def standing() -> tuple[str, bool, bool, float]:
    tiny = torch.full((), 1e-30) * 1e-10
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
        tiny.item(),
    )


@pytest.mark.parametrize(("precision", "products"), [("fp32", "highest"), ("tf32", "high"), ("bf16", "highest")])
def test_products_are_as_precise_as_asked_for_and_then_as_before(precision: Precision, products: str) -> None:
    before = standing()
    with numerics(precision, CUDA):
        assert torch.get_float32_matmul_precision() == products
        assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
        assert not torch.are_deterministic_algorithms_enabled()
    assert standing() == before


def test_the_tiniest_numbers_are_zero_while_it_lasts_even_if_it_fails() -> None:
    before = standing()
    assert before[3] > 0

    def failing() -> None:
        with numerics("fp32", CPU):
            assert standing()[3] == 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert standing() == before


def test_determinism_is_asked_of_a_gpu_alone_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is put back
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    before = standing()
    with numerics("fp32", CPU, deterministic=True):
        assert not torch.are_deterministic_algorithms_enabled()
    with numerics("fp32", CUDA, deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert standing() == before
