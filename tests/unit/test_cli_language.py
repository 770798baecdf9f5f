"""`generate`, `score` and `evaluate` of language models: what comes out, in every format, and what is refused."""

import io
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

import saccade
from saccade.checkpoint import RunFolder, model_tensors
from saccade.cli import generate as generate_command
from saccade.data.grammar import sentences
from tests.support.cli import saccade_command
from tests.support.language import recipe, write_texts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    saccade.train(recipe("lstm", "char", "decode.seed=4"), folder / "run", device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    small = ("data.train=40", "data.valid=4", "train.updates=1", "model.encoder.width=8", "train.metric=loss")
    saccade.train(saccade.recipe("dates", *small), folder / "run", device="cpu")
    return folder / "run"


def said(*arguments: str | Path, stdin: str = "") -> str:
    done = saccade_command(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str | Path, stdin: str = "") -> str:
    done = saccade_command(*arguments, stdin=stdin)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return " ".join(done.stderr.split())


# ---- generate


def test_a_text_is_written_behind_its_prompt(run: Path) -> None:
    model = saccade.load(run, "cpu")
    assert said("generate", run, "The", "--device", "cpu") == f"The{model.generate('The').text}\n"
    assert said("generate", run) == f"{model.generate('').text}\n"
    one = said("generate", run, "The", "--seed", "9", "--max-tokens", "12", "--stop", "length", "--temperature", "0.7")
    assert one == f"The{model.generate('The', seed=9, max_tokens=12, stop='length', temperature=0.7).text}\n"
    narrow = ("--top-k", "3", "--top-p", "0.9", "--min-p", "0.01", "--typical", "0.95")
    given = model.generate("The", top_k=3, top_p=0.9, min_p=0.01, typical=0.95)
    assert said("generate", run, "The", *narrow) == f"The{given.text}\n"


def test_several_texts_are_separated_and_go_by_their_numbers(run: Path, tmp_path: Path) -> None:
    model = saccade.load(run, "cpu")
    prompts = [f"The {word}" for word in ("king", "queen", "nun")]
    wanted = [f"{prompt}{each.text}" for prompt, made in
              zip(prompts, model.generate(prompts, samples=2), strict=True) for each in made.samples]  # fmt: skip
    expected = "\n\n".join(wanted) + "\n"
    assert said("generate", run, *prompts, "--samples", "2") == expected
    (tmp_path / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in prompts))
    said("generate", run, "-i", tmp_path / "prompts.txt", "-o", tmp_path / "out.txt", "--samples", "2")
    assert (tmp_path / "out.txt").read_bytes().decode() == expected
    assert (
        said("generate", run, "--input", "-", "--output", "-", "--samples", "2", stdin="\n".join(prompts)) == expected
    )
    assert said("generate", run, "-i", "-", stdin="") == ""


def test_many_prompts_draw_as_if_they_were_asked_for_at_once(run: Path) -> None:
    prompts = list(sentences(1, "train", 70))
    lines = said("generate", run, "-i", "-", "-f", "jsonl", "--max-tokens", "3", stdin="\n".join(prompts)).splitlines()
    made = saccade.load(run, "cpu").generate(prompts, max_tokens=3)
    assert [json.loads(line)["samples"][0]["text"] for line in lines] == [each.text for each in made]


def test_json_lines_tell_everything(run: Path) -> None:
    model = saccade.load(run, "cpu")
    (line,) = said("generate", run, "The", "--format", "jsonl", "--max-tokens", "9").splitlines()
    row = json.loads(line)
    (written,) = model.generate("The", max_tokens=9).samples
    assert row["prompt"] == "The"
    (only,) = row["samples"]
    assert (only["text"], only["ended"]) == (written.text, written.ended)
    assert only["tokens"] == model.writer.text.pieces(written.tokens)
    assert only["token_log_probabilities"] == pytest.approx(written.token_log_probabilities)
    assert only["log_probability"] == pytest.approx(written.log_probability)


