"""Searches whose steps are replayed find what those find whose steps are launched; and how a loop is recorded."""

import threading
from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from saccade import replay
from saccade.decode.sampling import DrawConfig
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import SaccadeError
from saccade.models.translator import Translator
from saccade.replay import Advance, Begin, GraphRecorder, Loop, Loops, Replays
from saccade.translate import Engine
from saccade.types import Hypothesis, Tokens, Tree
from tests.cases import TranslatorCase, every_translator, name_of
from tests.equivalence.test_batch_sizes import BEAM, GREEDY, TEXT, GivenTokens, outputs, sources_of
from tests.language_cases import LanguageCase, every_language_model
from tests.language_cases import name_of as name_of_language_model

translators = pytest.mark.parametrize("case", every_translator(), ids=name_of)
configs = pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(beam=1),
        DecodeConfig(beam=3, n_best=3),
        DecodeConfig(beam=4, n_best=4, length="gnmt", alpha=0.6, stop="proven", groups=2, diversity=0.5),
        DecodeConfig(beam=3, stop="length"),
    ],
    ids=["greedy", "beam 3", "beam 4, gnmt, proven, two groups", "to the limit"],
)
LIMITS = [5, 9, 2, 12]


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stands for a graph where there is no GPU: the kernels of one step, which replays start again in the same places.

    No Python of the step runs then: a number that it had worked out would be frozen here as it would be in a graph.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.kernels.append((func, args, kwargs or {}, [x for x in pytree.tree_leaves(made) if isinstance(x, Tensor)]))
        return made

    def start(self) -> None:
        for func, args, kwargs, before in self.kernels:
            made = [x for x in pytree.tree_leaves(func(*args, **kwargs)) if isinstance(x, Tensor)]
            for place, new in zip(before, made, strict=True):
                if place.data_ptr() != new.data_ptr():  # else a view, or written in place
                    place.copy_(new)


def again(run: Callable[[], Tree]) -> Callable[[], Tree]:
    """Records while it runs, which a graph does not: the first time there is nothing left to do."""
    with Tape() as tape:
        told = run()
    begun = False

    def replay() -> Tree:
        nonlocal begun
        if begun:
            tape.start()
        begun = True
        return told

    return replay


@torch.no_grad()
def found(
    model: Translator, source: Tokens, config: DecodeConfig, begin: Begin | None = None
) -> list[list[Hypothesis]]:
    state = model.start(model.encode(source), max(LIMITS))
    return search(model.step, state, limits=LIMITS, config=config, begin=begin)


def assert_same(some: list[list[Hypothesis]], others: list[list[Hypothesis]]) -> None:
    for mine, theirs in zip(some, others, strict=True):
        assert [(each.tokens, each.ended) for each in mine] == [(each.tokens, each.ended) for each in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one.score, other.score, rtol=1e-4, atol=1e-4)
            assert_close(one.token_log_probabilities, other.token_log_probabilities, rtol=1e-4, atol=1e-4)


def turned(source: Tokens) -> Tokens:
    """Other sentences of the same shapes: each begins as another one does."""
    ids = source.ids.clone()
    ids[:, 0] = ids[:, 0].roll(1)
    return Tokens(ids, source.layout, source.parse, source.inside)


def check(case: TranslatorCase, config: DecodeConfig, loops: Loops, device: str) -> None:
    """A search that records, and one of the same shapes that finds the record."""
    model, source = case.build().to(device), case.batch().source.to(torch.device(device))
    for read in (source, turned(source)):
        assert_same(found(model, read, config, loops.begin), found(model, read, config))


@translators
def test_replayed_is_launched(case: TranslatorCase) -> None:
    check(case, DecodeConfig(beam=3, n_best=3), Loops(again), "cpu")


