"""A server of Dal Segno with its worker, as a process of its own: it can be suspended, killed and started again."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from pathlib import Path

from tests.servers.process import HOST, Server


class DalsegnoServer(Server):
    """Without ``store``, on a SQLite file in its folder."""

    _name = "Dal Segno"
    _stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, store: str | None = None) -> None:
        super().__init__(folder)
        self._store = store or f"sqlite:///{folder / 'store.db'}"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def suspend(self) -> None:
        """It keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "dalsegno", "dev", "--port", str(self.port), "--store", self._store]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/health/ready", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False
