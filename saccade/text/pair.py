"""The tokenizers of both sides of the data, and their files in a folder."""

from dataclasses import dataclass
from pathlib import Path

from saccade.errors import UsageError
from saccade.text.tokenizer import Tokenizer

SOURCE_FILE = "tokenizer.json"
TARGET_FILE = "tokenizer_target.json"


@dataclass(frozen=True)
class TextPair:
    """The source's and the target's tokenizer: one and the same where `shared`."""

    source: Tokenizer
    target: Tokenizer
    shared: bool

    def save(self, folder: Path) -> list[Path]:
        """Writes tokenizer.json and, when not shared, tokenizer_target.json; returns what it wrote."""
        files = {folder / SOURCE_FILE: self.source}
        if self.shared:
            (folder / TARGET_FILE).unlink(missing_ok=True)  # one left there would be read as this pair's target
        else:
            files[folder / TARGET_FILE] = self.target
        for path, tokenizer in files.items():
            path.write_text(tokenizer.to_json(), encoding="utf-8", newline="\n")
        return list(files)

    @staticmethod
    def load(folder: Path) -> "TextPair":
        """The pair that `save` wrote."""
        source = _load(folder / SOURCE_FILE)
        if not (folder / TARGET_FILE).exists():
            return TextPair(source, source, shared=True)
        return TextPair(source, _load(folder / TARGET_FILE), shared=False)


def _load(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_json(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text; a tokenizer is a JSON file.") from None
