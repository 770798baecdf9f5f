"""A comparison in Python: what it holds, its verdicts, and the page that is made of it."""

import base64
import dataclasses
import gc
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import saccade
from saccade.compare import systems as asked_systems
from saccade.compare.facts import Training, differences, only_seed_differs, training_of
from saccade.compare.measured import frequency_table, remarks_on_answers, statistics_of
from saccade.compare.result import Comparison
from saccade.compare.systems import Produced
from saccade.compare.testset import BETWEEN, Lines
from saccade.errors import UsageError
from saccade.metrics.classification import classification
from saccade.text.tags import Scheme
from saccade.view import charts
from saccade.view.charts import Mark, Scale
from saccade.view.compare import LARGEST, render_html
from saccade.view.table import latex
from tests.unit.test_view import Parsed

RIGHT = [f"the {a} {b} sleeps on {c}" for a in ("old", "red", "new") for b in ("cat", "dog") for c in ("it", "them")]
WORSE = [line.replace("sleeps", "sits") if i % 2 else line for i, line in enumerate(RIGHT)]
WRONG = ["no" for _ in RIGHT]
HOSTILE = "</title></style></script><script>window.broken=1</script><img src=x onerror=window.broken=1>"


def compared(*systems: Sequence[str], **options: Any) -> Comparison:
    return saccade.compare(systems, source=RIGHT, reference=RIGHT, **options)


# ---- verdicts


def test_what_is_better_and_worse() -> None:
    found = compared(WORSE, RIGHT, WRONG, names=["worse", "right", "wrong"], metrics=["chrf"])
    assert "Of 3 systems right has the best chrF2, 100.0." in found.verdict
    assert "Better than worse: right by" in found.verdict
    assert "Worse than worse: wrong by" in found.verdict
    cell = found.cell("right", "chrf")
    assert cell.paired is not None
    assert cell.score.value == pytest.approx(100)
    assert cell.paired.low > 0
    with pytest.raises(UsageError, match="there is no 'bleu' of 'right'"):
        found.cell("right", "bleu")


def test_less_is_better_where_errors_are_counted() -> None:
    found = compared(WORSE, RIGHT, names=["worse", "right"], metrics=["wer"])
    assert "Better than worse: right by" in found.verdict
    assert found.less_is_better == ("wer",)
    [each] = found.differences
    assert (each.wins, each.losses, each.ties) == (6, 0, 6)
    assert [case.line for case in each.better] == [2, 4, 6, 8, 10, 12]
    assert each.better[0].baseline == WORSE[1]
    assert each.better[0].score == 0
    assert ("sleeps", 6, 0) in each.ngrams_better


def test_a_small_difference_is_none_that_is_shown() -> None:
    nearly = [*RIGHT[:-1], "x"]
    found = compared(RIGHT, nearly, names=["right", "nearly"], metrics=["exact_match"])
    assert found.verdict == "No difference from right is shown: nearly (−8.3 exact match, p = 1.000)."


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_one_line_that_differs_is_no_difference_that_is_shown(metric: str) -> None:
    lines = [f"{line} {i}" for i in range(9) for line in RIGHT]
    nearly = [*lines[:50], "quite another line", *lines[51:]]
    found = saccade.compare([lines, nearly], reference=lines, metrics=[metric])
    assert found.verdict.startswith("No difference from system 1 is shown")
    assert "p = 1.000" in found.verdict
    paired = found.to_dict()["scores"][metric][1]["paired"]
    assert (paired["p"], paired["p_holm"]) == (1.0, 1.0)
    assert paired["p_sacrebleu"] == pytest.approx(1 / 10001)


def test_a_tiny_difference_is_told_with_digits_enough() -> None:
    right = [f"{i} {'and so on ' * 200}" for i in range(40)]
    other = [f"{line}x" if i < 10 else line for i, line in enumerate(right)]
    found = saccade.compare([other, right], reference=right, metrics=["cer"])
    assert found.verdict == "Better than system 1: system 2 by 0.02 CER (p = 0.002)."


