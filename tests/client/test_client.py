"""``dalsegno.Client`` against a real server: the same handles, errors and results as with an App."""

from __future__ import annotations

import threading

import msgspec
import pytest

from dalsegno import (
    Client,
    InvalidDefinition,
    InvalidInput,
    NotFound,
    UsageError,
    WorkflowCancelled,
    WorkflowFailed,
)
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.errors import BadConfiguration, Conflict
from tests.client.documents import ASKS, FAILS, GREET, SCRIPT, WAITS
from tests.waiting import until


def test_deploy_start_result(client: Client) -> None:
    deployed = client.deploy(GREET)
    assert (deployed.name, deployed.version, deployed.kind) == ("greet", 1, "graph")
    assert client.deploy(GREET).version == 1

    run = client.start("greet", name="Ada")

    assert run.result(timeout=10) == "Hello, Ada!"
    assert client.start("greet@1", {"name": "Bob"}).result(timeout=10) == "Hello, Bob!"


def test_a_handle_has_everything_that_one_of_an_app_has(client: Client) -> None:
    client.deploy(GREET)
    run = client.start("greet", {"name": "Ada"})
    ended = run.wait(timeout=10)
    assert (ended.state, ended.output, ended.workflow) == ("COMPLETED", b'"Hello, Ada!"', "greet")
    assert run.status().id == run.id
    assert run.nodes()["say"].state == "COMPLETED"
    assert run.context()["$say"]["text"] == "Hello, Ada!"
    assert [event.kind for event in run.events()][-1] == "ExecutionCompleted"
    assert run.events(after=1)[0].seq == 2
    assert run.why() == []
    assert run.picture() is None


def test_a_failed_workflow_raises_as_it_does_without_a_server(client: Client) -> None:
    client.deploy(FAILS)
    with pytest.raises(WorkflowFailed, match="no luck") as caught:
        client.start("fails").result(timeout=10)
    assert caught.value.error["node"] == "try"


def test_signals_and_waiting(client: Client) -> None:
    client.deploy(WAITS)
    run = client.start("waits")
    with pytest.raises(TimeoutError, match=r"did not end within 0\.2 s: .*signal 'go'"):
        run.result(timeout=0.2)
    assert [wait.kind for wait in run.why()] == ["signal"]
    run.signal("go", {"by": "Ann"})
    assert run.result(timeout=10) == "Ann"


def test_a_result_is_told_when_it_comes(client: Client) -> None:
    client.deploy(WAITS)
    run = client.start("waits")
    timer = threading.Timer(0.3, run.signal, ("go", {"by": "Ann"}))
    timer.start()
    assert run.result(timeout=10) == "Ann"
    timer.join()


def test_pause_resume_cancel(client: Client) -> None:
    client.deploy(WAITS)
    run = client.start("waits")
    run.pause()
    assert run.status().state == "PAUSED"
    run.resume()
    assert run.status().state == "RUNNING"
    run.cancel("not needed")
    with pytest.raises(WorkflowCancelled, match="not needed"):
        run.result(timeout=10)
    with pytest.raises(Conflict, match="it has ended"):
        run.pause()


def test_retry_and_rerun_give_new_handles(client: Client) -> None:
    client.deploy(FAILS)
    run = client.start("fails")
    run.wait(timeout=10)
    again = run.retry()
    assert again.id != run.id
    assert again.wait(timeout=10).parent == run.id
    client.deploy(GREET)
    greeted = client.start("greet", {"name": "Ada"})
    greeted.wait(timeout=10)
    assert greeted.rerun("say", context={"$trigger": {"name": "Bob"}}).result(timeout=10) == "Hello, Bob!"


def test_a_script_is_retried_from_its_failure_or_from_the_start(client: Client) -> None:
    client.deploy_script('await Timer.delay("1ms")\nthrow "no"', "throws")
    run = client.start("throws")
    run.wait(timeout=10)
    started = [
        msgspec.json.decode(again.events()[0].data or b"")
        for again in (run.retry(), run.retry(from_start=True))
        if again.wait(timeout=10).parent == run.id
    ]
    assert [facts.get("from") for facts in started] == [run.id, None]


