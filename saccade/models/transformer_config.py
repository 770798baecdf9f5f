"""The settings of a Transformer, encoder or decoder, and the parts that they build.

The settings of recipes; what they build stands in nn/.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from saccade.config import Section
from saccade.nn.embedding import PositionKind, TokenEmbedding
from saccade.nn.linformer import Linformer
from saccade.nn.patterns import BigBird, Pattern, Window
from saccade.nn.positions import Alibi, NoPlaces, Relative, Rotary
from saccade.nn.transformer import Block, Stack
from saccade.nn.tree import RelativeStructure

if TYPE_CHECKING:
    from saccade.models.encoders import EncoderConfig


class FullPattern(Section):
    kind: Literal["full"] = "full"
    """Each token sees all others; in a decoder, all before it."""


class WindowPattern(Section):
    kind: Literal["window"] = "window"
    """Each token sees its neighbours (Beltagy et al. 2020)."""
    width: int = Field(64, ge=1)
    """How many tokens on either side; in a decoder, how many before it."""


class BigBirdPattern(Section):
    kind: Literal["bigbird"] = "bigbird"
    """Blocks see their neighbours, some global blocks and some drawn at random (Zaheer et al. 2020)."""
    block: int = Field(64, ge=1)
    """Tokens a block."""
    window: int = Field(1, ge=0)
    """How many blocks on either side a block sees beside itself; in a decoder, how many before it."""
    global_blocks: int = Field(2, ge=0)
    """How many blocks, the first ones, see everything and are seen by all."""
    random_blocks: int = Field(3, ge=0)
    """How many further blocks each head of each block sees; in a decoder, earlier ones."""
    seed: int = Field(0, ge=0, lt=1 << 31)
    """Fixes which blocks are drawn."""


class LinformerPattern(Section):
    kind: Literal["linformer"] = "linformer"
    """Each token sees a few sums over all tokens (Wang et al. 2020); for encoders."""
    slots: int = Field(128, ge=1)
    """How many sums."""
    places: int = Field(1024, ge=1)
    """How many places have a weight of their own in them; tokens beyond share the last."""
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"
    """Weights for each head (none), for all heads, for keys and values too, or for all layers as well."""


PatternConfig = Annotated[FullPattern | WindowPattern | BigBirdPattern | LinformerPattern, Field(discriminator="kind")]


class TransformerConfig(Section):
    """What the Transformer's encoder and decoder have in common."""

    kind: Literal["transformer"] = "transformer"
    """The Transformer of Vaswani et al. (2017)."""
    layers: int = Field(3, ge=1)
    """How many blocks are stacked."""
    width: int = Field(256, ge=2)
    """Width of the token vectors and of every block."""
    heads: int = Field(4, ge=1)
    """How many attentions side by side; must divide the width."""
    feedforward: int | None = Field(None, ge=1)
    """Inner width of the feed-forward part; four times the width where not given."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout on embeddings, inside the feed-forward part and before each residual sum."""
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the weights of self- and cross-attention, behind the softmax (BERT, GPT-2: 0.1)."""
    norm: Literal["pre", "post"] = "pre"
    """The norm before each part (pre) or behind each sum (post, as in the paper)."""
    norm_kind: Literal["layer", "rms", "detached", "batch", "none"] = "layer"
    """Layer norm; RMS norm; layer norm without gradient through its statistics; batch norm over real tokens; none."""
    epsilon: float = Field(1e-5, gt=0.0)
    """What the norm adds to the variance (BERT: 1e-12)."""
    activation: Literal["relu", "gelu", "gelu-tanh", "swish"] = "relu"
    """Between the two layers of the feed-forward part; gelu-tanh is GPT-2's approximation."""
    gated: bool = False
    """A gate in the feed-forward part (Shazeer 2020): with relu ReGLU, with gelu GEGLU, with swish SwiGLU."""
    positions: Literal["none", "sinusoidal", "learned", "relative", "rotary", "alibi", "tree"] = "sinusoidal"
    """How tokens know their place: by vectors added to theirs, within self-attention, or from a parse (tree)."""
    places: int = Field(1024, ge=1)
    """How many places `positions: learned` has; tokens beyond share the last."""
    relative_distance: int = Field(16, ge=1)
    """Distance on the line from which on `positions: relative` (Shaw et al. 2018) and `tree` tell no difference."""
    relative_values: bool = True
    """Relative positions act on the values, too, not on the keys alone."""
    relative_per_head: bool = False
    """Relative positions have vectors for each head (Shaw's base model), not the same for all (his big one)."""
    tree: Literal["absolute", "relative", "both"] = "both"
    """What `positions: tree` (Wang et al. 2019; encoders) tells: depths, added to tokens; words' relations; both."""
    tree_distance: int = Field(16, ge=1)
    """Distance in the tree from which on relations of words are all the same."""
    rotary_pairs: Literal["interleaved", "halves"] = "interleaved"
    """Which values `positions: rotary` turns together: neighbours (Su et al. 2021), or i and i + half (LLaMA)."""
    rotary_base: float = Field(10000.0, gt=1.0)
    """The base of the rotary angles: the larger, the further places are told apart."""
    pattern: PatternConfig = FullPattern()
    """Which tokens self-attention sees."""
    segments: int = Field(0, ge=0)
    """In encoders: vectors for as many parts of a source, told apart by the END between them (BERT: 2); 0: none."""
    scale_embedding: bool = True
    """Token vectors times √width, so that they are as large as the positions added (BERT and GPT-2: false)."""
    norm_embedding: bool = False
    """The norm also behind the sum of token vectors and positions (BERT: true)."""

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
        if self.width % self.heads:
            raise ValueError(f"width is {self.width} and heads is {self.heads}: heads must divide the width")
        if (self.positions == "sinusoidal" or self.adds_depths) and self.width % 2:
            raise ValueError(f"width is {self.width}; sinusoidal positions come in pairs: make it even")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                f"a head is {self.width // self.heads} wide (width / heads); rotary positions turn pairs of its "
                "values: make it even"
            )
        if self.norm_embedding and self.norm_kind == "none":
            raise ValueError("norm_embedding is true, but norm_kind is none: there is no norm to take")
        self._pattern_fits()
        return self

    def _pattern_fits(self) -> None:
        inside = self.positions in ("relative", "rotary", "alibi") or self.relates_words
        match self.pattern:
            case WindowPattern() | BigBirdPattern() if self.relates_words:
                raise ValueError(
                    f"positions is tree and pattern is {self.pattern.kind}, but the relations of all pairs of words "
                    "are made at once: use the pattern full, or tree: absolute"
                )
            case LinformerPattern() if inside:
                raise ValueError(
                    f"positions is {self.positions} and pattern is linformer, whose keys are sums over all tokens and "
                    "stand nowhere: use sinusoidal or learned positions"
                )
            case BigBirdPattern() if self.positions == "relative":
                raise ValueError(
                    "positions is relative and pattern is bigbird, for which vectors of distances would have to be "
                    "gathered for each drawn block: use rotary or alibi, or the pattern window"
                )

    @property
    def reads_parse(self) -> bool:
        """Whether the source has to come with its dependency trees."""
        return self.positions == "tree"

    @property
    def adds_depths(self) -> bool:
        return self.positions == "tree" and self.tree != "relative"

    @property
    def relates_words(self) -> bool:
        return self.positions == "tree" and self.tree != "absolute"

    @property
    def ends_in_states(self) -> bool:
        return False

    @property
    def embedding_width(self) -> int:
        return self.width

    @property
    def copies(self) -> bool:
        return False

    @property
    def cross_layers(self) -> int:
        """As a decoder: how many layers look at the source and can tell where."""
        return self.layers

    def output_width(self, memory_width: int) -> int:
        """As a decoder: how wide the vector is that the output layer reads."""
        return self.width

    def check_with(self, encoder: "EncoderConfig") -> None:
        """As a decoder, it reads the memory of any encoder."""
        self.check_causal()

    def check_causal(self) -> None:
        """Where tokens see only those before them."""
        if isinstance(self.pattern, LinformerPattern):
            raise ValueError(
                "the decoder's pattern is linformer: its sums over all tokens would show a token what follows it. "
                "Use full, window or bigbird"
            )
        if self.positions == "tree":
            raise ValueError(
                "the decoder's positions are tree: what is still being written has no dependency parse. "
                "Use other positions there; tree is for encoders"
            )
        if self.segments:
            raise ValueError(
                f"the decoder's segments is {self.segments}: what it writes ends where END stands, and has one part "
                "alone. Set it to 0 there; segments are for encoders"
            )

    @property
    def inner(self) -> int:
        return 4 * self.width if self.feedforward is None else self.feedforward

    @property
    def mixes_sentences(self) -> bool:
        return self.norm_kind == "batch"

    @property
    def computes_padding(self) -> bool:
        """What has no kernel for packed sentences is computed on padded ones."""
        return self.pattern.kind != "full" or self.positions in ("relative", "alibi") or self.relates_words


