"""Several runs as one model, by formula: ensembles, fusion, the noisy channel; and the tokenizer of another run."""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import saccade
from saccade import Model, UsageError, config
from saccade.decode.ensemble import Mix, mixed
from saccade.decode.scores import normalised
from saccade.errors import SaccadeError
from saccade.generate import Engine as Writer
from saccade.integrity import verify_run
from saccade.lines import Output, Request
from saccade.partners import begin_writing
from saccade.recipe import parse_recipe
from saccade.text import TextPair
from saccade.types import END, START
from tests.support.cli import saccade_command
from tests.support.joint import make_corpus, make_run
from tests.support.language import DECODERS

LINES = ["abc", "hgfedcba", "", "a", "badcafe", "ee", "abc def"]
mixes = pytest.mark.parametrize("mix", ["log-linear", "linear"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_corpus(tmp_path_factory.mktemp("joint"))
    make_run(folder, "lstm")
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def loaded(*names: str) -> list[Model]:
    """Runs by their names, as seen from home."""
    for name in names:
        make_run(Path.cwd(), name)
    return [saccade.load(name, "cpu") for name in names]


def tokens(
    model: Model, lines: list[str] = LINES, beam: int | None = None, n_best: int | None = None
) -> list[list[tuple[int, ...]]]:
    found = model.translate(lines, beam=beam, n_best=n_best)
    return [[each.tokens for each in one.hypotheses] for one in found]


def forced(model: Model, line: str, written: Sequence[int]) -> Tensor:
    """(T, V): the model's own log-probabilities of every next token, stepped one by one."""
    (source,) = model.engine.read([line])
    step, state = model.engine.begin([source], len(written))
    rows = []
    with torch.inference_mode():
        for last in (START, *written[:-1]):
            logits, state = step(torch.tensor([last]), state)
            rows.append(logits[0].float().log_softmax(-1))
    return torch.stack(rows)


def prior(writer: Writer, written: Sequence[int]) -> Tensor:
    """(T, V): what a language model says of every next token, each read anew behind END."""
    rows = []
    with torch.inference_mode():
        for t in range(len(written)):
            ids = [END, *written[:t]]
            logits, _ = writer.model.prefill(torch.tensor([ids]), writer.model.start(1, len(ids)))
            rows.append(logits[0, -1].float().log_softmax(-1))
    return torch.stack(rows)


def all_written(model: Model, beam: int, n_best: int = 1) -> Iterator[tuple[str, Output, list[int]]]:
    for line, found in zip(LINES, model.translate(LINES, beam=beam, n_best=n_best), strict=True):
        for each in found.hypotheses if line else ():
            yield line, each, [*each.tokens, END] if each.ended else list(each.tokens)


# ---- ensembles


def test_an_ensemble_of_one_is_the_model() -> None:
    (model,) = loaded("lstm")
    assert saccade.ensemble([model]).translate(LINES, beam=4, n_best=4) == model.translate(LINES, beam=4, n_best=4)


@mixes
@pytest.mark.parametrize("name", ["lstm", "transformer"])
@pytest.mark.parametrize("beam", [1, 4])
def test_an_ensemble_of_equals_is_the_model(mix: Mix, name: str, beam: int) -> None:
    model, twin = loaded(name, name)
    both = saccade.ensemble([model, twin], mix=mix, weights=[3, 1])
    for one, other in zip(both.translate(LINES, beam=beam), model.translate(LINES, beam=beam), strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-5)


@mixes
def test_unlike_architectures_mix_by_the_formula(mix: Mix) -> None:
    """LSTM and Transformer, whose sources are cut otherwise; sentences leave the beam one by one."""
    members, weights = loaded("lstm", "transformer"), [0.7, 0.3]
    both = saccade.ensemble(members, weights=weights, mix=mix)
    assert both.parameters == sum(member.parameters for member in members)
    found = list(all_written(both, beam=4, n_best=4))
    assert len(found) > len(LINES)
    assert len({len(written) for _, _, written in found}) > 1
    for line, each, written in found:
        alone = [forced(member, line, written) for member in members]
        expected = mixed(alone, weights, mix).gather(1, torch.tensor(written)[:, None]).squeeze(1)
        assert_close(torch.tensor(each.token_log_probabilities), expected, rtol=1e-4, atol=1e-4)
    for line, scored in zip(LINES, both.score(LINES, LINES), strict=True):
        written = [*both.engine.text.target.encode(line), END]
        together = mixed([forced(member, line, written) for member in members], weights, mix)
        expected = together.gather(1, torch.tensor(written)[:, None]).squeeze(1)
        assert_close(torch.tensor(scored.token_log_probabilities), expected, rtol=1e-4, atol=1e-4)


def test_order_of_members_and_batches_change_nothing() -> None:
    lstm, transformer = loaded("lstm", "transformer")
    both = saccade.ensemble([lstm, transformer], weights=[2, 1])
    swapped = saccade.ensemble([transformer, lstm], weights=[1, 2])
    assert tokens(both, beam=3, n_best=3) == tokens(swapped, beam=3, n_best=3)
    alone = [both.translate(line, beam=3).text for line in LINES]
    assert alone == [each.text for each in both.translate(LINES, beam=3)]
    assert tokens(both) != tokens(lstm)  # the other one is heard


def test_all_that_a_search_can_be_asked_for_is_asked_of_an_ensemble() -> None:
    """Coverage is that of the first model, whose state lies in those of all; a prefix is written by all."""
    lstm, twin, lm = loaded("lstm", "lstm", "lm")
    settings = ["coverage=0.4", "stop=proven", "no_repeat_ngram=2"]
    expected = lstm.translate(LINES, beam=4, n_best=4, settings=settings)
    for model in (saccade.ensemble([lstm, twin]), saccade.fused(saccade.ensemble([lstm, twin]), lm, weight=1e-9)):
        for one, other in zip(model.translate(LINES, beam=4, n_best=4, settings=settings), expected, strict=True):
            assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]
            assert [each.score for each in one.hypotheses] == pytest.approx(
                [each.score for each in other.hypotheses], abs=1e-4
            )
    both = saccade.ensemble(loaded("lstm", "transformer"))
    assert both.translate(Request("abc", prefix="hag"), beam=3).text.startswith("hag")


def test_members_that_read_parses_and_members_that_do_not() -> None:
    """Lines come with heads where any member reads them; each reads its own tokens."""
    lstm, tree = loaded("lstm", "tree")
    parsed = [f"{line}\t{' '.join('0' if n == 0 else '1' for n in range(len(line.split())))}" for line in LINES]
    ahead, behind = saccade.ensemble([lstm, tree]), saccade.ensemble([tree, lstm])
    assert [each.source for each in ahead.translate(parsed)] == LINES
    assert tokens(ahead, parsed, beam=2) == tokens(behind, parsed, beam=2)
    with pytest.raises(UsageError, match=r"line 1 .*The model reads dependency trees"):
        ahead.translate(LINES)
    for line, found in zip(parsed, ahead.translate(parsed), strict=True):
        written = [*found.hypotheses[0].tokens, END][: len(found.hypotheses[0].token_log_probabilities)]
        if written:
            alone = [forced(lstm, line.partition("\t")[0], written), forced(tree, line, written)]
            log_p = mixed(alone, [0.5, 0.5], "log-linear").gather(1, torch.tensor(written)[:, None]).sum().item()
            assert found.hypotheses[0].log_probability == pytest.approx(log_p, abs=1e-3)


def test_evaluation_and_perplexity_of_an_ensemble() -> None:
    both = saccade.ensemble(loaded("lstm", "transformer"))
    found = both.evaluate(["abc", "de"], ["cba", "ed"], metrics=["chrf", "perplexity"])
    nll = -sum(each.log_probability for each in both.score(["abc", "de"], ["cba", "ed"]))
    assert found["perplexity"].value == pytest.approx(math.exp(nll / 7), rel=1e-4)


def test_what_cannot_be_an_ensemble_is_refused() -> None:
    lstm, transformer, other, lm = loaded("lstm", "transformer", "bytes", "lm")
    both = saccade.ensemble([lstm, transformer])
    for models, told in (
        ([], "there are none"),
        ([lstm, other], r"bytes: does not share the target vocabulary of lstm: lstm has \d+ target tokens, bytes 260"),
        ([lstm, lm], "lm: is a run of the task language-model"),
        ([both, lstm], "is of several models already"),
    ):
        with pytest.raises(UsageError, match=told):
            saccade.ensemble(models)
    with pytest.raises(UsageError, match="mix is 'cubic'; it must be log-linear or linear"):
        saccade.ensemble([lstm, transformer], mix="cubic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="explain shows the inside of one model"):
        both.explain("abc")
    away = saccade.load("transformer", "cpu")
    away.loaded = replace(away.loaded, device=torch.device("meta"))
    with pytest.raises(UsageError, match="transformer: is on meta, lstm on cpu"):
        saccade.ensemble([lstm, away])


def test_the_first_token_that_differs_is_named(tmp_path: Path) -> None:
    (lstm,) = loaded("lstm")
    pieces = lstm.engine.text.target.model.pieces()
    text = (Path("lstm") / "tokenizer_target.json").read_text(encoding="utf-8")
    swapped = text.replace(f'"{pieces[-1]}": {len(pieces) - 1}', f'"Z": {len(pieces) - 1}')
    if swapped == text:
        swapped = text.replace(f'"{pieces[-1]}":{len(pieces) - 1}', f'"Z":{len(pieces) - 1}')
    assert swapped != text
    other = saccade.load("lstm", "cpu")
    target = type(lstm.engine.text.target).from_json(swapped)
    other.engine = replace(other.engine, text=replace(other.engine.text, target=target))
    other.path = tmp_path
    with pytest.raises(UsageError, match=f"token {len(pieces) - 1} is '{pieces[-1]}' in lstm and 'Z' in"):
        saccade.ensemble([lstm, other])


# ---- fusion


@pytest.mark.parametrize("name", ["lm", "lm-transformer"])
@pytest.mark.parametrize("beam", [1, 4])
def test_fused_scores_are_the_formula(name: str, beam: int) -> None:
    model, lm = loaded("lstm", name)
    both = saccade.fused(model, lm, weight=0.4)
    for line, each, written in all_written(both, beam=beam, n_best=beam):
        summed = forced(model, line, written) + 0.4 * prior(lm.writer, written)
        expected = summed.gather(1, torch.tensor(written)[:, None]).squeeze(1)
        assert_close(torch.tensor(each.token_log_probabilities), expected, rtol=1e-4, atol=1e-3)
        decode = both.decode
        assert each.score == pytest.approx(
            normalised(expected.sum().item(), len(written), decode.length, decode.alpha), abs=1e-3
        )


def test_without_weight_a_language_model_is_not_heard_and_with_much_it_is() -> None:
    model, lm = loaded("transformer", "lm")
    assert tokens(saccade.fused(model, lm, weight=0.0)) == tokens(model)
    assert tokens(saccade.fused(model, lm, weight=3.0)) != tokens(model)


def test_an_ensemble_with_a_language_model() -> None:
    lstm, transformer, lm = loaded("lstm", "transformer", "lm")
    every = saccade.fused(saccade.ensemble([lstm, transformer]), lm, weight=0.3)
    for line, each, written in all_written(every, beam=3):
        alone = [forced(lstm, line, written), forced(transformer, line, written)]
        summed = mixed(alone, [0.5, 0.5], "log-linear") + 0.3 * prior(lm.writer, written)
        expected = summed.gather(1, torch.tensor(written)[:, None]).sum().item()
        assert each.log_probability == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_language_model_of_windows_reads_its_later_half_anew(length: int) -> None:
    """As `generate` does: where all that stands before is more than the window, its last half is kept."""
    (lm,) = loaded("lm-short")
    writer = replace(lm.writer, read=lm.writer.read.model_copy(update={"length": length}))
    written = [260 + n % 5 for n in range(13)]
    before = [START, *written[:-1]]
    step, state = begin_writing(writer, 2, len(written))
    prefill, begun = begin_writing(writer, 2, len(written), forced=True)
    rows: list[Tensor] = []
    ids: list[int] = []
    with torch.inference_mode():
        at_once, _ = prefill(torch.tensor([before, before]), begun)
        for last in before:
            logits, state = step(torch.tensor([last, last]), state.select_hypotheses(torch.tensor([1, 0])))
            rows.append(logits)
            ids = [*ids, END if last == START else last]
            ids = ids if len(ids) <= length else ids[-max(1, length // 2) :]
            expected, _ = writer.model.prefill(torch.tensor([ids]), writer.model.start(1, len(ids)))
            assert_close(logits[0], expected[0, -1], rtol=1e-4, atol=1e-4)
    assert_close(torch.stack(rows, 1), at_once, rtol=1e-4, atol=1e-4)


def test_outputs_longer_than_the_window_are_written() -> None:
    model, lm = loaded("lstm", "lm-short")
    found = saccade.fused(model, lm, weight=0.1).translate(["abcdefgh" * 3], beam=3)
    assert math.isfinite(found[0].score)


def test_what_cannot_be_fused_is_refused() -> None:
    lstm, transformer, lm, other, files = loaded("lstm", "transformer", "lm", "lm-bytes", "lm-files")
    with pytest.raises(UsageError, match="lm-bytes: does not share the target vocabulary of lstm"):
        saccade.fused(lstm, other)
    with pytest.raises(UsageError, match="lm-files: its END closes a file"):
        saccade.fused(lstm, files)
    with pytest.raises(UsageError, match="transformer: is a run of the task translate"):
        saccade.fused(lstm, transformer)
    with pytest.raises(UsageError, match="is fused with a language model already"):
        saccade.fused(saccade.fused(lstm, lm), lm)
    with pytest.raises(UsageError, match="weight is -1; it must be a number that is not negative"):
        saccade.fused(lstm, lm, weight=-1.0)
    with pytest.raises(UsageError, match="no log-probabilities, so they have no perplexity"):
        saccade.fused(lstm, lm).evaluate(["abc"], ["cba"], metrics=["perplexity"])


# ---- the noisy channel


@pytest.mark.parametrize(("length", "alpha"), [("none", 1.0), ("average", 1.0), ("gnmt", 0.6)])
def test_the_noisy_channel_is_its_formula(length: str, alpha: float) -> None:
    direct, back, lm = loaded("lstm", "back", "lm-bytes")
    every = saccade.reranked(direct, channel=back, channel_weight=0.7, language_model=lm, lm_weight=0.3)
    config = direct.decoding(beam=4, n_best=4, settings=[f"length={length}", f"alpha={alpha}"])
    plain, found = direct.engine.translate(LINES, config), every.engine.translate(LINES, config)
    for line, before, after in zip(LINES, plain, found, strict=True):
        if not line:
            assert before == after
            continue
        expected = {}
        for each in before.hypotheses:
            (of_channel,), (of_text,) = back.score([each.text], [line]), lm.score([each.text])
            total = each.log_probability + 0.7 * of_channel.log_probability + 0.3 * of_text.log_probability
            score = normalised(total, len(each.token_log_probabilities), config.length, alpha)
            parts = (each.log_probability, of_channel.log_probability, of_text.log_probability)
            expected[each.tokens] = (score, parts)
        assert {each.tokens for each in after.hypotheses} == expected.keys()
        for each in after.hypotheses:
            score, parts = expected[each.tokens]
            assert each.score == pytest.approx(score, abs=1e-4)
            assert tuple(each.features.values()) == pytest.approx(parts, abs=1e-4)
            assert tuple(each.features) == ("direct", "channel", "lm")
        scores = [each.score for each in after.hypotheses]
        assert scores == sorted(scores, reverse=True)
    best = every.engine.translate(LINES, config.model_copy(update={"n_best": 1}))
    assert [each.text for each in best] == [each.text for each in found]  # the whole beam is ranked, whatever is kept
    order = [[each.tokens for each in one.hypotheses] for one in found]
    assert order != [[each.tokens for each in one.hypotheses] for one in plain]


def test_channel_or_language_model_alone_and_without_weight() -> None:
    direct, back, lm = loaded("lstm", "back", "lm-bytes")
    for judged, names in (
        (saccade.reranked(direct, channel=back), ["direct", "channel"]),
        (saccade.reranked(direct, language_model=lm), ["direct", "lm"]),
    ):
        assert list(judged.translate("abc").hypotheses[0].features) == names
    nothing = saccade.reranked(direct, channel=back, channel_weight=0.0)
    assert tokens(nothing, beam=4, n_best=4) == tokens(direct, beam=4, n_best=4)


def test_a_channel_scores_what_was_read_of_a_line() -> None:
    direct, back = loaded("lstm", "back")
    direct.engine = replace(direct.engine, max_source=3)
    (found,) = saccade.reranked(direct, channel=back).translate(["abcdefgh"])
    assert found.cut
    (expected,) = back.score([found.text], ["abc"])
    assert found.hypotheses[0].features["channel"] == pytest.approx(expected.log_probability, abs=1e-4)


def test_what_cannot_rank_is_refused() -> None:
    lstm, tree, lm, back = loaded("lstm", "tree", "lm", "back")
    for asked, told in (
        ({}, "neither is given"),
        ({"channel": lm}, "lm: is a run of the task language-model"),
        ({"language_model": back}, "back: is a run of the task translate"),
        ({"channel": tree}, "tree: reads dependency trees"),
        ({"channel": back, "channel_weight": -1.0}, "the channel's weight is -1"),
        ({"language_model": lm, "lm_weight": math.nan}, "the language model's weight is nan"),
    ):
        with pytest.raises(UsageError, match=told):
            saccade.reranked(lstm, **asked)
    with pytest.raises(UsageError, match="ranked anew already"):
        saccade.reranked(saccade.reranked(lstm, channel=back), language_model=lm)


def test_everything_at_once() -> None:
    lstm, transformer, lm, back = loaded("lstm", "transformer", "lm", "back")
    every = saccade.reranked(saccade.fused(saccade.ensemble([lstm, transformer]), lm), channel=back)
    found = every.evaluate(["abc", "", "de"], ["cba", "", "ed"], metrics=["chrf"])
    assert len(found.translations) == 3
    assert every.parameters == sum(each.parameters for each in (lstm, transformer, lm, back))


# ---- a language model on a translator's tokens


def language_recipe(**text: Any) -> dict[str, Any]:
    return {
        "task": "language-model",
        "data": {"kind": "text", "train": "train.tgt", "valid": "valid.tgt"},
        "text": {"kind": "run", **text},
        "model": {"decoder": DECODERS["gru"]},
        "read": {"kind": "streams", "streams": 2, "steps": 8},
        "train": {"updates": 1, "batch_tokens": 64, "validate_every": 1},
    }


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_run_may_take_the_tokenizer_of_another(home: Path, tmp_path: Path, side: str) -> None:
    make_run(home, "transformer")
    recipe = parse_recipe(language_recipe(run="transformer", side=side))
    assert recipe.vocabularies(home)[1]
    saccade.train(recipe, tmp_path / "run", base=home, device="cpu")
    theirs = getattr(TextPair.load(home / "transformer"), side)
    assert TextPair.load(tmp_path / "run").source == theirs
    assert recipe.vocabularies(home)[0] == {"text": theirs.size}
    assert verify_run(tmp_path / "run").ok
    assert "the tokens of transformer" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "run").rename(tmp_path / "moved")  # nothing of the other run is needed any more
    assert saccade.load(tmp_path / "moved", "cpu").generate("a", max_tokens=3).prompt == "a"


def test_a_language_model_goes_on_without_the_run_its_tokenizer_came_from(home: Path, tmp_path: Path) -> None:
    other = shutil.copytree(make_run(home, "lstm"), tmp_path / "other")
    tree = language_recipe(run=str(other))
    dry = home / "dry.yaml"
    dry.write_text(config.to_yaml(tree), encoding="utf-8")
    told = saccade_command("train", dry, "--dry-run")
    assert told.exit_code == 0, told.stderr
    assert f"with {TextPair.load(other).target.size} tokens" in told.stderr
    saccade.train(parse_recipe(tree), tmp_path / "run", base=home, device="cpu")
    shutil.rmtree(other)
    more = {**tree, "train": {**tree["train"], "updates": 2}}
    done = saccade.train(parse_recipe(more), tmp_path / "run", base=home, device="cpu", resume=True)
    assert done.finished.update == 2


def test_a_run_whose_tokenizer_cannot_be_taken_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"text\.run: .*nowhere: is no run folder"):
        saccade.train(parse_recipe(language_recipe(run="nowhere")), tmp_path / "run", base=home, device="cpu")
    shutil.copytree(make_run(home, "lstm"), tmp_path / "damaged")
    file = tmp_path / "damaged" / "tokenizer_target.json"
    file.write_text(file.read_text(encoding="utf-8").replace("a", "b", 1), encoding="utf-8")
    recipe = parse_recipe(language_recipe(run=str(tmp_path / "damaged")))
    with pytest.raises(SaccadeError, match=r"text\.run: .*tokenizer_target\.json"):
        saccade.train(recipe, tmp_path / "other", base=home, device="cpu")
    with pytest.raises(UsageError, match="side"):
        parse_recipe(language_recipe(run="lstm", side="left"))
    with pytest.raises(UsageError, match=r"text\.kind"):
        parse_recipe({**language_recipe(run="lstm"), "task": "masked-language-model"})
