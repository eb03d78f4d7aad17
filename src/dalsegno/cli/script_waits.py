"""What a script or Python workflow waits for: the things it awaits, and what holds it up besides."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dalsegno.cli.activity import Activity
from dalsegno.cli.desk import Desk
from dalsegno.cli.inside import look_inside, short_path
from dalsegno.cli.reasons import Judge, Reason, gone_hint, workers_for
from dalsegno.cli.result import Command
from dalsegno.cli.script_progress import BLOCK, Pending, ScriptMoment, ScriptProgress
from dalsegno.cli.signals import kept_signals
from dalsegno.cli.source_text import stored_source
from dalsegno.core.diagnosis import WHEN_RESUMED, Wait, WaitKind, timers_apart
from dalsegno.engine.lost_workers import lost_workers
from dalsegno.engine.scripting.looking import WITHOUT_CODE, AwaitedThing, signal_came
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import promise_token_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import TokenView

_KINDS: dict[str, WaitKind] = {
    "task": "task",
    "timer": "timer",
    "signal": "signal",
    "child": "child",
    "limit": "deadline",
    "approval": "signal",
}


TIME_HAS_COME = "a timer's time has come; it fires when the execution is resumed"


async def script_reasons(client: Desk, inspection: Inspection, command: Command) -> list[Reason]:
    view = inspection.execution
    moment = await ScriptProgress(client, view.id).look(complete=True)
    judge = Judge(await workers_for(client), command, view.id, client.stack.clock.now())
    reasons = [Reason(wait) for wait in _held_up(moment)]
    reasons += await _of_the_program(client, moment, inspection, judge)
    things = await _awaited(client, moment)
    is_timed = any(thing.kind == "timer" for thing in things)
    timers = await _timers(client, view.id, moment.limits) if is_timed else []
    reasons += [_reason(thing, moment, judge) for thing in things if thing.kind != "timer" or not timers]
    reasons += [judge.of(wait) for wait in timers]
    reasons += [Reason(wait) for wait in _limits(moment)]
    return [*reasons, *(Reason(wait) for wait in await _kept(client, view.id))]


async def _of_the_program(
    client: Desk, moment: ScriptMoment, inspection: Inspection, judge: Judge
) -> list[Reason]:
    """What the program itself waits for, if it has something to do."""
    resume = moment.resume
    if resume is None:
        return []
    match moment.turning:
        case "gone":
            was = Wait("running", "", "", "the program was running")
            return [Reason(was, gone=True, hint=gone_hint(judge.command, judge.execution))]
        case "running":
            return [Reason(await _running(client, resume, inspection))]
        case "put off":
            put_off = Wait("queued", "", "", WITHOUT_CODE, resume.due, resume.queue)
            return [judge.without_code(put_off, await _home(client, moment.execution))]
        case "queued" if moment.execution.state == "PAUSED":
            return [Reason(Wait("queued", "", "", f"the program has something to do; {WHEN_RESUMED}"))]
        case "queued":
            sentence = "the program has something to do and waits for a worker"
            return [judge.of(Wait("queued", "", "", sentence, queue=resume.queue))]
        case _:
            return []


async def _running(client: Desk, resume: TokenView, inspection: Inspection) -> Wait:
    lost = (await lost_workers(client.stack.ledger, inspection)).get(resume.owner or "")
    if lost is not None:
        return Wait("lost", "", "", f"the program was running; {lost.sentence}", lost.due)
    return Wait("running", "", "", "the program itself is running")


async def _home(client: Desk, view: ExecutionView) -> str:
    """Where its code is, as ``--app`` takes it."""
    source = await stored_source(client, view)
    return short_path(source.file) if source is not None and source.file else "MODULE:NAME"


async def _awaited(client: Desk, moment: ScriptMoment) -> list[AwaitedThing]:
    """As the machine says; where its code is not at hand, everything that is out."""
    picture, _ = await look_inside(client, moment.execution.id, None, variables=False)
    return list(picture.things) if picture is not None else list(_out(moment))


async def _timers(client: Desk, execution: str, limits: Collection[float]) -> list[Wait]:
    """Those that its await needs, each with its own time; not those that only limit the time."""
    ledger = client.stack.ledger
    inspection, machine = await ledger.inspect(execution), await ledger.machine(execution)
    if inspection is None or machine is None:
        return []  # it ended meanwhile
    awaited = {
        promise_token_id(execution, number)
        for start, stop in machine.wake.awaited or machine.reachable
        for number in range(start, stop)
    }
    timers = [
        Wait("timer", "", "", TIME_HAS_COME)
        if token.state == "held"
        else Wait("timer", "", "", "a timer has not fired yet", token.due)
        for token in inspection.tokens
        if token.kind == "timer" and not token.node and token.id in awaited and token.due not in limits
    ]
    return timers_apart(timers)


async def _kept(client: Desk, execution: str) -> list[Wait]:
    """Signals that have come and that the program does not ask for: a name may be misspelt."""
    machine = await client.stack.ledger.machine(execution)
    found = kept_signals(machine) if machine is not None else {}
    return [
        Wait("kept", name, "", f"signal '{name}' has come and is kept: nobody takes it now", count=count)
        for name, count in found.items()
    ]


def _held_up(moment: ScriptMoment) -> Iterator[Wait]:
    if moment.execution.state == "PAUSED":
        yield Wait("paused", "", "", "the execution is paused; resume it to go on")
    if moment.cleanup:
        yield Wait("cleanup", "", "", moment.cleanup)


def _limits(moment: ScriptMoment) -> Iterator[Wait]:
    for each in moment.pending:
        if each.kind == "limit" and each.name != BLOCK:
            sentence = (
                "ends, cleaned up or not" if each.name == "grace" else "is asked to end by its own timeout"
            )
            yield Wait("deadline", "", "", sentence, each.due)


def _reason(thing: AwaitedThing, moment: ScriptMoment, judge: Judge) -> Reason:
    wait = Wait(_KINDS[thing.kind], thing.name, "", thing.sentence, thing.due, count=thing.count)
    activity = moment.activities.get(thing.name) if thing.kind == "task" else None
    if thing.came:
        sentence = signal_came(thing.name, moment.execution)
        return Reason(Wait("kept", thing.name, "", sentence, count=thing.count))
    if thing.kind == "signal":
        sentence = f"signal '{thing.name}' has not come"
        sent = f"send it with `{judge.command.signal(moment.execution.id, thing.name)}`"
        return Reason(Wait("signal", thing.name, "", sentence, thing.due, count=thing.count), hint=sent)
    if thing.kind == "approval":
        return Reason(wait, hint=_deciding(thing.count, judge))
    if activity is not None and _is_gone(thing, activity):
        was = thing.sentence.replace(" is running ", " was running ")
        lost = Wait("task", thing.name, "", was, count=thing.count)
        return Reason(lost, gone=True, hint=gone_hint(judge.command, moment.execution.id))
    if activity is not None and (thing.queue is not None or activity.is_all_queued()):
        if moment.execution.state == "PAUSED":  # who serves its queue does not matter yet
            held = f"task '{thing.name}' is ready; {WHEN_RESUMED}"
            return Reason(Wait("task", thing.name, "", held, count=thing.count))
        queued = Wait("task", thing.name, "", thing.sentence, queue=activity.queue, count=thing.count)
        return judge.of(queued)
    return judge.of(wait)


def _deciding(count: int, judge: Judge) -> str:
    if count > 1:
        return f"decide them: `{judge.command.short('approvals', judge.execution)}` lists how"
    return f"decide it with `{judge.command.short('approve', judge.execution)}` or reject"


def _is_gone(thing: AwaitedThing, activity: Activity) -> bool:
    """Where the store has forgotten a dead worker already, its tasks are not told from others of the same name."""
    unheard = thing.queue is None and " is running " in thing.sentence and not activity.running
    return bool(activity.gone) and (thing.lost or unheard)


def _out(moment: ScriptMoment) -> Iterator[AwaitedThing]:
    """Tasks, timers, signals and children that have not come yet, awaited or not."""
    for name, activity in moment.activities.items():
        yield from _tasks(name, activity)
    for each in moment.pending:
        if each.kind != "limit" or each.name == BLOCK:
            name = each.name if each.kind != "limit" else ""
            yield AwaitedThing(each.kind, name, _sentence(each), each.due, each.count, came=each.came)


def _tasks(name: str, activity: Activity) -> Iterator[AwaitedThing]:
    """One for each thing that tasks of this name are doing."""
    running = f"task '{name}' is running (attempt {activity.attempt})"
    if activity.running:
        yield AwaitedThing("task", name, running, count=activity.running)
    if activity.gone:
        yield AwaitedThing("task", name, running, count=activity.gone, lost=True)
    if activity.queued:
        waits = f"task '{name}' waits for a worker that serves queue '{activity.queue}'"
        yield AwaitedThing("task", name, waits, count=activity.queued, queue=activity.queue)
    if activity.asks:
        yield AwaitedThing(
            "approval", "approval", "a decision is waited for", activity.due, activity.sleeping
        )
    elif activity.sleeping:
        again = f"task '{name}' is tried again (attempt {activity.retrying or 1})"
        yield AwaitedThing("task", name, again, activity.due, activity.sleeping)


def _sentence(pending: Pending) -> str:
    if pending.kind == "limit":
        return "gives up by the timeout() around it"
    if pending.kind == "timer":
        return "a timer has not fired yet"
    if pending.kind == "child":
        return f"workflow '{pending.name}' (execution {pending.execution}) has not ended"
    return f"signal '{pending.name}' has not come"
