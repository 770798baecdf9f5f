"""Data sets come from a mirror or their address, whole and checked or not at all."""

import gzip
import io
import os
import re
import zipfile
from pathlib import Path

import pytest

import saccade
from saccade.data.catalogue import catalogue, find
from saccade.data.fetch import difference, fetch
from saccade.errors import SaccadeError, UsageError
from tests.support.cli import saccade_command
from tests.support.site import TEXT, Site, entry, known, names
from tests.support.site import site as site


@pytest.fixture
def data_folder() -> Path:
    folder = os.environ.get("SACCADE_DATA")
    if not folder or not (Path(folder) / "multi30k").is_dir():
        pytest.skip("the data sets are not there: set SACCADE_DATA to the folder that holds them")
    return Path(folder)


def test_files_are_downloaded_unpacked_packed_and_checked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"a.gz": gzip.compress(TEXT), "b.txt": b"plain\n"}
    wanted = {"a": entry(TEXT, site.address("a.gz")), "b.gz": entry(b"plain\n", site.address("b.txt"))}
    known(monkeypatch, **wanted)
    assert [each.came for each in fetch("set", tmp_path)] == ["address", "address"]
    assert (tmp_path / "set" / "a").read_bytes() == TEXT
    assert gzip.decompress((tmp_path / "set" / "b.gz").read_bytes()) == b"plain\n"
    assert names(tmp_path / "set") == {"a", "b.gz"}
    assert [each.came for each in fetch("set", tmp_path)] == ["there", "there"]
    assert len(site.asked) == 2


def test_what_breaks_off_goes_on_where_it_was(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files = {"a": TEXT}
    site.breaks_after = [1000, 300_000]
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    said: list[str] = []
    assert [each.came for each in fetch("set", tmp_path, tell=said.append)] == ["address"]
    assert (tmp_path / "set" / "a").read_bytes() == TEXT
    assert [asked for _, asked in site.asked] == [None, "bytes=1000-", "bytes=301000-"]
    assert len(said) == 2


def test_what_was_left_of_an_earlier_command_is_used_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"a": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    site.breaks_after = [1000] + [0] * 9
    with pytest.raises(SaccadeError, match="the same command goes on from there"):
        list(fetch("set", tmp_path))
    site.breaks_after = []
    assert names(tmp_path / "set") == {".a.part"}
    assert [each.came for each in fetch("set", tmp_path)] == ["address"]
    assert site.asked[-1] == ("a", "bytes=1000-")
    assert (tmp_path / "set" / "a").read_bytes() == TEXT


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * 2_000_000])
def test_a_part_of_something_else_is_begun_anew(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    site.files = {"a": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / ".a.part").write_bytes(left)
    assert [each.came for each in fetch("set", tmp_path)] == ["address"]
    assert (tmp_path / "set" / "a").read_bytes() == TEXT


def test_a_server_without_ranges_gives_all_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files, site.knows_ranges, site.breaks_after = {"a": TEXT}, False, [1000]
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    list(fetch("set", tmp_path))
    assert (tmp_path / "set" / "a").read_bytes() == TEXT


def test_a_server_that_fails_for_a_while_is_asked_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files, site.fails_with = {"a": TEXT}, [503, 500]
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    list(fetch("set", tmp_path))
    assert (tmp_path / "set" / "a").read_bytes() == TEXT


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * len(TEXT), "has the sha256"),
        (b"", "has 0 bytes where the catalogue has"),
        (TEXT * 3, "bytes where the catalogue has"),
    ],
)
def test_what_does_not_have_the_sum_is_not_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    site.files = {"a": content}
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    with pytest.raises(SaccadeError, match=reason):
        list(fetch("set", tmp_path))
    assert names(tmp_path) == set()  # not so much as an empty folder


