"""Why an execution has not ended, and the position of a script in flight.

This is the only module that reports what an execution waits for. An answer takes one read of the store. Definitions
come from the cache of this process; one that is not cached is read as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.diagnosis import (
    WHEN_RESUMED,
    Explanation,
    Lost,
    Wait,
    WaitKind,
    child_wait,
    command,
    group,
    held_back,
    in_queue,
    lost_worker_wait,
    paused,
    waits,
    with_fallback,
)
from dalsegno.core.graph.external_waits import awaiting_in, signal_of
from dalsegno.core.scripts.ending import GRACE
from dalsegno.core.scripts.token_bodies import decode_timer
from dalsegno.core.scripts.turn import describe, leaves_of, without_limits
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.executions import no_execution
from dalsegno.engine.operations.troubles import KIND as TROUBLES
from dalsegno.engine.operations.troubles import record_id, troubled
from dalsegno.engine.remote.declarations import QUEUES, TASKS
from dalsegno.engine.scripts.inspection import inspect
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.scripts.turns import InThread
from dalsegno.engine.secrets.snapshot_seals import content
from dalsegno.engine.upkeep.outbox import below
from dalsegno.engine.worker.directory import (
    Directory,
    directory,
    lost_workers,
    with_broker,
    with_help,
    without_code,
)
from dalsegno.errors import BadConfiguration, InvalidDefinition, NotFound
from dalsegno.graph.plan import Plan
from dalsegno.lang import SnapshotError
from dalsegno.lang.python.program import stored_program
from dalsegno.lang.runtime.effects import APPROVAL, Awaitable, asks_people, promise_id, promise_number
from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ENDED, NOT_ENDED, SCRIPTED, ExecutionView
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.machine import MachineView, in_words, request_in
from dalsegno.model.token import TokenView
from dalsegno.ports.archive import Archive, ExecutionFilter
from dalsegno.ports.ledger import Examination, Ledger, RecordsAsked
from dalsegno.ports.records import Blobs

RECORDS = RecordsAsked(TROUBLES, record_id("token", ""), QUEUES, TASKS)
UNKNOWN_LOCATION = "MODULE:NAME"
"""Placeholder for the application with the code of a workflow, if the store does not name its file."""
LATEST = 200
"""Number of latest events that are searched for the last suspension of a program."""
MOST_CHILDREN = 20


class ScriptSnapshotView(Struct, frozen=True):
    line: int
    source: str
    """The text of that line."""
    awaiting: str
    """A short form: ``task charge``, ``all of 3`` …"""
    things: tuple[Wait, ...]
    variables: dict[str, Any]


class Why:
    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        definitions: Definitions,
        blobs: Blobs,
        in_thread: Callable[[], InThread[None] | None],
    ) -> None:
        """Python machines are loaded ``in_thread``: the classes of their variables are user code."""
        self._ledger = ledger
        self._archive = archive
        self._definitions = definitions
        self._blobs = blobs
        self._in_thread = in_thread

    async def explain(self, execution: str) -> Explanation | None:
        """Return the waits of an execution and, for a child it waits for, those of the child. None if there is no
        such execution.
        """
        examined = await self._ledger.examine([execution], RECORDS)
        if not examined.executions:
            return None
        [own], now = examined.executions, self._ledger.now()
        workers = directory(examined.workers, now)
        found = await self._waits(own, workers)
        if any(wait.kind == "child" for wait in found):
            children = await below(self._archive.executions, execution)
            for child in (await self._ledger.examine([each.id for each in children], RECORDS)).executions:
                view = child.inspection.execution
                found += [child_wait(wait, view) for wait in await self._waits(child, workers)]
        view = own.inspection.execution
        return Explanation(view.id, view.state, tuple(found), now)

    async def picture(self, execution: str, *, variables: bool = True) -> ScriptSnapshotView | None:
        """Return the position of a script, its awaits and its variables. None if there is no machine: for a graph,
        before the first run, and after the end.
        """
        for is_last in (False, True):
            examined = await self._ledger.examine([execution])
            if not examined.executions:
                raise no_execution(execution)
            [found] = examined.executions
            view = found.inspection.execution
            if view.kind not in SCRIPTED or view.state in ENDED or not _is_suspended(found):
                return None
            program = await self._definitions.script(view.definition)
            try:
                return await self._picture(
                    found, program, directory(examined.workers, self._ledger.now()), variables
                )
            except NotFound:  # the next turn has removed a blob of the snapshot that was read
                if is_last:
                    raise
        return None

    async def open_branches(self, found: Examination) -> Mapping[str, tuple[str, ...]]:
        """Return the missing branches of each barrier, by its name; empty for a graph whose node types are not known
        here.
        """
        if not found.open_slots:
            return {}
        inspection = found.inspection
        try:
            plan = (await self._definitions.by_hash(inspection.execution.definition)).plan
        except (InvalidDefinition, NotFound):
            return {}
        barriers = {barrier.id: barrier for barrier in inspection.barriers}
        return {name: _branches(plan, barriers[name], numbers) for name, numbers in found.open_slots.items()}

    async def _waits(self, found: Examination, workers: Directory) -> list[Wait]:
        inspection = found.inspection
        execution = inspection.execution
        if execution.state in ENDED:
            return []
        lost = lost_workers(workers.views, inspection, workers.now)
        if execution.kind in SCRIPTED and execution.state != "PENDING":
            shown = await self._script_waits(_held_while_paused(found), workers, lost)
        else:
            shown = waits(inspection, await self.open_branches(found), lost)
        workers = workers.with_remote_queues(found.records)
        shown = [with_broker(wait, inspection.tokens, workers) for wait in with_fallback(inspection, shown)]
        helped = [with_help(wait, execution.id, workers) for wait in shown]
        return [*troubled(found.records, inspection), *helped]

    async def _script_waits(
        self, found: Examination, workers: Directory, lost: Mapping[str, Lost]
    ) -> list[Wait]:
        """Return what delays the program, what its await needs, and what would end it anyway."""
        inspection, machine = found.inspection, found.machine
        execution, tokens = inspection.execution, inspection.tokens
        shown = paused(execution)
        if machine is not None and machine.cancel:
            shown.append(Wait("cleanup", "", "", cleaning_up(machine, tokens), subject="program"))
        resume = next((token for token in tokens if token.kind == "resume"), None)
        if resume is not None:
            shown.append(await self._of_the_program(execution, resume, lost, workers))
        # A program that continues may soon need something else.
        if resume is None or execution.state == "PAUSED":
            shown += await self._awaited(found, lost, workers)
        shown += [_deadline(token) for token in tokens if token.kind == "deadline"]
        return [*shown, *(_not_asked_for(machine) if machine is not None else ())]

    # -- the program itself -----------------------------------------------------------------------------------

    async def _of_the_program(
        self, execution: ExecutionView, resume: TokenView, lost: Mapping[str, Lost], workers: Directory
    ) -> Wait:
        if resume.state == "parked":  # it sleeps only after a worker could not run it
            return without_code(execution.id, resume, await self._code_location(execution), workers)
        return _turn(resume, _lost_owner(resume, lost))

    async def _code_location(self, execution: ExecutionView) -> str:
        """Return the location of a Python workflow's code, as ``--app`` accepts it."""
        if execution.kind != "python":
            return UNKNOWN_LOCATION
        definition = await self._archive.definition_by_hash(execution.definition)
        return (stored_program(definition.source).file if definition is not None else "") or UNKNOWN_LOCATION

    # -- what its await needs ---------------------------------------------------------------------------------

    async def _awaited(self, found: Examination, lost: Mapping[str, Lost], workers: Directory) -> list[Wait]:
        """Return what the await needs. If the code is not here, it is derived from the tokens and the wake
        condition.
        """
        if found.machine is None:
            return []
        seen = await self._seen(found, workers)
        if seen is not None:
            return list(seen.things)
        if not found.machine.snapshot:
            return []
        execution = found.inspection.execution
        limits = await self._last_limits(execution)
        waits = _waits_by_tokens(found.inspection, found.machine, lost, limits)
        return _grouped(execution.id, [*waits, *await self._children(execution.id)], found.machine.line)

    async def _seen(self, found: Examination, workers: Directory) -> ScriptSnapshotView | None:
        """Return the inspected script. None if its code is not here or its snapshot was changed in the store; dead
        letters give the reason.
        """
        if not _is_suspended(found):
            return None
        try:
            program = await self._definitions.script(found.inspection.execution.definition)
            return await self._picture(found, program, workers, variables=False)
        except NotFound:  # no definition; or the next turn has removed a blob of the snapshot that was read
            return await self._seen_again(found.inspection.execution.id)
        except (BadConfiguration, SnapshotError):
            return None

    async def _seen_again(self, execution: str) -> ScriptSnapshotView | None:
        try:
            return await self.picture(execution, variables=False)
        except (NotFound, BadConfiguration, SnapshotError):
            return None

    async def _picture(
        self, found: Examination, program: ScriptProgram, workers: Directory, variables: bool
    ) -> ScriptSnapshotView:
        inspection, machine = found.inspection, found.machine
        assert machine is not None  # noqa: S101 - `_is_suspended` was asked
        execution = inspection.execution.id
        # A snapshot that is only inspected needs no verification: nothing of it is executed.
        snapshot = content(machine.snapshot)
        needed = await program.read_blobs(snapshot, partial(self._blobs.get, execution))
        awaiting, values = await inspect(
            program, snapshot, needed, self._definitions.offload, self._in_thread(), variables=variables
        )
        source = program.line(machine.line)
        lost = lost_workers(workers.views, inspection, workers.now)
        waits = _missing_results(awaiting, inspection, machine, lost) if awaiting is not None else []
        return ScriptSnapshotView(
            machine.line,
            source,
            describe(awaiting) if awaiting is not None else "",
            tuple(_grouped(execution, waits, machine.line, source)),
            values,
        )

    async def _last_limits(self, execution: ExecutionView) -> tuple[float, ...]:
        """Return the ends of the time limits around the await, from the last suspension."""
        for event in reversed(
            await self._archive.events(execution.id, max(execution.seq - LATEST, 0), LATEST)
        ):
            data = msgspec.json.decode(event.data) if event.data is not None else None
            shown = (
                data if event.kind == "Suspended" else data.get("then") if isinstance(data, dict) else None
            )
            if isinstance(shown, dict):
                return tuple(shown.get("limits", ()))
        return ()

    async def _children(self, execution: str) -> list[Wait]:
        where = ExecutionFilter(None, NOT_ENDED, parent=execution, relations=("child",))
        found = await self._archive.executions(where, None, MOST_CHILDREN)
        return [_child(child.workflow, child.id) for child in reversed(found)]