def test_one_system_and_one_line() -> None:
    alone = compared(WORSE)
    assert alone.verdict.startswith("system 1 has BLEU ")
    assert "difference" not in alone.table().split("\n\n")[2]
    one = saccade.compare([["a b"], ["a c"]], reference=["a b"], metrics=["exact_match"])
    assert one.to_dict()["scores"]["exact_match"][1]["paired"]["p"] is None
    assert "No difference from system 1 is shown" in one.verdict
    assert "exact match on 1 line\n" in one.table()
    assert "this test line alone" in one.table()
    assert "1 lines" not in one.table() + one.table("latex") + render_html(one.to_dict())
    for format_ in ("text", "markdown", "tsv", "latex"):
        assert one.table(format_)
    with pytest.raises(UsageError, match="format is 'docx'"):
        one.table("docx")  # type: ignore[arg-type]


def test_seeds_that_overlap_settle_nothing() -> None:
    groups = {"a": ["system 1", "system 2"], "b": ["system 3", "system 4"]}
    found = compared(RIGHT, WRONG, WORSE, WORSE, groups=groups, metrics=["chrf"])
    assert "overlap: which of them is better these runs do not settle." in found.verdict
    apart = compared(RIGHT, WORSE, WRONG, WRONG, groups=groups, metrics=["chrf"])
    assert "Every seed of a (" in apart.verdict
    assert (
        "is better than every seed of b (0.0 – 0.0)" in apart.verdict or "better than every seed of b" in apart.verdict
    )


def test_a_comparison_is_frozen_and_plain() -> None:
    found = compared(WORSE, RIGHT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.verdict = "mine"  # type: ignore[misc]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert found.outputs == (tuple(WORSE), tuple(RIGHT))


def test_python_names_what_is_wrong() -> None:
    for systems, options, told in [
        ([], {}, "systems: there is none"),
        ([RIGHT[:3]], {}, "system 1 has 3 lines and the test set"),
        ([RIGHT], {"test": "sign"}, "test is 'sign'"),
    ]:
        with pytest.raises(UsageError, match=told):
            compared(*systems, **options)
    with pytest.raises(UsageError, match="the source list has 12 lines and the reference list 1"):
        saccade.compare([RIGHT], source=RIGHT, reference=["x"])


def test_repeated_names_make_no_name_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "a (2)"):
        Path(name).write_text("x\n")
    found = saccade.compare(["a", "a", "a (2)", "a"], reference=["x"], metrics=["exact_match"])
    assert [system.name for system in found.systems] == ["a", "a (3)", "a (2)", "a (4)"]


# ---- speed


