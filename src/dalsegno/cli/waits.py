"""What an execution waits for, in sentences and as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from dalsegno.cli.output import STYLES, iso, moment, signs_for, stdout
from dalsegno.cli.tree import countdown
from dalsegno.core.diagnosis import Wait
from dalsegno.engine.client import Client
from dalsegno.engine.processes import dead_among
from dalsegno.model.execution import ENDED, ExecutionView

LOOKS = {"running": "RUNNING", "queued": "QUEUED", "paused": "PAUSED"}


class _Info(msgspec.Struct):
    queues: tuple[str, ...] = ()


async def workers_for(client: Client) -> set[str]:
    """The queues that living workers serve."""
    now = client.stack.ledger.now()
    workers = await client.stack.ledger.workers()
    dead = dead_among([worker.id for worker in workers])
    served: set[str] = set()
    for worker in workers:
        if worker.expires_at > now and worker.id not in dead:
            served.update(msgspec.json.decode(worker.info, type=_Info).queues if worker.info else ())
            served.add("system")
    return served


def wait_as_object(wait: Wait, now: float) -> dict[str, Any]:
    seconds = math.ceil(max(wait.due - now, 0) * 1000) / 1000 if wait.due is not None else None
    return {**msgspec.to_builtins(wait), "due": iso(wait.due), "seconds_left": seconds}


def print_waits(view: ExecutionView, waits: Sequence[Wait], now: float, queues: set[str]) -> None:
    console = stdout()
    signs = signs_for(console)
    if view.state in ENDED:
        console.print(f"It waits for nothing: it has ended ({view.state}).")
        return
    for wait in waits:
        state = LOOKS.get(wait.kind, "WAITING")
        line = Text.assemble((signs.states[state], STYLES[state]), " ", sentence(wait, now))
        if wait.kind == "queued" and wait.queue not in queues:
            line.append(
                f"; no living worker serves it: start one with `dalsegno worker{_flag(wait)}`", "yellow"
            )
        console.print(line)


def sentence(wait: Wait, now: float) -> str:
    text = wait.sentence
    if wait.count > 1:
        text = f"{wait.count:,} × {text}"
    if wait.due is None:
        return text
    return f"{text}: in {countdown(wait.due - now)} ({moment(wait.due)})"


def _flag(wait: Wait) -> str:
    return f" --queues {wait.queue}" if wait.queue not in (None, "default", "system") else ""