def _held_while_paused(found: Examination) -> Examination:
    """Return ready tokens of a paused execution as held: they continue when it is resumed, and until then it does not
    matter who serves their queue.
    """
    inspection = found.inspection
    if inspection.execution.state != "PAUSED":
        return found
    tokens = (
        replace(token, state="held")
        if token.state == "ready" and held_back(token, inspection.limits) is None
        else token
        for token in inspection.tokens
    )
    return replace(found, inspection=replace(inspection, tokens=tuple(tokens)))


def _is_suspended(found: Examination) -> bool:
    return found.machine is not None and bool(found.machine.snapshot)


# -- branches of a join, items of a split ---------------------------------------------------------------------


def _branches(plan: Plan, barrier: BarrierView, numbers: Sequence[int]) -> tuple[str, ...]:
    node = plan.nodes.get(barrier.node)
    if node is None:
        return ()
    if node.control == "aggregator":
        return tuple(f"item {number}" for number in numbers)
    edges = {edge.slot: edge for edge in node.in_edges}
    return tuple(
        f"'{edges[number].src}' (its error edge)" if edges[number].is_error else f"'{edges[number].src}'"
        for number in numbers
        if number in edges
    )


# -- the program itself ---------------------------------------------------------------------------------------


def cleaning_up(machine: MachineView, tokens: Sequence[TokenView]) -> str:
    """Describe what a script does that was cancelled or timed out."""
    asked = "it was cancelled" if machine.cancel == "cancel" else "it ran into its timeout"
    if not machine.interrupted:
        return f"{asked} and has not been notified yet"
    if any(token.kind == "deadline" and token.node == GRACE for token in tokens):
        return f"{asked} and cleans up"
    return f"{asked} and cleans up, without a limit; terminate ends it at once"


