"""What of a row has been trained, what validation chose of it, and what is to be trained next.

The ledger is the folder of results itself: one JSON for each setting, with every training that was made of it.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.row import Ensemble, Row, Setting
from saccade.train.loop import is_better


@dataclass(frozen=True)
class Job:
    """One training: a point of a setting's grid with a seed."""

    setting: Setting
    point: tuple[str, ...]
    seed: int

    @property
    def settings(self) -> list[str]:
        return [*self.setting.changes, *self.point]

    @property
    def name(self) -> str:
        """As a folder and a log call it."""
        number = self.setting.points.index(self.point) + 1
        return f"{slug(self.setting.name)}-{number}-{self.seed}"


@dataclass(frozen=True)
class JointJob:
    """An ensemble of trained runs: nothing is trained."""

    ensemble: Ensemble
    seed: int
    members: tuple[Job, ...]

    @property
    def name(self) -> str:
        return f"{slug(self.ensemble.name)}-{self.seed}"


class Ledger:
    """The results of one row in a folder. `extra` are changes that this call gives to every training."""

    def __init__(self, row: Row, folder: Path, extra: tuple[str, ...] = ()) -> None:
        self.row, self.folder, self.extra = row, folder, extra
        names = [*(each.name for each in row.settings), *(each.name for each in row.ensembles)]
        self._trials: dict[str, list[dict[str, Any]]] = {name: self._read(name) for name in names}
        self.alone: dict[str, dict[str, Any]] = {}
        for setting in row.settings:
            if found := self._content(setting.name).get("alone"):
                self.alone[setting.name] = found

    def path(self, name: str) -> Path:
        return self.folder / f"{self.row.name}-{slug(name)}.json"

    def _content(self, name: str) -> dict[str, Any]:
        path = self.path(name)
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return content

    def _read(self, name: str) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self._content(name).get("trials", [])
        return trials

    def trial(self, job: Job) -> dict[str, Any] | None:
        """What came of a job; the last one where it was trained twice."""
        wanted = [*job.settings, *self.extra]
        return next(
            (
                each
                for each in reversed(self._trials[job.setting.name])
                if each["settings"] == wanted and each["seed"] == job.seed and self._is_after(each, job.setting)
            ),
            None,
        )

    def _is_after(self, trial: dict[str, Any], setting: Setting) -> bool:
        """Whether what was trained before it, if anything, is what the setting wants."""
        told, wanted = trial.get("first"), setting.first
        if told is None or wanted is None:
            return told is wanted
        return (told["recipe"], told["settings"]) == (wanted.recipe, [*wanted.changes, *self.extra])

    def joint(self, ensemble: Ensemble, seed: int) -> dict[str, Any] | None:
        return next((each for each in self._trials[ensemble.name] if each["seed"] == seed), None)

    def chosen(self, setting: Setting) -> tuple[str, ...] | None:
        """The point that is best on the validation data with the first seed; None while one of them is untrained."""
        best: dict[str, float] = {}
        choice = setting.points[0]
        for point in setting.points:
            trial = self.trial(Job(setting, point, setting.seeds[0]))
            if trial is None:
                return None
            if trial["valid"] and is_better(trial["valid"], best, trial["metric"]):  # nothing: it diverged at once
                best, choice = trial["valid"], point
        return choice

    def runs(self, setting: Setting) -> list[dict[str, Any]]:
        """What is reported: the chosen point with every seed that was trained."""
        point = self.chosen(setting)
        if point is None:
            return []
        found = (self.trial(Job(setting, point, seed)) for seed in setting.seeds)
        return [trial for trial in found if trial is not None]

    def joint_runs(self, ensemble: Ensemble) -> list[dict[str, Any]]:
        found = (self.joint(ensemble, seed) for seed in ensemble.seeds)
        return [trial for trial in found if trial is not None]

    def due(self, kept: set[str]) -> Iterator[Job | JointJob]:
        """What can be done now; `kept` are the names of jobs whose run folders are there."""
        for setting in self.row.settings:
            for point in setting.points:
                job = Job(setting, point, setting.seeds[0])
                if self.trial(job) is None:
                    yield job
            if (choice := self.chosen(setting)) is not None:
                further = (Job(setting, choice, seed) for seed in setting.seeds[1:])
                yield from (job for job in further if self.trial(job) is None)
        for ensemble in self.row.ensembles:
            for seed in ensemble.seeds:
                if self.joint(ensemble, seed) is None:
                    yield from self._joint_due(ensemble, seed, kept)

    def _joint_due(self, ensemble: Ensemble, seed: int, kept: set[str]) -> Iterator[Job | JointJob]:
        members = []
        for name in ensemble.members:
            setting = self.row.setting(name)
            choice = self.chosen(setting)
            if choice is None or self.trial(Job(setting, choice, seed)) is None:
                return
            members.append(Job(setting, choice, seed))
        lost = [member for member in members if member.name not in kept]
        yield from lost  # trained in an earlier call, whose runs are gone: once more
        if not lost:
            yield JointJob(ensemble, seed, tuple(members))

    def record(self, job: Job | JointJob, told: dict[str, Any]) -> None:
        name = job.setting.name if isinstance(job, Job) else job.ensemble.name
        self._trials[name].append(told)
        self._write(name)

    def record_alone(self, setting: Setting, told: dict[str, Any]) -> None:
        kept = ("target_tokens_per_second", "updates", "environment", "commit")
        self.alone[setting.name] = {key: told[key] for key in kept}
        self._write(setting.name)

    def _write(self, name: str) -> None:
        content: dict[str, Any] = {"row": self.row.name, "setting": name}
        if setting := next((each for each in self.row.settings if each.name == name), None):
            choice = self.chosen(setting)
            content |= {"year": setting.year, "recipe": setting.recipe or setting.program}
            content |= {"grid": setting.points, "chosen": choice, "alone": self.alone.get(name)}
        else:
            ensemble = next(each for each in self.row.ensembles if each.name == name)
            content |= {"year": ensemble.year, "members": ensemble.members}
        content |= {"trials": self._trials[name]}
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        unfinished = self.path(name).with_suffix(".json.new")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, self.path(name))


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("×", "x")).strip("-")
