"""A server on this machine that can ignore ranges, lie, fail and hang up."""

import hashlib
import socket
import threading
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat

import numpy as np

BODY = np.random.default_rng(0).bytes(700_000)


class Server(ThreadingHTTPServer):
    """Serves `files`; can be told to ignore ranges, to lie, to fail and to hang up."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.has_ranges = True
        self.minds_if_range = True
        self.cuts: dict[str, list[int]] = defaultdict(list)  # bytes to send before hanging up
        self.statuses: dict[str, list[int]] = defaultdict(list)
        self.asked: list[tuple[str, str | None]] = []
        self.agents: set[str] = set()

    def handle_error(self, *_):
        """A client that hangs up is what some of these tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        name = self.path.lstrip("/")
        asked = self.headers["Range"]
        self.server.asked.append((name, asked))
        self.server.agents.add(self.headers["User-Agent"])
        if self.server.statuses[name]:
            self.send_error(self.server.statuses[name].pop(0))
            return
        if name not in self.server.files:
            self.send_error(404)
            return
        body, etag = self.server.files[name], self.server.etags.get(name)
        wanted = self.headers["If-Range"]
        fits = wanted in (None, etag) or not self.server.minds_if_range
        begin = int(asked[len("bytes=") : -1]) if asked and self.server.has_ranges and fits else 0
        if begin >= len(body) > 0 and begin:
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        cut = self.server.cuts[name].pop(0) if self.server.cuts[name] else None
        # The rest never comes, though it was announced: a lost connection, or a truncated file.
        self.wfile.write(body[begin:] if cut is None else body[begin : begin + cut])


@contextmanager
def raw_server(*parts, pause=0.0, forever=False):
    """The address of a server that sends these bytes, with a pause after each part.

    `forever`: the last part again and again, until nobody listens.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.recv(65536)
                    for part in chain(parts, repeat(parts[-1]) if forever else ()):
                        client.sendall(part)
                        time.sleep(pause)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def listing(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def sha256(body):
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
