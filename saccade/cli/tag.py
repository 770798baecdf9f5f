"""`tag`: sentences in, tags out. One sentence in is one out, in order, whatever it holds."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from saccade.cli.options import Device, Run
from saccade.cli.streams import Input, chunks, output, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.api import Model
    from saccade.tag import Tagging

Format = Literal["text", "conll", "conllu", "jsonl", "tsv"]
SchemeName = Literal["iob1", "iob2", "bioes"]
Write = Callable[[TextIO, int, "Tagging"], None]
TagsOf = Callable[["Tagging"], list[str]]


def tag(
    run: Run,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences to tag. Default: the lines of stdin.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="A file of sentences, one a line, plain, .gz or .xz; - is stdin."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; - is stdout.")] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="text: word/TAG; conll: a word and its tag a line; conllu: ten columns; jsonl: words and spans with "
            "places and scores; tsv: a row for each span, or for each word where tags write no spans.",
        ),
    ] = "text",
    words: Annotated[
        bool, typer.Option("--words", help="The sentences are cut already: words are what white space separates.")
    ] = False,
    scheme: Annotated[
        SchemeName | None, typer.Option(help="How spans are written as tags. Default: iob2.", show_default=False)
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="conll: the tag's probability as a third column.")] = False,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Words tagged at once: sentences × longest.")] = 4096,
    device: Device = "auto",
) -> None:
    """Tag the words of sentences.

    From arguments, a file or stdin, to stdout or a file. One line in is one sentence out, in order; an empty line is an
    empty sentence, in conllu none at all: sent_id is the number of the line. Places are counted in characters of the
    line, from 0. Bytes that are no UTF-8 are read as U+FFFD.
    """
    if text and source is not None:
        raise UsageError("TEXT and --input are both given; tag one of them.")
    if scores and format_ != "conll":
        raise UsageError(f"--scores adds a column to conll; --format is {format_}, which is written with or without.")
    lines = None if text else Input(source)
    from saccade.api import load

    model = load(run, device)
    engine = model.tagger
    if scheme is not None and engine.tags.scheme == "none":
        raise UsageError(f"--scheme {scheme}: {run} tags single words and writes no spans. Leave it out.")
    write = _writer(format_, scheme or "iob2", scores, model)
    done = 0
    with output(out) as file:
        if format_ == "tsv":
            file.write("\t".join(_COLUMNS) + "\n")
        for chunk in chunks(text, lines, asking="a sentence"):
            for tagging in engine.tag(chunk, cut="spaces" if words else "raw", batch_words=batch_tokens):
                done += 1
                write(file, done, tagging)
            file.flush()
    if lines is not None:
        lines.tell_repairs()


_COLUMNS = ("sentence", "begin", "end", "tag", "score", "text")


def _writer(format_: Format, scheme: SchemeName, scores: bool, model: "Model") -> Write:
    from saccade.text.tags import converted

    spans = model.tagger.tags.scheme != "none"

    def tags_of(tagging: "Tagging") -> list[str]:
        return converted(tagging.tags, scheme) if spans else list(tagging.tags)

    match format_:
        case "text":
            return _text(tags_of)
        case "conll":
            return _conll(tags_of, scores)
        case "conllu":
            return _conllu(tags_of, model.config.get("column"), spans=spans)
        case "jsonl":
            return lambda file, _, tagging: _line(file, to_json(_as_dict(tagging, tags_of(tagging))))
        case "tsv":
            return _tsv(spans=spans)


def _line(file: TextIO, text: str) -> None:
    file.write(text + "\n")


def _text(tags_of: TagsOf) -> Write:
    def write(file: TextIO, _: int, tagging: "Tagging") -> None:
        pairs = zip(tagging.words, tags_of(tagging), strict=True)
        _line(file, " ".join(f"{word.text}/{tag}" for word, tag in pairs))

    return write


def _conll(tags_of: TagsOf, scores: bool) -> Write:
    def write(file: TextIO, _: int, tagging: "Tagging") -> None:
        for word, tag in zip(tagging.words, tags_of(tagging), strict=True):
            _line(file, f"{word.text}\t{tag}" + (f"\t{word.score:.4f}" if scores else ""))
        _line(file, "")

    return write


def _tsv(*, spans: bool) -> Write:
    def write(file: TextIO, number: int, tagging: "Tagging") -> None:
        for row in _rows(tagging, spans=spans):
            _line(file, "\t".join([str(number), *row]))

    return write


def _as_dict(tagging: "Tagging", tags: list[str]) -> dict[str, object]:
    return {
        "text": tagging.text,
        "words": [
            {"text": word.text, "begin": word.begin, "end": word.end, "tag": tag, "score": word.score}
            for word, tag in zip(tagging.words, tags, strict=True)
        ],
        "spans": [
            {"text": span.text, "begin": span.begin, "end": span.end, "type": span.type, "score": span.score}
            for span in tagging.spans
        ],
        "log_probability": tagging.log_probability,
    }


def _rows(tagging: "Tagging", *, spans: bool) -> Iterator[Sequence[str]]:
    """White space within a span becomes a space: a tab there would be a column."""
    if spans:
        for span in tagging.spans:
            yield str(span.begin), str(span.end), span.type, f"{span.score:.4f}", " ".join(span.text.split())
    else:
        for word in tagging.words:
            yield str(word.begin), str(word.end), word.tag, f"{word.score:.4f}", word.text


def _conllu(tags_of: TagsOf, column: object, *, spans: bool) -> Write:
    """The tag stands in the column that the training data had it in; of spans in MISC, as NER=B-PER; else in XPOS.

    CoNLL-U has no sentence without words: of an empty line nothing is written, and sent_id, the number of the line,
    passes it over.
    """
    from saccade.data.conll import CONLLU

    name, _, key = str(column or ("misc.NER" if spans else "xpos")).partition(".")
    place = CONLLU.index(name if name in CONLLU else "xpos")

    def write(file: TextIO, number: int, tagging: "Tagging") -> None:
        if not tagging.words:
            return
        text = " ".join(tagging.text.split())
        file.write(f"# sent_id = {number}\n# text = {text}\n")
        pairs = list(zip(tagging.words, tags_of(tagging), strict=True))
        for i, (word, tag) in enumerate(pairs):
            cells = [str(i + 1), word.text, *"_" * 8]
            if not key:
                cells[place] = tag
            elif tag not in ("_", "O"):
                cells[place] = f"{key}={tag}"
            if i + 1 < len(pairs) and pairs[i + 1][0].begin == word.end:
                cells[-1] = "SpaceAfter=No" if cells[-1] == "_" else f"{cells[-1]}|SpaceAfter=No"
            file.write("\t".join(cells) + "\n")
        file.write("\n")

    return write
