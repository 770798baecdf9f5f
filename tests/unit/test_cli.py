"""The commands that make, list and describe runs: what they print where, and the status they end with."""

import io
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from saccade import config, presets
from saccade.cli import doctor, progress
from saccade.cli.schema import schema_of_recipes
from saccade.cli.streams import to_json
from saccade.cli.words import amount, duration, metric
from saccade.recipe import load_recipe, parse_recipe
from saccade.recipes import described, schema_text, shipped
from saccade.train.events import Event, Logged, Prepared, Shrunk, Validated
from tests.support.cli import ROOT, parsed, saccade_command, saccade_process, write_corpus


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a corpus and `train.yaml`."""
    monkeypatch.chdir(tmp_path)
    return write_corpus(tmp_path).relative_to(tmp_path)


# ---- the command itself


def test_the_version_is_told() -> None:
    done = saccade_command("--version")
    assert (done.exit_code, done.stdout) == (0, "saccade 0.1.0\n")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["train", "--no-such-option"], ["translate"]])
def test_a_command_that_cannot_be_read_ends_with_2(arguments: list[str]) -> None:
    done = saccade_command(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: saccade" in done.stderr


def test_what_nobody_expected_shows_where_it_happened(monkeypatch: pytest.MonkeyPatch, recipe: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("saccade.cli.look.summary", broken)
    done = saccade_command("info", _trained(recipe))
    assert done.exit_code == 1
    assert isinstance(done.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["settings"], ["init", "--list"], ["runs", "list", "."], ["train", "--help"]]
)
def test_no_torch_is_needed(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom saccade.cli.main import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit as end:\n"
        "    sys.exit(end.code or 'torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()


# ---- recipes and settings


def test_init_writes_a_recipe_and_never_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = saccade_command("init")
    assert done.exit_code == 0
    assert done.stdout.startswith("wrote train.yaml: ")
    assert "saccade train train.yaml" in done.stderr
    Path("train.yaml").write_text("mine", encoding="utf-8")
    refused = saccade_command("init")
    assert refused.exit_code == 2
    assert "--overwrite" in refused.stderr
    assert Path("train.yaml").read_text(encoding="utf-8") == "mine"
    assert saccade_command("init", "dates", "--overwrite").exit_code == 0
    assert load_recipe("train.yaml")[0] == load_recipe("dates")[0]


def test_init_tells_what_there_is() -> None:
    listed = saccade_command("init", "--list").stdout.splitlines()
    told = [described(name) for name in shipped()] + [presets.described(name) for name in presets.trainable()]
    assert [line.split("  ")[0].strip() for line in listed] == shipped() + presets.trainable()
    assert all(each in line for each, line in zip(told, listed, strict=True))
    assert config.parse_yaml(saccade_command("init", "dates", "-o", "-").stdout, "stdout")["task"] == "translate"
    unknown = saccade_command("init", "datse")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "dates" in unknown.stderr
    assert saccade_command("init", "-o", "/nowhere/train.yaml").exit_code == 2


@pytest.mark.parametrize("name", presets.trainable())
def test_init_writes_a_recipe_with_a_preset(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = saccade_command("init", name, "-o", "mine.yaml")
    assert done.stdout.startswith(f"wrote mine.yaml: Preset: {presets.described(name)}")
    assert config.read(Path("mine.yaml")).keys() == {"preset", "data"}
    pairs = (
        "{kind: files, train: {source: train.src, target: train.tgt}, valid: {source: valid.src, target: valid.tgt}}"
    )
    text = "{kind: text, train: train.txt, valid: valid.txt}"
    rows = "{tsv: %s.tsv, label: 1, text: 2}"
    labelled = f"{{kind: files, train: {rows % 'train'}, valid: {rows % 'valid'}}}"
    data = {"translate": pairs, "classify": labelled}.get(presets.tree_of(name)["task"], text)
    assert load_recipe("mine.yaml")[0] == load_recipe(name, (f"data={data}",))[0]
    below = Path("mine.yaml").read_text(encoding="utf-8").partition("# The preset:\n#\n")[2]
    assert "".join(f"{line[2:]}\n" for line in below.splitlines()) == presets.text_of(name)


def test_settings_tells_what_presets_there_are() -> None:
    told = saccade_command("settings", "preset").stdout.splitlines()
    for name in presets.names():
        (line,) = [each for each in told if each.split()[:1] == [name]]
        assert presets.described(name) in line
        assert ("Waits for its task" in line) == (name not in presets.trainable())


def test_a_preset_is_named_on_the_command_line() -> None:
    done = saccade_command("train", "luong-2015", "--set", "data.kind=dates", "--set", "model.tie=none", "--dry-run")
    assert done.exit_code == 0, done.stderr
    resolved = config.parse_yaml(done.stdout, "stdout")
    assert resolved["model"]["decoder"]["attention"]["scope"] == "local-p"
    assert "preset" not in resolved
    lacking = saccade_command("train", "luong-2015", "--dry-run")
    assert (lacking.exit_code, lacking.stdout) == (2, "")
    assert "luong-2015: a preset has no data." in lacking.stderr
    assert "saccade init luong-2015" in lacking.stderr


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_can_be_read_and_says_what_it_is(name: str) -> None:
    load_recipe(name)
    assert len(described(name)) > 20


def test_the_recipe_to_start_from_trains(recipe: Path) -> None:
    saccade_command("init", "--overwrite")
    small = ["text.size=300", "model.encoder.width=8", "model.decoder.width=8", "train.updates=1"]
    done = saccade_command("train", recipe, "-q", *(part for each in small for part in ("--set", each)))
    assert done.exit_code == 0, done.stderr


def test_the_shipped_schema_is_that_of_the_code() -> None:
    assert json.loads(schema_text()) == json.loads(schema_of_recipes()), (
        "run: python -m saccade.cli.schema > saccade/recipes/schema.json"
    )


def test_settings_knows_every_setting_that_a_resolved_recipe_has() -> None:
    rows = json.loads(saccade_command("settings", "--json").stdout)
    names = {row["setting"] for row in rows}
    for name in shipped():
        assert config.flatten(config.plain(load_recipe(name)[0])).keys() <= names
    assert all(row["description"] for row in rows)
    text = saccade_command("settings", "train").stdout
    assert "train.updates: integer ≥ 1 = 10000\n      Training ends after this many updates." in text
    assert "decode.beam" not in text
    assert json.loads(saccade_command("settings", "--schema").stdout)["title"] == "Recipe"
    assert saccade_command("settings", "trian").exit_code == 2


# ---- training


def _trained(recipe: Path, *more: str) -> Path:
    done = saccade_command("train", recipe, "-q", *more)
    assert done.exit_code == 0, done.stderr
    return Path("runs/train")


def test_training_tells_its_result_and_the_next_command(recipe: Path) -> None:
    done = saccade_command("train", recipe, "--set", "train.metric=exact_match")
    assert done.exit_code == 0, done.stderr
    result, following = done.stdout.splitlines()
    assert result.startswith("best valid exact match ")
    assert result.endswith(" parameters · saved runs/train")
    assert following.startswith("next: saccade translate runs/train ")
    assert saccade_command(*_words(following)[2:]).exit_code == 0
    told = done.stderr.splitlines()
    assert told[0] == "train: 100 rows read, 100 pairs kept."
    assert [line.split()[1] for line in told if "  loss " in line and "valid" not in line] == [
        "2/6",
        "3/6",
        "4/6",
        "6/6",
    ]
    assert [line.split()[1] for line in told if "  valid " in line] == ["3/6", "6/6"]
    assert "\x1b" not in done.stderr


def _words(line: str) -> list[str]:
    return shlex.split(line)


def test_a_run_is_not_overwritten_by_accident(recipe: Path) -> None:
    run = _trained(recipe)
    before = (run / "model.safetensors").read_bytes()
    refused = saccade_command("train", recipe)
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    assert "--overwrite" in refused.stderr
    assert (run / "model.safetensors").read_bytes() == before
    assert saccade_command("train", recipe, "--overwrite", "--set", "seed=2", "-q").exit_code == 0
    assert (run / "model.safetensors").read_bytes() != before


def test_a_run_goes_on_by_its_recipe_its_folder_or_out(recipe: Path) -> None:
    run = _trained(recipe)
    for update, named in ((8, [recipe]), (10, [run]), (12, ["--out", run])):
        done = saccade_command("train", *named, "--resume", "--set", f"train.updates={update}")
        assert done.exit_code == 0, done.stderr
        assert f"goes on at update {update - 2}" in done.stderr
        assert (run / "checkpoints" / f"step-{update}").is_dir()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "RECIPE is missing"),
        (["datse"], "neither a file nor a recipe"),
        (["none.yaml"], "cannot be read"),
        (["dates", "--resume"], "there is no run to resume"),
        (["--out", "."], "is no run folder"),
        (["runs/train"], "Go on with it by --resume"),
        (["runs/train", "--resume", "--out", "runs/other"], "leave out --out"),
        (["runs/train", "--resume", "--set", "seed=7"], "seed: 1 there, 7 here"),
        (["runs/train", "--resume", "--overwrite"], "give one of them"),
        (["train.yaml", "--set", "model.decoder.attention.scroe=dot"], "Did you mean `score`?"),
        (["train.yaml", "--set", "seed"], "name=value"),
        (["train.yaml", "--max-minutes", "0", "--overwrite"], "train.minutes"),
        (["train.yaml", "--device", "tpu", "--overwrite"], "--device is 'tpu'"),
        (["train.yaml", "--overwrite", "--set", "data.train.source=none.src"], "none.src: cannot be read"),
        (["train.yaml", "--overwrite", "--out", "."], "--overwrite replaces runs alone"),
    ],
)
def test_what_cannot_be_trained_ends_with_2_and_says_why(recipe: Path, arguments: list[str], reason: str) -> None:
    run = _trained(recipe)
    done = saccade_command("train", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert reason in done.stderr
    assert (run / "model.safetensors").is_file()


def test_a_training_that_breaks_ends_with_1(recipe: Path) -> None:
    done = saccade_command(
        "train", recipe, "--set", "train.optimizer={kind: sgd, rate: 1e38}", "--set", "train.clip=null"
    )
    assert done.exit_code == 1
    assert "train.optimizer.rate" in done.stderr


def test_time_can_be_limited(recipe: Path) -> None:
    done = saccade_command("train", recipe, "--max-minutes", "1e-6", "--set", "train.updates=100000")
    assert done.exit_code == 0
    assert "time is up: stopped at update 1" in done.stderr


def test_a_dry_run_tells_everything_and_writes_nothing(recipe: Path) -> None:
    before = sorted(Path().rglob("*"))
    settings = ["--set", "text={kind: byte}", "--set", "seed=5"]
    done = saccade_command("train", recipe, "--dry-run", *settings)
    assert done.exit_code == 0, done.stderr
    assert sorted(Path().rglob("*")) == before
    told = parse_recipe(yaml.safe_load(done.stdout))
    assert told == load_recipe(str(recipe), ("text={kind: byte}", "seed=5"))[0]
    trained = saccade_command("train", recipe, *settings)
    assert trained.exit_code == 0
    summary = json.loads(saccade_command("info", "runs/train", "--json").stdout)
    assert f"model: {sum(each['parameters'] for each in summary['parameters']):,} parameters" in done.stderr
    assert "would write runs/train" in done.stderr
    again = saccade_command("train", recipe, "--dry-run", "--set", "text.size=300").stderr
    assert "an estimate" in again
    assert "would refuse to start" in again
    assert "would remove" in saccade_command("train", recipe, "--dry-run", "--overwrite").stderr
    assert saccade_command("train", recipe, "--dry-run", "--set", "data.valid.source=none").exit_code == 2


# ---- stopping


def _signalling(monkeypatch: pytest.MonkeyPatch, *numbers: int, at: type[Event] = Logged) -> None:
    """Send the signals when the first event of the kind is shown."""
    left = list(numbers)

    def show(self: progress._Lines, event: Event) -> None:
        while isinstance(event, at) and left:
            signal.raise_signal(left.pop(0))

    monkeypatch.setattr(progress._Lines, "show", show)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    _signalling(monkeypatch, number)
    done = saccade_command("train", recipe)
    assert done.exit_code == status
    assert "stopped at update 2" in done.stderr
    assert done.stdout.splitlines()[-1] == "next: saccade train runs/train --resume"
    assert Path("runs/train/checkpoints/step-2/manifest.json").is_file()
    resumed = saccade_command(*_words(done.stdout.splitlines()[-1])[2:])
    assert resumed.exit_code == 0, resumed.stderr
    whole = saccade_command("train", recipe, "--out", "runs/whole")
    assert whole.exit_code == 0
    assert Path("runs/train/model.safetensors").read_bytes() == Path("runs/whole/model.safetensors").read_bytes()


def test_a_second_ctrl_c_does_not_wait(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _signalling(monkeypatch, signal.SIGINT, signal.SIGINT)
    done = saccade_command("train", recipe)
    assert done.exit_code == 130
    assert "nothing was saved yet" in done.stderr
    assert not list(Path("runs/train/checkpoints").iterdir())


def test_a_process_that_is_told_to_end_saves_first(recipe: Path) -> None:
    process = saccade_process("train", recipe, "--set", "train.updates=1000000", "--set", "train.log_every=1")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"update 3/"):
            break
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert out.decode().splitlines()[-1] == "next: saccade train runs/train --resume"
    assert list(Path("runs/train/checkpoints").glob("step-*"))


# ---- what is shown


class _Terminal:
    """A stderr that is a terminal."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return self.text.write(text)

    def flush(self) -> None:
        pass


