"""Rows of the results table that are made up, and their runner."""

import argparse
from pathlib import Path
from typing import Any

import yaml

from bench.ledger import Ledger
from bench.results import Runner
from bench.results_page import page
from bench.row import Row, read_row

GRID = [["score=1"], ["score=3"], ["score=2"]]


def make_row(folder: Path, **fields: Any) -> Row:
    settings = fields.pop("settings", [{"name": "A × 1"}, {"name": "B"}])
    settings = [{"program": "tests.support.fake_trial", "seeds": [1, 2, 3], "year": 2014} | each for each in settings]
    content = {"title": "A row", "settings": settings, "tune": GRID} | fields
    (folder / "made.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return read_row("made", folder)


def run(row: Row, folder: Path, **given: Any) -> tuple[Ledger, Runner]:
    options: dict[str, Any] = {
        "set": [],
        "jobs": 2,
        "device": "cpu",
        "minutes": None,
        "only": [],
        "share": None,
        "ahead": None,
        "prepared": None,
    } | given
    ledger = Ledger(row, folder / "out", tuple(options["set"]))
    runner = Runner(row, ledger, argparse.Namespace(**options), folder / "keep")
    runner.work()
    return ledger, runner


def told_page(ledger: Ledger) -> str:
    text = page(ledger)
    assert text is not None
    return text