def _turn(resume: TokenView, lost: Lost | None) -> Wait:
    if lost is not None:
        return lost_worker_wait(lost, "the program was running", subject="program")
    if resume.state == "leased":
        return Wait("running", "", "", "the program is running", subject="program")
    if resume.state == "held":
        sentence = f"the program is ready to continue; {WHEN_RESUMED}"
        return Wait("queued", "", "", sentence, subject="program", since=resume.ready_at)
    sentence = "the program is ready to continue and waits for a worker"
    return Wait("queued", "", "", sentence, queue=resume.queue, subject="program", since=resume.ready_at)


def _deadline(token: TokenView) -> Wait:
    what = "its time for cleaning up has passed" if token.node == GRACE else "its own timeout passes"
    return Wait("deadline", "", "", f"ends when {what}", token.due, subject="execution")


def _not_asked_for(machine: MachineView) -> list[Wait]:
    """Return the signals and requests that were received and that nothing awaits: a name may be misspelt."""
    found = Counter(signal.name for signal in machine.signals if signal.name not in machine.wake.signals)
    kept = "has arrived and is kept: nothing waits for it now"
    return [
        replace(_mail("kept", name, f"{in_words(name)} {kept}"), count=count) for name, count in found.items()
    ]


def _mail(kind: WaitKind, name: str, sentence: str) -> Wait:
    """Return a wait about a signal or a request, by its name in the mailbox."""
    request = request_in(name)
    if request is None:
        return Wait(kind, name, "", sentence, subject="signal")
    return Wait(kind, request, "", sentence, subject="request")


