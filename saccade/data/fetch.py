"""A data set of the catalogue → a folder: from a mirror or its address, resumed where it broke off, and checked."""

import gzip
import hashlib
import http.client
import lzma
import os
import shutil
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, cast

from saccade.data.catalogue import CatalogueFile, DataSet, find
from saccade.errors import SaccadeError, UsageError

try:
    import fcntl
except ImportError:  # a system without it: of two commands at once one may then fail, and is to be given again
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 18
ATTEMPTS = 5
WAIT = 0.5
"""Seconds before the first new attempt; twice as long before each other."""
LONGEST_WAIT = 60.0
"""Seconds that a server is waited for, however long it asks for."""
LATER = (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_EARLY, http.HTTPStatus.TOO_MANY_REQUESTS)
"""Answers of the 400s after which the same request may be made again."""
TIMEOUT = 30.0
PART = ".part"
_BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)  # of a packed file
Told = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """A file that is there now, and how it came."""

    path: Path
    came: Literal["there", "mirror", "address"]


def fetch(
    name: str,
    to: Path,
    *,
    mirror: Path | None = None,
    offline: bool = False,
    tell: Told = lambda _: None,
) -> Iterator[Fetched]:
    """Bring the files of a data set to `to`/name, one by one; a file that is there and right is left alone.

    `mirror` is a folder of data sets that is asked first, by default the one that SACCADE_DATA names. What does not
    have the catalogue's sum is never kept. Two that fetch to one folder take turns: use the iterator up, or close it.
    Names that begin with a dot and end in .part or .tmp are its own in that folder.
    """
    wanted = find(name)
    given = "mirror"
    if mirror is None and (variable := os.environ.get("SACCADE_DATA")):
        mirror, given = Path(variable), "SACCADE_DATA"
    if mirror is not None and mirror.resolve() == to.resolve():
        mirror = None
    if mirror is not None and not mirror.is_dir():
        tell(f"{given}: {mirror} is no folder; nothing is taken from there.")
        mirror = None
    with _own(to / name, tell) as folder:
        errand = _Errand(name, wanted, folder, mirror, offline, tell)
        for file in wanted.files:
            yield errand.bring(file)
        for file, entry in wanted.files.items():
            if entry.address:
                _forget(_part(folder / file, entry))  # archives, and what an earlier command left


@contextmanager
def _own(folder: Path, tell: Told) -> Generator[Path]:
    """The folder, which nobody else fetches to meanwhile; gone at the end if nothing came into it."""
    made: dict[Path, None] = {}  # the innermost first
    handle: int | None = None
    try:
        handle = _locked(folder, made, tell)
        yield folder
    finally:
        with suppress(OSError):  # one of them is not empty, or not there
            for each in made:
                each.rmdir()
        if handle is not None:
            os.close(handle)


def _locked(folder: Path, made: dict[Path, None], tell: Told) -> int | None:
    """A handle on the folder that holds its lock; None where there are no locks. Folders made for it go into `made`."""
    reason: str | None = "others take it away again and again"
    for _ in range(ATTEMPTS):  # whoever had the lock may take the folder away, empty as it was
        made |= dict.fromkeys(each for each in (folder, *folder.parents) if not each.exists())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if fcntl is None:
                return None
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError as error:
            reason = error.strerror
            continue
        except OSError as error:
            raise UsageError(f"{folder}: cannot be made: {error.strerror or error}. Choose another folder.") from None
        try:
            _wait_for(handle, folder, tell)
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                return handle
        except FileNotFoundError as error:
            reason = error.strerror
        except OSError as error:
            tell(f"{folder}: cannot be locked ({error.strerror or error}); let no other command fetch to it meanwhile.")
            return handle
        os.close(handle)
    raise UsageError(f"{folder}: cannot be made: {reason}. Choose another folder.")


def _wait_for(handle: int, folder: Path, tell: Told) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell(f"{folder}: another command fetches to it; waiting for that to end.")
        fcntl.flock(handle, fcntl.LOCK_EX)


def _forget(path: Path) -> None:
    with suppress(OSError):  # it is not there, or all is read-only
        path.unlink()


