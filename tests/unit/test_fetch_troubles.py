"""What `data get` does when disks, servers, mirrors or other commands are in its way."""

import errno
import io
import os
import shutil
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from saccade.data import catalogue as catalogue_module
from saccade.data import fetch as fetch_module
from saccade.data.catalogue import DataSet
from saccade.data.fetch import fetch
from saccade.data.files import File, locate, raw_lines
from saccade.errors import SaccadeError, UsageError
from tests.support.cli import saccade_command
from tests.support.site import TEXT, Site, entry, known, names
from tests.support.site import site as site


def test_a_server_that_is_asked_too_often_is_given_the_time_it_asks_for(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files, site.fails_with, site.asks_to_wait = {"a": TEXT}, [429, 429], "7"
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    waited: list[float] = []
    monkeypatch.setattr("saccade.data.fetch.time.sleep", waited.append)
    list(fetch("set", tmp_path))
    assert waited == [0.0, 7.0, 7.0]
    site.fails_with, site.asks_to_wait = [429], "86400"
    list(fetch("set", tmp_path / "other"))
    assert waited[-1] == fetch_module.LONGEST_WAIT
    site.fails_with, site.asks_to_wait = [429], "Wed, 21 Oct 2037 07:28:00 GMT"
    list(fetch("set", tmp_path / "third"))
    assert waited[-1] == 0.0


def test_a_part_that_is_whole_is_not_asked_for_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / ".a.part").write_bytes(TEXT)
    assert [each.came for each in fetch("set", tmp_path)] == ["address"]
    assert site.asked == []
    assert names(tmp_path / "set") == {"a"}