def test_a_text_is_shown_as_it_is_written(run: Path) -> None:
    """Whole characters, each as soon as it is there."""

    class Listener(io.StringIO):
        flushed: list[str]

        def flush(self) -> None:
            self.flushed.append(self.getvalue())

    file = Listener()
    file.flushed = []
    model = saccade.load(run, "cpu")
    config = model.sampling(stop="length", max_tokens=15)
    generate_command._stream(file, model, "The", config)
    pieces = [piece.text for piece in model.stream("The", stop="length", max_tokens=15)]
    assert file.flushed == ["The", *("The" + "".join(pieces[: n + 1]) for n, text in enumerate(pieces) if text)]


def test_a_wild_model_writes_utf8(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "wild")
    shake_writer(tmp_path / "wild")
    out = said("generate", tmp_path / "wild", "日", "--samples", "5", "--stop", "line", "--seed", "2")
    assert "日" in out
    assert "\ufffd" in out
    out.encode("utf-8")


def shake_writer(path: Path) -> None:
    """Noise on all weights: a model that writes anything, broken UTF-8 included."""
    model = saccade.load(path, "cpu").writer.model
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    RunFolder(path).publish(model_tensors(model))


def test_the_most_probable_text_is_searched_for(run: Path) -> None:
    model = saccade.load(run, "cpu")
    prompts = ["The", "The king"]
    made = model.generate(prompts, beam=4, n_best=2, max_tokens=9, settings=["length=none"])
    more = ("--beam", "4", "--n-best", "2", "--max-tokens", "9", "--decode", "length=none")
    ask: list[str | Path] = ["generate", run, *prompts, *more]
    texts = [f"{each.prompt}{one.text}" for each in made for one in each.samples]
    assert len(texts) == 4
    assert said(*ask) == "\n\n".join(texts) + "\n"
    rows = [json.loads(line) for line in said(*ask, "-f", "jsonl").splitlines()]
    for row, each in zip(rows, made, strict=True):
        assert row["prompt"] == each.prompt
        for shown, one in zip(row["samples"], each.samples, strict=True):
            assert shown["score"] == pytest.approx(one.log_probability)  # length=none
            assert (shown["text"], shown["ended"]) == (one.text, one.ended)
            assert shown["tokens"] == model.writer.text.pieces(one.tokens)
            assert len(one.tokens) <= 9
        assert row["samples"][0]["score"] >= row["samples"][1]["score"]
    assert said("generate", run, "The", "--beam", "1") == f"The{model.generate('The', beam=1).text}\n"
    greedy = model.generate("The", temperature=0.0)
    assert model.generate("The", beam=1, max_tokens=20).text == greedy.text
    many = [f"The {n}" for n in range(70)]
    lines = said("generate", run, "-i", "-", "--beam", "2", "--max-tokens", "2", "-f", "jsonl", stdin="\n".join(many))
    assert [json.loads(line)["prompt"] for line in lines.splitlines()] == many


def test_what_a_search_for_text_refuses(run: Path) -> None:
    ask = ("generate", run, "The")
    for option, value, name in (
        ("--samples", "2", "samples"),
        ("--seed", "2", "seed"),
        ("--temperature", "1", "temperature"),
        ("--top-k", "2", "top_k"),
        ("--top-p", "0.5", "top_p"),
        ("--min-p", "0.5", "min_p"),
        ("--typical", "0.5", "typical"),
        ("--stop", "line", "stop"),
    ):
        told = refused(*ask, "--beam", "3", option, value)
        assert f"beam: is 3, but {name} belongs to drawing" in told
    assert said(*ask, "--beam", "2", "--stop", "end")
    assert "n_best: is a setting of a search; text is drawn unless beam is given" in refused(*ask, "--n-best", "2")
    assert "decode: is a setting of a search" in refused(*ask, "--decode", "length=none")
    assert "decode: n_best is 5 and beam is 2" in refused(*ask, "--beam", "2", "--n-best", "5")
    assert "decode: beam is 0" in refused(*ask, "--beam", "0")
    for name in ("max_length", "ratio", "extra", "min_ratio", "coverage", "whole_words", "sample.top_k", "mbr"):
        told = refused(*ask, "--beam", "2", "--decode", f"{name}=1")
        assert f"decode {name}=1: has no meaning for a language model" in told
    assert "decode: lenght is not a setting" in refused(*ask, "--beam", "2", "--decode", "lenght=none")
    with pytest.raises(saccade.UsageError, match="temprature is not a setting"):
        saccade.load(run, "cpu").generate("The", temprature=1.0)  # type: ignore[call-overload]


