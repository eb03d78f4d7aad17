"""Workers as real processes that can be killed at any moment."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from dalsegno.core.graph.fail import MAX_LOSSES

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


class Worker:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait_dead()

    def wait_dead(self) -> None:
        end = time.monotonic() + PATIENCE
        while self.alive:
            assert time.monotonic() < end, f"process {self.pid} does not die"
            time.sleep(0.001)

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Workers:
    """Forks workers from one prepared process; ends them all with it."""

    def __init__(
        self,
        url: str,
        concurrency: int = 20,
        losses: int = MAX_LOSSES,
        workload: str = "tests.chaos.workload",
    ) -> None:
        """``losses``: how often a token may lose its worker before its node is held to be the reason."""
        settings = [url, str(concurrency), str(losses), workload]
        command = [sys.executable, "-m", "tests.chaos.zygote", *settings]
        self._zygote = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.alive:
                worker.kill()
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(PATIENCE)
        assert self._zygote.stdout is not None
        self._zygote.stdout.close()

    def start(self) -> Worker:
        """A new worker; returns once it is running."""
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(b"fork\n")
        self._zygote.stdin.flush()
        readable, _, _ = select.select([self._zygote.stdout], [], [], PATIENCE)
        line = self._zygote.stdout.readline().split() if readable else []
        assert line, "a worker did not start"
        worker = Worker(int(line[1]))
        self._workers.append(worker)
        return worker
