"""Answers that are lost on their way: what the client sends again has happened once, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from dalsegno import Client, Handle, WorkflowCancelled
from dalsegno.errors import Conflict, KeyReused
from tests.client.documents import FAILS, GREET, SCRIPT, WAITS
from tests.server.conftest import LiveServer


class LosesFirstAnswers(httpx.AsyncBaseTransport):
    """The server does what it was asked to; nobody hears of it the first time."""

    def __init__(self) -> None:
        self._network = httpx.AsyncHTTPTransport()
        self.keys: list[str | None] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._network.handle_async_request(request)
        if request.method != "POST":
            return answer
        self.keys.append(request.headers.get("idempotency-key"))
        if len(self.keys) % 2:
            await answer.aread()
            raise httpx.ReadError("the line broke", request=request)
        return answer

    async def aclose(self) -> None:
        await self._network.aclose()


@pytest.fixture
def wire() -> LosesFirstAnswers:
    return LosesFirstAnswers()


@pytest.fixture
def unlucky(live: LiveServer, wire: LosesFirstAnswers) -> Iterator[Client]:
    with Client(live.url, wire=wire) as made:
        yield made


@pytest.mark.parametrize(
    "again",
    [
        lambda handle: handle.retry(),
        lambda handle: handle.rerun("try"),
    ],
    ids=["retry", "rerun"],
)
def test_a_retry_or_rerun_whose_answer_is_lost_happens_once(
    client: Client, unlucky: Client, wire: LosesFirstAnswers, again: Callable[[Handle], Handle]
) -> None:
    client.deploy(FAILS)
    failed = client.start("fails")
    failed.wait(timeout=10)
    new = again(unlucky.handle(failed.id))
    assert [view.id for view in client.executions(parent=failed.id)] == [new.id]
    first, second = wire.keys
    assert first is not None
    assert first == second


async def test_the_async_twins_are_as_careful(client: Client, live: LiveServer) -> None:
    client.deploy(FAILS)
    failed = client.start("fails")
    failed.wait(timeout=10)
    async with Client(live.url, wire=LosesFirstAnswers()) as unlucky:
        new = await unlucky.handle(failed.id).aretry()
    assert [view.id for view in client.executions(parent=failed.id)] == [new.id]


def test_a_caller_may_choose_the_key(client: Client, unlucky: Client) -> None:
    client.deploy(GREET)
    greeted = client.start("greet", name="Ada")
    greeted.wait(timeout=10)
    first = unlucky.handle(greeted.id).rerun("say", idempotency_key="again-1")
    assert client.handle(greeted.id).rerun("say", idempotency_key="again-1").id == first.id
    with pytest.raises(KeyReused, match="with other nodes or another context"):
        client.handle(greeted.id).rerun(
            "say", context={"$trigger": {"name": "Bob"}}, idempotency_key="again-1"
        )
    assert [view.id for view in client.executions(parent=greeted.id)] == [first.id]


def test_a_triggered_schedule_whose_answer_is_lost_starts_once(client: Client, unlucky: Client) -> None:
    client.deploy(GREET)
    client.schedules.add("nightly", "0 2 * * *", "greet", input={"name": "Ada"})
    started = unlucky.schedules.trigger("nightly")
    assert [view.id for view in client.executions("greet")] == [started.id]
    assert (
        client.schedules.trigger("nightly", idempotency_key="k").id
        == client.schedules.trigger("nightly", idempotency_key="k").id
    )


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
@pytest.mark.parametrize("kind", ["graph", "script"])
def test_an_end_whose_answer_is_lost_is_asked_for_again_and_happens_once(
    client: Client, unlucky: Client, kind: str, verb: str
) -> None:
    definition = client.deploy(WAITS) if kind == "graph" else client.deploy_script(SCRIPT, "waits")
    run = client.start(definition.name, n=2)
    getattr(unlucky.handle(run.id), verb)("not needed")
    with pytest.raises(WorkflowCancelled, match="not needed"):
        run.result(timeout=10)
    assert [event.kind for event in run.events()].count("ExecutionCancelled") == 1
    with pytest.raises(Conflict, match="has ended"):
        getattr(client.handle(run.id), verb)()


def test_an_end_that_others_brought_about_before_is_not_taken_for_ones_own(
    client: Client, unlucky: Client
) -> None:
    client.deploy(GREET)
    greeted = client.start("greet", name="Ada")
    greeted.wait(timeout=10)
    with pytest.raises(Conflict, match="has ended"):
        unlucky.handle(greeted.id).cancel()


def test_a_signal_whose_answer_is_lost_is_given_once(client: Client, unlucky: Client) -> None:
    client.deploy(WAITS)
    run = client.start("waits")
    unlucky.handle(run.id).signal("nobody takes it", {"by": "Ann"})
    assert [event.kind for event in run.events()].count("SignalReceived") == 1
