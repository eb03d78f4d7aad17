"""A private Redis from the installed binary. What it has acknowledged survives ``kill -9`` unless told otherwise."""

from __future__ import annotations

import shutil
import signal
import socket
from pathlib import Path

from tests.servers.process import HOST, Server, ServerFailed


class RedisServer(Server):
    """``appendonly=False`` makes one that forgets everything when it dies."""

    _name = "Redis"
    _stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, *, appendonly: bool = True, appendfsync: str = "always") -> None:
        super().__init__(folder)
        self._appendonly = appendonly
        self._appendfsync = appendfsync

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def flush(self) -> None:
        """Empties all databases."""
        if self._ask(b"FLUSHALL SYNC") != b"+OK":
            raise ServerFailed(f"Redis did not flush\n{self._log_end()}")

    def _command(self) -> list[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise ServerFailed("redis-server is not installed; tests/servers/ensure tells how")
        settings = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(self.folder),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self._appendonly else "no",
            "appendfsync": self._appendfsync,
        }
        return [program, *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def _ready(self) -> bool:
        """It listens before it has loaded its data and says -LOADING until then."""
        try:
            return self._ask(b"PING") == b"+PONG"
        except OSError:
            return False

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(command + b"\r\n")
            return connection.makefile("rb").readline().strip()
