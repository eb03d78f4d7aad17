"""Single reasons why an execution waits, with what would help if nothing here moves it on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from dalsegno.cli.output import iso
from dalsegno.cli.result import Command
from dalsegno.core.diagnosis import Wait
from dalsegno.engine.client import Client
from dalsegno.engine.processes import dead_among


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


@dataclass(frozen=True, slots=True)
class Reason:
    """Something an execution waits for, and what would help if nothing here moves it on."""

    wait: Wait
    gone: bool = False
    """It was running in a process of this machine that has died."""
    served: bool | None = None
    """Of something queued: whether a living worker serves its queue."""
    hint: str = ""

    def as_object(self, now: float) -> dict[str, Any]:
        wait = self.wait
        seconds = math.ceil(max(wait.due - now, 0) * 1000) / 1000 if wait.due is not None else None
        return {
            **msgspec.to_builtins(wait),
            "due": iso(wait.due),
            "seconds_left": seconds,
            "process_gone": self.gone,
            "served": self.served,
            "hint": self.hint or None,
        }


def queued_or_not(wait: Wait, queues: set[str]) -> Reason:
    if wait.queue is None:
        return Reason(wait)
    if wait.queue in queues:
        return Reason(wait, served=True)
    flag = f" --queues {wait.queue}" if wait.queue not in ("default", "system") else ""
    hint = f"no living worker serves it: start one with `dalsegno worker{flag}`"
    return Reason(wait, served=False, hint=hint)


def gone_hint(command: Command, execution: str) -> str:
    return f"its process is gone; go on with `{command.line('resume', execution)}` or start a worker"
