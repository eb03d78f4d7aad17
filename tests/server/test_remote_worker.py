"""The reference client against a real server: it runs tasks, and when it is killed another one takes over."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno import App
from dalsegno.remote_worker import Refused, RemoteTask, RemoteWorker, TaskLost
from dalsegno.server import ServerSettings
from tests.server.conftest import LASTING, LiveServer
from tests.server.test_stream_kill import ServerProcess
from tests.servers.forking import Forked

EXAMPLES = Path(__file__).parents[2] / "examples" / "remote_worker"


@pytest.fixture
def live(app: App) -> Iterator[LiveServer]:
    with LiveServer(app, ServerSettings(task_lease=1.5, task_confirm=1.0)) as server:
        yield server


@pytest.fixture
def caller(live: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=20) as client:
        graph = json.loads((EXAMPLES / "thumbnails.json").read_text())
        assert client.post("/v1/definitions", json=graph).status_code == 201
        yield client


def start(caller: httpx.Client, **given: Any) -> str:
    answer = caller.post(
        "/v1/executions", json={"workflow": "thumbnails", "input": {"file": "a.png", **given}}
    )
    found: str = answer.json()["id"]
    return found


def until_ended(caller: httpx.Client, execution: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found: dict[str, Any] = caller.get(f"/v1/executions/{execution}").json()
        if found["ended_at"] is not None:
            return found
        time.sleep(0.05)
    raise AssertionError(f"did not end: {found}")


def until_running(caller: httpx.Client, execution: str, times: int = 1) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        events = caller.get(f"/v1/executions/{execution}/events").json()["events"]
        if sum(each["kind"] == "NodeStarted" for each in events) >= times:
            return
        time.sleep(0.02)
    raise AssertionError("nobody took it")


def resizer(url: str) -> Forked:
    return Forked(str(EXAMPLES / "resizer.py"), [url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_killed_worker_loses_its_task_and_another_gets_it(live: LiveServer, caller: httpx.Client) -> None:
    execution = start(caller, tenths=20)
    first = resizer(live.url)
    until_running(caller, execution)
    second = resizer(live.url)
    try:
        time.sleep(1.2)  # its heartbeats have been heard: the task is in its hands
        assert caller.get(f"/v1/executions/{execution}").json()["ended_at"] is None
        first.send_signal(signal.SIGKILL)
        first.wait()
        until_running(caller, execution, times=2)
        found = until_ended(caller, execution)
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert found["state"] == "COMPLETED"
    assert found["output"] == {"file": "a-small.png", "attempt": 1}


def test_a_failing_function_is_retried_and_its_error_told(live: LiveServer, caller: httpx.Client) -> None:
    worker = RemoteWorker(live.url, queues=["images"])
    attempts = []

    @worker.task("resize")
    def resize(given: Any, task: Any) -> None:
        attempts.append(task.attempt)
        if len(attempts) == 1:
            raise SystemExit("not of the worker")
        worker.stop()
        raise ValueError(f"no {given['file']}")

    graph = json.loads((EXAMPLES / "thumbnails.json").read_text())
    graph["nodes"][0]["retry"] = {"max_attempts": 2, "initial_delay": 0.1}
    caller.post("/v1/definitions", json=graph)
    execution = start(caller)
    worker.run()
    found = until_ended(caller, execution)
    assert attempts == [1, 2]
    assert (found["state"], found["error"]["type"], found["error"]["message"]) == (
        "FAILED",
        "ValueError",
        "no a.png",
    )
    told = found["error"]["traceback"]
    assert f'File "{__file__}", line ' in told
    assert "raise ValueError(f\"no {given['file']}\")" in told
    assert told.endswith("\nValueError: no a.png")
    assert 'remote_worker.py", line' not in told.replace(__file__, ""), "frames of ours are cut"


def complete_in_time(worker: RemoteWorker, task: RemoteTask) -> None:
    """Where the machine stands still for a second, the task is taken from this worker as well, and comes again."""
    for _ in range(20):
        try:
            return worker.complete(task, "in time")
        except TaskLost:
            again = worker.claim(wait=20)
            assert again is not None
            assert again.fence > task.fence
            task = again
    raise AssertionError("it lost the task again and again")


def test_a_late_result_is_told_to_be_lost(live: LiveServer, caller: httpx.Client) -> None:
    worker = RemoteWorker(live.url, queues=["images"])
    worker.task("resize")(lambda given: given)
    execution = start(caller)
    task = worker.claim()
    assert task is not None
    other = RemoteWorker(live.url, queues=["images"])
    other.task("resize")(lambda given: given)
    again = other.claim(wait=20)
    assert again is not None
    assert again.id == task.id
    with pytest.raises(TaskLost, match="no longer yours"):
        worker.complete(task, "late")
    assert task.lost.is_set()
    complete_in_time(other, again)
    assert until_ended(caller, execution)["output"] == "in time"


@LASTING
def test_a_task_outlives_the_server_that_handed_it_out(store_url: str) -> None:
    """Killed and started again, the server takes heartbeats and the answer of a task that it has never seen."""
    with (
        ServerProcess(store_url) as server,
        httpx.Client(base_url=server.url, timeout=20) as caller,
    ):
        caller.post("/v1/definitions", json=json.loads((EXAMPLES / "thumbnails.json").read_text()))
        execution = start(caller, tenths=40)
        worker = resizer(server.url)
        try:
            until_running(caller, execution)
            server.kill()
            server.start()
            found = until_ended(caller, execution)
        finally:
            worker.kill()
            worker.wait()
        events = caller.get(f"/v1/executions/{execution}/events").json()["events"]
    assert found["output"] == {"file": "a-small.png", "attempt": 1}
    assert [each["kind"] for each in events].count("NodeStarted") == 1


# -- draining -------------------------------------------------------------------------------------------------


def running(worker: RemoteWorker, **given: Any) -> threading.Thread:
    made = threading.Thread(target=worker.run, kwargs=given, daemon=True)
    made.start()
    return made


def test_a_worker_that_is_stopped_finishes_what_runs_and_claims_nothing(
    live: LiveServer, caller: httpx.Client
) -> None:
    worker = RemoteWorker(live.url, queues=["images"])
    taken, go = threading.Event(), threading.Event()
    done: list[str] = []

    @worker.task("resize")
    def resize(given: Any) -> str:
        taken.set()
        go.wait(30)
        done.append(given["file"])
        return "done"

    first = start(caller, file="first")
    run = running(worker)
    assert taken.wait(30)
    second = start(caller, file="second")
    worker.stop()
    time.sleep(0.3)
    assert run.is_alive()
    go.set()
    run.join(15)
    assert not run.is_alive()
    assert until_ended(caller, first)["output"] == "done"
    time.sleep(0.5)
    assert done == ["first"], "a second one was claimed after the stop"
    until_taken_by_another(live, caller, second)


def until_taken_by_another(live: LiveServer, caller: httpx.Client, execution: str) -> None:
    other = RemoteWorker(live.url, queues=["images"])

    @other.task("resize")
    def resize(given: Any) -> str:
        other.stop()
        return "by another"

    running(other)
    assert until_ended(caller, execution)["output"] == "by another"


def test_a_claim_that_waits_does_not_hold_up_the_end(live: LiveServer, caller: httpx.Client) -> None:
    """And what the server gives to it meanwhile goes to another worker at once."""
    worker = RemoteWorker(live.url, queues=["images"])
    worker.task("resize")(lambda given: "by the stopped one")
    run = running(worker)
    time.sleep(0.5)
    began = time.monotonic()
    worker.stop()
    run.join(15)
    assert not run.is_alive()
    assert time.monotonic() - began < 10
    until_taken_by_another(live, caller, start(caller))


def test_what_does_not_end_in_time_goes_to_another(live: LiveServer, caller: httpx.Client) -> None:
    worker = RemoteWorker(live.url, queues=["images"])
    taken = threading.Event()
    seen: list[bool] = []

    @worker.task("resize")
    def resize(given: Any, task: RemoteTask) -> None:
        taken.set()
        seen.append(task.lost.wait(30))

    execution = start(caller)
    run = running(worker, grace=0.2)
    assert taken.wait(30)
    worker.stop()
    run.join(15)
    assert not run.is_alive()
    until_taken_by_another(live, caller, execution)
    assert seen == [True]


def test_sigterm_drains(live: LiveServer, caller: httpx.Client) -> None:
    execution = start(caller, tenths=15)
    process = resizer(live.url)
    try:
        until_running(caller, execution)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    found = until_ended(caller, execution)
    assert found["output"] == {"file": "a-small.png", "attempt": 1}


def test_a_worker_whose_key_is_refused_says_so(live: LiveServer, caller: httpx.Client) -> None:
    caller.post("/v1/keys", json={"name": "ops", "scopes": ["admin"]})
    worker = RemoteWorker(live.url, key="dsk_wrong", queues=["images"])
    worker.task("resize")(lambda given: given)
    with pytest.raises(Refused) as caught:
        worker.run()
    assert caught.value.status == 401