def test_what_killed_commands_left_goes_when_all_is_there(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", TEXT)
    known(monkeypatch, a=entry(TEXT, site.address("both.zip"), member="a"))
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a").write_bytes(TEXT)
    (folder / ".both.zip.part").write_bytes(packed.getvalue())
    assert [each.came for each in fetch("set", tmp_path)] == ["there"]
    assert names(folder) == {"a"}


def test_a_folder_that_cannot_be_written_to_is_told(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, a=entry(TEXT))
    (tmp_path / "mirror" / "set").mkdir(parents=True)
    (tmp_path / "mirror" / "set" / "a").write_bytes(TEXT)
    (tmp_path / "to" / "set").mkdir(parents=True)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(shutil, "copyfile", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(SaccadeError, match="cannot be written: Read-only file system"):
        list(fetch("set", tmp_path / "to", mirror=tmp_path / "mirror"))


def test_two_commands_at_once_take_turns(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files = {"a": TEXT, "b": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")), b=entry(TEXT, site.address("b")))
    first = fetch("set", tmp_path)
    assert next(first).came == "address"
    said: list[str] = []
    came: list[str] = []
    waits = threading.Event()

    def tell(line: str) -> None:
        said.append(line)
        waits.set()

    again = fetch("set", tmp_path, tell=tell)
    second = threading.Thread(target=lambda: came.extend(each.came for each in again), daemon=True)
    second.start()
    assert waits.wait(10)
    assert "another command fetches to it" in said[0]
    assert [each.came for each in first] == ["address"]
    second.join(10)
    assert not second.is_alive()
    assert came == ["there", "there"]
    assert len(site.asked) == 2


def test_whoever_waited_for_a_command_that_failed_makes_the_folder_anew(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, a=entry(TEXT))
    with fetch_module._own(tmp_path / "to" / "set", print):
        waits, came = threading.Event(), list[str]()
        mirror = tmp_path / "mirror" / "set"
        mirror.mkdir(parents=True)
        (mirror / "a").write_bytes(TEXT)
        found = fetch("set", tmp_path / "to", mirror=mirror.parent, tell=lambda _: waits.set())
        second = threading.Thread(target=lambda: came.extend(each.came for each in found), daemon=True)
        second.start()
        assert waits.wait(10)
    second.join(10)
    assert not second.is_alive()
    assert came == ["mirror"]
    assert (tmp_path / "to" / "set" / "a").read_bytes() == TEXT


def test_what_is_told_of_a_mirror_is_so(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    (tmp_path / "mirror" / "set").mkdir(parents=True)
    (tmp_path / "mirror" / "set" / "a").write_bytes(b"other")
    with pytest.raises(UsageError, match="is damaged in the mirror"):
        list(fetch("set", tmp_path / "to", mirror=tmp_path / "mirror", offline=True))
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "nowhere"))
    said: list[str] = []
    with pytest.raises(UsageError, match="is in no mirror"):
        list(fetch("set", tmp_path / "to", offline=True, tell=said.append))
    assert "nowhere is no folder" in said[0]


def test_where_nothing_came_nothing_is_said_to_be_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, a=entry(TEXT, "http://127.0.0.1:9/nobody"))
    with pytest.raises(SaccadeError, match="cannot be had") as told:
        list(fetch("set", tmp_path))
    assert "is kept" not in str(told.value)


def test_a_set_that_cannot_be_had_does_not_keep_the_others(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"a": TEXT}
    common = {"about": "a set", "licence": "none", "home": "https://example.org"}
    sets = {
        "mine": DataSet(files={"a": entry(TEXT)}, **common),  # in no mirror, and without an address
        "theirs": DataSet(files={"a": entry(TEXT, site.address("a"))}, **common),
    }
    monkeypatch.setattr(catalogue_module, "catalogue", lambda: sets)
    monkeypatch.chdir(tmp_path)
    done = saccade_command("data", "get", "mine", "theirs", "mine")
    assert (done.exit_code, done.stdout) == (2, "data/theirs\n")
    assert "mine/a: has no public address" in done.stderr
    assert "mine: not fetched whole" in done.stderr
    assert (tmp_path / "data" / "theirs" / "a").read_bytes() == TEXT
    assert not (tmp_path / "data" / "mine").exists()


def test_a_recipe_without_its_data_tells_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "$SACCADE_DATA/ptb/ptb.train.txt.gz"
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    with pytest.raises(UsageError, match=r"SACCADE_DATA is not set.*`saccade data get ptb` fetches it"):
        locate(name, tmp_path)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=r'No such file.*`saccade data get ptb --to "\$SACCADE_DATA"` fetches it'):
        list(raw_lines(locate(name, tmp_path)))
    with pytest.raises(UsageError, match="has no public address of its own; https://") as told:
        list(raw_lines(locate("$SACCADE_DATA/imdb/train.tsv.gz", tmp_path)))
    assert "data get" not in str(told.value)
    for other in ("$SACCADE_DATA/mine/a.txt", "$SACCADE_DATA", "$SACCADE_DATA/ptb/mine.txt", "ptb/ptb.train.txt.gz"):
        with pytest.raises(UsageError) as told:
            list(raw_lines(File(other, tmp_path / "nothing")))
        assert "data get" not in str(told.value)


def test_without_locks_data_come_all_the_same(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no fcntl, a folder cannot be opened either."""
    site.files = {"a": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")), b=entry(TEXT))
    monkeypatch.setattr(fetch_module, "fcntl", None)
    really = os.open

    def files_alone(path: str | Path, *given: Any, **more: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(path, *given, **more)

    monkeypatch.setattr(os, "open", files_alone)
    with pytest.raises(UsageError, match="has no public address"):
        list(fetch("set", tmp_path / "to"))
    assert (tmp_path / "to" / "set" / "a").read_bytes() == TEXT


def test_a_folder_system_that_cannot_lock_is_told_of(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"a": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")))

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("saccade.data.fetch.fcntl.flock", refuse)
    said: list[str] = []
    assert [each.came for each in fetch("set", tmp_path, tell=said.append)] == ["address"]
    assert "cannot be locked (No locks available)" in said[0]


def test_a_mirror_that_is_where_data_go_is_not_missed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"a": TEXT}
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "new"))
    said: list[str] = []
    list(fetch("set", tmp_path / "new", tell=said.append))
    assert said == []
    list(fetch("set", tmp_path / "other", mirror=tmp_path / "nothing", tell=said.append))
    assert said == [f"mirror: {tmp_path / 'nothing'} is no folder; nothing is taken from there."]


def test_a_folder_that_is_always_taken_away_is_told_of(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, a=entry(TEXT, site.address("a")))
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with pytest.raises(UsageError, match="cannot be made: others take it away again and again"):
        list(fetch("set", tmp_path / "to"))
    assert names(tmp_path) == set()
