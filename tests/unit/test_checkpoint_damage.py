"""Two thousand flipped bits and cut ends, over every file that loading or resuming reads: each is refused by name."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import saccade
from saccade import checkpoint
from saccade.checkpoint import RunFolder
from saccade.errors import SaccadeError
from saccade.recipe import Recipe
from saccade.train.events import Prepared
from saccade.train.prepared import PreparedTokens
from saccade.train.ready import made_of
from saccade.train.run import run as run_job
from tests.support.cli import saccade_command
from tests.support.folders import CPU
from tests.support.tiny import notes, recipe, write_corpus

DAMAGES = 2000
PUBLISHED = ("config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_target.json")
STORE = ("manifest.json", "store.json", "source.bin", "source.idx", "target.bin", "target.idx")
STEP = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")
TO_RESUME = (
    "train.yaml",
    *(f"data/{split}/{name}" for split in ("train", "valid") for name in STORE),
    "data/valid/text.bin",
    "data/valid/text.idx",
    *(f"checkpoints/step-4/{name}" for name in STEP),
)
UNREAD = ("README.md", "metrics.jsonl")
"""Nothing is made of these: the card is for people, the log is only written on."""


@dataclass(frozen=True)
class Trained:
    path: Path
    recipe: Recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    corpus = write_corpus(folder / "corpus", train=40, valid=6)
    model = {side: {"kind": "gru", "width": 2} for side in ("encoder", "decoder")}
    chosen = recipe(corpus, model, "text.shared=false", "train.updates=4", "train.keep=1", "train.fingerprint=false")
    return Trained(saccade.train(chosen, folder / "run", device="cpu").path, chosen)


@pytest.fixture
def run(trained: Trained, tmp_path: Path) -> Trained:
    return Trained(Path(shutil.copytree(trained.path, tmp_path / "run")), trained.recipe)


def load(run: Trained) -> None:
    checkpoint.load(run.path, CPU)


def resume(run: Trained) -> None:
    """Up to where the training would go on."""
    job = run.recipe.job(run.path)
    training = run_job(job, RunFolder(run.path), device=CPU, stop=lambda: False)
    assert isinstance(next(training), Prepared)
    training.close()  # type: ignore[attr-defined]


def resume_by_recipe(run: Trained) -> None:
    """With the recipe read from the folder and compared, too; it is slow to parse."""
    training = saccade.training(run.recipe, run.path, resume=True, device="cpu")
    assert isinstance(next(training), Prepared)
    training.close()  # type: ignore[attr-defined]


def find_base(run: Trained) -> None:
    """As the command does before it resumes or evaluates."""
    checkpoint.recorded_base(run.path)


def take_tokens(run: Trained) -> None:
    """As a training does that is given this run's."""
    PreparedTokens(run.path).check(made_of(run.recipe.job(run.path)))


READERS: list[tuple[Callable[[Trained], None], str]] = [
    *((load, name) for name in PUBLISHED),
    *((resume, name) for name in PUBLISHED),
    *((resume, name) for name in TO_RESUME),
    (resume_by_recipe, "train.yaml"),
    (find_base, "environment.json"),
    (take_tokens, "data/made-from.json"),
]


def damaged(content: bytes, draw: random.Random) -> bytes:
    """One bit turned over, or, in one case of four, the end cut off."""
    at = draw.randrange(len(content))
    if draw.random() < 0.25:
        return content[:at]
    return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def tries(count: int) -> Iterator[tuple[Callable[[Trained], None], str, random.Random]]:
    """Each file in turn."""
    for number in range(count):
        read, name = READERS[number % len(READERS)]
        yield read, name, random.Random(number)


def test_the_list_of_files_that_are_read_is_complete(run: Trained) -> None:
    on_disk = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    assert on_disk == {*(name for _, name in READERS), *UNREAD}