@pytest.mark.parametrize("case", every_translator()[::8], ids=name_of)
def test_searches_of_other_widths_are_kept_apart(case: TranslatorCase) -> None:
    """What differs is the search; on a GPU all models search so."""
    loops = Loops(again)
    check(case, DecodeConfig(beam=3, n_best=3), loops, "cpu")
    check(case, DecodeConfig(beam=1), loops, "cpu")


@configs
def test_replayed_is_launched_with_every_rule(config: DecodeConfig) -> None:
    for case in every_translator()[:3]:
        check(case, config, Loops(again), "cpu")


@pytest.mark.gpu
@configs
@translators
def test_graphs_are_launched_kernels(case: TranslatorCase, config: DecodeConfig) -> None:
    loops = Loops(GraphRecorder(torch.device("cuda")))
    check(case, config, loops, "cuda")  # what cannot be captured is an error
    assert loops.kept or config.stop == "count"  # by count, some are done before the third step


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", every_language_model(), ids=name_of_language_model)
@torch.no_grad()
def test_language_models_write_alike(case: LanguageCase, device: str) -> None:
    model = case.build().eval().to(device)
    loops = Loops(again if device == "cpu" else GraphRecorder(torch.device(device)))
    for config in (DecodeConfig(beam=3, n_best=3), DecodeConfig(beam=1)):
        for _ in range(2):
            some, others = (
                search(model.step, model.start(2, 7), limits=[7, 4], config=config, begin=begin)
                for begin in (loops.begin, None)
            )
            assert_same(some, others)


# ---- loops