def test_short_passes_are_timed_thrice_without_rubbish(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pass is slow, the second fast: the median is told, and outputs are those of the first."""
    took, now, asked = iter([0.9, 0.1, 0.3]), [0.0], list[tuple[int, bool]]()

    def ask(some: Sequence[int]) -> int:
        asked.append((len(some), gc.isenabled()))
        now[0] += next(took) if len(some) == 100 else 5.0
        return len(asked)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    made, seconds = asked_systems._timed(ask, range(100), torch.device("cpu"))
    assert seconds == pytest.approx(0.3)
    assert made == 2
    assert asked == [(64, True), (100, False), (100, False), (100, False)]
    assert gc.isenabled()
    took, asked[:] = iter([2.0]), []
    assert asked_systems._timed(ask, range(100), torch.device("cpu"))[1] == pytest.approx(2.0)
    assert len(asked) == 2


# ---- tags


def tag_lines(words: Sequence[str], tags: Sequence[str]) -> Lines:
    return Lines([BETWEEN.join(words)] * 2, [" ".join(words)] * 2, [(" ".join(tags),)] * 2, "test")


def tagged_by(scheme: Scheme, tags: str) -> Produced:
    return Produced([tags, tags], {}, 0, 1.0, 0, None, "cpu", scheme)


def test_ill_formed_tags_are_scored_as_evaluate_scores_them() -> None:
    """I-X behind O is none of IOB2: its span is right, its tag is not."""
    lines, made = tag_lines("abc", ["O", "B-X", "I-X"]), [tagged_by("iob2", "O I-X I-X")]
    tables, _ = statistics_of("tag", None, lines, [each.outputs for each in made], made)
    assert tables["accuracy"][0].value() == pytest.approx(100 * 2 / 3)
    assert tables["f1"][0].value() == 100
    assert remarks_on_answers("tag", ["a"], lines, [made[0].outputs], made) == []


def test_unlike_schemes_are_told() -> None:
    lines = tag_lines("abc", ["O", "B-X", "I-X"])
    made = [tagged_by("bioes", "O B-X E-X"), tagged_by("iob1", "O I-X I-X")]
    outputs = [each.outputs for each in made]
    tables, _ = statistics_of("tag", None, lines, outputs, made)
    assert [table.value() for table in tables["accuracy"]] == [100, 100]
    [remark] = remarks_on_answers("tag", ["a", "b"], lines, outputs, made)
    assert "unlike schemes (bioes, iob1)" in remark
    by_word = frequency_table("tag", lines, outputs, made, Counter(["a"]), "the test set")
    assert by_word is not None
    assert by_word.values == ((100.0, 100.0), (100.0, 100.0))


# ---- labels


def test_answers_that_are_no_label_are_counted_and_keep_tables_small() -> None:
    count = 3000
    lines = Lines(["x"] * count, ["x"] * count, [("a",) if i % 2 else ("b",) for i in range(count)], "test")
    few, many = ["a", "c"] * (count // 2), [f"line {i}" for i in range(count)]
    tables, _ = statistics_of("classify", None, lines, [few, few], [None, None])
    assert list(tables) == ["accuracy", "macro_f1"]
    assert tables["macro_f1"][0].value() == classification([r[0] for r in lines.references], few).macro_f1.value
    [told] = remarks_on_answers("classify", ["few"], lines, [few], [None])
    assert told == "few: 1,500 of 3,000 answers are no label of the test set."
    tables, _ = statistics_of("classify", None, lines, [few, many], [None, None])
    assert list(tables) == ["accuracy"]
    why, *_, last = remarks_on_answers("classify", ["few", "many"], lines, [few, many], [None, None])
    assert why.startswith("macro-F1 is left out")
    assert last == "many: 3,000 of 3,000 answers are no label of the test set."


# ---- run folders


def test_recipes_side_by_side() -> None:
    one: dict[str, Any] = {"seed": 1, "model": {"kind": "lstm", "width": 8}}
    other = {"seed": 2, "model": {"kind": "gru", "width": 8}}
    assert differences([one, None, other]) == {"seed": (1, None, 2), "model.kind": ("lstm", None, "gru")}
    assert differences([None]) == {}


def trained(recipe: dict[str, Any], step: int | None = None) -> Training:
    return Training("lstm", recipe["seed"], 9, None, None, None, recipe, step)


def test_seeds_of_a_recipe_differ_in_nothing_else() -> None:
    one = {"seed": 1, "model": {"kind": "lstm", "width": 8}}
    nine, other = {**one, "seed": 9}, {"seed": 2, "model": {"kind": "gru", "width": 8}}
    assert only_seed_differs(trained(one), trained(nine))
    assert only_seed_differs(trained(one, 4), trained(nine, 4))
    assert not only_seed_differs(trained(one, 4), trained(nine, 8))
    assert not only_seed_differs(trained(one), trained(one))
    assert not only_seed_differs(trained(one), trained(other))


def test_a_folder_that_tells_little(run: Path) -> None:
    whole = training_of(run)
    assert (whole.updates, whole.seed) == (8, 1)
    assert whole.tokens
    assert whole.seconds
    (run / "metrics.jsonl").write_text("{not json\n[]\n")
    for state in run.glob("checkpoints/*/state.json"):
        state.unlink()
    (run / "environment.json").unlink()
    bare = training_of(run)
    assert (bare.updates, bare.tokens, bare.seconds, bare.machine) == (None, None, None, None)


# ---- the page


def page_of(**options: Any) -> str:
    return render_html(compared(WORSE, RIGHT, WRONG, **options).to_dict())


def test_hostile_text_stays_text() -> None:
    lines = [f"{HOSTILE} {i} {{{{style}}}} \x00 \u202e \ud800" for i in range(12)]
    found = saccade.compare(
        [[f"{line} x" for line in lines], lines],
        source=lines, reference=lines, names=[HOSTILE, f"{HOSTILE}2"], command=HOSTILE,
    )  # fmt: skip
    plain, hostile = Parsed(page_of(metrics=["chrf"])), Parsed(render_html(found.to_dict()))
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in plain.tags} | {"pre"}
    assert not {"script", "img", "iframe"} & {tag for tag, _ in hostile.tags}
    assert not [a for _, a in hostile.tags if any(k == "style" or k.startswith("on") for k in a)]
    assert any(HOSTILE in text for _, text in hostile.texts)
    assert "{{style}}" in render_html(found.to_dict())


def test_the_page_allows_its_style_and_nothing_else() -> None:
    text = page_of()
    parsed = Parsed(text)
    [policy] = [a["content"] for _, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    [style] = re.findall(r"<style>(.*?)</style>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in str(policy)
    assert "default-src 'none'" in str(policy)
    assert [v for _, a in parsed.tags for k, v in a.items() if k in ("src", "href", "action", "srcset")] == ["data:,"]
    assert not re.search(r"https?:|url\(|@import", text)


def test_the_page_is_in_the_order_of_a_readers_questions() -> None:
    groups = {"a": ["system 1", "system 2"]}
    text = page_of(groups=groups)
    places = [text.index(f'id="{name}"') for name in ("verdict", "scores", "seeds", "buckets", "differences", "about")]
    assert places == sorted(places)
    assert 'id="costs"' not in text  # lists of lines have none


def test_a_page_is_never_larger_than_it_may_be() -> None:
    found = compared(WORSE, RIGHT, metrics=["chrf"]).to_dict()
    [each] = found["differences"]
    case = {**each["better"][0], "source": "word " * 200, "output": "word " * 200}
    each["better"] = [{**case, "line": number} for number in range(1500)]
    text = render_html(found)
    assert LARGEST / 4 < len(text.encode()) <= LARGEST
    assert f"line {1500 // 4:,}<" in text
    assert "line 1,499<" not in text


def test_ngrams_are_cut_and_left_out_like_examples() -> None:
    long = [f"{'x' * 5000}{i}" for i in range(12)]
    found = saccade.compare([WRONG, long], reference=long, metrics=["exact_match"]).to_dict()
    [each] = found["differences"]
    assert each["ngrams_better"]
    assert all(len(gram) <= 1001 for gram, _, _ in each["ngrams_better"])
    each["ngrams_better"] = [("y" * 1000, 1, 0)] * 20000
    text = render_html(found)
    assert LARGEST / 4 < len(text.encode()) <= LARGEST


def test_equal_examples_come_in_the_order_of_the_file() -> None:
    [each] = compared(RIGHT, WORSE, metrics=["exact_match", "wer"], examples=4).differences
    [other] = saccade.compare([["a"] * 6, ["b"] * 6], reference=["a"] * 6, metrics=["wer"], examples=4).differences
    assert each.losses == 6
    assert [case.line for case in other.worse] == [1, 2, 3, 4]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.booleans())
@example([1.1], False)
@settings(max_examples=50)
def test_scales_hold_all_values_and_round_ticks(values: list[float], zero: bool) -> None:
    scale = Scale.of(values, zero=zero)
    assert all(0 <= scale.share(value) <= 1 for value in values)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())
    assert 1 <= len(scale.ticks()) <= 12


def test_logarithmic_scales_and_marks() -> None:
    scale = Scale.of([10, 100000], logarithmic=True)
    assert scale.share(1000) == pytest.approx(0.5)
    assert scale.ticks()
    assert set(scale.ticks()) <= {10, 100, 1000, 10000, 100000}
    assert len({(Mark(i).colour, Mark(i).shape) for i in range(16)}) == 16
    assert [charts.number(n) for n in (0.5, -20, 1000, 20000, 1.5e6)] == ["0.5", "−20", "1,000", "20k", "1.5M"]


def test_latex_sets_what_the_text_says() -> None:
    rows = [{"a_b": "5 %", "n": "1.0"}, {"a_b": r"\x{}&#$~^<>", "n": "2"}]
    made = re.sub(" +", " ", latex(rows, ["a_b", "n"], caption="p ≥ 5 %"))
    assert made.endswith("\\caption{p $\\geq$ 5 \\%}\n\\end{table}")
    assert r"\begin{tabular}{lr}" in made
    assert r"a\_b & n \\" in made
    assert r"\textbackslash{}x\{\}\&\#\$\textasciitilde{}\textasciicircum{}\textless{}\textgreater{} & 2 \\" in made
