"""A private RabbitMQ from the installed server, with an epmd of its own that ends with it.

What it has confirmed survives ``kill -9``. Vhosts, alarms and other settings are changed by one Erlang node that stays
connected: ``rabbitmqctl`` takes a second for each.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.servers.certificates import Certificate
from tests.servers.process import HOST, Server, ServerFailed, alive, children_of, free_port

USER = "guest"
_EPMD_FIRST = """
$DS_SETPRIV epmd -port "$ERL_EPMD_PORT" &
until epmd -port "$ERL_EPMD_PORT" -names >/dev/null 2>&1; do sleep 0.05; done
exec "$0"
"""
"""The server replaces the shell and so becomes the parent of its epmd."""
_ANSWER_LOOP = """
F = fun F() ->
  case io:get_line("") of
    eof -> halt(0);
    {error, _} -> halt(1);
    Line ->
      Answer = try
        {ok, Tokens, _} = erl_scan:string(Line),
        {ok, Expressions} = erl_parse:parse_exprs(Tokens),
        rpc:call(list_to_atom(os:getenv("DS_NODE")), erl_eval, exprs, [Expressions, []], 60000)
      catch Class:Reason -> {failed, Class, Reason} end,
      case Answer of
        {value, Value, _} -> io:format("ok ~0p~n", [Value]);
        Other -> io:format("failed ~0p~n", [Other])
      end,
      F()
  end
