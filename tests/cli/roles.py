"""The roles in processes of their own, on stores that may be away."""

from __future__ import annotations

import signal

from tests.cli.programs import Program

NOBODY = "postgresql://me@127.0.0.1:9/db"
"""A store where nobody answers, ever."""
ROLES = {"worker": "serves default", "scheduler": "scheduler: timers", "server": "listens at"}
"""What each says when it is at work."""


def options_of(role: str) -> tuple[str, ...]:
    return ("--port", "0") if role == "server" else ()


def line_with(program: Program, text: str) -> str:
    """The first line on stderr that holds it; fails at the end of the output."""
    assert program.process.stderr is not None
    read = []
    for line in program.process.stderr:
        read.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} is not in {''.join(read)}")


def stop(program: Program) -> None:
    """As whoever manages processes does: it ends by itself, and as it should."""
    program.send(signal.SIGTERM)
    assert program.finish()[0] == 0
