"""A server of files with faults, and data sets that point to it."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from saccade.data import catalogue as catalogue_module
from saccade.data import fetch as fetch_module
from saccade.data.catalogue import CatalogueFile, DataSet

TEXT = b"".join(b"line %d of a text\n" % n for n in range(40_000))  # more than one chunk


class Site:
    """A server of files; its faults are told to it beforehand."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.breaks_after: list[int] = []
        """Of the next answers, after how many bytes the connection ends."""
        self.fails_with: list[int] = []
        self.asks_to_wait: str | None = None
        """The header Retry-After of answers that are failures."""
        self.knows_ranges = True
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        wanted = to.headers.get("Range")
        self.asked.append((to.path[1:], wanted))
        if self.fails_with:
            to.send_response(self.fails_with.pop(0))
            if self.asks_to_wait:
                to.send_header("Retry-After", self.asks_to_wait)
            to.end_headers()
            return
        if to.path[1:] not in self.files:
            to.send_error(404)
            return
        content = self.files[to.path[1:]]
        begin = int(wanted[len("bytes=") : -1]) if wanted and self.knows_ranges else 0
        if begin >= len(content) and begin:
            to.send_error(416)
            return
        to.send_response(206 if begin else 200)
        to.send_header("Content-Length", str(len(content) - begin))
        to.end_headers()
        sent = content[begin:]
        to.wfile.write(sent[: self.breaks_after.pop(0)] if self.breaks_after else sent)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(fetch_module, "WAIT", 0.0)
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    found = Site()
    yield found
    found.server.shutdown()
    found.server.server_close()


def known(monkeypatch: pytest.MonkeyPatch, **files: CatalogueFile) -> None:
    of = DataSet(about="a set", licence="none", home="https://example.org", files=dict(files))
    monkeypatch.setattr(catalogue_module, "catalogue", lambda: {"set": of})


def entry(content: bytes, address: str | None = None, **more: Any) -> CatalogueFile:
    return CatalogueFile(bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), address=address, **more)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
