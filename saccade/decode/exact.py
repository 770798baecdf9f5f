"""Exact search: the best of all outputs that END closes within the limit, by depth-first branch and bound.

Stahlberg and Byrne (2019): a prefix's log-probability only falls as it grows. So a prefix that is no better than the
best output found so far cannot become one, and is left with all that begins with it. What is left over when nothing is
open any more is the mode of the model. With length normalisation a prefix may still gain what the best of the lengths
ahead of it would give; that is its bound.

Many sentences are searched side by side: a round takes the top prefixes of every sentence's stack and steps them
together. A source's memory and a parent's state are kept once for all open children. Shapes: B sentences, N prefixes
stepped in a round, V vocabulary, K children kept.
"""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from saccade.decode.scores import LengthRule, allowed_log_probabilities, normalised
from saccade.errors import SaccadeError, UsageError
from saccade.types import END, START, Hypothesis, State, Step, Tree

_SPARE = 16
"""Beside one for each step of its limit, a sentence may keep so many × `width` states."""


@dataclass(frozen=True)
class ExactRule:
    """What is looked for, and how long."""

    length: LengthRule = "none"
    alpha: float = 1.0
    expansions: int = 10_000
    """Prefixes of a sentence that are stepped before its search is given up."""
    seconds: float | None = None
    """The time of a sentence, before its search is given up: of each round its share of the prefixes stepped."""
    width: int = 8
    """Prefixes of a sentence stepped together. More use a machine better, and find out later that some were vain."""
    memory: int = 1 << 32
    """Bytes that the states of open prefixes may take; sentences wait until there is room for them."""


@dataclass(frozen=True)
class Exact:
    """What an exact search of one sentence has found."""

    best: Hypothesis | None
    """The mode if `proved`, else the best that was found; None where nothing ended."""
    proved: bool
    """False: the budget ran out."""
    bound: float
    """No output scores more than this; the score of `best` if `proved`."""
    empty: float
    """The log-probability of the empty output: END at once."""
    expansions: int
    """How many prefixes were stepped."""
    seconds: float

    @property
    def is_empty(self) -> bool:
        """The mode is proved to be the empty output."""
        return self.proved and self.best is not None and not self.best.tokens


@torch.inference_mode()
def exact_search(
    step: Step,
    state: State,
    *,
    limits: Sequence[int],
    rule: ExactRule = ExactRule(),  # noqa: B008 it is frozen
    found: Sequence[Hypothesis | None] | None = None,
) -> list[Exact]:
    """The best output of each sentence under `rule`. `state` has one hypothesis a sentence.

    `found`: an output of each sentence that is known, of a beam search for example, with its log-probabilities. Where
    it has ended, the search begins with it as the best so far: the better it is, the less there is to search.
    Outputs that do not end within the limit do not compete.
    """
    if rule.expansions < 1 or rule.width < 1 or (rule.seconds is not None and not rule.seconds > 0):
        raise UsageError(f"expansions, width and seconds must be positive; got {rule}.")
    known = [None] * len(limits) if found is None else found
    if len(known) != len(limits):
        raise UsageError(f"found: must have one output or None for each of the {len(limits)} sentences; {len(known)}.")
    sentences = [_Sentence(i, limit, rule, known[i]) for i, limit in enumerate(limits)]
    waiting = deque(sentence for sentence in sentences if sentence.limit > 0)
    pool = _Pool(state.hypothesis, rule.memory)
    searched: list[_Sentence] = []
    while waiting or searched:
        _admit(waiting, searched, pool, state.hypothesis)
        began = time.perf_counter()
        rounds = [(each, each.take()) for each in searched]
        stepped = _step(step, state, pool, rounds)
        for each, _ in rounds:
            pool.release(each.released)
        _grow(rounds, *stepped, pool)
        spent = (time.perf_counter() - began) / sum(len(nodes) for _, nodes in rounds)
        for each, nodes in rounds:
            each.count(len(nodes), spent * len(nodes))
            pool.release(each.released)
        searched = [each for each in searched if not each.over]
    return [each.result() for each in sentences]


def _admit(waiting: deque["_Sentence"], searched: list["_Sentence"], pool: "_Pool", roots: Tree) -> None:
    """Let in as many sentences as there is room for; one, at least."""
    room = pool.most - sum(each.quota for each in searched)
    admitted: list[_Sentence] = []
    while waiting and (waiting[0].quota <= room or not (searched or admitted)):
        room -= waiting[0].quota
        admitted.append(waiting.popleft())
    for each, slot in zip(admitted, pool.put(roots, [each.index for each in admitted]), strict=True):
        each.root = slot
    searched += admitted


@dataclass(frozen=True)
class _Node:
    """A prefix that is to be stepped: `last` is its last token, and `slot` has the state before it."""

    prefix: tuple[int, ...]
    scores: tuple[float, ...]
    total: float
    last: int
    slot: int


