"""A server process on a stored fixture, with the program of the fixture."""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.servers.process import HOST, Server

ROOT = Path(__file__).parents[2]


class StoredServer(Server):
    _name = "Dal Segno"
    _stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, store: str, *options: str) -> None:
        super().__init__(folder)
        self._store = store
        self._options = options

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _command(self) -> list[str]:
        start = (
            "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
            " runpy.run_module('dalsegno', run_name='__main__')"
        )
        words = ["server", "--port", str(self.port), "--store", self._store, *self._options]
        return [sys.executable, "-c", start, str(ROOT), *words]

    def _ready(self) -> bool:
        try:
            return self.call("GET", "health/ready")[0] == 200
        except OSError:
            return False

    def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, headers: Any = None
    ) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.url}/v1/{path}", content, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as refused:
            status, text = refused.code, refused.read()
        return status, json.loads(text) if text else None