@dataclass
class _Errand:
    name: str
    wanted: DataSet
    folder: Path
    mirror: Path | None
    offline: bool
    tell: Told
    archives: dict[str, Path] = field(default_factory=dict)
    """By address: those that are here already, since several files come out of one."""

    def bring(self, file: str) -> Fetched:
        path, entry = self.folder / file, self.wanted.files[file]
        if path.exists():
            if (wrong := difference(path, entry)) is not None:
                raise UsageError(f"{path}: is there, but {wrong}. Remove it, or choose another folder.")
            return Fetched(path, "there")
        damaged = False
        if self.mirror is not None and (copy := self.mirror / self.name / file).is_file():
            if (wrong := difference(copy, entry)) is None:
                with _beside(path) as temporary:
                    shutil.copyfile(copy, temporary)
                    temporary.replace(path)
                return Fetched(path, "mirror")
            self.tell(f"{copy}: {wrong}; it is not used.")
            damaged = True
        if entry.address is None:
            raise UsageError(
                f"{self.name}/{file}: has no public address, since it was cut or joined from other files; "
                f"{self.wanted.home} tells of them. Put it into a folder of data sets and name that by SACCADE_DATA."
            )
        if self.offline:
            lacks = "is damaged in the mirror" if damaged else "is in no mirror"
            raise UsageError(f"{self.name}/{file}: {lacks}, and nothing may be downloaded (--offline).")
        content = _downloaded(entry, path, self.archives, self.tell)
        with _beside(path) as temporary:
            temporary.write_bytes(_packed(content, file))
            temporary.replace(path)
        return Fetched(path, "address")


@contextmanager
def _beside(path: Path) -> Generator[Path]:
    """A temporary name in the same folder, gone at the end, and with it those that killed commands left."""
    # The process is in the name for where there are no locks: two never write to one file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    if fcntl is not None:
        for left in path.parent.glob(f".{path.name}.*.tmp"):
            _forget(left)
    try:
        yield temporary
    except OSError as error:
        raise SaccadeError(f"{path}: cannot be written: {error.strerror or error}.") from None
    finally:
        _forget(temporary)


# What is in a file


def difference(path: Path, entry: CatalogueFile) -> str | None:
    """In what the text of a file is other than the catalogue has it; None where it is the same."""
    told, count = hashlib.sha256(), 0
    try:
        with _opened(path, path.name) as text:
            while some := text.read(CHUNK):
                told.update(some)
                count += len(some)
                if count > entry.bytes:  # whatever else it holds, it is too long
                    return f"is longer than the {entry.bytes:,} bytes of the catalogue"
    except _BROKEN as error:
        return f"cannot be read: {error}"
    if count != entry.bytes:
        return f"has {count:,} bytes where the catalogue has {entry.bytes:,}"
    return _sum_difference(told.hexdigest(), entry)


def _sum_difference(found: str, entry: CatalogueFile) -> str | None:
    return None if found == entry.sha256 else f"has the sha256 {found} where the catalogue has {entry.sha256}"


def _opened(path: Path, name: str) -> IO[bytes]:
    """Unpacked as its name says, which a part of it has not yet."""
    match Path(name).suffix:
        case ".gz":
            return cast(IO[bytes], gzip.open(path))
        case ".xz":
            return lzma.open(path)
        case _:
            return path.open("rb")


def _packed(content: bytes, name: str) -> bytes:
    match Path(name).suffix:
        case ".gz":
            return gzip.compress(content, mtime=0)  # the same bytes whenever it is done
        case ".xz":
            return lzma.compress(content)
        case _:
            return content


def _formed(content: bytes, entry: CatalogueFile) -> bytes:
    match entry.form:
        case "text":
            return content
        case "scan":
            lines = content.splitlines(keepends=True)
            return b"".join(line.removeprefix(b"IN: ").replace(b" OUT: ", b"\t", 1) for line in lines)
        case "label-text":
            return b"".join(line.replace(b" ", b"\t", 1) for line in content.splitlines(keepends=True))


# From afar


