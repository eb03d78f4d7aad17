"""Signals that an execution waits for, and those that nobody takes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dalsegno.cli.activity import signal_in
from dalsegno.cli.desk import Desk
from dalsegno.cli.suggesting import listed
from dalsegno.model.machine import MachineView

PAGE = 1000


class _Told(Struct, frozen=True):
    """What the event of a signal tells of its sender."""

    id: str | None = None


_decode = msgspec.json.Decoder(_Told).decode


async def waited_signals(client: Desk, execution: str) -> list[str]:
    """The names that the execution takes now."""
    inspection = await client.stack.ledger.inspect(execution)
    if inspection is None:
        return []
    if inspection.execution.kind == "graph":
        names = [signal_in(token.awaits) for token in inspection.tokens]
        return [name for name in dict.fromkeys(names) if name]
    machine = await client.stack.ledger.machine(execution)
    return list(machine.wake.signals) if machine is not None else []


async def came_before(client: Desk, execution: str, id: str) -> int | None:
    """The event of a signal that was sent with this id."""
    after = 0
    while page := await client.events(execution, after, PAGE):
        for event in page:
            if event.kind == "SignalReceived" and event.data and _decode(event.data).id == id:
                return event.seq
        after = page[-1].seq
    return None


def kept_for_later(name: str, waited: Sequence[str]) -> str:
    """What is said of a signal that came before anybody asked for it; nothing where somebody does."""
    if name in waited:
        return ""
    instead = f" (it waits for {listed(waited)})" if waited else ""
    return f"; it is kept: nobody waits for '{name}' now{instead}"


def kept_signals(machine: MachineView) -> dict[str, int]:
    """How many have come of each name that the program does not wait for."""
    found: dict[str, int] = {}
    for signal in machine.signals:
        if signal.name not in machine.wake.signals:
            found[signal.name] = found.get(signal.name, 0) + 1
    return found
