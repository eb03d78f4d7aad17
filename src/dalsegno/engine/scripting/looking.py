"""A script in flight as people see it: the line it stands at, what it awaits, its variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.await_outside import awaiting_in, signal_of
from dalsegno.core.diagnosis import WHEN_RESUMED, Lost, Wait, WaitKind
from dalsegno.core.limits import held_back
from dalsegno.core.script_ending import GRACE
from dalsegno.core.wake import describe, leaves_of, without_limits
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.lost_workers import lost_workers
from dalsegno.engine.scripting.turns import InThread
from dalsegno.engine.secrets.snapshot_seals import content
from dalsegno.lang.effects import APPROVAL, Awaitable, asks_people, promise_id, promise_number
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.machine import MachineView
from dalsegno.model.token import TokenView
from dalsegno.ports.blobs import Blobs
from dalsegno.ports.ledger import Ledger

KINDS: dict[str, WaitKind] = {
    "task": "running",
    "timer": "timer",
    "signal": "signal",
    "child": "child",
    "limit": "deadline",
    "approval": "signal",
}


WITHOUT_CODE = "no worker that took it has the code of this version; it is tried again"
"""Of a program that was put off."""


class AwaitedThing(Struct, frozen=True):
    """One thing a script waits for, in a sentence."""

    kind: str
    name: str
    sentence: str
    due: float | None = None
    count: int = 1
    queue: str | None = None
    """Of a task that nobody has taken yet: where it waits."""
    lost: bool = False
    """Of a task that was taken: whether its worker is dead."""
    came: bool = False
    """Of a signal: whether it has come, and only the program has not taken it yet."""


class Picture(Struct, frozen=True):
    line: int
    source: str
    """The text of that line."""
    awaiting: str
    """In short: ``task charge``, ``all of 3`` …"""
    things: tuple[AwaitedThing, ...]
    variables: dict[str, Any]


async def picture(
    execution: ExecutionView,
    ledger: Ledger,
    definitions: Definitions,
    blobs: Blobs,
    in_thread: InThread[None] | None = None,
    *,
    variables: bool = True,
) -> Picture | None:
    """None where nothing is stored to look at: before the first run, and after the end. A Python machine is loaded
    ``in_thread``: the classes of its variables are the user's own code."""
    view = await ledger.machine(execution.id)
    inspection = await ledger.inspect(execution.id)
    if view is None or not view.snapshot or inspection is None:
        return None
    program = await definitions.script(execution.definition)
    snapshot = content(view.snapshot)  # what is only looked at need not be trusted: nothing of it goes on
    needed = await program.read_blobs(snapshot, partial(blobs.get, execution.id))
    seen: list[tuple[Awaitable | None, dict[str, Any]]] = []

    def look() -> None:
        machine = program.load(snapshot, needed)
        seen.append((machine.awaiting, machine.variables() if variables else {}))

    if in_thread is not None and program.native:
        await in_thread(look)
    else:
        look()
    awaiting, found = seen[0]
    lost = await lost_workers(ledger, inspection) if awaiting is not None else {}
    return Picture(
        view.line,
        program.line(view.line),
        describe(awaiting) if awaiting is not None else "",
        tuple(_things(execution.id, awaiting, view, inspection, lost)) if awaiting is not None else (),
        found,
    )


def script_waits(
    inspection: Inspection,
    seen: Picture | None,
    machine: MachineView | None,
    lost: Mapping[str, Lost] | None = None,
) -> list[Wait]:
    """Why a script has not ended yet: what its await needs, and what would end it anyway. Without a picture (its code
    is not here) its tokens and its wake condition have to do. ``lost``: owners of leases that are dead."""
    lost = lost or {}
    execution = inspection.execution
    found: list[Wait] = []
    if execution.state in ENDED:
        return found
    if execution.state == "PAUSED":
        found.append(Wait("paused", "", "", "the execution is paused; resume it to go on"))
    if machine is not None and machine.cancel:
        found.append(Wait("cleanup", "", "", cleaning_up(machine, inspection.tokens)))
    resume = next((token for token in inspection.tokens if token.kind == "resume"), None)
    if resume is not None:
        found.append(_about_to_go_on(resume, _lost_owner(resume, lost)))
    if resume is None or execution.state == "PAUSED":  # a program that goes on may soon need something else
        found += _needed(inspection, seen, machine, lost)
    for token in inspection.tokens:
        if token.kind == "deadline":
            sentence = (
                "its own timeout passes" if token.node != "grace" else "its time for cleaning up is over"
            )
            found.append(Wait("deadline", "", "", f"ends when {sentence}", token.due))
    return found


