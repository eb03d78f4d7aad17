"""Single reasons why an execution waits, with what would help if nothing here moves it on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from dalsegno.cli.desk import Desk
from dalsegno.cli.output import iso
from dalsegno.cli.result import Command
from dalsegno.core.diagnosis import Wait
from dalsegno.engine.processes import dead_among


class _Info(msgspec.Struct):
    queues: tuple[str, ...] = ()


async def workers_for(client: Desk) -> set[str]:
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


@dataclass(frozen=True, slots=True)
class Judge:
    """Tells of what could go on whether anybody is there to do it."""

    queues: set[str]
    """Those that living workers serve; empty where none lives."""
    command: Command
    execution: str
    now: float

    def of(self, wait: Wait) -> Reason:
        if wait.queue is not None:
            return self._queued(wait, wait.queue)
        if wait.kind == "trigger":
            return Reason(wait, hint=f"begin it with `{self.command.short('trigger', self.execution)}`")
        overdue = wait.kind in ("timer", "retry") and wait.due is not None and wait.due <= self.now
        return Reason(
            wait, hint=f"its time has come, but {self._nobody()}" if overdue and not self.queues else ""
        )

    def _queued(self, wait: Wait, queue: str) -> Reason:
        if queue in self.queues:
            return Reason(wait, served=True)
        flag = f" --queues {queue}" if queue not in ("default", "system") else ""
        if self.queues:
            hint = f"no living worker serves it: start one with `dalsegno worker{flag}`"
        else:
            hint = f"it is ready to run, but {self._nobody(flag)}"
        return Reason(wait, served=False, hint=hint)

    def _nobody(self, flag: str = "") -> str:
        here = self.command.line("resume", self.execution)
        return (
            f"no living worker runs on this store: go on here with `{here}`, or start `dalsegno worker{flag}`"
        )


def gone_hint(command: Command, execution: str) -> str:
    return f"its process is gone; go on with `{command.line('resume', execution)}` or start a worker"
