"""The settings of pretrained word vectors: which file a model's token vectors begin with (data/vectors.py reads it)."""

from typing import Annotated

from pydantic import Field

from saccade.config import Names, Section


class VectorsConfig(Section):
    """Word vectors that were learnt elsewhere."""

    path: Annotated[str, Names.FILE]
    """A text file as GloVe, word2vec and fastText write it, plain, .gz or .xz; or an .npz of `words` and `vectors`."""
    freeze: bool = False
    """Whether the token vectors stay as they are, all of them, instead of being trained on."""
    more_words: int = Field(0, ge=0)
    """Tagging, classification: so many words of the file, its first, get an id though the training text lacks them."""


def check_free(vectors: VectorsConfig | None, *, tied: bool) -> None:
    """Refuse frozen vectors that would have to learn as an output."""
    if tied and vectors is not None and vectors.freeze:
        raise ValueError("vectors.freeze holds the token vectors, but they are tied to the output, which has to learn")
