"""The demo from end to end, shortened: table, verdict, translations and pictures."""

from pathlib import Path

from saccade.lab.bottleneck import CONTESTANTS
from tests.support.cli import saccade_command


def test_the_demo_prints_one_table_and_draws_every_picture(tmp_path: Path) -> None:
    small = ["data.train=400", "data.valid=20", "data.test=120", "train.validate_every=1000"]
    out = tmp_path / "demo"
    settings = [part for each in small for part in ("--set", each)]
    done = saccade_command("demo", "--seconds", "1", "--out", out, "-q", *settings)
    assert done.exit_code == 0, done.output
    for contestant in CONTESTANTS:
        assert contestant.name in done.stdout
        assert (out / contestant.recipe / "model.safetensors").is_file()
    assert "120 dates on days never trained on" in done.stdout
    assert "The bottleneck is" in done.stdout
    pictures = {path.name for path in out.iterdir() if path.suffix in (".png", ".html")}
    assert {"attention.html", "attention-1.png", "attention-2.png", "attention-2-heads.png"} <= pictures
    for name in pictures:
        assert str(out / name) in done.stdout
