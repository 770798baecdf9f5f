"""A recurrent decoder, without attention or with it, as in Luong et al. (2015) or as in Bahdanau et al. (2015).

Luong's path is h_t → a_t → c_t → h̃_t → logits. With input feeding h̃_{t−1} is part of the next input; without it the
recurrence does not read the context, and all steps of a given target run at once. Bahdanau's is s_{t−1} → a_t → c_t →
s_t, c_t being part of the cell's input; it runs step by step.
Shapes: B sentences, N hypotheses, T target tokens, S source tokens, D width, X token width, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.loss import Loss, output_loss, token_losses
from saccade.models.bridge import Bridge, BridgeKind
from saccade.models.cells import RecurrentConfig, locked_dropout, output_dropout, recurrent_embedding, recurrent_layers
from saccade.models.encoders import EncoderConfig
from saccade.models.reader import AttentionConfig, Look, Reader
from saccade.models.sampling import SamplingConfig
from saccade.nn import masks
from saccade.nn.cells import Memory
from saccade.nn.coverage import overlap, unevenness
from saccade.nn.pointer import Pointer, mixture
from saccade.nn.readout import MaxoutReadout, make_readout
from saccade.nn.recurrent import Pass
from saccade.nn.watch import Watch
from saccade.types import PAD, START, Encoded, Layout, State, Tokens, Tree

Notes = dict[str, Tensor]
"""What reading leaves of every target token: `features` (N, T, …), which the output layer reads, and what else is
asked for: `weights` (N, T, S); `odds`, `overlap`, `chosen`, `entropy` (N, T)."""


class RecurrentDecoderConfig(RecurrentConfig):
    attention: AttentionConfig | None = None
    """How the decoder looks back at the source; none: it sees the source through its first state alone."""
    feed_input: bool = False
    """Feed the attentional vector of the last step into the next (Luong et al. 2015, section 3.3)."""
    bridge: BridgeKind = "linear"
    """What the first state is made of: the encoder's final states mapped or copied, the memory's mean, or zeros."""
    fusion: Literal["shallow", "deep"] = "shallow"
    """Where an lstmn decoder looks at the source: behind its layers, by `attention`, or inside its cells (deep)."""
    sampling: SamplingConfig | None = None
    """Give the decoder some of its own guesses in training (Bengio et al. 2015); none: the gold tokens alone."""

    @property
    def fuses(self) -> bool:
        return self.fusion == "deep"

    @property
    def copies(self) -> bool:
        """Whether source and target must have one vocabulary."""
        return self.attention is not None and self.attention.pointer

    @property
    def cross_layers(self) -> int:
        """How many layers look at the source and can tell where."""
        return self.layers if self.fuses else int(self.attention is not None and self.attention.score != "last")

    def output_width(self, memory_width: int) -> int:
        """How wide the vector is that the output layer reads."""
        return self.width if self.attention is None else self.attention.output_width(self.width, memory_width)

    def punishes(self, updates: int) -> float:
        """Whether so many updates are enough for the loss to ask for coverage: 1 or 0."""
        return float(self.attention is None or updates >= self.attention.coverage_after)

    def check_with(self, encoder: EncoderConfig) -> None:
        """Refuse what makes no sense with this encoder, with the reason."""
        if self.attention is None and self.feed_input:
            raise ValueError("decoder.feed_input is on, but there is no decoder.attention whose vector could be fed")
        if self.attention is not None and self.attention.query == "previous" and self.feed_input:
            raise ValueError(
                "decoder.feed_input is on, but decoder.attention.query is previous: the context itself enters the cell"
            )
        self._check_fusion(encoder)
        if self.attention is None and self.bridge == "zero" and not self.fuses:
            raise ValueError(
                "decoder.bridge is zero and there is no decoder.attention: nothing of the source reaches the decoder"
            )
        if self.bridge in ("linear", "copy") and not encoder.ends_in_states:
            raise ValueError(
                f"decoder.bridge is {self.bridge}, but a {encoder.kind} encoder ends in no state: use mean or zero"
            )
        theirs, mine = (encoder.kind, encoder.layers, encoder.width), (self.kind, self.layers, self.width)
        if self.bridge == "copy" and theirs != mine:
            raise ValueError(
                "decoder.bridge is copy: encoder and decoder must have the same kind, layers and width "
                f"(they have {theirs} and {mine}); or use bridge linear"
            )
        if self.attention is not None:
            self.attention.check_with(encoder, self.width)
        if self.sampling is not None and (self.locked or self.embedding_dropout):
            raise ValueError(
                "decoder.sampling gives tokens one by one: it cannot keep one mask for all, as locked and "
                "embedding_dropout ask"
            )

    def _check_fusion(self, encoder: EncoderConfig) -> None:
        """Deep fusion, c = r⊙α̃ + f⊙c̃ + i⊙g, mixes memory cells of the encoder into the decoder's own."""
        if not self.fuses:
            return
        if self.attention is not None:
            raise ValueError("decoder.fusion is deep: the cells look at the source; leave out decoder.attention")
        theirs, mine = (encoder.kind, encoder.width), ("lstmn", self.width)
        if self.kind != "lstmn" or theirs != mine:
            raise ValueError(
                "decoder.fusion is deep: encoder and decoder must be lstmn and of one width "
                f"(they are {encoder.kind} {encoder.width} and {self.kind} {self.width}); or use fusion shallow"
            )


