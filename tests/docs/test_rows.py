"""Every row of the results table can be trained as it is written."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from saccade.metrics.names import METRICS
from saccade.recipe import load_recipe

ROWS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "bench" / "rows.yaml").read_text(encoding="utf-8"))
SETTINGS = [(row, setting) for row, content in ROWS.items() for setting in content["settings"]]


@pytest.mark.parametrize(("row", "setting"), SETTINGS, ids=[f"{row}: {each['name']}" for row, each in SETTINGS])
def test_a_setting_is_a_recipe(row: str, setting: dict[str, Any]) -> None:
    given = (*ROWS[row].get("set", ()), *setting.get("set", ()))
    for seed in setting["seeds"]:
        recipe, _ = load_recipe(setting["recipe"], (*given, f"seed={seed}"))
        assert recipe.seed == seed


def test_settings_have_names_of_their_own_and_metrics_are_known() -> None:
    for row, content in ROWS.items():
        names = [setting["name"] for setting in content["settings"]]
        assert len(set(names)) == len(names), row
        assert set(content.get("metrics", ())) <= set(METRICS)
