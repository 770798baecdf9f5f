"""A trained model as `saccade.load` gives it: a method for every verb, each for the runs of its task."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Unpack, cast, overload

from saccade import checkpoint, config
from saccade.align import AlignConfig, Aligner, Aligning, Alignment
from saccade.checkpoint import Loaded
from saccade.classify import Classified, engine_of
from saccade.classify import Engine as ClassifyEngine
from saccade.data.minimal_pairs import Group, MinimalPair, generated
from saccade.decode.asked import Sampling, Translating, Writing, decoding, searching_or_drawing
from saccade.decode.sampling import SampleConfig
from saccade.decode.settings import DecodeConfig
from saccade.errors import SaccadeError, UsageError
from saccade.evaluate import Evaluation, Scored, evaluate, score
from saccade.fill import BLANK, MAX_TOKENS, Filled, Filler, tokenizer_of
from saccade.generate import Engine as Writer
from saccade.generate import Generation, Piece, ScoredText
from saccade.inspect.attention import attention_trace
from saccade.inspect.classification import classification_trace
from saccade.likelihood import CacheConfig, DynamicConfig
from saccade.lines import Request, Translation
from saccade.metrics.classification import Classification, classification
from saccade.metrics.contrast import contrast
from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References
from saccade.metrics.names import METRICS, USUAL, MetricName
from saccade.metrics.perplexity import Perplexity
from saccade.metrics.score import Score
from saccade.models.classifier import Classifier
from saccade.models.hierarchical import HierarchicalClassifier
from saccade.models.masked import MaskedModel
from saccade.models.tagger import Tagger
from saccade.models.translator import Translator
from saccade.score_tags import TagEvaluation, evaluate_tags
from saccade.search_report import SearchOptions, SearchReport, search_report
from saccade.tag import Cut, Tagging
from saccade.tag import Engine as TagEngine
from saccade.tasks.language_model import writer_of
from saccade.translate import Engine
from saccade.types import Trace


class Asked(Translating, total=False):
    """How lines are translated."""

    alignments: bool | AlignConfig
    """Whether each translation has its `alignment`, and how that is read."""


class Model:
    """A trained model from a run folder."""

    def __init__(self, loaded: Loaded, engine: Engine | None = None, beside: "tuple[Model, ...]" = ()) -> None:
        """`engine` and `beside`: where other models have a say, what they come to together, and who they are."""
        self.path = loaded.path
        self.name = str(loaded.weights)
        self.config = loaded.config
        self.loaded = loaded
        self.beside = beside
        if engine is not None:
            self.engine = engine
        match loaded.model:  # what a verb needs is read here, so that a folder that is not whole is refused at once
            case Translator():
                _ = self.engine, self.decode
            case MaskedModel():
                _ = self.filler
            case Classifier() | HierarchicalClassifier():
                _ = self.classifier
            case Tagger():
                _ = self.tagger

    @property
    def task(self) -> str:
        """What it was trained for."""
        return self.loaded.task

    @property
    def parameters(self) -> int:
        own = sum(parameter.numel() for parameter in self.loaded.model.parameters())
        return own + sum(other.parameters for other in self.beside)

    def _not_for(self, verb: str, task: str) -> UsageError:
        return UsageError(f"{self.name}: is a run of the task {self.task}; to {verb}, there must be one of {task}.")

    # ---- classify

    @cached_property
    def classifier(self) -> ClassifyEngine:
        """What classifies."""
        if not isinstance(self.loaded.model, (Classifier, HierarchicalClassifier)):
            raise self._not_for("classify", "classify")
        return engine_of(self.loaded)

    @overload
    def classify(self, lines: str | tuple[str, str], *, top: int | None = ...) -> Classified: ...

    @overload
    def classify(self, lines: list[str] | list[tuple[str, str]], *, top: int | None = ...) -> list[Classified]: ...

    def classify(
        self, lines: str | tuple[str, str] | list[str] | list[tuple[str, str]], *, top: int | None = None
    ) -> Classified | list[Classified]:
        """A text → its labels, most probable first; a list of texts → a list. `top`: at most so many labels of each.

        For a model of two texts each is a pair of them, or a string with a tab between.
        """
        if isinstance(lines, (str, tuple)):
            return self.classifier.classify([lines], top=top)[0]
        return self.classifier.classify(lines, top=top)

    def evaluate_labels(
        self,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        labels: Sequence[str],
        *,
        confidence: Confidence = True,
    ) -> Classification:
        """Classify the texts and score the answers against the labels; one that training has not seen is wrong."""
        if len(texts) != len(labels):
            raise UsageError(f"there are {len(texts)} texts and {len(labels)} labels; give as many of each.")
        given = [each.label for each in self.classifier.classify(texts)]
        return classification(labels, given, order=self.classifier.labels.names, confidence=confidence)

    # ---- translate

    @cached_property
    def engine(self) -> Engine:
        """What translates."""
        model = self.loaded.model
        if not isinstance(model, Translator):
            raise self._not_for("translate", "translate")
        return Engine(model, self.loaded.text, self.loaded.device)

    @cached_property
    def decode(self) -> DecodeConfig:
        """How the run's recipe says that outputs are searched for."""
        if self.task != "translate":
            raise self._not_for("translate", "translate")
        tree = self.config.get("decode")
        if not isinstance(tree, dict):
            raise SaccadeError(
                f"{self.path / checkpoint.CONFIG}: is not as a training writes it: decode is no section."
            )
        return config.parse(DecodeConfig, tree, str(self.path / checkpoint.CONFIG))

    @cached_property
    def metrics(self) -> tuple[MetricName, ...]:
        """What the run's recipe says that is measured; a run that is older than the setting has the usual ones."""
        names = self.config.get("metrics", USUAL)
        if not isinstance(names, (list, tuple)) or not names or not all(name in METRICS for name in names):
            path = self.path / checkpoint.CONFIG
            raise SaccadeError(f"{path}: is not as a training writes it: metrics is {names!r}.")
        return tuple(names)

    def decoding(
        self, *, length_penalty: float | None = None, max_length: int | None = None, **given: Unpack[Translating]
    ) -> DecodeConfig:
        """The model's own way to decode, with what is given here instead; `given`: see `Translating`.

        Whoever gives a beam wants a search, whoever gives something to draw by, or `mbr`, wants samples.
        """
        return decoding(self.decode, given, length_penalty=length_penalty, max_length=max_length)

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is a sequence of strings: here it is one line
        self, lines: str | Request, **asked: Unpack[Asked]
    ) -> Translation: ...

    @overload
    def translate(self, lines: Sequence[str | Request], **asked: Unpack[Asked]) -> list[Translation]: ...

    def translate(
        self, lines: str | Request | Sequence[str | Request], **asked: Unpack[Asked]
    ) -> Translation | list[Translation]:
        """A line → its translation; a list of lines → a list. A `Request` is a line with what its output must be.

        `asked`, as beam=5, samples=10 or mbr="chrf": see `Asked`. A model that reads dependency trees wants each line
        with its parse, here and everywhere: the text, a tab, and for each word the place of its head, 0 for the root.
        """
        if isinstance(lines, (str, Request)):
            return self.translate([lines], **asked)[0]
        links = asked.pop("alignments", False)
        decode = self.decoding(**cast(Translating, asked))
        if not links:
            return self.engine.translate(lines, decode)
        aligner = self.aligner(AlignConfig() if links is True else links)  # refuses before anything is translated
        return aligner.attach(lines, self.engine.translate(lines, decode))

    def aligner(self, settings: AlignConfig, reverse: "Model | None" = None) -> Aligner:
        """What aligns, by the model's attention."""
        if self.beside:
            raise UsageError("alignments are read from one model's attention, but several decide here: give one run.")
        if self.task != "translate":
            raise self._not_for("align", "translate")
        return Aligner(self.engine, settings, reverse=reverse.engine if reverse else None, name=self.name)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        reverse: "Model | None" = None,
        weights: bool = False,
        **given: Unpack[Aligning],
    ) -> list[Alignment]:
        """Which word of each target comes from which of its source; `given`: see `AlignConfig`.

        `reverse` translates from target to source. With `weights`, what the links were read from is there, too.
        """
        aligner = self.aligner(config.parse(AlignConfig, dict(given), "align"), reverse)
        return aligner.align(sources, targets, weights=weights)

    # ---- tag

    @cached_property
    def tagger(self) -> TagEngine:
        """What tags."""
        if not isinstance(self.loaded.model, Tagger):
            raise self._not_for("tag", "tag")
        return TagEngine.of(self.loaded)

    @overload
    def tag(self, lines: str, *, cut: Cut = ...) -> Tagging: ...

    @overload
    def tag(self, lines: list[str] | tuple[str, ...], *, cut: Cut = ...) -> list[Tagging]: ...

    def tag(self, lines: str | list[str] | tuple[str, ...], *, cut: Cut = "raw") -> Tagging | list[Tagging]:
        """A sentence → its words with tags, scores and places, and its spans; a list of sentences → a list.

        `cut`: raw text is cut into words by rules (text/cut.py); `spaces`: it is cut already, words are what white
        space separates.
        """
        if isinstance(lines, str):
            return self.tagger.tag([lines], cut=cut)[0]
        return self.tagger.tag(lines, cut=cut)

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[Tagging]:
        """The same for sentences that are lists of words."""
        return self.tagger.tag_words(sentences)

    # ---- fill

    @cached_property
    def filler(self) -> Filler:
        """What fills blanks."""
        model = self.loaded.model
        if not isinstance(model, MaskedModel):
            raise self._not_for("fill", "masked-language-model")
        most = self.config.get("max_length")  # of a longer line it has learnt nothing
        limit = most if isinstance(most, int) and 0 < most < MAX_TOKENS else MAX_TOKENS
        return Filler(model, tokenizer_of(self.loaded), self.loaded.device, limit)

    @overload
    def fill(self, lines: str, *, top: int = ..., blank: str = ...) -> Filled: ...

    @overload
    def fill(self, lines: list[str] | tuple[str, ...], *, top: int = ..., blank: str = ...) -> list[Filled]: ...

    def fill(
        self, lines: str | list[str] | tuple[str, ...], *, top: int = 5, blank: str = BLANK
    ) -> Filled | list[Filled]:
        """A line with blanks → what fills them; a list of lines → a list."""
        if isinstance(lines, str):
            return self.filler.fill([lines], top=top, blank=blank)[0]
        return self.filler.fill(lines, top=top, blank=blank)

    # ---- score, evaluate, explain

    @overload
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[Scored]: ...

    @overload
    def score(self, sources: Sequence[str]) -> Iterator[ScoredText]: ...

    def score(
        self, sources: Sequence[str], targets: Sequence[str] | None = None
    ) -> Iterator[Scored] | Iterator[ScoredText]:
        """How probable each target is, given its source; of a language model, how probable each text is by itself."""
        if targets is None:
            if self.task == "translate":
                raise UsageError("a translator scores targets given their sources: give both.")
            return self.writer.score(sources)
        if len(sources) != len(targets):
            raise UsageError(f"there are {len(sources)} sources and {len(targets)} targets; give as many of each.")
        return score(self.engine, sources, targets)

    @overload
    def evaluate(
        self,
        sources: Sequence[str],
        references: References,
        *,
        metrics: Sequence[MetricName] | None = ...,
        decode: DecodeConfig | None = ...,
        batch_tokens: int = ...,
        confidence: Confidence = ...,
    ) -> Evaluation: ...

    @overload
    def evaluate(
        self, sources: list[list[str]], references: list[list[str]], *, confidence: Confidence = ...
    ) -> TagEvaluation: ...

    def evaluate(
        self,
        sources: Sequence[str] | list[list[str]],
        references: References | list[list[str]],
        *,
        metrics: Sequence[MetricName] | None = None,
        decode: DecodeConfig | None = None,
        batch_tokens: int = 4096,
        confidence: Confidence = True,
    ) -> Evaluation | Any:
        """Translate the sources and score the outputs against the references.

        A source may have several references: give a list of them in place of one. Without `metrics`, those of the
        run's recipe. Of a classifier: `evaluate_labels` of texts and their labels, which alone has a `Classification`
        for a type. Of a tagger: sentences and tags, lists of words and of their tags, for a `TagEvaluation`.
        """
        if self.task == "classify":
            labels = [str(label) for label in references]
            return self.evaluate_labels(cast("Sequence[str]", sources), labels, confidence=confidence)
        if isinstance(self.loaded.model, Tagger):
            return evaluate_tags(self.tagger, sources, references, batch_words=batch_tokens, confidence=confidence)
        return evaluate(
            self.engine,
            [str(line) for line in sources],
            references,
            metrics=self.metrics if metrics is None else metrics,
            decode=decode or self.decode,
            batch_tokens=batch_tokens,
            confidence=confidence,
        )

    def search_report(
        self, sources: Sequence[str], references: References, **given: Unpack[SearchOptions]
    ) -> SearchReport:
        """What beams of many widths miss of the exact mode, under each length rule: see `saccade.search_report`."""
        given.setdefault("decode", self.decode)
        return search_report(self.engine, sources, references, **given)

    # ---- write text

    @cached_property
    def writer(self) -> Writer:
        """What writes and scores text."""
        if self.task != "language-model":
            raise self._not_for("write or score text", "language-model")
        return writer_of(self.loaded)

    def sampling(self, **given: Unpack[Sampling]) -> SampleConfig:
        """The model's own way to draw text, with what is given here instead: the names of `SampleConfig`."""
        if self.task != "language-model":
            raise self._not_for("write or score text", "language-model")
        tree = self.config.get("decode")
        place = f"{self.path / checkpoint.CONFIG}: decode"
        own = config.plain(config.parse(SampleConfig, tree if isinstance(tree, dict) else {}, place))
        chosen = own | {name: value for name, value in given.items() if value is not None}
        return config.parse(SampleConfig, chosen, "what is asked for")

    @overload
    def generate(self, prompts: str = ..., **given: Unpack[Writing]) -> Generation: ...

    @overload
    def generate(self, prompts: list[str] | tuple[str, ...], **given: Unpack[Writing]) -> list[Generation]: ...

    def generate(
        self, prompts: str | list[str] | tuple[str, ...] = "", **given: Unpack[Writing]
    ) -> Generation | list[Generation]:
        """A prompt → what the model writes behind it; a list of prompts → a list. `given`: see `Writing`."""
        decode, asked = searching_or_drawing(given)
        sampling = self.sampling(**asked)
        some = [prompts] if isinstance(prompts, str) else prompts
        if decode is None:
            written = self.writer.generate(some, sampling)
        else:
            written = self.writer.search(some, decode, sampling.max_tokens)
        return written[0] if isinstance(prompts, str) else written

    def stream(self, prompt: str = "", **given: Unpack[Sampling]) -> Iterator[Piece]:
        """The same of one prompt, piece by piece as it is written."""
        return self.writer.stream([prompt], self.sampling(**given))

    def perplexity(
        self, lines: Iterable[str], *, cache: CacheConfig | None = None, dynamic: DynamicConfig | None = None
    ) -> Perplexity:
        """How surprised a language model is by all lines as one text, read from one end to the other."""
        return self.writer.score_document(lines, cache=cache, dynamic=dynamic)

    def contrast(self, pairs: Iterable[MinimalPair] | Group = "all", *, count: int = 100) -> dict[str, Score]:
        """How often the better of two texts is the more probable one, by phenomenon and over all.

        The name of a group stands for `count` generated pairs of each of its phenomena. For a translator each pair
        comes with its source.
        """
        some = list(generated(pairs, count) if isinstance(pairs, str) else pairs)
        both = [text for pair in some for text in (pair.good, pair.bad)]
        if self.task == "translate":
            if any(pair.source is None for pair in some):
                raise UsageError("a translator ranks outputs of a source: give pairs that have one.")
            sources = [pair.source or "" for pair in some for _ in range(2)]
            found = [each.log_probability for each in self.score(sources, both)]
        else:
            found = [each.log_probability for each in self.score(both)]
        return contrast(found[::2], found[1::2], [pair.phenomenon for pair in some])

    def explain(self, line: str, target: str | None = None) -> Trace:
        """Every attention weight while `target` (or, where none is given, the model's own output) is written.

        Of a classifier: what its label is made of; there is no other target to explain.
        """
        if self.task == "classify":
            if target is not None:
                raise UsageError("target: a classifier's weights are the same for every label; leave it out.")
            return classification_trace(self.classifier, line)
        if self.task != "translate":
            raise self._not_for("explain", "translate or classify")
        if self.beside:
            raise UsageError("explain shows the inside of one model, and here are several; explain each by itself.")
        text = self.engine.text
        (source,) = self.engine.read([line])
        source_ids = source.ids[:-1]
        if target is None:
            target_ids = list(self.engine.translate([line], self.decode)[0].hypotheses[0].tokens)
        else:
            target_ids = text.target.encode(target)
        trace = attention_trace(
            self.engine.model,
            source_ids,
            target_ids,
            source_pieces=[*text.source.pieces(source_ids), "</s>"],
            target_pieces=[*text.target.pieces(target_ids), "</s>"],
            title=f"{source.text} → {text.target.decode(target_ids)}",
            parse=source.parse,
        )
        return replace(trace, cut=source.cut)