class RecurrentDecoder(nn.Module):
    computes_padding, mixes_sentences = True, False

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, memory_width: int) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        attention, embedding, read = config.attention, config.embedding_width, config.output_width(memory_width)
        self.feeds, self.fuses = config.feed_input, config.fuses
        self.asks_first = attention is not None and attention.query == "previous"
        self.embed = recurrent_embedding(config, vocabulary)
        self.locked = locked_dropout(config)
        self.layers = recurrent_layers(
            config,
            embedding + (read if self.feeds else memory_width if self.asks_first else 0),
            bidirectional=False,
            role="decoder",
            source_width=memory_width if config.fuses else None,
        )
        self.bridge = Bridge(config.bridge, memory_width, config.layers, self.layers.first)
        self.reader = None if attention is None else Reader(attention, config.width, memory_width)
        self.readout = (
            None if attention is None else make_readout(attention.readout, memory_width, config.width, embedding, read)
        )
        self.pointer = Pointer(memory_width, config.width, embedding) if config.copies else None
        self.dropout = output_dropout(config)
        self.output = nn.Linear(read, vocabulary)
        share = 1.0 if config.sampling is None else config.sampling.share(0)
        self.register_buffer("gold_share", torch.tensor(share), persistent=False)  # a tensor: graphs read it anew
        self.gold_share: Tensor
        self.register_buffer("punishes", torch.tensor(config.punishes(0)), persistent=False)
        self.punishes: Tensor

    def without_twin(self, device: torch.device) -> list[str]:
        """What torch's recurrences and the fused loss do not know, on any device; the layers tell what is their own."""
        steps = {
            "input feeding": self.feeds,
            "query previous": self.asks_first,
            "coverage": self.reader is not None and self.reader.covers,
            "scheduled sampling": self.config.sampling is not None,
        }
        told = [f"with {name} the layers run step by step" for name, is_on in steps.items() if is_on]
        losses = {"pointer": self.pointer is not None, "hard": self.reader is not None and self.reader.hard is not None}
        return told + [
            f"with {name} the loss is taken without its fused form" for name, is_on in losses.items() if is_on
        ]

    # ---- what decoding sees

    def start(self, encoded: Encoded, max_steps: int) -> State:
        hypothesis: Tree = {"layers": self.layers.open(self.bridge(encoded), max_steps)}
        if self.feeds:
            hypothesis["fed"] = encoded.memory.new_zeros(len(encoded.layout.lengths_B), self.output.in_features)
        source: Tree = {}
        if self.fuses and encoded.cells is not None:
            source["fused"] = self.layers.prepare(encoded.memory, encoded.cells, encoded.layout)
        if self.reader is not None:
            source |= self.reader.prepare(encoded)
            hypothesis |= self.reader.begin(source)
        return State(source, hypothesis)

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    @property
    def cross_layers(self) -> int:
        return self.config.cross_layers

    def prefill(self, prefix_NT: Tensor, state: State, watch: Watch | None = None) -> tuple[Tensor, State]:
        notes, after = self._read_on(self._embedded(prefix_NT), state, watch)
        return self._logits(self._dropped(notes), _copied(state.source, *prefix_NT.shape)), after

    def forward(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every next token, given the gold ones before it; with a pointer, log-probabilities."""
        notes, source = self._taught(given, encoded, watch)
        ids = _copied(source, *notes["features"].shape[:2])
        packed = {name: masks.pack(note, given.layout) for name, note in self._dropped(notes).items()}
        return self._logits(packed, None if ids is None else masks.pack(ids, given.layout))

    # ---- what training sees

    def at_update(self, update: int) -> None:
        """What changes as training goes on; updates are counted from 1."""
        if self.config.sampling is not None:
            self.gold_share.fill_(self.config.sampling.share(max(0, update - 1)))
        if self.config.attention is not None and self.config.attention.coverage_after:
            self.punishes.fill_(self.config.punishes(update - 1))

    def features(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """What the output layer scores for every next token, given the gold ones before it; laid out as those."""
        notes, _ = self._taught(given, encoded, watch)
        return masks.pack(self.dropout(notes["features"]), given.layout)

    def loss(self, given: Tokens, encoded: Encoded, target: Tokens, smoothing: float) -> Loss:
        """That of the output layer alone, unless it is mixed with copies or rewards draws token by token."""
        notes, source = self._taught(given, encoded, None)
        x = masks.pack(self.dropout(notes["features"]), target.layout)
        hard = None if self.reader is None or not self.training else self.reader.hard
        if self.pointer is None and hard is None:
            loss = output_loss(x, self.output, target, smoothing)
            return loss.plus(self._terms(notes, source, target))
        loss_N, nll_N = self._token_losses(x, notes, source, target, smoothing)
        loss = Loss(loss_N.sum(), nll_N.detach().sum(), target.count)
        loss = loss.plus(self._terms(notes, source, target))
        if hard is None:
            return loss
        nll_NT, counted_NT = masks.pad(nll_N.view(target.ids.shape), target.layout), _counted(target)
        onward = self.feeds or self.asks_first or self.config.sampling is not None
        return loss.plus(hard.terms(nll_NT, notes["chosen"], notes["entropy"], counted_NT, onward=onward))

    def _token_losses(
        self, x: Tensor, notes: Notes, source: Tree, target: Tokens, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        gold = target.ids
        if not target.layout.is_packed:
            gold = gold.masked_fill(~masks.valid_BT(target.layout), PAD)
        parts: tuple[Tensor, ...] = (x.flatten(0, -2),)
        ids = _copied(source, *notes["features"].shape[:2])
        if self.pointer is not None and ids is not None:
            odds, *wide = (masks.pack(each, target.layout) for each in (notes["odds"], notes["weights"], ids))
            parts = (*parts, odds.flatten(), *(each.flatten(0, -2) for each in wide))

        def log_p(x_RD: Tensor, *of_pointer: Tensor) -> Tensor:
            logits_RV: Tensor = self.output(x_RD)
            if of_pointer:
                return mixture(logits_RV, *of_pointer)
            return logits_RV.log_softmax(-1, dtype=torch.promote_types(logits_RV.dtype, torch.float32))

        return token_losses(log_p, parts, gold.flatten(), smoothing, self.output.out_features)

    def _terms(self, notes: Notes, source: Tree, target: Tokens) -> dict[str, Tensor]:
        """What attention is asked for beside the target's likelihood."""
        config, terms = self.config.attention, dict[str, Tensor]()
        if config is None:
            return terms
        if config.coverage:
            terms["coverage"] = config.coverage * self.punishes * (notes["overlap"] * _counted(target)).sum()
        if config.doubly_stochastic:
            counted_BT, weights_BTS = _counted(target), notes["weights"]
            real_BS = source["may_look"][:, 0] if "may_look" in source else torch.ones_like(weights_BTS[:, 0])
            uneven_B = unevenness(weights_BTS, counted_BT, real_BS) * counted_BT.any(1)
            terms["doubly stochastic"] = config.doubly_stochastic * uneven_B.sum()
        return terms

    # ---- the target, read

    def _embedded(self, ids: Tensor) -> Tensor:
        """A recurrent decoder's tokens need no places: their order is that of the steps."""
        vectors: Tensor = self.embed(ids, torch.zeros((), dtype=torch.long, device=ids.device))
        return vectors

    def _taught(self, given: Tokens, encoded: Encoded, watch: Watch | None) -> tuple[Notes, Tree]:
        """The notes of a given target, padded, and what belongs to its sentences."""
        state = self.start(encoded, given.layout.longest)
        if self.training and self.config.sampling is not None:
            notes = self._guessing(masks.pad(given.ids, given.layout), state)
        else:
            x_NTX = self.locked(masks.pad(self._embedded(given.ids), given.layout))
            notes, _ = self._read_on(x_NTX, state, watch)
        return notes, state.source

    def _read_on(self, x_NTX: Tensor, state: State, watch: Watch | None) -> tuple[Notes, State]:
        if self.feeds or self.asks_first or (self.reader is not None and self.reader.covers):
            notes, hypothesis = self._step_by_step(x_NTX, state, watch)
        else:
            top_NTD, layers = self._advance(x_NTX, state, watch)
            look = None if self.reader is None else self.reader(top_NTD, state.source, state.hypothesis)
            notes = self._notes(look, top_NTD, x_NTX, state.hypothesis, watching=watch is not None)
            hypothesis = {"layers": layers} | self._behind(look, state.hypothesis)
        if watch is not None and "weights" in notes:
            watch.saw_attention("cross", notes["weights"][:, None])
        return notes, State(state.source, hypothesis)

    def _advance(self, x_NTX: Tensor, state: State, watch: Watch | None) -> tuple[Tensor, tuple[Memory, ...]]:
        rows, steps = x_NTX.shape[:2]
        layers, fused = state.hypothesis["layers"], state.source.get("fused", ())
        if steps == 1 and watch is None:  # a fused kernel has nothing to fuse over one step
            during = self.layers.begin(x_NTX, fused)
            top_ND, after = self.layers.step(self.layers.hoist(x_NTX[:, 0]), layers, during=during)
            return top_ND[:, None], after
        # Every row is as long as the longest here: what stands behind a target's end is never read.
        lengths_N = torch.full((rows,), steps, device=x_NTX.device)
        top_NTD, after = self.layers(x_NTX, Layout(lengths_N, steps, even=True), layers, watch, fused)
        return top_NTD, after

    def _step_by_step(self, x_NTX: Tensor, state: State, watch: Watch | None) -> tuple[Notes, Tree]:
        """One after the other, since each asks for what the last one read; the tokens' part is made at once."""
        watching = watch is not None
        during = self.layers.begin(x_NTX, state.source.get("fused", ()), watching=watching)
        hypothesis, steps = state.hypothesis, list[Notes]()
        for x_NX, hoisted_NG in zip(x_NTX.unbind(1), self.layers.hoist(x_NTX).unbind(1), strict=True):
            here = State(state.source, hypothesis)
            notes, hypothesis = self._one(x_NX, hoisted_NG, here, during, watching=watching)
            steps.append(notes)
        if watch is not None:
            self.layers.note(during, watch, Layout.padded([len(steps)] * len(x_NTX)).to(x_NTX.device))
        return _joined(steps), hypothesis

    def _guessing(self, gold_NT: Tensor, state: State) -> Notes:
        """Scheduled sampling: behind the first token, each is the gold one or, where a coin falls so, a guess."""
        hypothesis, steps, x_NX = state.hypothesis, list[Notes](), self._embedded(gold_NT[:, 0])
        during = self.layers.begin(x_NX, state.source.get("fused", ()))
        each_token = self.config.sampling is not None and self.config.sampling.coin == "token"
        for gold_N in gold_NT.unbind(1):
            if steps:
                if each_token or len(steps) == 1:
                    keeps_N = torch.rand(len(gold_N), device=gold_N.device) < self.gold_share
                x_NX = self._embedded(torch.where(keeps_N, gold_N, self._guess(steps[-1], state.source)))
            notes, hypothesis = self._one(x_NX, self.layers.hoist(x_NX), State(state.source, hypothesis), during)
            steps.append(notes)
        return _joined(steps)

    def _one(
        self, x_NX: Tensor, hoisted_NG: Tensor, state: State, during: Pass, *, watching: bool = False
    ) -> tuple[Notes, Tree]:
        """One step: in Luong's order, or in Bahdanau's."""
        before, look = state.hypothesis, None
        if self.reader is not None and self.asks_first:
            asking_ND = before["layers"][-1]["h"]
            look = self.reader(asking_ND[:, None], state.source, before)
            top_ND, layers = self.layers.step(hoisted_NG, before["layers"], look.context_NTE[:, 0], during)
            read_ND = asking_ND if isinstance(self.readout, MaxoutReadout) else top_ND  # s_{t−1}, as in the appendix
        else:
            top_ND, layers = self.layers.step(hoisted_NG, before["layers"], before.get("fed"), during)
            look = None if self.reader is None else self.reader(top_ND[:, None], state.source, before)
            read_ND = top_ND
        notes = self._notes(look, read_ND[:, None], x_NX[:, None], before, watching=watching)
        # What is fed on is the vector before the output's dropout; toolkits differ here.
        fed = {"fed": notes["features"][:, 0]} if self.feeds else {}
        return notes, {"layers": layers} | fed | self._behind(look, before)

    def _notes(self, look: Look | None, state_NTD: Tensor, x_NTX: Tensor, hypothesis: Tree, *, watching: bool) -> Notes:
        if look is None or self.readout is None or self.reader is None:
            return {"features": state_NTD}
        notes: Notes = {"features": self.readout(look.context_NTE, state_NTD, x_NTX)}
        if self.reader.shows if watching else self.reader.keeps_weights:
            notes["weights"] = look.weights_NTS
        if look.choice is not None:
            notes |= {"chosen": look.choice.log_probability, "entropy": look.choice.entropy}
        if self.pointer is not None:
            notes["odds"] = self.pointer(look.context_NTE, state_NTD, x_NTX)
        if self.reader.covers:
            notes["overlap"] = overlap(look.weights_NTS, hypothesis["coverage"][:, None])
        return notes

    def _behind(self, look: Look | None, hypothesis: Tree) -> Tree:
        return {} if look is None or self.reader is None else self.reader.after(look, hypothesis)

    def _dropped(self, notes: Notes) -> Notes:
        """With the output's dropout, which may have to know sentences."""
        return notes | {"features": self.dropout(notes["features"])}

    def _logits(self, notes: Notes, ids: Tensor | None) -> Tensor:
        logits: Tensor = self.output(notes["features"])
        if self.pointer is None or ids is None:
            return logits
        return mixture(logits, notes["odds"], notes["weights"], ids)

    @torch.no_grad()
    def _guess(self, notes: Notes, source: Tree) -> Tensor:
        """What the model would write: drawn, or the most probable; as in decoding, never PAD or START."""
        logits_NV = self._logits(self._dropped(notes), _copied(source, len(notes["features"]), 1))[:, 0].float()
        p_NV = logits_NV.softmax(-1)
        p_NV[:, PAD] = p_NV[:, START] = 0.0  # not by a list of both, which would be copied to the device
        if self.config.sampling is not None and self.config.sampling.guess == "sample":
            p_NV = p_NV / torch.empty_like(p_NV).exponential_()  # the largest is p's draw
        return p_NV.argmax(-1)


def _joined(steps: list[Notes]) -> Notes:
    return {name: torch.cat([notes[name] for notes in steps], dim=1) for name in steps[0]}


def _counted(target: Tokens) -> Tensor:
    """(B, T): which target tokens a loss counts. Batches are filled up with sentences of PAD, which it does not."""
    return masks.valid_BT(target.layout) & (masks.pad(target.ids, target.layout) != PAD)


def _copied(source: Tree, rows: int, steps: int) -> Tensor | None:
    """The source's ids for every hypothesis and step (N, T, S), where there is a pointer."""
    if "ids" not in source:
        return None
    ids_BS: Tensor = source["ids"]
    beam = rows // len(ids_BS)
    return ids_BS[:, None, None].expand(-1, beam, steps, -1).reshape(rows, steps, -1)