def _lost_owner(token: TokenView | None, lost: Mapping[str, Lost]) -> Lost | None:
    return lost.get(token.owner or "") if token is not None and token.state == "leased" else None


# -- what its await needs -------------------------------------------------------------------------------------


def _missing_results(
    awaiting: Awaitable, inspection: Inspection, machine: MachineView, lost: Mapping[str, Lost]
) -> list[Wait]:
    """Return a wait for each missing thing, and one for the time limit around them."""
    execution = inspection.execution
    done = {promise_id(completion.promise) for completion in machine.completions}
    tokens = {token.id: token for token in inspection.tokens}
    mailbox = Counter(signal.name for signal in machine.signals)
    awaiting, limits = without_limits(awaiting)
    found: list[Wait] = []
    for leaf in leaves_of(awaiting):
        if leaf.id in done:
            continue
        if leaf.kind == "signal" and mailbox[leaf.name or ""] > 0:
            mailbox[leaf.name or ""] -= 1  # each signal satisfies one await
            found.append(_received_signal(leaf.name or "", execution))
            continue
        token = tokens.get(promise_token_id(execution.id, promise_number(leaf.id)))
        found.append(_missing_result(inspection, leaf, token, _lost_owner(token, lost)))
    return _limited(found, limits[0]) if limits else found


def _missing_result(
    inspection: Inspection, leaf: Awaitable, token: TokenView | None, lost: Lost | None
) -> Wait:
    execution, name = inspection.execution.id, leaf.name or ""
    match leaf.kind:
        case "task":
            if token is not None and token.kind == "timer":
                return _elsewhere(name, token)
            return _task(inspection, name, token, lost)
        case "timer":
            return _timer(token, leaf.due)
        case "signal":
            return _signal(execution, name, leaf.due)
        case _:
            return _child(name, child_execution_id(execution, leaf.id))


def _signal(execution: str, name: str, due: float | None) -> Wait:
    wait = _mail("signal", name, f"{in_words(name)} has not arrived")
    send = command("signal" if wait.subject == "signal" else "ask", execution, wait.node)
    return replace(wait, due=due, hint=f"send it with `{send}`", commands=(send,))


def _received_signal(name: str, execution: ExecutionView) -> Wait:
    until = "the execution is resumed" if execution.state == "PAUSED" else "the program continues"
    return _mail("kept", name, f"{in_words(name)} has arrived and is kept until {until}")


def _timer(token: TokenView | None, due: float | None) -> Wait:
    if token is not None and token.state == "held":
        sentence = "a timer is due; it fires when the execution is resumed"
        return Wait("timer", "", "", sentence, subject="timer")
    return Wait("timer", "", "", "a timer has not fired yet", due, subject="timer")


def _elsewhere(name: str, token: TokenView) -> Wait:
    """Return the wait for a task that an earlier execution called."""
    awaited = decode_timer(token.data).awaited
    execution = awaited.execution if awaited is not None else ""
    sentence = f"task '{name}', called before the retry (execution {execution}), has not ended"
    return Wait("child", name, "", sentence, subject="child")