REMARK = "train: 900 rows read, 899 pairs kept."


def _events() -> list[Event]:
    return [
        Prepared(
            900,
            "pairs",
            412_345,
            {"source tokens": 90, "target tokens": 80},
            3000,
            0,
            "cpu",
            ("train: 900 rows read, 899 pairs kept.",),
        ),
        Logged(50, 0, 3.5, 1.25, 1e-3, 31_000.0, 10.0),
        Shrunk(60, 2048),
        Logged(100, 0, 2.5, 1.0, 1e-3, 32_000.0, 20.0, skipped=3),
        Validated(100, {"loss": 0.5, "exact_match": 12.0}, best=True),
    ]


def test_a_terminal_shows_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.display("dates", quiet=False, minutes=None) as shown:
        for event in _events():
            shown.show(event)
    text = terminal.text.getvalue()
    for part in (
        "899 pairs kept",
        "0.4M parameters",
        "100/3,000",
        "9m40s left",
        "loss 2.500",
        "32.0k tokens/s",
        "3 skipped: not finite",
    ):
        assert part in text
    assert "valid loss 0.500  exact match 12.0 %  *best" in text
    assert "\x1b[3" not in text  # no colour


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    with progress.display("dates", quiet=False, minutes=None) as shown:
        for event in _events():
            shown.show(event)
    lines = terminal.text.getvalue().splitlines()
    assert lines[-1] == "update 100/3000  valid loss 0.500  exact match 12.0 %  *best"
    assert any("memory ran out at update 60" in line and "at most 2,048" in line for line in lines)


