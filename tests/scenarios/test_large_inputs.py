"""Large inputs of tasks: their tokens stay small, and they are stored once, readable for as long as they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from dalsegno import NodeContext, gather, signal
from dalsegno.core.scripts.token_bodies import TaskBody, decode_task, encode_body
from dalsegno.core.values import decode_value
from dalsegno.engine.operations.manual_tasks import ByHand
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.remote.task_proxy import Answer
from dalsegno.engine.scripts.steps import ScriptStep, ScriptSteps
from dalsegno.engine.scripts.task_inputs import INLINE_PER_TURN
from dalsegno.engine.settings import EngineLimits
from dalsegno.errors import Conflict
from dalsegno.handle import Handle
from dalsegno.model.effect import SpawnToken
from dalsegno.model.token import Lease, TokenView
from dalsegno.ports.ledger import Ledger
from tests.scenarios.stage import Stage
from tests.scenarios.test_cleanups import gone_on
from tests.waiting import come_about

MEBIBYTE = 1024 * 1024
LARGE = "large" * 200_000
SMALL = 1024
"""Bytes of a token's row that a commit may rewrite."""


@pytest.fixture
def stage(store_url: str) -> Iterator[Stage]:
    with Stage(store_url, limits=EngineLimits(stored_bytes=3 * MEBIBYTE)) as running:

        @running.app.task
        async def measure(ctx: NodeContext, given: dict[str, Any]) -> int:
            """Waits at the door ``at``, if there is one; fails as often as asked."""
            if "at" in given:
                await running.door(given["at"]).passing(ctx.idempotency_key)
            attempt = running.attempts[ctx.idempotency_key] = running.attempts.get(ctx.idempotency_key, 0) + 1
            if attempt <= given.get("failures", 0):
                raise ValueError(f"attempt {attempt}")
            return len(given["text"])

        yield running


def tokens(stage: Stage, execution: str) -> list[TokenView]:
    inspection = stage.app.host.call(stage.app.client.stack.ledger.inspect(execution))
    return [each for each in inspection.tokens if each.kind == "task"] if inspection is not None else []


async def has_no_task(ledger: Ledger, execution: str) -> bool:
    inspection = await ledger.inspect(execution)
    return inspection is None or not any(each.kind == "task" for each in inspection.tokens)


def stored(stage: Stage, execution: str) -> int:
    return stage.app.host.call(stage.app.client.stack.blobs.stored(execution))


def others(stage: Stage, *known: Handle) -> list[Handle]:
    return [each for each in stage.app.executions() if each.id not in [one.id for one in known]]


def remove_ended(stage: Stage) -> int:
    archive, now = stage.app.client.stack.archive, stage.app.client.stack.ledger.now()
    return stage.app.host.call(archive.remove_ended(now + 60))


def large(**more: Any) -> dict[str, Any]:
    return {"text": LARGE, **more}


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> list[Lease]:
    """Every lease of a task whose step was taken."""
    found: list[Lease] = []
    step = ScriptSteps.step

    async def noting(self: ScriptSteps, lease: Lease, began: float | None = None) -> ScriptStep:
        if lease.kind == "task":
            found.append(lease)
        return await step(self, lease, began)

    monkeypatch.setattr(ScriptSteps, "step", noting)
    return found


# -- tokens of scripts ----------------------------------------------------------------------------------------


def test_the_token_stays_small_while_it_is_claimed_run_and_retried(stage: Stage, leases: list[Lease]) -> None:
    handle = stage.start_script(
        'return await Task.with({retries: 2}).run("measure", inputs)', large(at="door", failures=1)
    )
    stage.until_comers(handle, "door")
    (token,) = tokens(stage, handle.id)
    assert (token.state, len(token.data) < SMALL) == ("leased", True)
    stage.door("door").open()
    stage.until_event(handle, "TaskRetrying", "measure")
    (token,) = tokens(stage, handle.id)
    assert (token.state, len(token.data) < SMALL) == ("parked", True)
    stage.pass_time(60)
    assert stage.end_of(handle).output == len(LARGE)
    assert [len(lease.data) < SMALL for lease in leases] == [True, True]


def test_inputs_are_removed_with_their_tasks(stage: Stage) -> None:
    """Twenty megabytes in all, in an execution that may store three."""

    @stage.app.task
    def length(text: str) -> int:
        return len(text)

    @stage.app.workflow
    async def lengths() -> int:
        total = 0
        for number in range(20):
            total += await length(f"{number:02}" + LARGE)
        await signal("go")
        return total

    handle = stage.app.start(lengths)
    stage.until_event(handle, "TaskCompleted", "length", 20)
    stage.until("all inputs are removed", handle, lambda: stored(stage, handle.id) == 0)
    handle.signal("go")
    assert stage.end_of(handle).output == 20 * (len(LARGE) + 2)