@dataclass
class _Family:
    """The open children of one prefix, best first, and where the state lies that they all go on from."""

    prefix: tuple[int, ...]
    scores: tuple[float, ...]
    slot: int
    tokens_K: NDArray[np.int64]
    own_K: NDArray[np.float64]
    total_K: NDArray[np.float64]
    next: int = 0

    def pop(self) -> _Node:
        token, own = int(self.tokens_K[self.next]), float(self.own_K[self.next])
        node = _Node((*self.prefix, token), (*self.scores, own), float(self.total_K[self.next]), token, self.slot)
        self.next += 1
        return node

    def beats(self, threshold_L: NDArray[np.float64]) -> bool:
        """Whether the best child that is left may still become the best output: if not, neither may any other."""
        return self.next < len(self.total_K) and bool(self.total_K[self.next] > threshold_L[len(self.prefix) + 1])


class _Lengths:
    """What length normalisation may still give: score = a_n · log p + b_n for n tokens, END counted."""

    def __init__(self, limit: int, rule: ExactRule) -> None:
        lengths = range(1, limit + 1)
        self.b_L = np.array([normalised(0.0, n, rule.length, rule.alpha) for n in lengths])
        self.a_L = self.b_L - np.array([normalised(-1.0, n, rule.length, rule.alpha) for n in lengths])

    def bound(self, total: float, tokens: int) -> float:
        """The most that a prefix of so many tokens may come to: it loses no more, and ends at the best length."""
        return float(np.max(self.a_L[tokens:] * total + self.b_L[tokens:]))

    def thresholds(self, best: float) -> NDArray[np.float64]:
        """For each number of tokens the log-probability that a prefix must exceed for its bound to exceed `best`."""
        if best == -math.inf:
            return np.full(len(self.a_L), -math.inf)
        least_L: NDArray[np.float64] = np.minimum.accumulate(((best - self.b_L) / self.a_L)[::-1])[::-1]
        return least_L


@dataclass
class _Sentence:
    index: int
    limit: int
    rule: ExactRule
    known: Hypothesis | None
    best: Hypothesis | None = None
    empty: float = -math.inf
    stack: list[_Family] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    root: int | None = None
    expansions: int = 0
    seconds: float = 0.0
    improved: bool = False
    over: bool = False
    bound: float = -math.inf

    def __post_init__(self) -> None:
        self.lengths = _Lengths(self.limit, self.rule)
        self.threshold_L = self.lengths.thresholds(-math.inf)
        known = self.known
        if known is not None and known.ended and len(known.tokens) < self.limit:
            self.offer(known.tokens, known.token_log_probabilities)

    @property
    def quota(self) -> int:
        """So many states it may keep."""
        return self.limit + _SPARE * self.rule.width

    def offer(self, tokens: tuple[int, ...], scores: tuple[float, ...]) -> None:
        """An output that has ended; it counts where it is better than the best."""
        total = math.fsum(scores)
        score = normalised(total, len(scores), self.rule.length, self.rule.alpha)
        if total > -math.inf and (self.best is None or score > self.best.score):
            self.best = Hypothesis(tokens, score, total, scores, ended=True)
            self.threshold_L = self.lengths.thresholds(score)
            self.improved = True

    def take(self) -> list[_Node]:
        """The top prefixes of the stack; at least one, as long as the search is not over.

        Depth first, a stack of families is never higher than the limit. What is taken beside the first prefix makes it
        higher: only as long as the limit still fits in the quota above it.
        """
        if self.root is not None:
            self.released, root, self.root = [self.root], self.root, None
            return [_Node((), (), 0.0, START, root)]
        most = max(1, min(self.rule.width, self.quota - self.limit - len(self.stack)))
        most = min(most, self.rule.expansions - self.expansions)
        nodes: list[_Node] = []
        while self.stack and len(nodes) < most:
            if self.stack[-1].beats(self.threshold_L):
                nodes.append(self.stack[-1].pop())
            else:
                self.released.append(self.stack.pop().slot)
        return nodes

    def count(self, expansions: int, seconds: float) -> None:
        """After a round: what it has cost, and whether it was the last."""
        self.expansions += expansions
        self.seconds += seconds
        given_up = self.expansions >= self.rule.expansions or (
            self.rule.seconds is not None and self.seconds >= self.rule.seconds
        )
        if self.improved or given_up:  # else only the top may have changed: the rest need not be looked at each round
            self.released += [family.slot for family in self.stack if not family.beats(self.threshold_L)]
            self.stack = [family for family in self.stack if family.beats(self.threshold_L)]
            self.improved = False
        while self.stack and not self.stack[-1].beats(self.threshold_L):
            self.released.append(self.stack.pop().slot)
        self.over = given_up or not self.stack
        if self.over:
            bounds = [self.lengths.bound(float(each.total_K[each.next]), len(each.prefix) + 1) for each in self.stack]
            self.bound = max(bounds, default=-math.inf)
            self.released += [family.slot for family in self.stack]

    def result(self) -> Exact:
        best = -math.inf if self.best is None else self.best.score
        proved = self.bound == -math.inf
        return Exact(self.best, proved, max(best, self.bound), self.empty, self.expansions, self.seconds)