def test_time_left_heeds_the_limit_in_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.display("dates", quiet=False, minutes=1.0) as shown:
        for event in _events():
            shown.show(event)
    assert "40s left" in terminal.text.getvalue()


@pytest.mark.parametrize(
    ("function", "value", "shown"),
    [
        (duration, 42.4, "42s"),
        (duration, 192, "3m12s"),
        (duration, 3900, "1h05m"),
        (amount, 412_345, "0.4M"),
        (amount, 65_000_000, "65.0M"),
        (amount, 12_345, "12.3k"),
        (amount, 950, "950"),
        (amount, 1.2e9, "1.2G"),
        (lambda value: metric("bleu", value), 31.24, "BLEU 31.2"),
        (lambda value: metric("perplexity", value), 3e7, "perplexity 3.0e+07"),
    ],
)
def test_numbers_as_people_read_them(function: Callable[[float], str], value: float, shown: str) -> None:
    assert function(value) == shown


def test_json_lines_hold_no_line_end_and_no_nan() -> None:
    value = {"a": "x\u2028\x85\u2029\n\r\x0b\x1c", "b": [float("nan"), float("inf"), 1.5], "c": None}
    text = to_json(value)
    assert len(text.splitlines()) == 1
    assert json.loads(text) == {"a": value["a"], "b": [None, None, 1.5], "c": None}