def embedding_of(config: TransformerConfig, vocabulary: int) -> TokenEmbedding:
    added: PositionKind = "none"
    if config.positions == "sinusoidal" or config.positions == "learned":
        added = config.positions
    return TokenEmbedding(
        vocabulary,
        config.width,
        scaled=config.scale_embedding,
        positions=added,
        places=config.places,
        dropout=0.0 if config.norm_embedding else config.dropout,  # it stands behind the norm
    )


def places_of(config: TransformerConfig) -> NoPlaces:
    """A module of its own for each layer: relative positions have weights."""
    head_width = config.width // config.heads
    match config.positions:
        case "rotary":
            return Rotary(head_width, pairs=config.rotary_pairs, base=config.rotary_base)
        case "alibi":
            return Alibi(config.heads)
        case "relative":
            return Relative(
                config.heads,
                head_width,
                distance=config.relative_distance,
                values=config.relative_values,
                per_head=config.relative_per_head,
            )
        case "tree" if config.relates_words:
            return RelativeStructure(
                config.heads,
                head_width,
                distance=config.relative_distance,
                tree_distance=config.tree_distance,
                values=config.relative_values,
                per_head=config.relative_per_head,
            )
        case "none" | "sinusoidal" | "learned" | "tree":
            return NoPlaces()


