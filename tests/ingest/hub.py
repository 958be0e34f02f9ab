"""A small hub on this machine: one data set, as the Hugging Face hub serves it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "0123"


class Hub:
    """What it serves, what was asked of it, and how it misbehaves.

    Attributes
    ----------
    files : dict of str to bytes
    asked : list of str
        Method and path of each request, and the first byte where it is not 0.
    cut : int or None
        Bytes after which downloads break off.
    lies : bool
        It serves other bytes than it lists.
    status : int
        Of every answer of the API; 200 where nothing is wrong.
    """

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        self.repo, self.files = repo, dict(files)
        self.asked: list[str] = []
        self.cut: int | None = None
        self.lies = False
        self.status = 200
        self.url = ""

    def listing(self, revision: str) -> dict[str, object]:
        return {
            "id": self.repo,
            "sha": revision if len(revision) == 40 else COMMIT,
            "private": False,
            "gated": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": [self._sibling(path, data) for path, data in self.files.items()],
        }

    @staticmethod
    def _sibling(path: str, data: bytes) -> dict[str, object]:
        found: dict[str, object] = {"rfilename": path, "size": len(data), "blobId": git(data)}
        if path.endswith(".parquet"):
            sha256 = hashlib.sha256(data).hexdigest()
            found["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 130}
        return found


def git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            start = self.headers.get("Range", "bytes=0-")[6:].partition("-")[0]
            hub.asked.append(f"{self.command} {path}" + (f" {start}" if start != "0" else ""))
            if path.startswith(f"/api/datasets/{hub.repo}"):
                listing = hub.listing(path.rpartition("/")[2])
                head = {"X-Error-Code": "RevisionNotFound"} if hub.status == 404 else {}
                return self._send(hub.status, json.dumps(listing).encode(), head)
            name = path.partition(f"/datasets/{hub.repo}/resolve/")[2].partition("/")[2]
            if name not in hub.files:
                return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            self._file(hub.files[name])
            return None

        def _file(self, data: bytes) -> None:
            commit = unquote(self.path).partition("/resolve/")[2].partition("/")[0]
            head = {"ETag": f'"{git(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
            if hub.lies:
                data = bytes(reversed(data))
            start = int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
            if start:
                head["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._send(206 if start else 200, data[start:], head)

        def _send(self, status: int, body: bytes, head: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**head, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            cut = hub.cut if "ETag" in head else None
            self.wfile.write(body if cut is None else body[:cut])
            if cut is not None and cut < len(body):
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