def test_a_text_that_fills_the_window_is_told(tmp_path: Path) -> None:
    path = saccade.train(recipe("transformer", "char"), tmp_path / "run", device="cpu").path
    model = saccade.load(path, "cpu").writer.model
    with torch.no_grad():
        model.output.bias.fill_(0.0)[2] = -1e4  # END
    RunFolder(path).publish(model_tensors(model))
    done = saccade_command("generate", path, "The king", "--beam", "2", "--max-tokens", "100")
    assert done.exit_code == 0
    told = "1 text stopped at 100 tokens (--max-tokens allows more) or where it fills, with its prompt, the 24 tokens"
    assert told in done.stderr
    assert len(saccade.load(path, "cpu").generate("The king", beam=2, max_tokens=100).samples[0].tokens) == 25 - 9


def test_what_generate_refuses(run: Path, translator: Path) -> None:
    assert "PROMPT and --input are both given" in refused("generate", run, "a", "-i", "b")
    assert "temperature is -1.0" in refused("generate", run, "a", "--temperature", "-1")
    assert "top_k is 0" in refused("generate", run, "a", "--top-k", "0")
    assert "is a run of the task translate; to write or score text" in refused("generate", translator, "a")
    assert "is a run of the task language-model; to translate" in refused("translate", run, "a")


# ---- score


def test_lines_are_scored_one_by_one(run: Path, tmp_path: Path) -> None:
    lines = ["The king sleeps.", "", "naïve"]
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    expected = [each.log_probability for each in saccade.load(run, "cpu").score(lines)]
    for arguments in ((tmp_path / "lines.txt",), ("-",), ()):
        done = saccade_command("score", run, *arguments, "--batch-tokens", "7", "--device", "cpu",
                               stdin="".join(f"{line}\n" for line in lines))  # fmt: skip
        assert [float(line) for line in done.stdout.splitlines()] == pytest.approx(expected, abs=1e-4)
        assert "per token" in done.stderr
        assert "25 tokens · 3 lines" in done.stderr
    rows = [json.loads(line) for line in said("score", run, tmp_path / "lines.txt", "-f", "jsonl").splitlines()]
    assert [row["log_probability"] for row in rows] == pytest.approx(expected, abs=1e-4)
    assert rows[1]["tokens"] == ["</s>"]
    assert sum(rows[2]["token_log_probabilities"]) == pytest.approx(expected[2], abs=1e-4)


def test_a_document_is_scored_as_one(run: Path) -> None:
    lines = list(sentences(1, "test", 5))
    text = "".join(f"{line}\n" for line in lines)
    model = saccade.load(run, "cpu")
    found = json.loads(said("score", run, "--document", "-f", "json", stdin=text))
    assert found["perplexity"] == pytest.approx(model.perplexity(lines).per_token)
    assert found["counts"]["ends"] == 5
    shown = said("score", run, "--document", stdin=text)
    assert f"perplexity            {found['perplexity']:.4f}\n" in shown
    assert f"characters            {len(text)}\n" in shown
    cached = json.loads(said("score", run, "--document", "--cache", "window=20,weight=0.3", "-f", "json", stdin=text))
    learnt = json.loads(said("score", run, "--document", "--dynamic", "rate=0.5", "-f", "json", stdin=text))
    assert len({round(each["perplexity"], 6) for each in (found, cached, learnt)}) == 3