def test_a_retry_with_another_version(client: Client) -> None:
    client.deploy_script('await Timer.delay("1ms")\nthrow "no"', "mended")
    run = client.start("mended")
    run.wait(timeout=10)
    client.deploy_script('await Timer.delay("1ms")\nreturn "yes"', "mended")
    plan = client.host.call(client.client.preview_retry(run.id, version="latest"))
    assert (plan.version, plan.starts_over, plan.again) == (2, False, ())
    assert [(frame.old_text, frame.new_line) for frame in plan.frames] == [('await Timer.delay("1ms")', 1)]
    assert len(list(client.executions("mended"))) == 1
    assert run.retry(version="latest").result(timeout=10) == "yes"
    client.deploy_script("return 1", "mended")
    with pytest.raises(Conflict, match="cannot continue in version 3"):
        run.retry(version=3)


def test_a_rerun_at_a_turn(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")
    client.deploy_script(
        'let n = 1\nawait Timer.delay("1ms")\nlet got = await Signal.next("go")\nreturn [n, got]', "turns"
    )
    run = client.start("turns")
    run.signal("go", "once")
    assert run.result(timeout=10) == [1, "once"]

    turn = TurnAsked(2, {"n": 5})
    plan = client.host.call(client.client.preview_retry(run.id, turn=turn))
    assert (plan.turn, plan.line, plan.again, plan.later) == (2, 3, (), ())
    again = run.rerun(at=2, set={"n": 5})
    assert (again.result(timeout=10), again.status().relation) == ([5, "once"], "rerun")
    assert run.rerun(at=2, answers={"p1": {"by": "Bob"}}).result(timeout=10) == [1, {"by": "Bob"}]
    with pytest.raises(NotFound, match="has no turn 7; kept are the turns 1 to 2"):
        run.rerun(at=7)
    with pytest.raises(InvalidInput, match="has no variable 'm'; it has"):
        run.rerun(at=1, set={"m": 1})
    with pytest.raises(InvalidInput, match="belong to a turn"):
        run.rerun("say", answers={"p1": 1})


def test_scripts(client: Client) -> None:
    assert client.deploy_script(SCRIPT, "doubles").kind == "script"
    run = client.start("doubles", n=4)
    run.signal("approved", {"by": "Ann"})
    assert run.result(timeout=10) == {"twice": 8, "by": "Ann"}


def test_executions_are_listed_page_after_page(client: Client) -> None:
    client.deploy(GREET)
    started = [client.with_options(tags={"n": str(n)}).start("greet", name="Ada").id for n in range(7)]
    listed = [view.id for view in client.executions("greet", page=3)]
    assert listed == list(reversed(started))
    assert [view.id for view in client.executions(tags={"n": "2"})] == [started[2]]
    assert list(client.executions("other")) == []
    assert [view.id for view in client.executions(text=started[3][:12])] == [started[3]]
    assert list(client.executions(created_until="2020-01-01T00:00:00")) == []
    assert len(list(client.executions(states=("PENDING", "RUNNING", "COMPLETED"), created_since=0.5))) == 7


def test_the_same_key_is_the_same_execution(client: Client) -> None:
    client.deploy(GREET)
    options = client.with_options(idempotency_key="order-1")
    assert options.start("greet", name="Ada").id == options.start("greet", name="Ada").id
    assert client.start("greet", name="Ada").id != client.start("greet", name="Ada").id


def test_mistakes_raise_the_exceptions_of_the_sdk(client: Client) -> None:
    with pytest.raises(InvalidDefinition) as invalid:
        client.deploy({"name": "bad", "nodes": [{"id": "a", "type": "nonsense"}]})
    assert invalid.value.findings[0].pointer == "/nodes/0/type"
    with pytest.raises(UsageError, match="line 1"):
        client.deploy_script("const = 1", "bad")
    with pytest.raises(NotFound, match="no execution 0123"):
        client.handle("0123").status()
    with pytest.raises(NotFound):
        client.start("nobody")
    with pytest.raises(InvalidInput):
        client.with_options(version="not a version").start("nobody")
    with pytest.raises(UsageError, match="either as one value or as keywords"):
        client.start("greet", {"name": "Ada"}, name="Bob")


def test_validate_stores_nothing(client: Client) -> None:
    assert client.validate(GREET).valid
    found = client.validate({"name": "bad", "nodes": [{"id": "a", "type": "nonsense"}]})
    assert not found.valid
    assert found.findings[0].pointer == "/nodes/0/type"
    with pytest.raises(NotFound):
        client.start("greet")


async def test_async_twins_on_the_callers_loop(client: Client) -> None:
    async with Client(client.url) as here:
        await here.adeploy(GREET)
        run = await here.astart("greet", name="Ada")
        assert await run.aresult(timeout=10) == "Hello, Ada!"
        assert (await run.astatus()).state == "COMPLETED"
        assert [view.id async for view in here.aexecutions("greet")] == [run.id]
        with pytest.raises(UsageError, match="twin with the prefix 'a'"):
            run.status()


async def test_async_twins_from_a_thread_of_its_own(client: Client) -> None:
    await client.adeploy(GREET)
    run = await client.astart("greet", name="Ada")
    assert await run.aresult(timeout=10) == "Hello, Ada!"


@pytest.mark.parametrize("url", ["", "localhost:8700", "ftp://there", "http://"])
def test_a_url_that_is_none_is_told_at_once(url: str) -> None:
    with pytest.raises(BadConfiguration, match="is not the URL of a server"):
        Client(url)


def test_keys_do_not_belong_into_urls() -> None:
    with pytest.raises(BadConfiguration, match="must not contain a key"):
        Client("http://secret@127.0.0.1:8700")


def test_a_delayed_start_is_pending_until_it_is_triggered(client: Client) -> None:
    client.deploy(GREET)
    run = client.with_options(delay="1h").start("greet", name="Ada")
    assert run.status().state == "PENDING"
    run.trigger({"name": "Bob"})
    assert run.result(timeout=10) == "Hello, Bob!"
    later = client.with_options(start_at="2090-01-31T09:00:00+01:00").start("greet", name="Ada")
    later.trigger()
    assert later.result(timeout=10) == "Hello, Ada!"


def test_approvals_of_the_server(client: Client) -> None:
    client.deploy(ASKS)
    run = client.start("asks")
    (asked,) = until(run.approvals, "the question")
    assert (asked.execution, asked.node, asked.message, asked.approvers) == (
        run.id,
        "ask",
        "May I?",
        ("Ann",),
    )
    with pytest.raises(InvalidInput):
        run.decide("ask", "approved", {"limit": "much"})
    run.decide("ask", "approved", {"limit": 5}, by="Ann")
    told = run.result(timeout=10)
    assert (told["decision"], told["data"], told["by"]) == ("approved", {"limit": 5}, "Ann")
    with pytest.raises(Conflict):
        run.decide("ask", "rejected")
    assert run.approvals() == []


def test_schedules_of_the_server(client: Client) -> None:
    client.deploy(GREET)
    made = client.schedules.add(
        "nightly", "0 2 * * *", "greet", input={"name": "Ada"}, timezone="Europe/Berlin", tags={"a": "b"}
    )
    assert (made.spec.cron, made.spec.timezone, made.spec.tags) == (
        "0 2 * * *",
        "Europe/Berlin",
        (("a", "b"),),
    )
    with pytest.raises(Conflict, match="already"):
        client.schedules.add("nightly", "every 15m", "greet")
    client.schedules.add("a/b", "every 15m", "greet", start="2090-01-31T09:00", replace=True)
    assert [view.name for view in client.schedules.list()] == ["a/b", "nightly"]
    client.schedules.pause("a/b")
    assert client.schedules.get("a/b").state == "PAUSED"
    client.schedules.resume("a/b")
    assert len(client.schedules.get("nightly", times=3).next) == 3
    assert client.schedules.trigger("nightly").result(timeout=10) == "Hello, Ada!"
    client.schedules.remove("a/b")
    assert [view.name for view in client.schedules.list()] == ["nightly"]