def _downloaded(entry: CatalogueFile, path: Path, archives: dict[str, Path], tell: Told) -> bytes:
    """The text of a file from its address. A part that was left of an earlier attempt may be of something else."""
    address, part = str(entry.address), _part(path, entry)
    left = part.exists() and address not in archives
    content, wrong = _checked(part, entry) if part.exists() else (b"", "is not there")
    if wrong and address not in archives:  # what was left may be all of it
        download(address, part, tell)
        content, wrong = _checked(part, entry)
    if wrong and left:
        _forget(part)
        download(address, part, tell)
        content, wrong = _checked(part, entry)
    if wrong:
        _forget(part)
        raise SaccadeError(f"{address}: what came from there {wrong}. Nothing of it was kept.")
    if entry.member:
        archives[address] = part
    else:
        _forget(part)
    return content


def _part(path: Path, entry: CatalogueFile) -> Path:
    """Where what comes from its address is kept until all of it is there."""
    return path.with_name(f".{str(entry.address).rpartition('/')[2] if entry.member else path.name}{PART}")


def _checked(part: Path, entry: CatalogueFile) -> tuple[bytes, str | None]:
    """The text of the file in what was downloaded, and what is wrong with it."""
    try:
        content = _formed(_extracted(part, entry), entry)
    except _BROKEN as error:
        return b"", f"cannot be unpacked: {error}"
    if len(content) != entry.bytes:
        return content, f"has {len(content):,} bytes where the catalogue has {entry.bytes:,}"
    return content, _sum_difference(hashlib.sha256(content).hexdigest(), entry)


def _extracted(part: Path, entry: CatalogueFile) -> bytes:
    """Unpacked, and never much more of it than the catalogue says there is."""
    if entry.member is None:
        with _opened(part, str(entry.address)) as text:
            return _up_to(text, entry)
    with zipfile.ZipFile(part) as archive:
        for each in archive.infolist():
            if each.filename.rpartition("/")[2] == entry.member:
                with archive.open(each) as text:
                    return _up_to(text, entry)
    raise zipfile.BadZipFile(f"there is no {entry.member} in it")


def _up_to(text: IO[bytes], entry: CatalogueFile) -> bytes:
    return text.read(2 * entry.bytes + CHUNK)  # SCAN's own form is longer than its table


def download(address: str, part: Path, tell: Told = lambda _: None) -> None:
    """Into the file `part`; what is there already is not asked for again."""
    pause = 0.0
    for attempt in range(ATTEMPTS):
        time.sleep(pause)
        pause = WAIT * 2**attempt
        try:
            if _some(address, part):
                return
            reason = "the connection ended too soon"
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and part.exists():
                part.unlink()  # longer than what is there: it is of something else
                continue
            if error.code < http.HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in LATER:
                raise SaccadeError(f"{address}: cannot be had: {error.code} {error.reason}.") from None
            pause = max(pause, _asked_to_wait(error))
            reason = f"{error.code} {error.reason}"
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        again = f", the next in {pause:.0f} s" if pause >= 1 and attempt + 1 < ATTEMPTS else ""
        tell(f"{address}: {reason}; attempt {attempt + 1} of {ATTEMPTS}{again}.")
    kept = "What came so far is kept, and the same command goes on from there. " if part.exists() else ""
    raise SaccadeError(f"{address}: cannot be had: {reason}. {kept}SACCADE_DATA can name a folder that has the data.")


def _asked_to_wait(error: urllib.error.HTTPError) -> float:
    """Seconds, by the header Retry-After; a date in it is not read."""
    told = error.headers.get("Retry-After") or ""
    return min(float(told), LONGEST_WAIT) if told.isascii() and told.isdigit() else 0.0


def _some(address: str, part: Path) -> bool:
    """Ask for what is missing; whether all of it came."""
    have = part.stat().st_size if part.exists() else 0
    asked = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(asked, timeout=TIMEOUT) as answer:
        goes_on = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        expected = answer.headers.get("Content-Length")
        came = 0
        if not goes_on:
            _keep(part, b"", anew=True)
        while some := answer.read(CHUNK):
            _keep(part, some, anew=False)
            came += len(some)
    return expected is None or came >= int(expected)


def _keep(part: Path, some: bytes, *, anew: bool) -> None:
    try:
        with part.open("wb" if anew else "ab") as file:
            file.write(some)
    except OSError as error:
        raise SaccadeError(f"{part}: cannot be written: {error.strerror or error}.") from None
