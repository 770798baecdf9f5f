"""The wheel, away from the checkout, has everything it needs."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_trains_translates_and_draws_outside_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("saccade-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        assert not [name for name in archive.namelist() if name.startswith(("tests", "bench", "docs"))]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process would compile the package anew

    def saccade(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "saccade.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = ["train.updates=2", "data.train=300", "data.valid=20", "data.test=20", "train.validate_every=2"]
    saccade("train", "dates", *(part for each in small for part in ("--set", each)))
    assert saccade("translate", "runs/dates", "3 mars 1999").count("\n") == 1
    saccade("explain", "runs/dates", "3 mars 1999", "-o", "attention.html")
    assert "<canvas" in (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "train.updates" in saccade("settings", "train")
    assert "preset: luong-2015" in saccade("init", "luong-2015", "-o", "-")
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import saccade; print(saccade.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(tmp_path))
