"""A provider of payments that does each thing once per idempotency key, and is down for a while."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider:
    def __init__(self, down: float) -> None:
        """``down``: seconds without refunds, from the first one that is asked for."""
        self.done: dict[str, dict[str, set[str]]] = {
            what: defaultdict(set) for what in ("charge", "refund", "ship")
        }
        """Keys by order: more than one is a thing that was done twice."""
        self.refused = 0
        self.down = down
        self.down_until: float | None = None
        """By the monotonic clock: refunds are refused before. None until one is asked for."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, what: str, order: str, key: str) -> int:
        with self._lock:
            if what == "refund" and self._refuses():
                self.refused += 1
                return 503
            self.done[what][order].add(key)
            return 200

    def has_recovered(self) -> bool:
        return self.down_until is not None and time.monotonic() >= self.down_until

    def _refuses(self) -> bool:
        if self.down_until is None:
            self.down_until = time.monotonic() + self.down
        return not self.has_recovered()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                _, what, order = self.path.split("/")
                status = provider.answer(what, order, self.headers["Idempotency-Key"])
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """It would be a line per request."""

        return Handler