def pattern_of(config: TransformerConfig, layer: int) -> Pattern | None:
    match config.pattern:
        case WindowPattern(width=width):
            return Window(width)
        case BigBirdPattern() as bird:
            return BigBird(
                config.heads,
                bird.block,
                reach=bird.window,
                begins=bird.global_blocks,
                drawn=bird.random_blocks,
                seed=bird.seed,
                layer=layer,
            )
        case FullPattern() | LinformerPattern():
            return None


def slots_of(config: TransformerConfig) -> list[Linformer | None]:
    """One a layer: the same one where all layers share it."""
    match config.pattern:
        case LinformerPattern(slots=slots, places=places, sharing=sharing):
            count = 1 if sharing == "layerwise" else config.layers
            made: list[Linformer | None] = [Linformer(slots, places, config.heads, sharing) for _ in range(count)]
            return made * config.layers if sharing == "layerwise" else made
        case _:
            return [None] * config.layers


def stack_of(config: TransformerConfig, *, memory_width: int | None, causal: bool) -> Stack:
    blocks = [
        Block(
            config.width,
            config.heads,
            config.inner,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            norm=config.norm,
            activation=config.activation,
            memory_width=memory_width,
            causal=causal,
            gated=config.gated,
            norm_kind=config.norm_kind,
            epsilon=config.epsilon,
            places=places_of(config),
            pattern=pattern_of(config, layer),
            slots=slots,
        )
        for layer, slots in enumerate(slots_of(config))
    ]
    return Stack(blocks, config.width, config.norm, config.norm_kind, config.epsilon)
