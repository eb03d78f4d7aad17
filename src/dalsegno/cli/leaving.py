"""What an execution that has ended leaves behind: tasks and workflows that nobody waited for, and that still run."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.cli.output import stderr
from dalsegno.cli.result import Command
from dalsegno.engine.client import Client
from dalsegno.engine.engine import OWN, Engine
from dalsegno.model.execution import ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter

MOST_NAMED = 5
ALIVE: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED")


async def left_behind(engine: Engine, execution: str) -> list[ExecutionView]:
    """Asked when this process runs nothing any more."""
    await engine.outbox.drain()  # what it has ordered with its last step exists only then
    return await unfinished(engine.client, execution)


async def unfinished(client: Client, execution: str) -> list[ExecutionView]:
    where = ExecutionFilter(None, ALIVE, parent=execution, relations=OWN)
    found: list[ExecutionView] = []
    before: str | None = None
    while page := await client.executions(where, before):
        found += page
        before = page[-1].id
    return found


def explain_going_on(left: Sequence[ExecutionView], command: Command) -> None:
    if not left:
        return
    console = stderr()
    what = (
        "1 execution that it started has"
        if len(left) == 1
        else f"{len(left)} executions that it started have"
    )
    if not command.is_lasting:
        console.print(
            f"{what} not ended; a memory: store ends with its process, so nothing goes on with that"
        )
        return
    console.print(f"{what} not ended. A worker goes on with that, or:")
    for view in left[:MOST_NAMED]:
        console.print("  " + command.line("resume", view.id), markup=False, soft_wrap=True)
    if len(left) > MOST_NAMED:
        console.print(f"  … and {len(left) - MOST_NAMED} more")