def cleaning_up(machine: MachineView, tokens: Sequence[TokenView]) -> str:
    """What a script does that was asked to end."""
    asked = "it was cancelled" if machine.cancel == "cancel" else "it ran into its timeout"
    if not machine.interrupted:
        return f"{asked} and has not been told yet"
    if any(token.kind == "deadline" and token.node == GRACE for token in tokens):
        return f"{asked} and cleans up"
    return f"{asked} and cleans up, without a limit; terminate ends it at once"


def _needed(
    inspection: Inspection, seen: Picture | None, machine: MachineView | None, lost: Mapping[str, Lost]
) -> list[Wait]:
    """What its await needs."""
    if seen is None:
        return _unseen(inspection, machine, lost) if machine is not None else []
    place = f"line {seen.line} ({seen.source})" if seen.source else f"line {seen.line}"
    return [
        Wait(
            _kind(thing),
            thing.name,
            "",
            f"{place}: {thing.sentence}",
            thing.due,
            thing.queue,
            count=thing.count,
        )
        for thing in seen.things
    ]


def _kind(thing: AwaitedThing) -> WaitKind:
    if thing.lost:
        return "lost"
    if thing.came:
        return "kept"
    return "queued" if thing.queue is not None else KINDS[thing.kind]


def _lost_owner(token: TokenView | None, lost: Mapping[str, Lost]) -> Lost | None:
    return lost.get(token.owner or "") if token is not None and token.state == "leased" else None


def _unseen(inspection: Inspection, machine: MachineView, lost: Mapping[str, Lost]) -> list[Wait]:
    place = f"line {machine.line}"
    came = {signal.name for signal in machine.signals}
    found = [
        Wait("kept", name, "", f"{place}: {signal_came(name, inspection.execution)}")
        if name in came
        else Wait("signal", name, "", f"{place}: signal '{name}' has not come")
        for name in machine.wake.signals
    ]
    for token in inspection.tokens:
        if token.kind == "task":
            thing = _task_thing(token.node, token, _lost_owner(token, lost))
            sentence = f"{place}: {thing.sentence}"
            found.append(Wait(_kind(thing), token.node, "", sentence, thing.due, thing.queue))
        elif token.kind == "timer" and not token.node:
            found.append(Wait("timer", "", "", f"{place}: {timer_sentence(token)}", token.due))
    return found


def _about_to_go_on(resume: TokenView, lost: Lost | None) -> Wait:
    if lost is not None:
        return Wait("lost", "", "", f"the script was running; {lost.sentence}", lost.due)
    if resume.state == "parked":
        return Wait("queued", "", "", WITHOUT_CODE, resume.due, resume.queue)
    if resume.state == "held":
        return Wait("queued", "", "", f"the script has something to do; {WHEN_RESUMED}")
    if resume.state == "leased":
        return Wait("running", "", "", "the script is running")
    return Wait("queued", "", "", "the script is about to go on: it waits for a worker", queue=resume.queue)