def _child(workflow: str, execution: str) -> Wait:
    sentence = f"workflow '{workflow}' (execution {execution}) has not ended"
    return Wait("child", workflow, "", sentence, subject="child")


def _limited(waits: list[Wait], limit: float) -> list[Wait]:
    """Add the time limit around the await. A signal reports it as its own due time."""
    shown = [
        replace(wait, due=limit if wait.due is None else min(wait.due, limit))
        if wait.kind == "signal" and wait.subject in ("signal", "request")
        else wait
        for wait in waits
    ]
    if all(wait.subject in ("signal", "request") for wait in waits):
        return shown
    sentence = "gives up when the timeout() around it expires"
    return [*shown, Wait("deadline", "", "", sentence, limit, subject="limit")]


def _task(inspection: Inspection, name: str, token: TokenView | None, lost: Lost | None) -> Wait:
    asking = awaiting_in(token) if token is not None else None
    if asking is not None:
        message = (asking.question or {}).get("message") or signal_of(asking)
        sentence, since = f"it waits for a decision: {message}", asking.since or None
        return Wait("signal", "approval", "", sentence, asking.due, subject="approval", since=since)
    name = APPROVAL if asks_people(name) else name
    if token is None:
        return Wait("running", name, "", f"task '{name}' no longer has a token", subject="task")
    held = held_back(token, inspection.limits)
    if held is not None:
        sentence = f"task '{name}' {held.reason}"
        return Wait("limit", name, "", sentence, held.due, subject="task", since=token.ready_at)
    if lost is not None:
        was = f"task '{name}' was running (attempt {token.attempt})"
        return lost_worker_wait(lost, was, name, subject="task")
    return _of_its_token(name, token)


def _of_its_token(name: str, token: TokenView) -> Wait:
    task = partial(Wait, node=name, scope="", subject="task", since=token.ready_at)
    match token.state:
        case "leased":
            return task("running", sentence=f"task '{name}' is running (attempt {token.attempt})")
        case "held":
            return task("queued", sentence=f"task '{name}' is ready; {WHEN_RESUMED}")
        case "ready":
            return in_queue(task("queued", sentence=""), token)
    if token.attempt > 1:
        sentence = f"task '{name}' failed and is tried again (attempt {token.attempt})"
        return task("retry", sentence=sentence, due=token.due)
    return task("timer", sentence=f"task '{name}' begins later", due=token.due)


def _waits_by_tokens(
    inspection: Inspection, machine: MachineView, lost: Mapping[str, Lost], outer_limits: Sequence[float]
) -> list[Wait]:
    """Return the waits that tokens and wake condition show. ``outer_limits``: ends of the time
    limits around the await."""
    execution, tokens = inspection.execution, inspection.tokens
    received = {signal.name for signal in machine.signals}
    limits = {token.node: token.due for token in tokens if token.kind == "timer" and token.node}
    found = [
        _received_signal(name, execution)
        if name in received
        else _signal(execution.id, name, limits.get(name))
        for name in machine.wake.signals
    ]
    awaited_tokens = {
        promise_token_id(execution.id, number)
        for start, stop in machine.wake.awaited or machine.reachable
        for number in range(start, stop)
    }
    for token in tokens:
        if token.kind == "task":
            found.append(_task(inspection, token.node, token, _lost_owner(token, lost)))
        elif token.kind == "timer" and not token.node and token.id in awaited_tokens:
            awaited = decode_timer(token.data).awaited
            if awaited is not None:
                found.append(_elsewhere(awaited.name, token))
            elif token.due not in outer_limits:
                found.append(_timer(token, token.due))
    return _limited(found, outer_limits[0]) if outer_limits else found


def _grouped(execution: str, waits: Sequence[Wait], line: int, text: str = "") -> list[Wait]:
    """Group equal waits with a count, and add their place in the program."""
    return [replace(_with_decision(execution, wait), line=line, text=text) for wait in group(waits)]


def _with_decision(execution: str, wait: Wait) -> Wait:
    """Add the command that decides a question. Several questions are distinguished by their index."""
    if wait.subject != "approval":
        return wait
    if wait.count > 1:
        how = command("approvals", execution)
        return replace(wait, hint=f"decide them: `{how}` lists how", commands=(how,))
    how = command("approve", execution)
    return replace(wait, hint=f"decide it with `{how}` or reject", commands=(how,))
