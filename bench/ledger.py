"""What of a row has been trained, what validation chose of it, and what is to be trained next.

The ledger is the folder of results itself: one JSON for each setting, with every training that was made of it.
"""

import fcntl
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import saccade.recipes
from bench.row import Ensemble, Row, Setting
from saccade import presets
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
        contents = {name: self._content(name) for name in names}
        self._trials: dict[str, list[dict[str, Any]]] = {name: contents[name].get("trials", []) for name in names}
        self._alone = {name: content.get("alone") for name, content in contents.items()}
        self._origins = {setting.name: _origin(setting) for setting in row.settings}

    def path(self, name: str) -> Path:
        return self.folder / f"{self.row.name}-{slug(name)}.json"

    def _content(self, name: str) -> dict[str, Any]:
        path = self.path(name)
        if not path.exists():
            return {}
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            sys.exit(f"{path}: is no JSON ({error}). Restore it, or remove it: its trainings are then made again.")
        return content

    def trial(self, job: Job) -> dict[str, Any] | None:
        """What came of a job; the last one where it was trained twice."""
        found = self._found(job)
        return found[-1] if found else None

    def first_trial(self, job: Job) -> dict[str, Any] | None:
        """What a point is chosen by: a member that is trained again for its ensemble moves no choice."""
        found = self._found(job)
        return found[0] if found else None

    def _found(self, job: Job) -> list[dict[str, Any]]:
        wanted = [*job.settings, *self.extra]
        return [
            each
            for each in self._trials[job.setting.name]
            if each["settings"] == wanted
            and each["seed"] == job.seed
            and each["origin"] == self._origins[job.setting.name]
        ]

    def joint(self, ensemble: Ensemble, seed: int) -> dict[str, Any] | None:
        """What came of an ensemble of the members that are chosen now."""
        if (members := self._members(ensemble, seed)) is None:
            return None
        names = [self.folder_name(member) for member in members]
        return next((each for each in self._trials[ensemble.name] if each["members"] == names), None)

    def _members(self, ensemble: Ensemble, seed: int) -> tuple[Job, ...] | None:
        """None while one of them is untrained."""
        members = []
        for name in ensemble.members:
            setting = self.row.setting(name)
            choice = self.chosen(setting)
            if choice is None or self.trial(Job(setting, choice, seed)) is None:
                return None
            members.append(Job(setting, choice, seed))
        return tuple(members)

    def folder_name(self, job: Job) -> str:
        """Of the run of a job, wherever it is kept: no other training has it."""
        made_of = [self.row.name, self._origins[job.setting.name], *job.settings, *self.extra]
        return f"{job.name}-{_digest(made_of)}"

    def chosen(self, setting: Setting) -> tuple[str, ...] | None:
        """The point that is best on the validation data with the first seed; None while one of them is untrained."""
        best: dict[str, float] = {}
        choice = setting.points[0]
        for point in setting.points:
            trial = self.first_trial(Job(setting, point, setting.seeds[0]))
            if trial is None:
                return None
            if trial["valid"] and is_better(trial["valid"], best, trial["metric"]):  # nothing: it diverged at once
                best, choice = trial["valid"], point
        return choice

    def runs(self, setting: Setting) -> list[dict[str, Any]]:
        """What is reported: the chosen point with every seed that was trained and did not diverge at once."""
        return [self._in_order(trial) for trial in self._at_choice(setting) if trial["scores"]]

    def _in_order(self, trial: dict[str, Any]) -> dict[str, Any]:
        """The row's own score first."""
        names = [score["name"] for score in trial["scores"]]
        if self.row.score not in (None, *names):
            sys.exit(
                f"bench/rows/{self.row.name}.yaml: score is {self.row.score!r}; its trials have {', '.join(names)}."
            )
        return trial | {"scores": sorted(trial["scores"], key=lambda score: score["name"] != self.row.score)}

    def diverged(self, setting: Setting) -> int:
        """How many seeds of the chosen point came to nothing."""
        return sum(not trial["scores"] for trial in self._at_choice(setting))

    def _at_choice(self, setting: Setting) -> list[dict[str, Any]]:
        point = self.chosen(setting)
        if point is None:
            return []
        found = (self.trial(Job(setting, point, seed)) for seed in setting.seeds)
        return [trial for trial in found if trial is not None]

    def alone(self, setting: Setting) -> dict[str, Any] | None:
        """What it does with the machine to itself; of a setting that was another then, nothing is known."""
        found = self._alone[setting.name]
        return found if found and found.items() >= self._which(setting).items() else None

    def _which(self, setting: Setting) -> dict[str, Any]:
        return {"origin": self._origins[setting.name], "changes": list(setting.changes)}

    def is_whole(self, setting: Setting) -> bool:
        """Every point of the grid is trained, and every seed of the one that was chosen."""
        return self.chosen(setting) is not None and len(self._at_choice(setting)) == len(setting.seeds)

    def missing(self) -> list[str]:
        """What has not been trained to its end, and how far it is."""
        told = []
        for setting in self.row.settings:
            tried = sum(self.trial(Job(setting, point, setting.seeds[0])) is not None for point in setting.points)
            seeds = len(self._at_choice(setting))
            if tried < len(setting.points):
                told.append(f"{setting.name} ({tried} of {len(setting.points)} points)")
            elif seeds < len(setting.seeds):
                told.append(f"{setting.name} ({seeds} of {len(setting.seeds)} seeds)")
        for ensemble in self.row.ensembles:
            possible = [seed for seed in ensemble.seeds if not self._lacks_a_member(ensemble, seed)]
            if (seeds := len(self.joint_runs(ensemble))) < len(possible):
                told.append(f"{ensemble.name} ({seeds} of {len(possible)} seeds)")
        return told

    def hopeless(self) -> list[str]:
        """What will never have a score: every seed of a setting, or a member of an ensemble, diverged at once."""
        settings = [
            each.name
            for each in self.row.settings
            if self.diverged(each) == len(each.seeds)  # at the point that was chosen
        ]
        joint = [each for each in self.row.ensembles if all(self._lacks_a_member(each, seed) for seed in each.seeds)]
        return settings + [ensemble.name for ensemble in joint]

    def _lacks_a_member(self, ensemble: Ensemble, seed: int) -> bool:
        """Whether one of them was trained and came to nothing."""
        members = self._members(ensemble, seed)
        return members is not None and not all((self.trial(member) or {})["scores"] for member in members)

    def joint_runs(self, ensemble: Ensemble) -> list[dict[str, Any]]:
        found = (self.joint(ensemble, seed) for seed in ensemble.seeds)
        return [self._in_order(trial) for trial in found if trial is not None]

    def due(self, kept: set[str]) -> Iterator[Job | JointJob]:
        """What can be done now; `kept` are the names of the run folders that are there."""
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

    def ahead(self, number: int) -> Iterator[Job]:
        """Further seeds of each setting's point of that number, before it is known whether validation chooses it."""
        for setting in self.row.settings:
            if number <= len(setting.points) and self.chosen(setting) is None:
                jobs = [Job(setting, setting.points[number - 1], seed) for seed in setting.seeds[1:]]
                yield from (job for job in jobs if self.trial(job) is None)

    def _joint_due(self, ensemble: Ensemble, seed: int, kept: set[str]) -> Iterator[Job | JointJob]:
        members = self._members(ensemble, seed)
        if members is None or self._lacks_a_member(ensemble, seed):
            return
        lost = [member for member in members if self.folder_name(member) not in kept]
        yield from lost  # trained in an earlier call, whose runs are gone: once more
        if not lost:
            yield JointJob(ensemble, seed, members)

    def record(self, job: Job | JointJob, told: dict[str, Any]) -> None:
        if isinstance(job, Job):
            name, told = job.setting.name, told | {"origin": self._origins[job.setting.name]}
        else:
            name, told = job.ensemble.name, told | {"members": [self.folder_name(each) for each in job.members]}
        with self._as_it_is_now(name):
            self._trials[name].append(told)

    def record_alone(self, setting: Setting, told: dict[str, Any]) -> None:
        kept = ("target_tokens_per_second", "updates", "environment", "commit")
        with self._as_it_is_now(setting.name):
            self._alone[setting.name] = {key: told[key] for key in kept} | self._which(setting)

    @contextmanager
    def _as_it_is_now(self, name: str) -> Iterator[None]:
        """Others may record beside us: what they wrote is read before, and stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._content(name)
            self._trials[name] = content.get("trials", [])
            self._alone[name] = content.get("alone")
            yield
            self._write(name)
        finally:
            os.close(lock)

    def _write(self, name: str) -> None:
        content: dict[str, Any] = {"row": self.row.name, "setting": name}
        if setting := next((each for each in self.row.settings if each.name == name), None):
            content |= {"year": setting.year, "recipe": setting.recipe or setting.program}
            content |= {"grid": setting.points, "chosen": self.chosen(setting), "alone": self._alone[name]}
        else:
            ensemble = next(each for each in self.row.ensembles if each.name == name)
            content |= {"year": ensemble.year, "members": ensemble.members}
        text = json.dumps(content | {"trials": self._trials[name]}, indent=2, ensure_ascii=False) + "\n"
        unfinished = self.path(name).with_suffix(".json.new")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, self.path(name))


def _origin(setting: Setting) -> str:
    """Of what is trained, before any change: another recipe of the same name is another training, a peer's as well."""
    first = setting.first
    named = [(setting.recipe, setting.changes), (first.recipe, first.changes) if first else (None, ())]
    if beside := _given(setting.changes, "recipe"):
        named.append((beside[-1], setting.changes))
    trees = [None if name is None else _tree(name, changes) for name, changes in named]
    return _digest([setting.program, *trees, *(first.changes if first else ())])


def _given(changes: Sequence[str], name: str) -> list[Any]:
    """What changes give to the setting of that name; the last counts."""
    parts = (change.partition("=") for change in changes)
    return [yaml.safe_load(value) for key, _, value in parts if key.strip() == name]


def _tree(recipe: str, changes: Sequence[str]) -> dict[str, Any]:
    """With what its preset says, or another preset in its place."""
    tree: dict[str, Any] = yaml.safe_load(_recipe_text(recipe))
    given = _given(changes, presets.KEY)
    return presets.resolved(tree | ({presets.KEY: given[-1]} if given else {}))


def _recipe_text(name: str) -> str:
    return (Path(saccade.recipes.__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")


def _digest(made_of: list[Any]) -> str:
    text = json.dumps(made_of, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("×", "x")).strip("-")
