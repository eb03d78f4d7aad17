"""Executions that wait to be begun: delayed starts, and starts in two steps."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dalsegno import App
from dalsegno.adapters.memory.store import MemoryStore
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.core.settlement import TokenRow
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import Conflict, InvalidInput, NotFound, WorkflowCancelled
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.scenarios.documents import graph, hold, task
from tests.scenarios.stage import Stage
from tests.servers.forking import run_python

NOTE = graph("a", {"a": task("note", "{{ $trigger.n }}")})
SCRIPT = 'workflow later(inputs) {\n  return await Task.run("note", inputs.n)\n}\n'
HOUR = 3600.0
KINDS = ("graph", "script", "python", "task")


def submit(stage: Stage, document: Any = NOTE, payload: Any = None, **options: Any) -> Handle:
    definition = stage.app.deploy(document)
    made = stage.app.client.submit(definition.name, payload, StartOptions(**options))
    return stage.app.handle(stage.app.host.call(made))


def start(stage: Stage, kind: str, n: int = 1, **options: Any) -> Handle:
    """Notes ``n`` when it runs."""
    if kind == "graph":
        return stage.start(NOTE, {"n": n}, **options)
    if kind == "script":
        return stage.start_script(SCRIPT, {"n": n}, "later", **options)
    if kind == "task":
        made = stage.app.client.start_task("note", n, StartOptions(**options))
        return stage.app.handle(stage.app.host.call(made))
    return stage.app.with_options(**options).start(python_workflow(stage), n)


def python_workflow(stage: Stage) -> Any:
    async def note_later(n: int) -> Any:
        return await note(n)

    note = stage.app.task(name="noted")(lambda n: stage.seen.append(n) or n)
    return stage.app.workflow(note_later)


def kinds_of(handle: Handle) -> list[str]:
    return [event.kind for event in handle.events()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_delayed_start_waits_for_its_time(stage: Stage, kind: str) -> None:
    handle = start(stage, kind, delay="1h")
    assert handle.status().state == "PENDING"
    [reason] = handle.why()
    assert (reason.kind, reason.due) == ("timer", stage.clock.now() + HOUR)
    stage.pass_time(HOUR - 1)
    assert handle.status().state == "PENDING"
    assert stage.seen == []

    stage.pass_time(1)

    assert stage.end_of(handle).output == 1
    assert stage.seen == [1]
    assert kinds_of(handle)[:2] == ["ExecutionSubmitted", "ExecutionStarted"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_trigger_begins_a_delayed_start_early_and_once(stage: Stage, kind: str) -> None:
    handle = start(stage, kind, delay="1h")
    handle.trigger()
    handle.trigger()
    assert stage.end_of(handle).output == 1
    stage.pass_time(2 * HOUR)
    handle.trigger()
    assert stage.seen == [1]
    assert kinds_of(handle).count("ExecutionStarted") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_delayed_start_can_be_cancelled(stage: Stage, kind: str) -> None:
    handle = start(stage, kind, delay="1h")
    handle.cancel("changed my mind")
    with pytest.raises(WorkflowCancelled):
        handle.result(30)
    stage.pass_time(2 * HOUR)
    assert stage.seen == []
    assert kinds_of(handle) == ["ExecutionSubmitted", "ExecutionCancelled"]
    with pytest.raises(Conflict, match="it was cancelled"):
        handle.trigger()


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2023, 11, 15, 12, tzinfo=UTC),
        datetime(2023, 11, 15, 12),  # noqa: DTZ001 - without an offset it means UTC
        "2023-11-15T13:00:00+01:00",
        datetime(2023, 11, 15, 12, tzinfo=UTC).timestamp(),
    ],
)
def test_a_start_at_a_time(stage: Stage, moment: Any) -> None:
    stage.clock.set(datetime(2023, 11, 15, 11, tzinfo=UTC).timestamp())
    handle = stage.start(NOTE, {"n": 1}, start_at=moment)
    assert handle.why()[0].due == datetime(2023, 11, 15, 12, tzinfo=UTC).timestamp()


def test_a_time_that_has_passed_means_now(stage: Stage) -> None:
    past = datetime.fromtimestamp(stage.clock.now(), UTC) - timedelta(days=1)
    assert stage.run(NOTE, {"n": 1}, start_at=past).count("ExecutionSubmitted") == 0
    assert stage.run(NOTE, {"n": 2}, delay=0).count("ExecutionSubmitted") == 0


@pytest.mark.parametrize(
    "options", [{"delay": "soon"}, {"delay": -1}, {"start_at": "soon"}, {"delay": 1, "start_at": 5e9}]
)
def test_impossible_times_are_refused(stage: Stage, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"delay|start_at"):
        stage.start(NOTE, {"n": 1}, **options)


def test_the_version_is_the_one_of_the_start(stage: Stage) -> None:
    handle = stage.start(NOTE, {"n": 1}, delay="1h")
    stage.app.deploy(graph("a", {"a": task("note", "another")}))
    stage.pass_time(HOUR)
    assert stage.end_of(handle).output == 1
    assert handle.status().version == 1


def test_the_input_is_checked_when_it_is_submitted(stage: Stage) -> None:
    strict = {**NOTE, "input_schema": {"type": "object", "required": ["n"]}}
    with pytest.raises(InvalidInput, match="input_schema"):
        stage.start(strict, {}, delay="1h")
    with pytest.raises(InvalidInput, match="input_schema"):
        submit(stage, strict, {})
    handle = submit(stage, strict, {"n": 1})
    with pytest.raises(InvalidInput, match="input_schema"):
        handle.trigger({"m": 1})
    handle.trigger({"n": 2})
    assert stage.end_of(handle).output == 2


def test_the_same_key_is_the_same_pending_execution(stage: Stage) -> None:
    first = stage.start(NOTE, {"n": 1}, delay="1h", idempotency_key="k")
    second = stage.start(NOTE, {"n": 2}, delay="2h", idempotency_key="k")
    assert first.id == second.id
    assert first.why()[0].due == stage.clock.now() + HOUR


def test_what_is_submitted_waits_until_it_is_triggered(stage: Stage) -> None:
    handle = submit(stage, payload={"n": 3})
    assert [wait.sentence for wait in handle.why()] == ["it was submitted and waits to be triggered"]
    assert handle.nodes()["a"].state == "PENDING"
    assert handle.context() == {"$trigger": {"n": 3}}
    stage.pass_time(30 * 24 * HOUR)
    handle.trigger()
    assert stage.end_of(handle).output == 3


def test_a_begun_execution_takes_no_other_input(stage: Stage) -> None:
    handle = submit(stage, payload={"n": 3})
    handle.trigger({"n": 4})
    handle.trigger({"n": 4})
    with pytest.raises(Conflict, match="it has begun"):
        handle.trigger({"n": 5})
    assert stage.end_of(handle).output == 4
    assert handle.status().input == b'{"n":4}'


def test_nothing_is_triggered_where_there_is_nothing(stage: Stage) -> None:
    with pytest.raises(NotFound):
        stage.app.handle("nowhere").trigger()


def test_what_has_not_begun_cannot_be_paused(stage: Stage) -> None:
    handle = submit(stage)
    with pytest.raises(Conflict, match="it has not begun"):
        handle.pause()


def test_a_timeout_counts_from_the_begin(stage: Stage) -> None:
    slow = graph("h", {"h": hold("h")}, timeout="1h")
    handle = submit(stage, slow)
    stage.pass_time(5 * HOUR)
    handle.trigger()
    stage.until_comers(handle, "h")
    stage.pass_time(HOUR - 1)
    assert handle.status().state == "RUNNING"
    stage.pass_time(1)
    assert stage.end_of(handle).state == "FAILED"


def test_a_delayed_task_runs_on_its_own_queue(stage: Stage) -> None:
    client = stage.app.client
    handles = []
    for _ in range(2):
        made = client.start_task("note", 1, StartOptions(delay="1h"), "gpu")
        handles.append(stage.app.handle(stage.app.host.call(made)))
    handles[0].trigger()
    stage.pass_time(HOUR)
    for handle in handles:
        stage.until("it is queued", handle, lambda handle=handle: handle.status().state == "RUNNING")
        assert [wait.queue for wait in handle.why()] == ["gpu"]


def test_a_signal_may_come_before_it_begins(stage: Stage) -> None:
    source = 'workflow waits(inputs) {\n  return await Signal.when("go")\n}\n'
    handle = stage.start_script(source, None, "waits", delay="1h")
    handle.signal("go", "early")
    handle.trigger()
    assert stage.end_of(handle).output == "early"


def test_a_thousand_delayed_starts_due_at_once_begin_once_each(stage: Stage) -> None:
    stage.app.deploy(NOTE)
    starter = stage.app.with_options(delay="1h")
    handles = [starter.start("scenario", {"n": n}) for n in range(1000)]
    stage.pass_time(HOUR)
    for handle in handles:
        handle.wait(60)
    assert sorted(stage.seen) == list(range(1000))


@LASTING
def test_a_delayed_start_survives_a_restart(store_url: str) -> None:
    with Stage(store_url) as first:
        handle = first.start(NOTE, {"n": 7}, delay="1h")
        now = first.clock.now()
    with Stage(store_url) as second:
        second.clock.set(now + HOUR + 1)
        again = second.app.handle(handle.id)
        assert second.end_of(again).output == 7
        assert second.seen == [7]


KILLED = """
import asyncio, os, signal, sys
from dalsegno import App
from dalsegno.engine.starting.start import StartOptions