def test_pairs_are_ranked_in_every_format(run: Path, tmp_path: Path) -> None:
    model = saccade.load(run, "cpu")
    found = json.loads(said("score", run, "--contrast", "pronoun", "--pairs", "4", "-f", "json"))
    expected = model.contrast("pronoun", count=4)
    assert {name: row["value"] for name, row in found["accuracy"].items()} == {n: s.value for n, s in expected.items()}
    assert found["accuracy"]["all"]["count"] == 16
    other = json.loads(said("score", run, "--contrast", "pronoun", "--pairs", "4", "--seed", "2", "-f", "json"))
    assert other["pairs"] == "pronoun"
    rows = [
        line.split("\t") for line in said("score", run, "--contrast", "all", "--pairs", "1", "-f", "tsv").splitlines()
    ]
    assert rows[0] == ["phenomenon", "accuracy", "low", "high", "pairs"]
    assert len(rows) == 18
    assert rows[-1][0] == "all"
    (tmp_path / "pairs.tsv").write_text("The king sleeps.\tzzzzzz\todd\nThe\tqqqqq\n")
    shown = said("score", run, "--contrast", tmp_path / "pairs.tsv")
    assert shown.splitlines()[0].split()[0] == "phenomenon"
    assert shown.splitlines()[2].split()[0] == "odd"


def test_a_translator_ranks_outputs_of_a_source(translator: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"source": "3 mars 1999", "good": "1999-03-03", "bad": "x", "phenomenon": "date"}) + "\n"
    )
    found = json.loads(said("score", translator, "--contrast", tmp_path / "pairs.jsonl", "-f", "json"))
    good, bad = (each.log_probability for each in
                 saccade.load(translator, "cpu").score(["3 mars 1999"] * 2, ["1999-03-03", "x"]))  # fmt: skip
    assert found["accuracy"]["date"]["value"] == (100.0 if good > bad else 0.0)
    assert "the generated pairs are texts without a source" in refused("score", translator, "--contrast", "agreement")
    (tmp_path / "two.tsv").write_text("a\tb\n")
    assert "it must be source, good, bad" in refused("score", translator, "--contrast", tmp_path / "two.tsv")


def test_what_score_refuses(run: Path, translator: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "empty").write_text("")
    assert "whose texts have no other side" in refused("score", run, tmp_path / "a", tmp_path / "a")
    assert "they go with --document" in refused("score", run, "--cache", "on", stdin="a")
    assert "of lines it must be one of text, jsonl" in refused("score", run, "-f", "json", stdin="a")
    assert "of --document it must be one of text, json" in refused("score", run, "--document", "-f", "tsv", stdin="a")
    assert "is empty; there is nothing to score" in refused("score", run, tmp_path / "empty")
    assert "the text is empty" in refused("score", run, "--document", stdin="")
    assert "leave out SOURCE" in refused("score", run, tmp_path / "a", "--contrast", "all")
    assert "is neither a file nor one of agreement" in refused("score", run, "--contrast", "nothing")
    assert "holds no pairs" in refused("score", run, "--contrast", tmp_path / "empty")
    assert "--pairs: says which pairs are generated, but no pairs are asked for" in refused(
        "score", run, "--pairs", "3"
    )
    of_file = refused("score", run, "--contrast", tmp_path / "empty", "--pairs", "3", "--seed", "0")
    assert "--pairs, --seed: says which pairs are generated, but the pairs are those of a file" in of_file
    assert "name both files" in refused("score", translator)
    assert "which has no use for it" in refused("score", translator, "--document", tmp_path / "a", tmp_path / "a")
    assert "write it as name=value" in refused("score", run, "--document", "--cache", "500", stdin="a")
    assert "windw is not a setting" in refused("score", run, "--document", "--cache", "windw=5", stdin="a")


# ---- evaluate, data check, dry run


