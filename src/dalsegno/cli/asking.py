"""How people move on an execution that waits for them: the command to copy."""

from __future__ import annotations

from collections.abc import Mapping

from dalsegno.cli.activity import Activity
from dalsegno.cli.result import Command


def ways_on(activities: Mapping[str, Activity], command: Command, execution: str) -> list[tuple[str, str]]:
    """What is asked for, and the command that gives it, for every node that waits for a decision or a signal."""
    return [
        _way(node, activity, command, execution) for node, activity in activities.items() if activity.signal
    ]


def program_ways_on(
    activities: Mapping[str, Activity], command: Command, execution: str
) -> list[tuple[str, str]]:
    """The same for what a script or Python workflow asks people."""
    questions = sum(activity.sleeping for activity in activities.values() if activity.asks)
    if not questions:
        return []
    if questions > 1:  # each is decided by its index
        return [("decide them:", command.short("approvals", execution))]
    return [("decide it:", command.short("approve", execution))]


def _way(node: str, activity: Activity, command: Command, execution: str) -> tuple[str, str]:
    if not activity.asks:
        return "send it:", command.signal(execution, activity.signal)
    if activity.sleeping > 1:  # items of a split: each is decided by its index
        return "decide them:", command.short("approvals")
    return "decide it:", command.short("approve", execution, node)