def test_two_thousand_damages_are_refused_by_name(run: Trained) -> None:
    seen = set()
    for read, name, draw in tries(DAMAGES):
        path = run.path / name
        whole = path.read_bytes()
        content = damaged(whole, draw)
        path.write_bytes(content)
        with pytest.raises(SaccadeError) as caught:
            read(run)
        path.write_bytes(whole)
        told = str(caught.value)
        # A manifest or store.json with another checksum in it blames the file that this is the checksum of; a recipe
        # in which another setting can be read is told by that setting.
        blames_another = path.name in ("manifest.json", "store.json") or "was begun with other settings" in told
        assert path.name in told or (blames_another and str(path.parent) in told), (name, told)
        seen.add((read, name))
    assert len(seen) == len(READERS)
    load(run)
    resume(run)


def test_what_nobody_reads_may_be_damaged(run: Trained) -> None:
    for name in UNREAD:
        (run.path / name).write_bytes(b"\xff\x00{")
    load(run)
    resume(run)


def test_a_recipe_in_a_run_folder_is_not_to_be_edited(run: Trained) -> None:
    path = run.path / "train.yaml"
    path.write_text(path.read_text().replace("rate: 0.01", "rate: 0.02"))
    done = saccade_command("train", run.path, "--resume")
    assert done.exit_code == 1
    assert "train.yaml: is not the file that was saved" in done.stderr
    assert "--set" in done.stderr


# The log


def about_the_log(prepared: Prepared) -> list[str]:
    return [remark for remark in prepared.remarks if "metrics.jsonl" in remark]


def test_a_torn_last_line_of_the_log_is_cut_and_told_and_no_reader_minds(run: Trained) -> None:
    log = run.path / "metrics.jsonl"
    whole = log.read_bytes()
    *_, last = whole.splitlines(keepends=True)
    longer = saccade.recipe(run.path / "train.yaml", "train.updates=5")
    expected = Path(shutil.copytree(run.path, run.path.with_name("alone")))
    saccade.train(longer, expected, resume=True, device="cpu")
    for torn in (last[:1], last[: len(last) // 2], last[:-1]):
        log.write_bytes(whole + torn)
        listed = saccade_command("runs", "list", run.path.parent)
        assert listed.exit_code == 0
        assert str(run.path) in listed.stdout
        assert saccade_command("info", run.path).exit_code == 0
        out = Path(shutil.copytree(run.path, run.path.with_name(f"torn-{len(torn)}")))
        prepared, *_ = saccade.training(longer, out, resume=True, device="cpu")
        assert isinstance(prepared, Prepared)
        assert about_the_log(prepared) == [
            f"{out / 'metrics.jsonl'}: its last line was torn, as by a kill while it was written; it is cut off."
        ]
        kinds = [(note["kind"], note["update"]) for note in notes(out)]
        assert kinds == [(note["kind"], note["update"]) for note in notes(expected)]


def test_a_log_that_lost_its_end_keeps_its_whole_lines(run: Trained) -> None:
    """As after a power cut: the checkpoint knows of more than is there."""
    log = run.path / "metrics.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + rest[0][:7])
    longer = saccade.recipe(run.path / "train.yaml", "train.updates=5")
    prepared, *_ = saccade.training(longer, run.path, resume=True, device="cpu")
    assert isinstance(prepared, Prepared)
    torn, short = about_the_log(prepared)
    assert "its last line was torn" in torn
    assert f"has {len(first) + 7} bytes; " in short
    assert log.read_bytes().startswith(first)
    assert [note["update"] for note in notes(run.path, "trained")] == [3, 5]


def test_the_log_is_not_written_through_a_link(run: Trained, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine\n")
    (run.path / "metrics.jsonl").unlink()
    (run.path / "metrics.jsonl").symlink_to(outside)
    with pytest.raises(SaccadeError, match=r"metrics\.jsonl: is a link"):
        resume(run)
    assert outside.read_text() == "mine\n"


def test_what_is_left_of_a_save_may_be_a_link_and_is_not_followed(run: Trained, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept.txt").write_text("mine\n")
    (run.path / ".tmp-train.yaml").symlink_to(tmp_path / "outside" / "kept.txt")
    (run.path / "checkpoints" / ".tmp-step-6").symlink_to(tmp_path / "outside")
    RunFolder(run.path).clean()
    assert (tmp_path / "outside" / "kept.txt").read_text() == "mine\n"
    assert not list(run.path.rglob(".*"))
