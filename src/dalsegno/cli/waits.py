"""What an execution waits for, in sentences and as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.text import Text

from dalsegno.cli.output import STYLES, iso, moment, signs_for, stdout
from dalsegno.cli.progress import gone_tokens
from dalsegno.cli.result import Command
from dalsegno.cli.tree import countdown
from dalsegno.core.diagnosis import Wait, waits
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


@dataclass(frozen=True, slots=True)
class Reason:
    """Something an execution waits for, and what would help if nothing here moves it on."""

    wait: Wait
    gone: bool = False
    """It was running in a process of this machine that has died."""
    served: bool | None = None
    """Of a queued node: whether a living worker serves its queue."""
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
class Explanation:
    """What ``why`` tells."""

    view: ExecutionView
    reasons: list[Reason]
    now: float

    def as_object(self) -> dict[str, Any]:
        return {
            "execution_id": self.view.id,
            "status": self.view.state,
            "waits": [reason.as_object(self.now) for reason in self.reasons],
        }


async def explain(client: Client, execution: str, command: Command) -> Explanation:
    view = await client.status(execution)
    inspection = await client.stack.ledger.inspect(execution)
    if inspection is None or view.state in ENDED:
        return Explanation(view, [], client.stack.clock.now())
    queues = await workers_for(client)
    gone = gone_tokens(inspection.tokens)
    alive = tuple(token for token in inspection.tokens if token.id not in gone)
    lost = tuple(token for token in inspection.tokens if token.id in gone)
    reasons = [_reason(wait, queues) for wait in waits(replace(inspection, tokens=alive))]
    hint = gone_hint(command, execution)
    for wait in waits(replace(inspection, tokens=lost)):
        if wait.kind == "running":
            was = replace(wait, sentence=wait.sentence.replace(" is running ", " was running "))
            reasons.append(Reason(was, gone=True, hint=hint))
    return Explanation(view, reasons, client.stack.clock.now())


def gone_hint(command: Command, execution: str) -> str:
    return f"its process is gone; go on with `{command.line('resume', execution)}` or start a worker"


def _reason(wait: Wait, queues: set[str]) -> Reason:
    if wait.kind != "queued":
        return Reason(wait)
    if wait.queue in queues:
        return Reason(wait, served=True)
    hint = f"no living worker serves it: start one with `dalsegno worker{_flag(wait)}`"
    return Reason(wait, served=False, hint=hint)


def print_explanation(explanation: Explanation) -> None:
    console = stdout()
    signs = signs_for(console)
    if explanation.view.state in ENDED:
        console.print(f"It waits for nothing: it has ended ({explanation.view.state}).")
        return
    for reason in explanation.reasons:
        state = "FAILED" if reason.gone else LOOKS.get(reason.wait.kind, "WAITING")
        line = Text.assemble(
            (signs.states[state], STYLES[state]), " ", sentence(reason.wait, explanation.now)
        )
        if reason.hint:
            line.append(f"; {reason.hint}", "yellow")
        console.print(line, soft_wrap=not console.is_terminal)


def sentence(wait: Wait, now: float) -> str:
    text = wait.sentence
    if wait.count > 1:
        text = f"{wait.count:,} × {text}"
    if wait.due is None:
        return text
    return f"{text}: in {countdown(wait.due - now)} ({moment(wait.due)})"


def _flag(wait: Wait) -> str:
    return f" --queues {wait.queue}" if wait.queue not in (None, "default", "system") else ""
