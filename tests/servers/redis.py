"""A private Redis from the installed binary. What it has acknowledged survives ``kill -9`` unless told otherwise."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from tests.servers.certificates import Certificate
from tests.servers.process import HOST, Server, ServerFailed


class RedisServer(Server):
    """``appendonly=False`` makes one that forgets everything when it dies. ``certificate``: it speaks only TLS.
    ``password``: of the default user. ``users``: rules of further users by name, such as ``on >secret ~* &* +@all``."""

    _name = "Redis"
    _stop_signal = signal.SIGTERM

    def __init__(
        self,
        folder: Path,
        *,
        appendonly: bool = True,
        appendfsync: str = "always",
        certificate: Certificate | None = None,
        password: str = "",
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self._appendonly = appendonly
        self._appendfsync = appendfsync
        self._certificate = certificate
        self._password = password
        self._users = dict(users or {})
        self._settings = dict(settings or {})

    @property
    def url(self) -> str:
        return self.url_of()

    def url_of(self, login: str = "") -> str:
        """The URL with ``user:password``; without them that of the default user."""
        login = login or (f":{self._password}" if self._password else "")
        at = f"{login}@{HOST}:{self.port}/0" if login else f"{HOST}:{self.port}/0"
        if self._certificate is None:
            return f"redis://{at}"
        return f"rediss://{at}?ssl_ca_certs={self._certificate.authority}"

    def flush(self) -> None:
        """Empties all databases."""
        if self.ask("FLUSHALL SYNC") != "+OK":
            raise ServerFailed(f"Redis did not flush\n{self._log_end()}")

    def ask(self, command: str) -> str:
        """The first line of the reply."""
        with self._connect() as connection:
            file = connection.makefile("rb")
            if self._password:
                connection.sendall(f"AUTH {self._password}\r\n".encode())
                file.readline()
            connection.sendall(f"{command}\r\n".encode())
            return file.readline().strip().decode()

    def suspend(self) -> None:
        """``SIGSTOP``: connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise ServerFailed("the server is not running")
        self._process.send_signal(number)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((HOST, self.port), timeout=5)
        if self._certificate is None:
            return connection
        context = ssl.create_default_context(cafile=str(self._certificate.authority))
        context.load_cert_chain(self._certificate.certificate, self._certificate.key)
        return context.wrap_socket(connection, server_hostname=HOST)

    def _command(self) -> list[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise ServerFailed("redis-server is not installed; tests/servers/ensure tells how")
        settings = {
            "bind": HOST,
            "dir": str(self.folder),
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes" if self._appendonly else "no",
            "appendfsync": self._appendfsync,
            **self._ports(),
            **({"requirepass": self._password} if self._password else {}),
            **self._settings,
        }
        lines = [f"{name} {value}" for name, value in settings.items()]
        lines += [f"user {name} {rules}" for name, rules in self._users.items()]
        file = self.folder / "redis.conf"
        if not file.exists():  # a failover writes the new primary into it
            file.write_text("\n".join(lines) + "\n")
        return [program, str(file)]

    def _ports(self) -> dict[str, str]:
        if self._certificate is None:
            return {"port": str(self.port)}
        return {
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self._certificate.certificate),
            "tls-key-file": str(self._certificate.key),
            "tls-ca-cert-file": str(self._certificate.authority),
            "tls-auth-clients": "no",
        }

    def _ready(self) -> bool:
        """It listens before it has loaded its data and says -LOADING until then."""
        try:
            return self.ask("PING") == "+PONG"
        except OSError:
            return False


class SentinelServer(RedisServer):
    """A Sentinel that watches one primary and fails over within a few seconds, by its own vote alone."""

    _name = "Sentinel"

    def __init__(self, folder: Path, primary: RedisServer, service: str = "main") -> None:
        super().__init__(folder)
        self._primary = primary
        self.service = service

    @property
    def url(self) -> str:
        return f"redis+sentinel://{HOST}:{self.port}/{self.service}/0"

    def _command(self) -> list[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise ServerFailed("redis-server is not installed; tests/servers/ensure tells how")
        file = self.folder / "sentinel.conf"
        if not file.exists():
            lines = [
                f"port {self.port}",
                f"bind {HOST}",
                f"dir {self.folder}",
                f"sentinel monitor {self.service} {HOST} {self._primary.port} 1",
                f"sentinel down-after-milliseconds {self.service} 500",
                f"sentinel failover-timeout {self.service} 3000",
            ]
            file.write_text("\n".join(lines) + "\n")
        return [program, str(file), "--sentinel"]
