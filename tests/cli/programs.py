"""The program as a real process, and waiting for what can be observed."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.forking import Forked, can_be_forked

PATIENCE = 60.0


def is_crash(text: str) -> bool:
    """A traceback with frames of ours: those of tasks and nodes, which are shown, have none."""
    return "Traceback" in text and "/dalsegno/" in text


class Program:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def logged_up_to(self, *words: str) -> str:
        """Stderr up to one of these and whatever came with it. Not by lines: a reader of lines would keep those after
        them for itself, and ``finish`` would never see them."""
        assert self.process.stderr is not None
        said = b""
        while not any(word.encode() in said for word in words):
            chunk = os.read(self.process.stderr.fileno(), 65536)
            assert chunk, said.decode()
            said += chunk
        return said.decode()

    def finish(self, patience: float = PATIENCE) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=patience)
        assert not is_crash(err), err
        return self.process.returncode, out, err

    def result(self) -> dict[str, Any]:
        code, out, err = self.finish()
        assert out.count("\n") == 1, (out, err)
        return {**json.loads(out), "exit_code": code}

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@dataclass(frozen=True, slots=True)
class Programs:
    folder: Path
    environment: dict[str, str]
    running: list[Program]

    def begin(self, *arguments: str, **environment: str) -> Program:
        """Forked by a process that has imported everything; `interpreted` starts an interpreter."""
        if not can_be_forked({**self.environment, **environment}):
            return self.interpreted(*arguments, **environment)
        return self.forked("dalsegno", *arguments, **environment)

    def forked(self, module: str, *arguments: str, **environment: str) -> Program:
        """A module, or a file of the folder."""
        process = Forked(
            module,
            arguments,
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self._running(process)

    def interpreted(self, *arguments: str, **environment: str) -> Program:
        return self.python("-m", "dalsegno", *arguments, **environment)

    def _running(self, process: subprocess.Popen[str]) -> Program:
        program = Program(process)
        self.running.append(program)
        return program

    def on_terminal(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """With a terminal as stderr: exit code, stdout, and what the terminal was sent."""
        terminal, side = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "dalsegno", *arguments],
            cwd=self.folder,
            env={**self.environment, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=side,
        )
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):  # Linux says so when the other side is closed
            while chunk := os.read(terminal, 65536):
                shown += chunk
        os.close(terminal)
        out, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, out.decode(), shown.decode()

    def bound(self, bind: Callable[[], object], *arguments: str) -> Program:
        """The program with less than this process has: ``bind`` runs in it before anything else."""
        return self.python("-m", "dalsegno", *arguments, bind=bind)

    def python(
        self, *arguments: str, bind: Callable[[], object] | None = None, **environment: str
    ) -> Program:
        if bind is not None:  # what it cannot write whole it must not leave to others
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            preexec_fn=bind,  # noqa: PLW1509 - it sets limits, and takes no lock
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self._running(process)


def without_styles(shown: str) -> str:
    """What a terminal was sent, without bold, dim and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
