"""A private PgBouncer in front of a private PostgreSQL, in transaction mode and otherwise as it comes."""

from __future__ import annotations

import shutil
import signal
import socket
from pathlib import Path

from tests.servers.postgres import SUPERUSER, PostgresServer, server_identity
from tests.servers.process import HOST, Server, ServerFailed


class PgBouncer(Server):
    _name = "PgBouncer"
    _stop_signal = signal.SIGINT

    def __init__(self, folder: Path, postgres: PostgresServer, **settings: str) -> None:
        super().__init__(folder)
        self._settings = {
            "listen_addr": HOST,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "max_client_conn": "200",
            "default_pool_size": "10",
            **settings,
        }
        self._target = f"host={HOST} port={postgres.port} user={SUPERUSER}"

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{database}"

    def _command(self) -> list[str]:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise ServerFailed("pgbouncer is not installed; tests/servers/ensure tells how")
        file = self.folder / "pgbouncer.ini"
        lines = [f"{name} = {value}" for name, value in self._settings.items()]
        file.write_text("\n".join(["[databases]", f"* = {self._target}", "[pgbouncer]", *lines, ""]))
        return [program, str(file)]

    def _ready(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _identity(self) -> tuple[int, int] | None:
        """Like PostgreSQL it refuses to run as root."""
        return server_identity()