# ---- looking at runs


def test_runs_are_listed(recipe: Path) -> None:
    _trained(recipe)
    saccade_command("train", recipe, "-q", "--out", "runs/other", "--set", "train.patience=1", "--max-minutes", "1e-9")
    Path("runs/no run").mkdir()
    Path("runs/broken/checkpoints").mkdir(parents=True)
    Path("runs/broken/train.yaml").write_text("model: 3\n", encoding="utf-8")
    done = saccade_command("runs", "list")
    assert done.exit_code == 0
    other, first = done.stdout.splitlines()[2:]
    assert first.split()[:5] == ["runs/train", "translate", "gru", "→", "gru"]
    assert "6/6" in first
    assert other.startswith("runs/other")
    assert "finished" in other
    assert "runs/broken: its train.yaml or metrics.jsonl is not as a training writes it" in done.stderr
    listed = json.loads(saccade_command("runs", "list", "runs", "--json").stdout)
    assert [run["name"] for run in listed] == ["other", "train"]
    assert listed[1]["finished"]
    assert listed[1]["best_update"] in (3, 6)
    assert listed[1]["best"]["loss"] > 0
    assert saccade_command("runs", "list", "nowhere").exit_code == 2
    assert "holds no runs" in saccade_command("runs", "list", "runs/no run").stderr


