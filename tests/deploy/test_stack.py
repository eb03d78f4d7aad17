"""The commands of the compose file as real processes, on a PostgreSQL that asks for a password."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Client
from tests.deploy.files import COMPOSE, DEPLOY, documents
from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST, free_port, wait_until

SERVICES: dict[str, dict[str, Any]] = documents(COMPOSE)[0]["services"]
PASSWORD = "two words"
SLEEPER = """
name: sleeper
nodes:
  - {id: sleep, type: wait, parameters: {amount: 1, unit: seconds}}
  - {id: tell, type: log, parameters: {message: awake}}
edges:
  - {src: sleep, dst: tell}
"""


class Stack:
    """Processes with the environment of the compose file, but for where PostgreSQL and the password are."""

    def __init__(self, store: str, password: Path, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DALSEGNO_")},
            "DALSEGNO_STORE": store,
            "PGPASSWORD_FILE": str(password),
        }

    def words(self, *words: str) -> list[str]:
        assert words[0] == "dalsegno"
        ports = {"8700": str(self.port), "8701": "0"}  # here all processes share one machine
        program = str(Path(sys.executable).parent / "dalsegno")
        return [
            str(DEPLOY / "with-secrets"),
            program,
            *(ports.get(word, word) for word in words[1:]),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, service: str, name: str | None = None) -> None:
        name = name or service
        with (self.folder / f"{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen(
                self.words(*SERVICES[service]["command"]),
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                text=True,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}/v1/health/ready", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def healthy(self) -> bool:
        """By the compose file's own check."""
        test = SERVICES["server"]["healthcheck"]["test"][2:]
        words = [sys.executable, *(word.replace("8700", str(self.port)) for word in test)]
        return subprocess.run(words, stderr=subprocess.DEVNULL, check=False, timeout=30).returncode == 0

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def stack(private_postgres: PostgresServer, tmp_path: Path) -> Iterator[Stack]:
    postgres = private_postgres
    postgres.psql(f"CREATE ROLE flows LOGIN PASSWORD '{PASSWORD}'")
    postgres.psql("CREATE DATABASE flows OWNER flows")
    postgres.stop()
    rules = f"host all flows {HOST}/32 scram-sha-256\nhost all all {HOST}/32 trust\n"
    (postgres.data / "pg_hba.conf").write_text(rules)
    postgres.start()
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    made = Stack(f"postgresql://flows@{HOST}:{postgres.port}/flows", password, tmp_path)
    yield made
    made.end()


def test_compose_commands_make_a_system_that_works_and_stops_in_time(stack: Stack) -> None:
    migrated = stack.run(*SERVICES["migrate"]["command"])
    assert migrated.returncode == 0, migrated.stderr

    without_key = stack.run(*SERVICES["server"]["command"])
    assert without_key.returncode != 0
    assert "dalsegno keys add" in without_key.stderr

    key = stack.run("dalsegno", "keys", "add", "ops", "--scope", "admin").stdout.strip()
    assert key.startswith("ds_")
    for service, name in (
        ("scheduler", None),
        ("worker", "worker-1"),
        ("worker", "worker-2"),
        ("server", None),
    ):
        stack.start(service, name)
    wait_until(stack.answers, seconds=120, what="the server to be ready")
    assert stack.healthy()

    with Client(f"http://localhost:{stack.port}", key=key) as client:
        client.deploy(SLEEPER)
        runs = [client.start("sleeper") for _ in range(5)]
        assert [run.result(timeout=60)["message"] for run in runs] == ["awake"] * 5

    for process in stack.running.values():
        process.send_signal(signal.SIGTERM)
    for name, process in stack.running.items():
        promised = SERVICES[name.partition("-")[0]].get("stop_grace_period", "10s")
        assert process.wait(timeout=float(promised.removesuffix("s"))) == 0, stack.log(name)
        assert "Traceback" not in stack.log(name)
        assert PASSWORD not in stack.log(name)
