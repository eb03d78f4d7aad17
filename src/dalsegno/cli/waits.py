"""What an execution waits for, in sentences and as data: what ``why`` tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from rich.text import Text

from dalsegno.cli.activity import asks_people, gone_tokens, signal_in
from dalsegno.cli.desk import Desk
from dalsegno.cli.output import STYLES, execution_names, moment, signs_for, stdout
from dalsegno.cli.reasons import Judge, Reason, gone_hint, workers_for
from dalsegno.cli.result import Command
from dalsegno.cli.script_waits import script_reasons
from dalsegno.cli.tree import countdown
from dalsegno.core.diagnosis import Wait, never_silent, of_child, waits
from dalsegno.engine.lost_workers import lost_workers
from dalsegno.engine.nesting import below
from dalsegno.errors import NotFound
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import TokenView

LOOKS = {
    "running": "RUNNING",
    "lost": "FAILED",
    "stuck": "FAILED",
    "trouble": "FAILED",
    "queued": "QUEUED",
    "paused": "PAUSED",
    "cleanup": "CANCELLED",
}
PROGRAMS = SCRIPTED | {"task"}
"""Kinds of executions whose tokens tell only half of it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``why`` tells."""

    view: ExecutionView
    reasons: list[Reason]
    now: float

    def as_object(self) -> dict[str, Any]:
        return {
            **execution_names(self.view.id, self.view.state),
            "waits": [reason.as_object(self.now) for reason in self.reasons],
        }


async def explain(client: Desk, execution: str, command: Command) -> Explanation:
    """Where it waits for a child, with what the child waits for."""
    own = await _explain(client, execution, command)
    if not any(reason.wait.kind == "child" for reason in own.reasons):
        return own
    found = list(own.reasons)
    for child in await below(client.executions, execution):
        reasons = (await _explain(client, child.id, command)).reasons
        found += [dataclasses.replace(reason, wait=of_child(reason.wait, child)) for reason in reasons]
    return dataclasses.replace(own, reasons=found)


async def _explain(client: Desk, execution: str, command: Command) -> Explanation:
    view = await client.status(execution)
    inspection = await client.stack.ledger.inspect(execution)
    if inspection is None:  # it ended between the two looks, if it had not ended before
        return Explanation(await client.status(execution), [], client.stack.clock.now())
    if view.state in ENDED:
        return Explanation(view, [], client.stack.clock.now())
    if view.kind in PROGRAMS and view.state != "PENDING":
        reasons = await script_reasons(client, inspection, command)
    else:
        reasons = await _graph_reasons(client, inspection, command)
    silent = never_silent(inspection, [reason.wait for reason in reasons]) if not reasons else []
    told = [*await _troubles(client, execution), *reasons, *map(Reason, silent)]
    return Explanation(view, told, client.stack.clock.now())


async def _troubles(client: Desk, execution: str) -> list[Reason]:
    """Notes of processes that could not go on with it: whoever keeps the store has them."""
    try:
        return [Reason(wait) for wait in await client.why(execution) if wait.kind == "trouble"]
    except NotFound:  # it ended between the looks
        return []


async def _graph_reasons(client: Desk, inspection: Inspection, command: Command) -> list[Reason]:
    """Also of what waits to begin, and of schedules: tokens tell all there is."""
    execution, now = inspection.execution.id, client.stack.clock.now()
    judge = Judge(await workers_for(client), command, execution, now)
    gone = gone_tokens(inspection.tokens)
    alive = tuple(token for token in inspection.tokens if token.id not in gone)
    lost = tuple(token for token in inspection.tokens if token.id in gone)
    signals = {token.node: signal_in(token.awaits) for token in alive if signal_in(token.awaits)}
    asking = asking_nodes(alive)
    dead = await lost_workers(client.stack.ledger, inspection)
    reasons = [
        signal_or_not(wait, signals, asking, command, execution) or judge.of(wait)
        for wait in waits(replace(inspection, tokens=alive), await client.open_slots(inspection), dead)
    ]
    hint = gone_hint(command, execution)
    for wait in waits(replace(inspection, tokens=lost)):
        if wait.kind == "running":
            was = replace(wait, sentence=wait.sentence.replace(" is running ", " was running "))
            reasons.append(Reason(was, gone=True, hint=hint))
    return reasons


def asking_nodes(tokens: Iterable[TokenView]) -> set[str]:
    """Those that wait for a decision."""
    return {token.node for token in tokens if token.awaits is not None and asks_people(token)}


def signal_or_not(
    wait: Wait, signals: dict[str, str], asking: set[str], command: Command, execution: str
) -> Reason | None:
    if wait.kind != "signal" or wait.node not in signals:
        return None
    if wait.node in asking:
        return Reason(
            wait, hint=f"decide it with `{command.short('approve', execution, wait.node)}` or reject"
        )
    return Reason(wait, hint=f"send it with `{command.signal(execution, signals[wait.node])}`")


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
    if wait.kind == "signal":
        return f"{text}; it gives up in {countdown(wait.due - now)} ({moment(wait.due)})"
    return f"{text}: in {countdown(wait.due - now)} ({moment(wait.due)})"