def sums(carry: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Fibonacci's numbers, one part of the carry becoming the other; `seen` is written in place."""
    seen = carry["seen"]
    seen.add_(1)
    return {"a": carry["b"], "b": carry["a"] + carry["b"], "seen": seen}, carry["a"] * 10


def begun(first: int = 1) -> dict[str, Tensor]:
    return {"a": torch.tensor(first), "b": torch.tensor(1), "seen": torch.zeros(2)}


def steps_of(loops: Loops, carry: dict[str, Tensor], count: int, name: str = "sums") -> list[int]:
    loop = loops.begin(name, sums, carry)
    told = [int(loop.next()) for _ in range(count)]
    assert loop.carry["seen"].tolist() == [count, count]
    return told


class Counted:
    """Records, and counts how often that was asked and how often what was recorded ran."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, run: Callable[[], Tree]) -> Callable[[], Tree]:
        self.recorded += 1

        def replay() -> Tree:
            self.replayed += 1
            return run()

        return replay


def test_a_loop_is_launched_then_recorded_and_found_again() -> None:
    counted = Counted()
    loops = Loops(counted)
    assert steps_of(loops, begun(), 6) == [10, 10, 20, 30, 50, 80]
    assert (counted.recorded, counted.replayed) == (1, 4)
    assert steps_of(loops, begun(5), 4) == [50, 10, 60, 70]  # from its first step on
    assert (counted.recorded, counted.replayed) == (1, 8)
    assert steps_of(loops, begun(), 2, name="others") == [10, 10]  # too short to be worth it
    assert counted.recorded == 1


def test_other_names_shapes_and_roundings_are_recorded_apart() -> None:
    counted = Counted()
    loops = Loops(counted)
    steps_of(loops, begun(), 3)
    steps_of(loops, begun(), 3, name="others")
    steps_of(loops, {name: each.double() for name, each in begun().items()}, 3)
    assert counted.recorded == 3
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        steps_of(loops, begun(), 3)
    finally:
        torch.set_float32_matmul_precision(before)
    assert counted.recorded == 4


def test_what_was_given_is_not_written_to_by_replays() -> None:
    loops = Loops(again)
    steps_of(loops, begun(), 3)
    mine = begun(7)
    steps_of(loops, mine, 3)
    assert {name: each.tolist() for name, each in mine.items()} == {"a": 7, "b": 1, "seen": [0.0, 0.0]}


def test_a_carry_that_changes_its_shape_is_never_recorded() -> None:
    counted = Counted()
    loop = Loops(counted).begin("grows", lambda x: (torch.cat([x, x[-1:] + 1]), x[-1:]), torch.zeros(1))
    assert [int(loop.next()) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert counted.recorded == 0


def refusing(error: Exception) -> Loops:
    def refuse(run: Callable[[], Tree]) -> Callable[[], Tree]:
        raise error

    return Loops(refuse)


def test_where_memory_runs_out_steps_are_launched_and_it_is_told_once() -> None:
    loops = refusing(torch.OutOfMemoryError("CUDA out of memory. Tried to"))
    with pytest.warns(RuntimeWarning, match="which is slower: CUDA out of memory\\.$"):
        assert steps_of(loops, begun(), 5) == [10, 10, 20, 30, 50]
    assert steps_of(loops, begun(), 5) == [10, 10, 20, 30, 50]


def test_what_cannot_be_captured_is_an_error_that_says_what_to_do() -> None:
    loops = refusing(RuntimeError("operation not permitted when stream is capturing\nmore"))
    with pytest.raises(SaccadeError, match=r"not permitted when stream is capturing Set decode\.graphs=false"):
        steps_of(loops, begun(), 5)


@pytest.mark.parametrize(("most", "most_bytes"), [(128, 60), (2, 1 << 30)])  # two carries have 48 bytes
def test_the_oldest_are_forgotten_where_they_are_too_many(
    most: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    loops = Loops(counted)
    monkeypatch.setattr(replay, "MOST", most)
    monkeypatch.setattr(replay, "MOST_BYTES", most_bytes)
    for name in ("one", "two", "one", "three", "two"):
        steps_of(loops, begun(), 3, name=name)
    assert counted.recorded == 4  # "two" was the last used but one when "three" came
    assert loops.kept == 2
    loops.clear()
    assert loops.kept == 0


def test_a_carry_that_is_too_large_is_replayed_but_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    loops = Loops(counted)
    monkeypatch.setattr(replay, "MOST_BYTES", 10)
    assert steps_of(loops, begun(), 5) == [10, 10, 20, 30, 50]
    assert (counted.replayed, loops.kept) == (3, 0)


def on_the_gpu() -> dict[str, Tensor]:
    return {name: value.cuda() for name, value in begun().items()}


@pytest.mark.gpu
def test_after_all_graphs_are_forgotten_others_are_recorded() -> None:
    """Their memory went with the last of them."""
    loops = Loops(GraphRecorder(torch.device("cuda")))
    for _ in range(3):
        assert steps_of(loops, on_the_gpu(), 5) == [10, 10, 20, 30, 50]
        loops.clear()


@pytest.mark.gpu
def test_a_loop_that_is_under_way_outlives_the_others() -> None:
    loops = Loops(GraphRecorder(torch.device("cuda")))
    under_way = loops.begin("sums", sums, on_the_gpu())
    first = [int(under_way.next()) for _ in range(4)]
    loops.clear()
    assert steps_of(loops, on_the_gpu(), 5) == [10, 10, 20, 30, 50]
    assert [*first, int(under_way.next())] == [10, 10, 20, 30, 50]


@pytest.mark.gpu
def test_after_a_capture_that_failed_others_are_recorded() -> None:
    """Beside one that lives, and when that has gone, too."""
    recorder = GraphRecorder(torch.device("cuda"))
    loops = Loops(recorder)

    def fail() -> Tree:
        torch.zeros(1000, device="cuda")
        raise torch.OutOfMemoryError("none is left. Be modest")

    for name in ("one", "two"):
        assert steps_of(loops, on_the_gpu(), 5, name=name) == [10, 10, 20, 30, 50]
        with pytest.raises(torch.OutOfMemoryError, match="none is left"):
            recorder(fail)
    loops.clear()
    assert steps_of(loops, on_the_gpu(), 5) == [10, 10, 20, 30, 50]


# ---- lines


def engine_of(case: TranslatorCase, device: torch.device, record: Callable[[torch.device], Loops] | None) -> Engine:
    engine = GivenTokens(case.build().to(device), TEXT, device, sources=sources_of(case))
    engine.__dict__["replays"] = None if record is None else Replays(engine.model, record(device))
    return engine


SEVERAL = every_translator()[::8]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", SEVERAL, ids=name_of)
def test_lines_are_translated_alike_where_steps_are_replayed(case: TranslatorCase, device: str) -> None:
    """Filled up with padding, and in batches of other lines: the same outputs; also when weights change in place."""
    where = torch.device(device)
    made = (lambda _: Loops(again)) if device == "cpu" else (lambda where: Loops(GraphRecorder(where)))
    replayed, launched = engine_of(case, where, made), engine_of(case, where, None)
    lines = [source.text for source in sources_of(case)]
    for _ in range(2):
        for config in (BEAM, GREEDY):
            mine, theirs = replayed.translate(lines, config), launched.translate(lines, config)
            assert outputs(mine) == outputs(theirs)
        with torch.no_grad():
            for model in (replayed.model, launched.model):
                model.decoder.output.bias.copy_(torch.linspace(-1, 1, len(model.decoder.output.bias)))
    assert replayed.replays is not None
    assert replayed.replays.loops.kept


def test_weights_that_have_moved_are_recorded_anew() -> None:
    engine = engine_of(SEVERAL[0], torch.device("cpu"), lambda _: Loops(again))
    lines = [source.text for source in sources_of(SEVERAL[0])]
    engine.translate(lines, BEAM)
    assert engine.replays is not None
    before = engine.replays.loops.kept
    output = engine.model.decoder.output
    output.bias = nn.Parameter(torch.linspace(-9, 9, len(output.bias)))
    mine = engine.translate(lines, BEAM)
    assert engine.replays.loops.kept == 2 * before
    engine.__dict__["replays"] = None
    assert outputs(mine) == outputs(engine.translate(lines, BEAM))


@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(beam=3, max_length=6, no_repeat_ngram=2),
        DecodeConfig(beam=1, max_length=6, min_length=3),
        DecodeConfig(max_length=6, sample=DrawConfig()),
        BEAM.model_copy(update={"graphs": False}),
        GREEDY.model_copy(update={"graphs": False}),
    ],
    ids=["no n-gram twice", "least length", "drawn", "switched off", "switched off, greedy"],
)
def test_where_more_is_asked_than_the_model_or_graphs_are_switched_off_steps_are_launched(config: DecodeConfig) -> None:
    engine = engine_of(SEVERAL[0], torch.device("cpu"), lambda _: Loops(again))
    engine.translate([source.text for source in sources_of(SEVERAL[0])], config)
    assert engine.replays is not None
    assert not engine.replays.loops.kept


def test_while_one_thread_replays_another_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that would share a graph's buffers would write into each other's outputs."""
    engine = engine_of(SEVERAL[0], torch.device("cpu"), lambda _: Loops(again))
    lines = [source.text for source in sources_of(SEVERAL[0])]
    expected = outputs(engine.translate(lines, BEAM))
    assert engine.replays is not None
    inside, go_on, found = threading.Event(), threading.Event(), list[object]()
    real = engine.replays.loops.begin

    def held(name: Hashable, advance: Advance, carry: Tree) -> Loop:
        inside.set()
        assert go_on.wait(20)
        return real(name, advance, carry)

    monkeypatch.setattr(engine.replays.loops, "begin", held)
    thread = threading.Thread(target=lambda: found.append(outputs(engine.translate(lines, BEAM))))
    thread.start()
    assert inside.wait(20)
    assert outputs(engine.translate(lines, BEAM)) == expected  # would wait for ever if it replayed, too
    go_on.set()
    thread.join(20)
    assert found == [expected]
