"""Signals that an execution waits for, and those that nobody takes."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.cli.activity import signal_in
from dalsegno.cli.desk import Desk
from dalsegno.cli.suggesting import listed
from dalsegno.model.machine import MachineView


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