Round = tuple[_Sentence, list[_Node]]


def _step(step: Step, state: State, pool: "_Pool", rounds: list[Round]) -> tuple[Tensor, Tree]:
    """Log-probabilities of what follows each prefix of the round, and the states behind the prefixes."""
    nodes = [node for _, each in rounds for node in each]
    device = state.device
    sentence_N = torch.tensor([sentence.index for sentence, each in rounds for _ in each], device=device)
    source = pytree.tree_map(lambda x: x.index_select(0, sentence_N), state.source)
    before = State(source, pool.rows([node.slot for node in nodes]))
    logits_NV, after = step(torch.tensor([node.last for node in nodes], device=device), before)
    return allowed_log_probabilities(logits_NV), after.hypothesis


def _grow(rounds: list[Round], log_p_NV: Tensor, after: Tree, pool: "_Pool") -> None:
    """END closes outputs; of the other continuations those that may still win are put on the stacks."""
    nodes = [(sentence, node) for sentence, each in rounds for node in each]
    for (sentence, node), own in zip(nodes, log_p_NV[:, END].tolist(), strict=True):
        if math.isnan(own):
            raise SaccadeError("the model's probabilities are not numbers (NaN); there is no best output to look for.")
        if not node.prefix:
            sentence.empty = own
        sentence.offer(node.prefix, (*node.scores, own))

    least = [_least(sentence, node) for sentence, node in nodes]
    # On the device in float32, and no child too few; `beats` looks again in float64.
    least_N1 = np.nextafter(np.array(least, dtype=np.float32), np.float32(-np.inf))[:, None]
    log_p_NV[:, END] = -torch.inf
    row_K, token_K = (log_p_NV > torch.from_numpy(least_N1).to(log_p_NV.device)).nonzero(as_tuple=True)
    own_K = log_p_NV[row_K, token_K].double().cpu().numpy()
    tokens_K: NDArray[np.int64] = token_K.cpu().numpy()
    begins = np.searchsorted(row_K.cpu().numpy(), np.arange(len(nodes) + 1))

    fertile = [n for n in range(len(nodes)) if begins[n] < begins[n + 1]]
    slots = dict(zip(fertile, pool.put(after, fertile), strict=True))
    for n in reversed(fertile):  # the first prefix's children end up on top
        sentence, node = nodes[n]
        mine = slice(begins[n], begins[n + 1])
        # More than the budget can step are never looked at, but one, which shows that something was left.
        best_K = np.argsort(-own_K[mine], kind="stable")[: sentence.rule.expansions + 1]
        own = own_K[mine][best_K]
        sentence.stack.append(
            _Family(node.prefix, node.scores, slots[n], tokens_K[mine][best_K], own, node.total + own)
        )


def _least(sentence: _Sentence, node: _Node) -> float:
    """What a child's own log-probability must exceed; none may where no room is left for its END."""
    tokens = len(node.prefix) + 1
    return float(sentence.threshold_L[tokens]) - node.total if tokens < sentence.limit else math.inf


class _Pool:
    """States of prefixes, a row a slot; it grows as it must, up to what fits in the memory."""

    def __init__(self, like: Tree, memory: int) -> None:
        leaves = [leaf for leaf in pytree.tree_leaves(like) if len(leaf)]
        row = sum(leaf[0].numel() * leaf.element_size() for leaf in leaves)
        self.most = memory * 2 // (3 * max(row, 1))  # while it is moved to twice its size, half as much is there again
        self.size = 0
        self._free: list[int] = []
        self._rows = pytree.tree_map(lambda x: x[:0], like)
        self._device = next((leaf.device for leaf in leaves), torch.device("cpu"))

    def rows(self, slots: list[int]) -> Tree:
        slots_N = torch.tensor(slots, device=self._device)
        return pytree.tree_map(lambda x: x.index_select(0, slots_N), self._rows)

    def put(self, tree: Tree, rows: list[int]) -> list[int]:
        """Keep some rows of a tree; their slots."""
        if not rows:
            return []
        if len(rows) > len(self._free):
            self._enlarge(len(rows) - len(self._free))
        slots = [self._free.pop() for _ in rows]
        slots_N, rows_N = torch.tensor(slots, device=self._device), torch.tensor(rows, device=self._device)

        def keep(held: Tensor, new: Tensor) -> None:
            held.index_copy_(0, slots_N, new.index_select(0, rows_N))

        pytree.tree_map(keep, self._rows, tree)
        return slots

    def release(self, slots: list[int]) -> None:
        self._free += slots
        slots.clear()

    def _enlarge(self, missing: int) -> None:
        more = max(missing, min(max(64, self.size), self.most - self.size))
        self._rows = pytree.tree_map(lambda x: torch.cat([x, x.new_zeros(more, *x.shape[1:])]), self._rows)
        self._free += range(self.size, self.size + more)
        self.size += more