end, F().
"""


class RabbitServer(Server):
    """``settings`` are lines of rabbitmq.conf and win over ours. ``certificate``: it speaks TLS at a second port."""

    _name = "RabbitMQ"
    _stop_signal = signal.SIGTERM
    _defaults: ClassVar[Mapping[str, str]] = {
        "vm_memory_high_watermark.absolute": "2GB",
        "disk_free_limit.absolute": "1MB",
        "log.console": "true",
        "log.console.level": "warning",
        "log.file": "false",
        "collect_statistics_interval": "60000",
        "num_acceptors.tcp": "2",
    }

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(folder)
        self.node = f"ds{self.port}@localhost"
        self.certificate = certificate
        self._tls_port = free_port() if certificate is not None else 0
        self._settings = {
            **self._tls_settings(),
            "listeners.tcp.local": f"{HOST}:{self.port}",
            **self._defaults,
            **(settings or {}),
        }
        self._environment = self._make_environment()
        self._control: subprocess.Popen[str] | None = None
        (folder / "rabbitmq.conf").write_text(
            "".join(f"{key} = {value}\n" for key, value in self._settings.items())
        )
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq-env.conf").write_text("")
        cookie = folder / ".erlang.cookie"
        cookie.write_text(f"cookie-{self.port}")
        cookie.chmod(0o400)

    @property
    def url(self) -> str:
        return self.url_of("/")

    def url_of(self, vhost: str, *, user: str = USER, password: str = "guest") -> str:
        return f"amqp://{user}:{password}@{HOST}:{self.port}/{vhost.replace('/', '%2f')}"

    def tls_url(self, host: str = HOST, **options: object) -> str:
        """The URL of the encrypted port. ``options``: parameters of the URL; the authority is none of them."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"amqps://{USER}:guest@{host}:{self._tls_port}/?{query}"

    def _tls_settings(self) -> dict[str, str]:
        """Clients may show a certificate; one of another authority is refused."""
        if self.certificate is None:
            return {}
        return {
            "listeners.ssl.local": f"{HOST}:{self._tls_port}",
            "num_acceptors.ssl": "2",
            "ssl_options.cacertfile": str(self.certificate.authority),
            "ssl_options.certfile": str(self.certificate.certificate),
            "ssl_options.keyfile": str(self.certificate.key),
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
        }

    def evaluate(self, expressions: str) -> str:
        """Evaluate Erlang expressions in the server, without a final period, and return the value as text."""
        control = self._controlled()
        assert control.stdin is not None
        assert control.stdout is not None
        control.stdin.write(re.sub(r"\s+", " ", expressions) + ".\n")
        control.stdin.flush()
        answer = control.stdout.readline().strip()
        verdict, _, value = answer.partition(" ")
        if verdict != "ok":
            raise ServerFailed(f"{expressions}: {answer or 'no answer'}\n{self._log_end()}")
        return value

    def control_script(self) -> Path:
        """Write a script that calls ``rabbitmqctl`` for this server, and return it."""
        script = self.folder / "rabbitmqctl"
        values = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._environment.items())
        program = _server_script().with_name("rabbitmqctl")
        script.write_text(f'#!/bin/sh\nexec env {values} {program} --node {self.node} "$@"\n')
        script.chmod(0o755)
        return script

    def create_vhost(self, name: str) -> str:
        """Create an empty vhost and return its URL."""
        self.evaluate(
            f'ok = rabbit_vhost:add(<<"{name}">>, <<"tests">>), rabbit_auth_backend_internal:set_permissions('
            f'<<"{USER}">>, <<"{name}">>, <<".*">>, <<".*">>, <<".*">>, <<"tests">>)'
        )
        return self.url_of(name)

    def delete_vhost(self, name: str) -> None:
        self.evaluate(f'rabbit_vhost:delete(<<"{name}">>, <<"tests">>)')

    def raise_memory_alarm(self) -> None:
        """Connections that publish are blocked until the alarm is cleared."""
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.0)")

    def clear_memory_alarm(self) -> None:
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark({absolute, 2000000000})")

    def close_connections(self, vhost: str) -> None:
        """Close every connection to the vhost, as an operator would."""
        self.evaluate(
            f'[rabbit_networking:close_connection(P, "closed by a test") || P <- rabbit_networking:connections(), '
            f'proplists:get_value(vhost, rabbit_networking:connection_info(P, [vhost])) =:= <<"{vhost}">>]'
        )

    def suspend(self) -> None:
        """It keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._end_control()
        super().kill()

    def stop(self) -> None:
        self._end_control()
        family = children_of(self._process.pid) if self._process is not None else []
        super().stop()
        for pid in filter(alive, family):  # its epmd, which does not end by itself
            os.kill(pid, signal.SIGKILL)

    def _controlled(self) -> subprocess.Popen[str]:
        if self._control is None or self._control.poll() is not None:
            name = f"control{self.port}@localhost"
            self._control = subprocess.Popen(
                ["erl", "-noshell", "-hidden", "-sname", name, "-eval", _ANSWER_LOOP.replace("\n", " ")],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        return self._control

    def _end_control(self) -> None:
        if self._control is not None:
            self._control.kill()
            self._control.communicate()
            self._control = None

    def _command(self) -> list[str]:
        if shutil.which("epmd") is None:
            raise ServerFailed("Erlang is not installed; tests/servers/ensure tells how")
        return [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in self._environment.items()),
            "sh",
            "-c",
            _EPMD_FIRST,
            str(_server_script()),
        ]

    def _make_environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "DS_SETPRIV": f"{setpriv} --pdeathsig KILL" if (setpriv := shutil.which("setpriv")) else "",
            "DS_NODE": self.node,
            "ERL_CRASH_DUMP": str(self.folder / "erl_crash.dump"),  # not where the tests run
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_FLAGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script replaces itself by the server instead of waiting for it
        }

    def _ready(self) -> bool:
        """It answers the protocol's header only when it has recovered its vhosts."""
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False


def _server_script() -> Path:
    """The server's own script. The one in PATH changes the user and waits for its child."""
    found = [*Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server")]
    on_path = shutil.which("rabbitmq-server")
    if not found and on_path:
        found = [Path(on_path).resolve()]
    if not found:
        raise ServerFailed("rabbitmq-server is not installed; tests/servers/ensure tells how")
    return max(found)