def test_equal_inputs_of_two_tasks_do_not_end_together(stage: Stage) -> None:
    source = """
const held = Task.run("measure", {...inputs, at: "held"})
const first = await Task.run("measure", inputs)
return first + await held
"""
    handle = stage.start_script(source, large())
    stage.until_event(handle, "TaskCompleted", "measure")
    stage.door("held").open()
    assert stage.end_of(handle).output == 2 * len(LARGE)


def test_a_turn_that_is_taken_again_stores_its_inputs_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, bytes]] = []
    step = ScriptSteps.step

    async def twice(self: ScriptSteps, lease: Lease, began: float | None = None) -> ScriptStep:
        if lease.kind == "resume":
            for _ in range(2):
                found = await step(self, lease, began)
                spawned = [each for each in found.transition.effects if isinstance(each, SpawnToken)]
                taken.append((await self.blobs.stored(lease.execution), spawned[0].token.data))
            return found
        return await step(self, lease, began)

    monkeypatch.setattr(ScriptSteps, "step", twice)
    handle = stage.start_script('return await Task.run("measure", {text: "x".repeat(90000), at: "door"})')
    stage.until_comers(handle, "door")
    monkeypatch.undo()
    stage.door("door").open()
    assert stage.end_of(handle).output == 90_000
    first, second = taken
    assert first == second
    assert 90_000 < first[0] < 100_000


def test_many_middling_inputs_do_not_make_a_large_commit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    step = ScriptSteps.step

    async def noting(self: ScriptSteps, lease: Lease, began: float | None = None) -> ScriptStep:
        found = await step(self, lease, began)
        effects = found.transition.effects
        sizes.append(sum(len(each.token.data) for each in effects if isinstance(each, SpawnToken)))
        return found

    monkeypatch.setattr(ScriptSteps, "step", noting)

    @stage.app.task
    def length(text: str) -> int:
        return len(text)

    @stage.app.workflow
    async def lengths() -> int:
        return sum(await gather(*[length("x" * (50_000 + number)) for number in range(40)]))

    ended = stage.end_of(stage.app.start(lengths))
    assert ended.error is None
    assert ended.output == sum(range(50_000, 50_040))
    assert max(sizes) > INLINE_PER_TURN // 2
    assert max(sizes) < INLINE_PER_TURN + 40 * SMALL
    stage.until("all inputs are removed", ended.handle, lambda: stored(stage, ended.id) < 100_000)


