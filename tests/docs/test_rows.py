"""Every row of the results table can be trained as it is written."""

import pytest

from bench.row import Row, Setting, read_row, row_names
from saccade.metrics.names import METRICS
from saccade.recipe import load_recipe

ROWS = [read_row(name) for name in row_names()]
SETTINGS = [(row, setting) for row in ROWS for setting in row.settings]


@pytest.mark.parametrize(("row", "setting"), SETTINGS, ids=[f"{row.name}: {each.name}" for row, each in SETTINGS])
def test_a_setting_is_a_recipe_at_every_point_of_the_grid(row: Row, setting: Setting) -> None:
    assert setting.seeds
    assert (setting.recipe is None) != (setting.program is None)
    for point in setting.points:
        if setting.recipe:
            recipe, _ = load_recipe(setting.recipe, (*setting.changes, *point, f"seed={setting.seeds[0]}"))
            assert recipe.seed == setting.seeds[0]
    if setting.first:
        assert any("{first}" in change for change in setting.changes)
        load_recipe(setting.first.recipe, setting.first.changes)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_names_are_known_and_their_own(row: Row) -> None:
    names = [*(each.name for each in row.settings), *(each.name for each in row.ensembles)]
    assert len(set(names)) == len(names)
    assert set(row.metrics or ()) <= set(METRICS)
    for ensemble in row.ensembles:
        assert all(set(ensemble.seeds) <= set(row.setting(member).seeds) for member in ensemble.members)
