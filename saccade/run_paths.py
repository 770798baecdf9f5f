"""Which paths are runs, and which a checkpoint of one; known without torch."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from saccade.errors import UsageError

RECIPE = "train.yaml"
CHECKPOINTS = "checkpoints"
STEP = "step-"
ENVIRONMENT = "environment.json"
TEMPORARY = ".tmp-"
"""Before the name of what is not whole yet."""


class Located(NamedTuple):
    """What a path stands for, where it is to be a run or a checkpoint of one."""

    run: Path
    """The run's folder; the path itself where it is neither."""
    step: int | None
    """The update of the checkpoint; None: the run itself, or whatever the path is."""

    @property
    def weights(self) -> Path:
        """The folder that holds them."""
        return self.run if self.step is None else self.run / CHECKPOINTS / f"{STEP}{self.step}"


def is_run(path: Path) -> bool:
    """A recipe of one's own may be called train.yaml, too: where the data lie must not be taken for a run."""
    return (path / RECIPE).is_file() and (path / CHECKPOINTS).is_dir()


def is_bare(path: Path) -> bool:
    """Empty, or left by a run that was killed before it had written its recipe. What is somebody else's never is."""
    return all(
        each.name.startswith(TEMPORARY) or _is_empty_checkpoints(each) or _is_first_note(each)
        for each in path.iterdir()
    )


def _is_empty_checkpoints(path: Path) -> bool:
    return path.name == CHECKPOINTS and path.is_dir() and not any(path.iterdir())


def _is_first_note(path: Path) -> bool:
    """What a run writes of the machine, beside its folder of checkpoints, and not another file of that name."""
    if path.name != ENVIRONMENT or not path.is_file() or not (path.parent / CHECKPOINTS).is_dir():
        return False
    try:
        noted = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(noted, dict) and {"saccade", "base", "sha256"} <= noted.keys()


def update_of(folder: Path) -> int | None:
    """The update that a checkpoint's folder is named for; None where it is not named so."""
    number = folder.name.removeprefix(STEP)
    return int(number) if folder.name.startswith(STEP) and number.isdecimal() else None


def located(path: Path) -> Located:
    """A checkpoint is RUN/checkpoints/step-N; it may be gone."""
    told = path if len(path.parts) > 2 and ".." not in path.parts else Path(os.path.abspath(path))
    step, run = update_of(told), told.parent.parent
    if step is None or told.parent.name != CHECKPOINTS or told.name != f"{STEP}{step}" or not is_run(run):
        return Located(path, None)
    return Located(run, step)


def run_of(path: Path) -> Path:
    """The run of a checkpoint; any other path as it is."""
    return located(path).run


def no_run(path: Path, why: str) -> UsageError:
    """For what needs a whole run and was given something else; `why` it is none."""
    if located(path).step is not None:
        return UsageError(f"{path}: is a checkpoint; what is asked for needs its run, {run_of(path)}.")
    return UsageError(f"{path}: is no run folder ({why}). `saccade runs list` shows those there are.")


def no_checkpoint(path: Path) -> UsageError:
    """For one that is gone, or was never there."""
    run = run_of(path)
    found = sorted(update for each in (run / CHECKPOINTS).iterdir() if (update := update_of(each)) is not None)
    there = ", ".join(f"{STEP}{update}" for update in found) or "none"
    return UsageError(f"{path}: is not there. Checkpoints of {run}: {there}; train.keep says how many stay.")
