"""The front page of the results: the protocol, and for every row its best setting beside the published numbers.

python -m bench.index [--results docs/results]
"""

import argparse
import statistics
from pathlib import Path

from bench.ledger import Ledger
from bench.row import Row, read_row, row_names
from saccade.cli.words import metric_name
from saccade.train.settings import LOWER_IS_BETTER
from saccade.view.table import markdown

PROTOCOL = """\
# Results

One protocol for every row, so that the lines of a table can be compared with each other:

- **One command.** `make results ROW=name` trains and scores a row; what a row trains stands in
  `bench/rows/name.yaml`, as recipes of the package and changes to them. Each training is a process of its own;
  `JOBS` of them share the machine, of several rows where `ROW` names several (`bench/together.py`).
- **One grid.** Where a row has `tune`, every setting is trained at the same points of the same grid with its first
  seed. The point that is best on the validation data is trained with the other seeds; these and the first are reported.
  Test data choose nothing: not the point, not the checkpoint, not the number of updates. (Tiny Shakespeare alone has no
  test part, and others score its validation part; its page says so.) Of several settings, the
  table below and README's second and third columns show the one with the best score on the test data; nothing else is
  chosen so.
- **Published numbers stand beside ours**, and a page says how their conditions differ. Where we are clearly below one,
  it tells what was tried to find out why, and what came of it, or that nothing was tried yet.
- **Seeds are shown.** A page gives the mean over the seeds with their standard deviation, then every seed with its
  own interval over the test lines.
- **Budgets are updates.** Trainings share a card, so none is cut by the clock unless its page says so. Settings of a
  row need not have equally many: recurrent models have fewer than Transformers on Multi30k (at most 3,500 and
  5,000) and CMUdict (10,000 and 20,000); a page has them in its column `updates`.
- **Every training is kept** that was made with a row as it stands: the JSON beside a page has the points that lost,
  too, with changes, seed, validation and test scores, costs, versions and commit. Trainings of earlier versions of a
  row are in the repository's history. Further trials that findings tell of have no JSON.
- **Cost is measured apart.** `--alone` times the later 300 of 600 updates of each setting with the machine to itself.

`make results-quick` does all of it in minutes on a CPU, with generated data. `python -m bench.lineage ROW` draws a
row. The same command, given again, trains what is missing; `OUT=docs/results` goes on with what is recorded here.
Data are found by `SACCADE_DATA` (`saccade data list`); settings with GloVe read a file that `bench/vectors.py` makes.
"""

WITHOUT_A_GRID = """\
Rows of one point have no grid: their settings are given, as published or by the recipe.
"""


_HIGHEST = "best on the test data"


def front_page(rows: list[Row], folder: Path) -> str:
    lines = []
    for row in rows:
        ledger = Ledger(row, folder)
        page = folder / f"{row.name}.md"
        title = f"[{row.title}]({page.name})" if page.exists() else row.title
        whole = [setting for setting in row.settings if ledger.is_whole(setting)]
        cells = {"row": f"`{row.name}`", "what": title, "settings": str(len(row.settings))}
        cells["points"] = str(len(row.settings[0].points))
        cells["finished"] = f"{len(whole)} of {len(row.settings)}"
        cells[_HIGHEST] = "" if ledger.missing() else _best(ledger)
        lines.append(cells)
    table = markdown(lines, ["row", "what", "settings", "points", "finished", _HIGHEST])
    return f"{PROTOCOL}\n{table}\n\n{WITHOUT_A_GRID}"


def _best(ledger: Ledger) -> str:
    """The setting or ensemble with the best mean of the row's score, and over how many seeds where that is one."""
    done = [(each.name, ledger.runs(each)) for each in ledger.row.settings]
    done += [(each.name, ledger.joint_runs(each)) for each in ledger.row.ensembles]
    found = []
    for name, runs in done:
        if runs and runs[0]["scores"]:
            mean = statistics.mean(run["scores"][0]["value"] for run in runs)
            found.append((mean, runs[0]["scores"][0]["name"], name, len(runs)))
    if not found:
        return ""
    less = found[0][1] in {metric_name(key) for key in LOWER_IS_BETTER}
    value, metric, name, seeds = min(found) if less else max(found)
    return f"{name}: {metric} {value:.2f}{' (one seed)' if seeds == 1 else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.index")
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    if not options.results.is_dir():
        parser.error(f"--results is {options.results}, which is no folder")
    rows = [read_row(name) for name in row_names()]
    path = options.results / "README.md"
    path.write_text(front_page(rows, options.results), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