def test_a_body_of_an_earlier_release_has_its_input_inside(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = stage.door("held")

    @stage.app.task
    async def length(ctx: NodeContext, text: str) -> int:
        await held.passing(ctx.idempotency_key)
        return len(text)

    @stage.app.workflow
    async def workflow() -> int:
        return await length(LARGE)

    monkeypatch.setattr("dalsegno.engine.scripts.turns.LARGEST_INLINE", 10 * MEBIBYTE)
    handle = stage.app.start(workflow)
    stage.until_comers(handle, "held")
    (token,) = tokens(stage, handle.id)
    body = decode_task(token.data)
    assert token.data == encode_body(TaskBody(Raw(b'"%b"' % LARGE.encode()), body.promise, None, body.line))
    held.open()
    assert stage.end_of(handle).output == len(LARGE)


# -- tasks that are handed over --------------------------------------------------------------------------------


def left_behind(stage: Stage, **given: Any) -> tuple[Handle, Handle]:
    """A script that has ended, and its task."""
    source = 'Task.run("measure", inputs)\nawait Signal.next("go")\nreturn "over"'
    handle = stage.start_script(source, large(**given))
    if "at" in given:
        stage.until_comers(handle, given["at"])
    handle.signal("go")
    assert stage.end_of(handle).output == "over"
    (task,) = others(stage, handle)
    return handle, task


def test_a_script_stays_until_the_tasks_it_handed_over_have_ended(stage: Stage) -> None:
    script, task = left_behind(stage, at="door")
    assert remove_ended(stage) == 0
    assert decode_value(task.status().input) == large(at="door")
    stage.door("door").open()
    assert stage.end_of(task).output == len(LARGE)
    stage.app.host.call(stage.app.client.stack.archive.remove([script.id]))
    assert [each.id for each in others(stage)] == [task.id]
    assert decode_value(task.status().input) == large(at="door")
    assert stage.end_of(task.retry()).output == len(LARGE)


def test_a_task_handed_over_between_two_attempts_reads_its_input(stage: Stage, leases: list[Lease]) -> None:
    source = 'Task.with({retries: 2}).run("measure", inputs)\nawait Signal.next("go")'
    handle = stage.start_script(source, large(failures=1))
    stage.until_event(handle, "TaskRetrying", "measure")
    handle.signal("go")
    stage.end_of(handle)
    (task,) = others(stage, handle)
    assert remove_ended(stage) == 0
    stage.pass_time(60)
    assert stage.end_of(task).output == len(LARGE)
    assert leases[-1].execution == task.id
    assert remove_ended(stage) == 2


def test_a_cancelled_task_keeps_its_input(stage: Stage) -> None:
    script, task = left_behind(stage, at="door")
    task.cancel()
    assert stage.end_of(task).state == "CANCELLED"
    stage.app.host.call(stage.app.client.stack.archive.remove([script.id]))
    assert decode_value(task.status().input) == large(at="door")


def test_a_task_whose_input_was_removed_is_not_retried_with_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a process of another release had ended it."""

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr("dalsegno.engine.scripts.task_inputs.TaskInputs.keep", nothing)
    script, task = left_behind(stage, at="door")
    task.cancel()
    stage.end_of(task)
    stage.app.host.call(stage.app.client.stack.archive.remove([script.id]))
    assert task.status().input == b"null"
    with pytest.raises(Conflict, match=f"removed with execution {script.id}"):
        task.retry()


# -- clean-ups ------------------------------------------------------------------------------------------------


def test_a_clean_up_goes_on_with_a_task_that_has_a_large_input(stage: Stage) -> None:
    source = 'try { await Signal.next("never") } finally { await Task.run("measure", inputs) }'
    handle = stage.start_script(source, large(at="first"))
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    stage.until_comers(handle, "first")
    handle.terminate()
    assert stage.end_of(handle).state == "CANCELLED"
    again = gone_on(stage, handle)
    stage.until_comers(again, "first", 2)
    assert tokens(stage, again.id)[0].data.count(again.id.encode()) == 1
    stage.door("first").open()
    assert stage.end_of(again).error["code"] == "CancelledError"
    first, second = stage.door("first").comers
    assert first == second


def test_a_task_that_ends_while_its_script_is_terminated_is_asked_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its input must outlive it: it ends after its token was read, and before the termination is committed."""
    source = 'try { await Signal.next("never") } finally { await Task.run("measure", inputs) }'
    handle = stage.start_script(source, large(at="door"))
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    stage.until_comers(handle, "door")
    cancellation = stage.app.client.cancelling
    termination = cancellation._termination

    async def late(execution: str, reason: str | None) -> Any:
        found = await termination(execution, reason)
        await stage.app.client.pause(execution)
        stage.door("door").open()
        ledger = stage.app.client.stack.ledger
        await come_about(lambda: has_no_task(ledger, execution), "the task has ended")
        return found

    monkeypatch.setattr(cancellation, "_termination", late)
    handle.terminate()
    monkeypatch.undo()
    assert stage.end_of(handle).state == "CANCELLED"
    again = gone_on(stage, handle)
    assert stage.end_of(again).error["code"] == "CancelledError"
    assert list(stage.attempts.values()) == [2]


# -- tasks started alone, nodes, people -----------------------------------------------------------------------


def test_the_token_of_a_task_started_alone_refers_to_its_execution(stage: Stage, leases: list[Lease]) -> None:
    @stage.app.task
    def length(text: str) -> int:
        return len(text)

    handle = stage.app.start(length, LARGE)
    assert stage.end_of(handle).output == len(LARGE)
    assert [len(lease.data) < SMALL for lease in leases] == [True]
    assert stage.end_of(handle.retry()).output == len(LARGE)


def test_a_library_node_in_a_script_takes_a_large_input(stage: Stage) -> None:
    source = 'const sorted = await Node.run("sort", {input_array: inputs.items, rules: ["n"]})\nreturn sorted.count'
    ended = stage.run_script(source, {"items": [{"n": -number, "text": "x" * 600} for number in range(1500)]})
    assert (ended.state, ended.output) == ("COMPLETED", 1500), ended.error
    stage.until("its input is removed", ended.handle, lambda: stored(stage, ended.id) < 2 * MEBIBYTE)


def test_a_task_with_a_large_input_is_shown_and_settled_by_hand(stage: Stage) -> None:
    handle = stage.start_script('return await Task.run("measure", {text: "x".repeat(90000), at: "door"})')
    stage.until_comers(handle, "door")
    by_hand = ByHand(stage.app.engine)
    (task,) = stage.app.host.call(by_hand.page(handle.id)).tasks
    assert stage.app.host.call(by_hand.show(task.id)).input == {"text": "x" * 90_000, "at": "door"}
    stage.app.host.call(by_hand.complete(task.id, 7))
    assert stage.end_of(handle).output == 7
    stage.until("its input is removed", handle, lambda: stored(stage, handle.id) == 0)


def test_a_remote_worker_gets_a_large_input_and_its_answer_ends_it(stage: Stage) -> None:
    stage.app.remote_task("outside", queue="programs", returns=int)
    source = 'return await Task.with({queue: "programs"}).run("outside", {text: "x".repeat(90000)})'
    handle = stage.start_script(source)
    call, orchestrator = stage.app.host.call, Orchestrator(stage.app.engine)
    [task] = call(orchestrator.claim("laptop", ["programs"], 1, 10))
    assert task.question.input == {"text": "x" * 90_000}
    assert len(task.lease.data) < SMALL
    call(orchestrator.settle(task.id, task.lease.fence, Answer(7)))
    assert stage.end_of(handle).output == 7
    stage.until("its input is removed", handle, lambda: stored(stage, handle.id) == 0)
    call(orchestrator.stop())
