"""Single reasons why an execution waits, with what would help if nothing here moves it on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dalsegno.cli.desk import Desk
from dalsegno.cli.output import iso
from dalsegno.cli.result import Command
from dalsegno.core.diagnosis import Wait
from dalsegno.engine.processes import dead_among
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, module_of


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
            served.add(SYSTEM_QUEUE)
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
        module, flag = module_of(queue), _flag(queue)
        if self.queues:
            lacking = "serves it" if module is None else f"has imported '{module}'"
            hint = f"no living worker {lacking}: start one with `dalsegno worker{flag}`"
        else:
            app = f"{module}:app" if module is not None else None
            hint = f"it is ready to run, but {self._nobody(flag, app)}"
        return Reason(wait, served=False, hint=hint)

    def without_code(self, wait: Wait, app: str) -> Reason:
        """A program that every worker so far put off: ``app`` is where its code is."""
        flag = f" --app {app}"
        if not self.queues:
            return Reason(wait, served=False, hint=self._nobody(flag, app))
        served = wait.queue in self.queues
        return Reason(wait, served=served, hint=f"start a worker that has it, with `dalsegno worker{flag}`")

    def _nobody(self, flag: str = "", app: str | None = None) -> str:
        """``app``: without which this program could not go on with it either."""
        command = replace(self.command, app=app) if app is not None else self.command
        here = command.line("resume", self.execution)
        return (
            f"no living worker runs on this store: go on here with `{here}`, or start `dalsegno worker{flag}`"
        )


def _flag(queue: str) -> str:
    """What a worker is started with so that it serves a queue."""
    module = module_of(queue)
    if module is not None:
        return f" --app {module}:app"
    return f" --queues {queue}" if queue not in (DEFAULT_QUEUE, SYSTEM_QUEUE) else ""


def gone_hint(command: Command, execution: str) -> str:
    return f"its process is gone; go on with `{command.line('resume', execution)}` or start a worker"