def test_an_interrupted_run_is_not_finished(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _signalling(monkeypatch, signal.SIGINT)
    saccade_command("train", recipe)
    assert not json.loads(saccade_command("runs", "list", "--json").stdout)[0]["finished"]


def test_info_tells_of_a_run(recipe: Path) -> None:
    run = _trained(recipe)
    done = saccade_command("info", run)
    assert done.exit_code == 0
    assert "train: 100 pairs" in done.stdout
    assert "model.decoder.attention.score" in done.stdout
    about = json.loads(saccade_command("info", run, "--json").stdout)
    assert about["recipe"] == config.plain(parsed(recipe.read_text(encoding="utf-8")))
    assert about["data"]["valid"]["rows"] == 12
    table = {each["name"]: each["shape"] for each in about["parameters"]}
    assert table["decoder.output.weight"][1] == 16
    assert saccade_command("info", "nowhere").exit_code == 2


def test_info_tells_of_this_machine() -> None:
    assert "packages.torch" in saccade_command("info").stdout
    assert json.loads(saccade_command("info", "--json").stdout)["saccade"] == "0.1.0"


def test_the_doctor_finds_a_sound_installation_sound_and_a_broken_one_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PAIRS", {"train": 300, "valid": 10})
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "babel" else object())
    done = saccade_command("doctor", "--device", "cpu")
    assert done.exit_code == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "ok      everything"
    assert "absent  extra demo: babel for the dates recipe; pip install 'saccade[demo]'" in done.stdout
    monkeypatch.setattr("saccade.api.train", lambda *_, **__: (_ for _ in ()).throw(OSError("no disk")))
    broken = saccade_command("doctor")
    assert broken.exit_code == 1
    assert "failed  train: OSError: no disk" in broken.stdout


def test_data_is_checked(recipe: Path) -> None:
    good = saccade_command("data", "check", recipe)
    assert good.exit_code == 0
    assert good.stdout.startswith("train: 100 rows read, 100 pairs kept.")
    assert "also stand in train" in good.stdout
    with Path("train.src").open("a", encoding="utf-8") as file:
        file.write("one more\n")
    bad = saccade_command("data", "check", recipe)
    assert bad.exit_code == 2
    assert "train.src has 101 lines and train.tgt has 100" in bad.stderr
    trimmed = saccade_command("data", "check", recipe, "--trim", "--json")
    assert trimmed.exit_code == 0
    assert json.loads(trimmed.stdout)["splits"]["train"]["counts"]["trimmed"] == 1
    problems = saccade_command("data", "check", recipe, "--json")
    assert (problems.exit_code, json.loads(problems.stdout)["usable"]) == (2, False)
    assert "there are no files to check" in saccade_command("data", "check", "dates", "--trim").stdout


def test_a_kind_is_never_shown_with_a_default() -> None:
    told = saccade_command("settings", "model.encoder.kind").stdout
    assert "model.encoder.kind: elman | lstm | gru | lstmn, must be given" in told
    assert "model.encoder.kind: transformer, must be given" in told