def test_a_broken_archive_is_told(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files = {"a.gz": b"no gzip", "b.zip": b"no zip"}
    known(monkeypatch, a=entry(TEXT, site.address("a.gz")))
    with pytest.raises(SaccadeError, match="cannot be unpacked"):
        list(fetch("set", tmp_path))
    known(monkeypatch, b=entry(TEXT, site.address("b.zip"), member="b"))
    with pytest.raises(SaccadeError, match="cannot be unpacked"):
        list(fetch("set", tmp_path))


def test_the_members_of_an_archive_need_one_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("folder/a.txt", TEXT)
        archive.writestr("folder/b.txt", b"other\n")
    site.files = {"both.zip": packed.getvalue()}
    both = site.address("both.zip")
    wanted = {"a.gz": entry(TEXT, both, member="a.txt"), "b": entry(b"other\n", both, member="b.txt")}
    known(monkeypatch, **wanted)
    list(fetch("set", tmp_path))
    assert len(site.asked) == 1
    assert names(tmp_path / "set") == {"a.gz", "b"}
    known(monkeypatch, c=entry(TEXT, both, member="c.txt"))
    with pytest.raises(SaccadeError, match=r"there is no c\.txt in it"):
        list(fetch("set", tmp_path))


def test_files_are_brought_into_the_form_that_recipes_read(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"scan": b"IN: jump twice OUT: JUMP JUMP\nIN: run OUT: RUN\n", "labels": b"1 so good\n0 so bad\n"}
    table, labels = b"jump twice\tJUMP JUMP\nrun\tRUN\n", b"1\tso good\n0\tso bad\n"
    known(
        monkeypatch,
        scan=entry(table, site.address("scan"), form="scan"),
        labels=entry(labels, site.address("labels"), form="label-text"),
    )
    list(fetch("set", tmp_path))
    assert (tmp_path / "set" / "scan").read_bytes() == table
    assert (tmp_path / "set" / "labels").read_bytes() == labels


def test_a_mirror_comes_first_and_is_checked_too(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files = {"a": TEXT, "b": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")), b=entry(TEXT, site.address("b")))
    mirror = tmp_path / "mirror" / "set"
    mirror.mkdir(parents=True)
    (mirror / "a").write_bytes(TEXT)
    (mirror / "b").write_bytes(TEXT[:-1] + b"!")
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "mirror"))
    said: list[str] = []
    assert [each.came for each in fetch("set", tmp_path / "to", tell=said.append)] == ["mirror", "address"]
    assert site.asked == [("b", None)]
    assert "has the sha256" in said[0]
    with pytest.raises(UsageError, match="Remove it, or choose another folder"):
        list(fetch("set", tmp_path / "mirror"))
    assert (mirror / "b").read_bytes() == TEXT[:-1] + b"!"  # what is somebody's is left to them


def test_offline_nothing_is_asked_for(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    with pytest.raises(UsageError, match="is in no mirror"):
        list(fetch("set", tmp_path, offline=True))
    known(monkeypatch, a=entry(TEXT))
    with pytest.raises(UsageError, match="has no public address"):
        list(fetch("set", tmp_path))
    assert site.asked == []


def test_what_is_not_at_the_address_is_told_at_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, a=entry(TEXT, site.address("gone")))
    with pytest.raises(SaccadeError, match="404"):
        list(fetch("set", tmp_path))
    assert len(site.asked) == 1
    known(monkeypatch, a=entry(TEXT, "http://127.0.0.1:9/nobody"))
    with pytest.raises(SaccadeError, match="cannot be had"):
        list(fetch("set", tmp_path))


def test_the_catalogue_is_whole() -> None:
    for name, each in catalogue().items():
        assert each.files, name
        assert all("/" not in file for file in each.files)
    with pytest.raises(UsageError, match="did you mean multi30k"):
        find("multi30")
    with pytest.raises(UsageError, match="there are multi30k"):
        find("???")


MADE = {"glove-100d/glove.6B.100d.corpora.f16.npz"}
"""By bench.vectors."""


def test_every_file_that_recipes_and_rows_read_is_in_the_catalogue() -> None:
    root = Path(saccade.__file__).parents[1]
    texts = [
        path.read_text(encoding="utf-8")
        for path in (*root.glob("saccade/recipes/*.yaml"), *root.glob("bench/rows/*.yaml"))
    ]
    read = {name for text in texts for name in re.findall(r"\$SACCADE_DATA/([\w./-]+[\w])", text)}
    assert len(read) > 50
    assert read - MADE <= {f"{name}/{file}" for name, each in catalogue().items() for file in each.files}


def test_the_catalogue_is_of_the_data_that_recipes_read(data_folder: Path) -> None:
    large = ("europarl-en-de", "imdb")
    for name, each in catalogue().items():
        for file, noted in each.files.items() if name not in large else ():
            assert difference(data_folder / name / file, noted) is None, file


def test_data_sets_by_command(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SACCADE_DATA", str(data_folder))
    done = saccade_command("data", "get", "tinyshakespeare", "--offline", "--to", "my data")
    assert (done.exit_code, done.stdout) == (0, "my data/tinyshakespeare\n")
    assert f"SACCADE_DATA='{tmp_path}/my data'" in done.stderr
    assert saccade.fetch("tinyshakespeare", "elsewhere") == Path("elsewhere/tinyshakespeare")
    assert "tinyshakespeare" in saccade_command("data", "list").stdout
    assert '"sha256"' in saccade_command("data", "list", "--json").stdout
    wrong = saccade_command("data", "get", "tinyshakespeare", "ptbb")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "did you mean ptb?" in wrong.stderr
    (tmp_path / "file").touch()
    assert "cannot be made" in saccade_command("data", "get", "ptb", "--to", "file").stderr