async def main() -> None:
    app = App(sys.argv[1])
    async with app.running():
        await app.adeploy({"name": "later", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "hi"}}]})
        submitted = await app.client.submit("later", {"n": 1})
        delayed = await app.client.start("later", {"n": 2}, StartOptions(delay=0.2))
        print(submitted, delayed, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@LASTING
def test_a_process_killed_between_submit_and_trigger_loses_nothing(store_url: str) -> None:
    done = run_python("-c", KILLED, store_url)
    assert done.returncode == -signal.SIGKILL, done.stderr
    submitted, delayed = done.stdout.split()
    app = App(store_url)
    with app.running():
        assert app.handle(submitted).status().state == "PENDING"
        assert app.handle(delayed).wait(30).state == "COMPLETED"
        app.handle(submitted).trigger()
        assert app.handle(submitted).wait(30).state == "COMPLETED"


# -- priorities -----------------------------------------------------------------------------------------------


BUSY = graph(
    "a > s > i > g > m, a > b > m > z",
    {
        "s": {"type": "split", "parameters": {"input_array": "{{ [1, 2, 3] }}", "max_concurrency": 1}},
        "g": {"type": "aggregator", "parameters": {}},
        "m": {"type": "merge", "parameters": {}},
        "b": {"type": "wait", "parameters": {"amount": 1, "unit": "seconds"}},
    },
    timeout="1h",
)
TIMED = """workflow timed(inputs) {
  const task = Task.run("note", 1)
  const mine = Task.with({priority: 3}).run("note", 2)
  const pause = Timer.delay(5)
  return await Promise.all([task, mine, pause])
}
"""


@pytest.mark.parametrize("delay", [None, "1h"])
def test_the_priority_of_a_start_reaches_every_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, delay: str | None
) -> None:
    spawned = overheard(monkeypatch)
    for handle in (
        stage.start(BUSY, priority=7, delay=delay),
        stage.start_script(TIMED, None, "timed", priority=7, delay=delay),
        start(stage, "task", priority=7, delay=delay),
    ):
        if delay is not None:
            stage.pass_time(HOUR)
        while handle.status().ended_at is None:
            stage.pass_time(1)
            time.sleep(0.02)  # so that a slow machine does not get to the execution's own time limit
        assert handle.status().state == "COMPLETED"
    own = {(kind, priority) for kind, priority in spawned if kind not in ("resume", "deadline")}
    kinds = {"node", "join", "advance", "finish", "task", "timer"} | (
        {"start"} if delay is not None else set()
    )
    assert own == {(kind, 7) for kind in kinds} | {("task", 3)}


def overheard(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Kind and priority of every token that a store is given from now on."""
    found: set[tuple[str, int]] = set()

    def listening(add: Any) -> Any:
        def add_token(store: Any, row: TokenRow) -> None:
            found.add((row.kind, row.priority))
            add(store, row)

        return add_token

    for store in (MemoryStore, SqliteWorkspace, PostgresWorkspace):
        monkeypatch.setattr(store, "add_token", listening(store.add_token))
    return found