def test_the_test_text_is_evaluated(run: Path, tmp_path: Path) -> None:
    found = json.loads(said("evaluate", run, "-f", "json"))
    model = saccade.load(run, "cpu")
    lines = list(sentences(1, "test", 10))
    assert found["scores"]["perplexity"]["value"] == pytest.approx(model.perplexity(lines).per_token)
    (tmp_path / "own.txt").write_text("".join(f"{line}\n" for line in lines))
    own = json.loads(said("evaluate", run, tmp_path / "own.txt", "-f", "json", "--metrics", "bits_per_character"))
    assert list(own["scores"]) == ["bits_per_character"]
    assert own["scores"]["bits_per_character"] == found["scores"]["bits_per_character"]
    text = said("evaluate", run, "--cache", "on", "--dynamic", "steps=30")
    assert "ends:counted|state:carried|cache:500,1,0.1|dynamic:0.1,0,30" in text
    assert "tokens" in text
    assert "perplexity per word" in said("evaluate", run, "--split", "valid", "-f", "markdown")
    assert said("evaluate", run, "-f", "tsv").splitlines()[0].startswith("metric\tvalue")
    assert "which has no use for it" in refused("evaluate", run, "--beam", "2")
    wrong = refused("evaluate", run, "--cache", "foo=3")
    assert wrong.startswith("--cache: foo is not a setting of --cache. settings of --cache: window, theta, weight")
    assert refused("evaluate", run, "--dynamic", "steps=0").startswith("--dynamic: steps is 0: ")
    for name in found["scores"]:
        assert "less is better; say --fail-over" in refused("evaluate", run, "--fail-under", f"{name}=1e9")
    assert saccade_command("evaluate", run, "--fail-over", "perplexity=1").exit_code == 3


def test_intervals_have_the_digits_of_their_scores(run: Path) -> None:
    """In every format; `--resamples` and `--resample-seed` are heard, and gates read the value alone."""
    found = json.loads(said("evaluate", run, "-f", "json"))["scores"]
    for score in found.values():
        assert score["low"] < score["value"] < score["high"]
    bits, words = found["bits_per_character"], found["perplexity_per_word"]
    table = said("evaluate", run)
    assert f"{bits['low']:.4f} – {bits['high']:.4f}" in table
    assert f"{words['low']:.2f} – {words['high']:.2f}" in table
    assert f"& {bits['low']:.4f} -- {bits['high']:.4f} " in said("evaluate", run, "-f", "latex")
    row = next(line for line in said("evaluate", run, "-f", "tsv").splitlines() if line.startswith("bits"))
    assert row.split("\t")[1:4] == [f"{bits[end]:.4f}" for end in ("value", "low", "high")]
    drawn = said("evaluate", run, "-f", "json", "--resamples", "200", "--resample-seed", "5")
    other = json.loads(drawn)["scores"]["bits_per_character"]
    assert (other["value"], other["low"] == bits["low"]) == (bits["value"], False)
    learning = ("--cache", "on", "--resamples", "0")
    none = json.loads(said("evaluate", run, "-f", "json", *learning))["scores"]["perplexity"]
    assert (none["low"], none["high"]) == (None, None)
    assert "fewer than 100" in refused("evaluate", run, "--resamples", "9")
    between = (bits["value"] + bits["high"]) / 2
    assert saccade_command("evaluate", run, "--fail-over", f"bits_per_character={between}").exit_code == 0
    for option in (("--gold", "x"), ("--one-based",)):
        assert "is a run of the task language-model, which has no use for it" in refused("evaluate", run, *option)


def test_files_are_evaluated_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = said("data", "check", path)
    text = (tmp_path / "train.txt").read_text()
    assert "train: 80 rows read, 80 lines kept." in shown
    assert f"{len(text.split()) + 80:,} words (ends counted), {len(text):,} characters" in shown
    assert json.loads(said("data", "check", path, "--json"))["usable"] is True
    planned = saccade_command("train", path, "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert "data: train begins " in planned.stderr
    done = saccade_command("train", path, "--out", "run", "-q")
    assert done.exit_code == 0, done.output
    assert "next: saccade generate run" in done.stderr + done.stdout
    assert "train: 80 lines" in said("info", "run")
    assert "text-generation" in (tmp_path / "run" / "README.md").read_text()
    assert math.isfinite(json.loads(said("evaluate", "run", "-f", "json"))["scores"]["perplexity"]["value"])
    (tmp_path / "train.txt").write_text("")
    assert "train: the text is empty" in refused("data", "check", path)
    no_test = write_texts(tmp_path).read_text().replace("  test: test.txt\n", "")
    (tmp_path / "none.yaml").write_text(no_test)
    assert saccade_command("train", "none.yaml", "--out", "none", "-q").exit_code == 0
    assert "its recipe names no test text" in refused("evaluate", "none")
