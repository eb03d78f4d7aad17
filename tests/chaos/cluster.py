"""Four workers, two schedulers and a server as real processes; whichever dies is replaced."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.chaos.processes import ROOT, Worker
from tests.servers.process import HOST, free_port

PATIENCE = 30.0
ROLES = ("worker-1", "worker-2", "worker-3", "worker-4", "scheduler-1", "scheduler-2", "server")


class Cluster:
    """``with Cluster(url, folder) as cluster``: all roles run; ``folder`` keeps their logs."""

    def __init__(self, url: str, folder: Path, roles: tuple[str, ...] = ROLES, *, hasty: bool = True) -> None:
        """``hasty``: with leases of a few seconds; else with the settings that users have."""
        self.roles = roles
        self.folder = folder
        self.members: dict[str, Worker] = {}
        self.fell = 0
        """Members that ended by themselves: because they could not open the store."""
        self._port = free_port()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.roles", url, str(folder), "hasty" if hasty else "usual"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    @property
    def server(self) -> str:
        return f"http://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        for name in self.roles:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            if member.alive:
                member.kill()
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(PATIENCE)
        self._zygote.stdout.close()

    def start(self, name: str) -> Worker:
        role = name.partition("-")[0]
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        line = f"server {self._port}" if role == "server" else role
        self._zygote.stdin.write(f"{line}\n".encode())
        readable, _, _ = select.select([self._zygote.stdout], [], [], PATIENCE)
        answer = self._zygote.stdout.readline() if readable else b""
        assert answer, f"no {role} was started"
        self.members[name] = Worker(int(answer))
        return self.members[name]

    def replace(self, name: str) -> None:
        """``kill -9``, and another one in its place."""
        if self.members[name].alive:
            self.members[name].kill()
        self.start(name)

    def tend(self) -> None:
        """As systemd or Kubernetes would."""
        for name, member in list(self.members.items()):
            if not member.alive:
                self.fell += 1
                self.start(name)

    def stop(self, name: str) -> None:
        os.kill(self.members[name].pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        os.kill(self.members[name].pid, signal.SIGCONT)

    def drain(self, seconds: float = PATIENCE) -> None:
        """SIGTERM to all, and every one ends by itself."""
        for member in self.members.values():
            os.kill(member.pid, signal.SIGTERM)
        end = time.monotonic() + seconds
        while any(member.alive for member in self.members.values()):
            assert time.monotonic() < end, f"not ended: {self.alive()}"
            time.sleep(0.02)

    def alive(self) -> list[str]:
        return [name for name, member in self.members.items() if member.alive]

    def logs(self, role: str = "") -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob(f"{role}*.log")))
