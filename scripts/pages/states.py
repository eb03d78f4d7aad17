"""``states.md``: the tables of ``core.states`` as text and as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.core.states import EXECUTION_MOVES, NODE_MOVES, PRECEDENCE
from scripts.pages import state_diagram
from scripts.pages.markdown import NOTICE, code, table

EXECUTION_MEANINGS = {
    "PENDING": "Waits to begin: at its time, or by a trigger. An ordinary start is RUNNING at once.",
    "RUNNING": "It has tokens that are ready, running or waiting.",
    "PAUSED": "None of its tokens is claimed until it is resumed. A step that runs when the pause begins "
    "still commits, and "
    "may be the last.",
    "COMPLETED": "Ended with an output.",
    "FAILED": "Ended with an error that nothing handled, or by its own timeout.",
    "CANCELLED": "Ended by a request to cancel or terminate it.",
}
NODE_MEANINGS = {
    "PENDING": "No token has reached it yet.",
    "QUEUED": "A token waits for a worker; its worker may have died before.",
    "RUNNING": "A worker holds its token.",
    "WAITING": "Parked: a wait, the delay before a retry, or a join that is not open yet.",
    "COMPLETED": "Its run was committed.",
    "FAILED": "Its last attempt failed; its error strategy decided what followed.",
    "SKIPPED": "No path that was taken leads to it.",
    "CANCELLED": "It was live when its scope or execution ended, or it lost a race.",
}


EXECUTION_PICTURE = (
    "![From PENDING to RUNNING, to and from PAUSED, and to an end](../images/execution-states.svg)"
)
NODE_PICTURE = "![From PENDING over QUEUED, RUNNING and WAITING to an end](../images/node-states.svg)"


def page() -> str:
    precedence = ", ".join(code(state) for state in PRECEDENCE)
    return (
        f"# States\n\n{NOTICE}\n"
        f"## Executions\n\n{_moves(EXECUTION_MOVES, EXECUTION_MEANINGS, EXECUTION_PICTURE)}\n"
        f"## Nodes\n\n{_moves(NODE_MOVES, NODE_MEANINGS, NODE_PICTURE)}\n"
        "A node may be visited several times, and once per item of a split. Its summary is the first present of "
        f"{precedence}.\n"
    )


def execution_states() -> str:
    return state_diagram.draw("States of an execution", EXECUTION_MOVES, "PENDING")


def node_states() -> str:
    return state_diagram.draw("States of a node", NODE_MOVES, "PENDING")


def _moves(moves: Mapping[Any, tuple[str, ...]], meanings: Mapping[str, str], picture: str) -> str:
    rows = [
        (
            code(before),
            meanings[before],
            ", ".join(code(after) for after in targets) or "nothing: it has ended",
        )
        for before, targets in moves.items()
    ]
    return f"{table(('state', 'meaning', 'may become'), rows)}\n{picture}\n"
