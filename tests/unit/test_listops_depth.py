"""How deep one has to read ListOps: what is left of an expression without its deeper lists."""

import sys

import pytest

from bench import listops_depth
from bench.listops_depth import known
from saccade.data.listops import ListOpsData

EXPRESSION = ["MAX", "2", "SM", "4", "MIN", "9", "8", "X", "X", "3", "X"]


@pytest.mark.parametrize(
    ("depth", "value"),
    [
        (0, None),  # the operator alone
        (1, 3),  # MAX 2 3
        (2, 4),  # MAX 2 (SM 4) 3
        (3, 3),  # MAX 2 (SM 4 8 = 2) 3
        (9, 3),
    ],
)
def test_lists_below_the_depth_are_left_out(depth: int, value: int | None) -> None:
    assert known(EXPRESSION, depth) == ("MAX", value)


def test_the_whole_expression_is_always_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(train: int, keep: str | None) -> ListOpsData:
        return ListOpsData(train=train, test=50, depth=4, shortest=5, longest=60, keep=keep)

    monkeypatch.setattr(listops_depth, "ListOpsData", short)
    monkeypatch.setattr(sys, "argv", ["listops_depth", "--train", "500"])
    listops_depth.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    accuracies = [float(accuracy) for _, accuracy in lines]
    assert [depth for depth, _ in lines] == ["0", "1", "2", "3"]
    assert accuracies[-1] == 100.0 > accuracies[0]
