"""`saccade fill` and what else the command does with masked language models."""

import json
from pathlib import Path

import pytest

import saccade
from saccade import config
from tests.support.blanks import recipe, write_text
from tests.support.cli import saccade_command, saccade_process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run `run`, its recipe `mine.yaml` and a file of lines."""
    path = tmp_path_factory.mktemp("fill")
    write_text(path)
    chosen = recipe(path, "bert", "train.fingerprint=false", f"data.test={path / 'valid.txt'}")
    (path / "mine.yaml").write_text(config.to_yaml(config.plain(chosen)))
    saccade.train(chosen, path / "run", device="cpu")
    (path / "lines.txt").write_text("the sky is [MASK] blue\n\nno blank\n[MASK] [MASK]\n")
    return path


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def test_lines_in_lines_out(folder: Path) -> None:
    done = saccade_command("fill", folder / "run", "-i", folder / "lines.txt", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    out = lines_of(done.stdout)
    assert len(out) == 4
    assert out[1:3] == ["", "no blank"]
    assert out[0].startswith("the sky is ")
    assert "[MASK]" not in done.stdout
    piped = saccade_command("fill", folder / "run", stdin=(folder / "lines.txt").read_bytes())
    assert piped.stdout == done.stdout
    said = saccade_command("fill", folder / "run", *(folder / "lines.txt").read_text().splitlines())
    assert said.stdout == done.stdout
    assert [
        each.text for each in saccade.load(folder / "run", "cpu").fill((folder / "lines.txt").read_text().splitlines())
    ] == out


def test_fillings_are_told_where_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    done = saccade_command("fill", folder / "run", "the sky is [MASK] [MASK]", "--top", "2")
    text, one, other = done.stdout.rstrip("\n").split("\t")
    best, chance, second, less = one.split(" ")
    assert text.split(" ")[3] == best
    assert float(chance) >= float(less)
    assert second != best
    assert len(other.split(" ")) == 4
    out = tmp_path / "out.jsonl"
    done = saccade_command(
        "fill", folder / "run", "-i", folder / "lines.txt", "-f", "jsonl", "--output", out, "--batch-tokens", "8"
    )
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in lines_of(out.read_text())]
    assert [len(row["blanks"]) for row in rows] == [1, 0, 0, 2]
    assert [len(fillings) for row in rows for fillings in row["blanks"]] == [5, 3, 5]  # three words begin lines
    assert set(rows[0]) == {"source", "text", "cut", "blanks"}
    assert set(rows[0]["blanks"][0][0]) == {"text", "probability", "token"}
    assert rows[2]["text"] == "no blank"


def test_another_blank(folder: Path) -> None:
    done = saccade_command("fill", folder / "run", "the ___ is [MASK]", "--blank", "___")
    assert done.stdout.endswith(" is [MASK]\n")
    assert "___" not in done.stdout


def test_what_is_asked_for_in_vain(folder: Path, tmp_path: Path) -> None:
    both = saccade_command("fill", folder / "run", "x", "--input", folder / "lines.txt")
    assert both.exit_code == 2
    assert "both given" in both.stderr
    for arguments in (("--top", "0"), ("--format", "xml")):
        assert saccade_command("fill", folder / "run", "x", *arguments).exit_code == 2
    empty = saccade_command("fill", folder / "run", "x", "--blank", " ")
    assert (empty.exit_code, "visible" in empty.stderr) == (2, True)
    nowhere = saccade_command("fill", tmp_path, "x")
    assert (nowhere.exit_code, "is no run folder" in nowhere.stderr) == (2, True)
    other = saccade_command("translate", folder / "run", "x")
    assert other.exit_code == 2
    assert "is a run of the task masked-language-model; to translate, there must be one of translate" in other.stderr
    beam = saccade_command("evaluate", folder / "run", "--beam", "3")
    assert (beam.exit_code, "which has no use for it" in beam.stderr) == (2, True)
    drawn = saccade_command("evaluate", folder / "run", "--resamples", "200")
    assert (drawn.exit_code, "--resamples: " in drawn.stderr) == (2, True)


def test_a_long_line_is_read_in_part_and_that_is_told(folder: Path) -> None:
    line = "the sky " * 600 + "[MASK]"
    done = saccade_command("fill", folder / "run", line, "[MASK]")
    assert done.stdout.startswith(line + "\n")
    assert "1 line longer than 512 tokens: the rest of each was not read, and 1 blank there stayed." in done.stderr


def test_bytes_that_are_no_text(folder: Path) -> None:
    done = saccade_command("fill", folder / "run", stdin=b"caf\xe9 [MASK]\nthe [MASK]\n")
    assert done.exit_code == 0
    assert len(lines_of(done.stdout)) == 2
    assert done.stdout.startswith("caf\ufffd ")


def test_evaluate_info_check_and_plan(folder: Path) -> None:
    scored = saccade_command("evaluate", folder / "run", "-f", "json", "--fail-under", "accuracy=0")
    assert scored.exit_code == 0, scored.stderr
    scores = json.loads(scored.stdout)["scores"]
    assert set(scores) == {"accuracy", "perplexity", "next_sentence_accuracy"}
    on_file = saccade_command("evaluate", folder / "run", folder / "valid.txt", "--metrics", "perplexity", "-f", "tsv")
    assert f"{scores['perplexity']['value']:.1f}" in on_file.stdout
    failed = saccade_command("evaluate", folder / "run", "--split", "valid", "--fail-under", "accuracy=101")
    assert failed.exit_code == 3
    info = saccade_command("info", folder / "run")
    assert info.exit_code == 0, info.stderr
    assert "masked-language-model" in info.stdout
    checked = saccade_command("data", "check", folder / "mine.yaml")
    assert checked.exit_code == 0, checked.stderr
    assert "lines in 30 documents." in checked.stdout
    plan = saccade_command("train", folder / "mine.yaml", "--dry-run")
    assert plan.exit_code == 0, plan.stderr
    assert "data: train begins '" in plan.stderr
    listed = saccade_command("runs", "list", folder)
    assert "transformer" in listed.stdout
    verified = saccade_command("verify", folder / "run")
    assert verified.exit_code == 0, verified.stdout
    card = (folder / "run" / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card
    assert 'saccade fill run "a line with a [MASK] in it"' in card


def test_the_next_command_runs_as_it_stands(folder: Path, tmp_path: Path) -> None:
    done = saccade_command("train", folder / "mine.yaml", "-q", "--out", tmp_path / "again", "--set", "train.updates=1")
    assert done.exit_code == 0, done.stderr
    from saccade.tasks.masked import MaskedRecipe

    command = MaskedRecipe.next_command(tmp_path / "again")
    assert "[MASK]" in command[-1]
    assert saccade_command(*command[1:]).exit_code == 0


def test_a_pipe_is_answered_line_by_line(folder: Path) -> None:
    process = saccade_process("fill", folder / "run", "--device", "cpu")
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"the [MASK] is so red\n", b"nothing\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def test_a_recipe_begins_with_a_run_by_a_setting(folder: Path, tmp_path: Path) -> None:
    """Text and encoder are taken out of the recipe by null, and come from the run."""
    done = saccade_command(
        "train", folder / "mine.yaml", "--out", tmp_path / "tuned", "--set", f"init_from={folder / 'run'}",
        "--set", "text=null", "--set", "model.encoder=null", "--set", "freeze=true", "--set", "train.updates=1",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "weights of the encoder were taken from" in done.stderr
    assert "The encoder stays as it is." in done.stderr
