"""Which paths are runs, and which a checkpoint of one; known without torch."""

import os
from pathlib import Path

RECIPE = "train.yaml"
CHECKPOINTS = "checkpoints"
STEP = "step-"


def is_run(path: Path) -> bool:
    """A recipe of one's own may be called train.yaml, too: where the data lie must not be taken for a run."""
    return (path / RECIPE).is_file() and (path / CHECKPOINTS).is_dir()


def update_of(folder: Path) -> int | None:
    """The update that a checkpoint's folder is named for; None where it is not named so."""
    number = folder.name.removeprefix(STEP)
    return int(number) if folder.name.startswith(STEP) and number.isdecimal() else None


def run_of(path: Path) -> Path:
    """The run of a checkpoint in its place (RUN/checkpoints/step-N), which may be gone; any other path as it is."""
    whole = path if len(path.parts) > 2 and ".." not in path.parts else Path(os.path.abspath(path))
    if update_of(whole) is None or whole.parent.name != CHECKPOINTS or not is_run(whole.parent.parent):
        return path
    return whole.parent.parent


def step_of(path: Path) -> int | None:
    """The update of the checkpoint that the path names; None where it is a run, or something else."""
    return None if run_of(path) == path else update_of(path)
