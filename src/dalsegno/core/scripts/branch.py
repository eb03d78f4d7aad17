"""Branches: executions that start from an earlier turn of another one.

What such an execution starts from is stored with it, as an output, because the journal of the other one may give way.
Its first turn is that of a retry: it takes over the machine with what is known and pending, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dalsegno.core.scripts.journal import Entry
from dalsegno.core.scripts.kept import KeptMachine
from dalsegno.core.scripts.step import start_from
from dalsegno.core.scripts.token_bodies import StartBody, encode_body
from dalsegno.model.effect import StoreOutput
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.machine import Completion, numbers_in
from dalsegno.model.transition import Transition

BRANCH = "branch"
"""Id of the output."""


class Branch(Struct, frozen=True, omit_defaults=True):
    kept: KeptMachine
    turn: int
    definition: str
    """The content hash of the machine's program."""
    asked: Raw
    """What was asked for, to compare repeated requests with the same key."""
    variables: dict[str, Raw] = {}
    answered: tuple[int, ...] = ()


_encode = msgspec.json.Encoder().encode
decode_branch = msgspec.json.Decoder(Branch).decode


def store_branch(branch: Branch) -> StoreOutput:
    return StoreOutput(BRANCH, _encode(branch))


def start_branch(
    new: NewExecution, other: str, branch: Branch, again: Sequence[str], now: float, timeout: float | None
) -> Transition:
    """Create an execution that starts from a turn of another one. What it starts from is stored apart, or with it."""
    facts: dict[str, Any] = {
        "input": Raw(new.input),
        "relation": new.relation,
        "from": other,
        "turn": branch.turn,
        "line": branch.kept.line,
    }
    if again:
        facts["again"] = list(again)
    if branch.answered:
        facts["answered"] = [f"p{number}" for number in branch.answered]
    if branch.variables:
        facts["set"] = branch.variables
    started = NewEvent("ExecutionStarted", "", "", now, encode_body(facts))
    return start_from(new, encode_body(StartBody(started_at=now, branches=other)), now, timeout, started)


def with_branch(transition: Transition, branch: Branch) -> Transition:
    """Store what the execution starts from with the transition that creates it."""
    return msgspec.structs.replace(transition, effects=(*transition.effects, store_branch(branch)))


def answered(kept: KeptMachine, answers: Sequence[Completion]) -> KeptMachine:
    """Return what is kept, with other results of some promises. They are as old as those that they replace."""
    given = {each.promise: each for each in answers}
    last = max([each.number for each in kept.completions], default=0)
    completions = [
        replace(given.pop(each.promise), number=each.number) if each.promise in given else each
        for each in kept.completions
    ]
    completions += [replace(each, number=last + place) for place, each in enumerate(given.values(), 1)]
    numbers = {each.promise for each in answers}
    return msgspec.structs.replace(
        kept,
        completions=tuple(completions),
        tasks=tuple([task for task in kept.tasks if task.promise not in numbers]),
        timers=tuple([timer for timer in kept.timers if timer.promise not in numbers]),
    )


def asked_later(entry: Entry, later: Sequence[Entry]) -> list[str]:
    """Return the tasks that later turns called: they run again."""
    before = set(numbers_in(entry.reachable))
    found = {task.promise: task.node for each in later for task in each.tasks if task.promise not in before}
    return [found[promise] for promise in sorted(found)]


def no_variable(name: str, branch: Branch, known: str) -> str:
    place = f"the function that waits in line {branch.kept.line} at turn {branch.turn}"
    return f"{place} has no variable '{name}'; it has {known or 'none'}"
