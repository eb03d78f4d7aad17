"""Names and argument counts of the orchestration functions of scripts, and the names of a run's values.

The compiler, the machine and validation share this table.
"""

from __future__ import annotations

from difflib import get_close_matches

ArgumentCounts = tuple[int, int | None]
"""Minimum and maximum; None for any number."""

ORCHESTRATION: dict[str, ArgumentCounts] = {
    "Task.run": (2, 2),
    "Task.with": (1, 1),
    "Task.delay": (1, 1),
    "Task.all": (1, 2),
    "Task.any": (1, 2),
    "Task.race": (1, 2),
    "Node.run": (2, 2),
    "Node.with": (1, 1),
    "Workflow.run": (2, 2),
    "Workflow.start": (2, 2),
    "Workflow.with": (1, 1),
    "Timer.delay": (1, 1),
    "Timer.until": (1, 1),
    "Signal.next": (1, 1),
    "Signal.when": (1, 2),
    "Request.next": (1, 1),
    "Request.when": (1, 2),
    "Request.reply": (1, 2),
    "Request.reject": (2, 2),
    "Promise.all": (1, 2),
    "Promise.any": (1, 2),
    "Promise.race": (1, 2),
    "Promise.allSettled": (1, 2),
    "Promise.any_kv": (1, 2),
    "Promise.race_kv": (1, 2),
    "wait_for_signal": (1, 2),
    "approval": (1, 2),
    "set_tags": (1, 1),
    "publish": (2, 2),
    "progress": (1, 3),
    "Stream.write": (2, 2),
    "Stream.close": (1, 1),
    "log": (1, None),
    "checkpoint": (1, 1),
}

AFTER_WITH: dict[str, tuple[str, ...]] = {
    "Task": ("run",),
    "Node": ("run",),
    "Workflow": ("run", "start"),
}
"""The functions that may follow ``Task.with({…})`` and its siblings."""

_OF_TASKS = ("queue", "priority", "retries", "retry", "timeout", "key", "delay", "concurrency")
OPTIONS: dict[str, tuple[str, ...]] = {
    "Task": _OF_TASKS,
    "Node": _OF_TASKS,
    "Workflow": ("version", "tags", "priority"),
}
"""The options that ``with`` takes."""

PROMISE_MAKERS_TO_AWAIT = frozenset(
    {
        "Timer.delay",
        "Timer.until",
        "Task.delay",
        "Signal.next",
        "Signal.when",
        "Request.next",
        "Request.when",
        "wait_for_signal",
        "approval",
    }
)
"""Functions whose promise has no effect unless it is awaited: a task runs anyway, a timer does nothing."""

ORCHESTRATION_NAMESPACES = frozenset(name.partition(".")[0] for name in ORCHESTRATION if "." in name)

RUN_VALUES = frozenset({"Inputs", "Context"})
"""Values that every run receives."""

PROMISE_GROUPS = frozenset(
    name
    for name in ORCHESTRATION
    if name.startswith("Promise.") or name in ("Task.all", "Task.any", "Task.race")
)
"""Functions that wait for several promises at once."""

LOWER_CASE: dict[str, str] = {name.lower(): name for name in (*ORCHESTRATION_NAMESPACES, *RUN_VALUES)}
"""Lower-case spellings, looked up only where no variable has the name."""


def unknown_option(namespace: str, name: str) -> str:
    known = OPTIONS[namespace]
    close = get_close_matches(name[:100], known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
    return f"{namespace}.with() has no option '{name[:100]}'; {hint}"
