"""The Transformer that only writes: the decoder without a memory, as GPT has it.

Shapes: N sequences, T tokens, V vocabulary.
"""

from torch import Tensor, nn

from saccade.models.reading import Carried, Reading, output_layer
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.watch import Watch
from saccade.types import State, Tokens


class CausalTransformer(nn.Module):
    """Every next token from those before it. `start` asks for the number of sequences: there is no source."""

    forgets = True

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.decoder = TransformerDecoder(config, vocabulary, memory_width=None)
        self.decoder.output = output_layer(config.width, vocabulary)

    @property
    def computes_padding(self) -> bool:
        return self.decoder.computes_padding

    @property
    def mixes_sentences(self) -> bool:
        return self.decoder.mixes_sentences

    @property
    def embed(self) -> TokenEmbedding:
        return self.decoder.embed

    @property
    def output(self) -> nn.Linear:
        return self.decoder.output

    def begin(self, rows: int) -> Carried:
        """Nothing is carried over from one stretch of text to the next."""
        return {}

    def read(self, given: Tokens, carried: Carried, watch: Watch | None = None) -> Reading:
        return Reading(self.features(given, watch), {})

    def features(self, given: Tokens, watch: Watch | None = None) -> Tensor:
        """What `output` scores for every next token: (…, D), laid out as the tokens."""
        return self.decoder.features(given, None, watch)

    def forward(self, given: Tokens, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every next token."""
        logits: Tensor = self.decoder(given, None, watch)
        return logits

    def start(self, rows: int, max_steps: int) -> State:
        like = self.output.weight.new_empty(rows, 0)
        return State({}, self.decoder.nothing_yet(like, max_steps))

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.step(last_N, state)

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.prefill(prefix_NT, state)