def _things(
    execution: str,
    awaiting: Awaitable,
    view: MachineView,
    inspection: Inspection,
    lost: Mapping[str, Lost],
) -> list[AwaitedThing]:
    done = {promise_id(completion.promise) for completion in view.completions}
    tokens = {token.id: token for token in inspection.tokens}
    mailbox = Counter(signal.name for signal in view.signals)
    counted: dict[tuple[str, str, str], list[AwaitedThing]] = {}
    awaiting, limits = without_limits(awaiting)
    for leaf in leaves_of(awaiting):
        if leaf.id not in done:
            token = tokens.get(promise_token_id(execution, promise_number(leaf.id)))
            held = held_back(token, inspection.limits) if token is not None else None
            thing = _thing(execution, leaf, token, _lost_owner(token, lost))
            if thing.kind == "signal" and mailbox[thing.name] > 0:
                mailbox[thing.name] -= 1  # one signal is given to one that waits
                thing = _came(thing.name, inspection.execution)
            if held is not None:
                thing = AwaitedThing("task", thing.name, f"task '{thing.name}' {held.reason}", held.due)
            counted.setdefault((thing.kind, thing.name, thing.sentence), []).append(thing)
    things = [replace(same[0], count=len(same)) for same in counted.values()]
    return _limited(things, limits[0]) if limits else things


def _came(name: str, execution: ExecutionView) -> AwaitedThing:
    return AwaitedThing("signal", name, signal_came(name, execution), came=True)


def signal_came(name: str, execution: ExecutionView) -> str:
    """What is said of a signal that is awaited and lies in the mailbox."""
    until = "the execution is resumed" if execution.state == "PAUSED" else "the program goes on"
    return f"signal '{name}' has come and is kept until {until}"


def timer_sentence(token: TokenView | None) -> str:
    if token is not None and token.state == "held":
        return "a timer whose time has come: it fires when the execution is resumed"
    return "a timer that has not fired yet"


def _limited(things: list[AwaitedThing], limit: float) -> list[AwaitedThing]:
    """With the time limit around the await: a signal has one of its own to tell it by."""
    told = [
        replace(thing, due=_earlier(thing.due, limit)) if thing.kind == "signal" and not thing.came else thing
        for thing in things
    ]
    if all(thing.kind == "signal" for thing in things):
        return told
    return [*told, AwaitedThing("limit", "", "gives up by the timeout() around it", limit)]


def _earlier(due: float | None, limit: float) -> float:
    return limit if due is None else min(due, limit)


def _thing(execution: str, leaf: Awaitable, token: TokenView | None, lost: Lost | None) -> AwaitedThing:
    name = leaf.name or ""
    match leaf.kind:
        case "task":
            return _task_thing(name, token, lost)
        case "timer":
            return AwaitedThing("timer", name, timer_sentence(token), leaf.due)
        case "signal":
            limit = " (with a time limit)" if leaf.due is not None else ""
            sentence = (
                f"signal '{name}' has not come{limit}; send it with: dalsegno signal {execution} {name}"
            )
            return AwaitedThing("signal", name, sentence, leaf.due)
        case _:
            child = child_execution_id(execution, leaf.id)
            return AwaitedThing("child", name, f"workflow '{name}' (execution {child}) has not ended")


def _task_thing(name: str, token: TokenView | None, lost: Lost | None) -> AwaitedThing:
    asking = awaiting_in(token) if token is not None else None
    if asking is not None:
        message = (asking.question or {}).get("message") or signal_of(asking)
        return AwaitedThing("approval", "approval", f"a decision is waited for: {message}", asking.due)
    name = APPROVAL if asks_people(name) else name
    if token is not None and lost is not None:
        sentence = f"task '{name}' was running (attempt {token.attempt}); {lost.sentence}"
        return AwaitedThing("task", name, sentence, lost.due, lost=True)
    due = token.due if token is not None else None
    return AwaitedThing("task", name, _task_sentence(name, token), due, queue=_queue_of(token))


def _queue_of(token: TokenView | None) -> str | None:
    return token.queue if token is not None and token.state in ("ready", "held") else None


def _task_sentence(name: str, token: TokenView | None) -> str:
    if token is None:
        return f"task '{name}' has no token any more"
    if token.state == "leased":
        return f"task '{name}' is running (attempt {token.attempt})"
    if token.state == "held":
        return f"task '{name}' is ready; {WHEN_RESUMED}"
    if token.state == "ready":
        return f"task '{name}' waits for a worker that serves queue '{token.queue}'"
    if token.attempt > 1:
        return f"task '{name}' failed and is tried again (attempt {token.attempt})"
    return f"task '{name}' begins later"
