"""Requests to running scripts and Python workflows: every asker gets the answer to its own request, once."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from dalsegno import Conflict, InvalidInput, RequestRejected, gather, request, requests, sleep
from dalsegno.errors import KeyReused, LimitExceeded
from dalsegno.handle import Handle
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Stage
from tests.waiting import come_about

LANGUAGES = pytest.mark.parametrize("language", ["script", "python"])
SCRIPT = """
let seen = []
while (true) {
  const r = await Request.next("quote")
  if (r.payload == "stop") {
    Request.reply(r, "bye")
    return seen
  }
  if (r.payload == "no") {
    Request.reject(r, "not today")
  } else if (r.payload == "raise") {
    throw "gone"
  } else {
    const doubled = await Task.run("echo", r.payload * 2)
    seen.push(r.payload)
    Request.reply(r, {price: doubled})
  }
}
"""


def shop(stage: Stage, language: str) -> Handle[Any]:
    """An execution that answers ``quote`` requests with the doubled payload until it is told to stop."""
    if language == "script":
        return stage.start_script(SCRIPT)

    @stage.app.task
    async def doubled(number: int) -> int:
        return number * 2

    @stage.app.workflow
    async def quotes() -> list[int]:
        seen = []
        async for asked in requests("quote"):
            if asked.payload == "stop":
                asked.reply("bye")
                return seen
            if asked.payload == "no":
                asked.reject("not today")
            elif asked.payload == "raise":
                raise ValueError("gone")
            else:
                price = await doubled(asked.payload)
                seen.append(asked.payload)
                asked.reply({"price": price})
        return seen

    return stage.app.start(quotes)


@LANGUAGES
def test_a_request_is_answered_by_the_workflow(stage: Stage, language: str) -> None:
    handle = shop(stage, language)
    assert handle.ask("quote", 4, timeout=10) == {"price": 8}
    assert handle.ask("quote", 5, timeout=10) == {"price": 10}
    assert handle.ask("quote", "stop", timeout=10) == "bye"
    ended = stage.end_of(handle)
    assert ended.output == [4, 5]
    assert (ended.count("RequestReceived", "quote"), ended.count("RequestAnswered", "quote")) == (3, 3)
    assert ended.data("RequestAnswered", "quote")[0]["value"] == {"price": 8}


@LANGUAGES
def test_a_refused_request_raises_its_reason_and_the_workflow_goes_on(stage: Stage, language: str) -> None:
    handle = shop(stage, language)
    with pytest.raises(RequestRejected, match="not today"):
        handle.ask("quote", "no", id="first", timeout=10)
    with pytest.raises(RequestRejected, match="not today"):
        handle.ask("quote", "no", id="first", timeout=10)
    assert handle.ask("quote", 1, timeout=10) == {"price": 2}


@LANGUAGES
def test_the_same_id_is_the_same_request_also_after_the_end(stage: Stage, language: str) -> None:
    handle = shop(stage, language)
    assert handle.ask("quote", 4, id="mine", timeout=10) == {"price": 8}
    assert handle.ask("quote", 4, id="mine", timeout=10) == {"price": 8}
    with pytest.raises(KeyReused, match="'mine' was used for another request"):
        handle.ask("quote", 5, id="mine", timeout=10)
    with pytest.raises(KeyReused, match="'mine' was used for another request"):
        handle.ask("price", 4, id="mine", timeout=10)
    handle.ask("quote", "stop", timeout=10)
    assert stage.end_of(handle).output == [4]
    client, host = stage.app.engine.client, stage.app.host
    while host.call(client.stack.ledger.sweep()):
        pass
    assert handle.ask("quote", 4, id="mine", timeout=10) == {"price": 8}
    with pytest.raises(KeyReused, match="'mine' was used for another request"):
        handle.ask("quote", 5, id="mine", timeout=10)
    with pytest.raises(Conflict, match=r"cannot ask execution .*: it has ended"):
        handle.ask("quote", 6, timeout=10)


@LANGUAGES
def test_an_execution_that_fails_leaves_no_asker_waiting(stage: Stage, language: str) -> None:
    handle = shop(stage, language)

    client = stage.app.engine.client

    async def has_open(count: int) -> bool:
        return len(await client.open_requests(handle.id)) == count

    async def together() -> list[Any]:
        asked = [asyncio.ensure_future(handle.aask("other", number, id=f"o{number}")) for number in range(3)]
        await come_about(lambda: has_open(3), "three requests wait")
        return await asyncio.gather(*asked, handle.aask("quote", "raise", id="q"), return_exceptions=True)

    found = stage.app.host.call(together())
    assert [type(each) for each in found] == [Conflict] * 4
    assert "ended (FAILED) before it answered request 'other' (o0)" in str(found[0])
    view = stage.app.host.call(client.request(handle.id, "q"))
    assert view.state == "unanswered"


def test_a_hundred_askers_get_their_own_answers(stage: Stage) -> None:
    @stage.app.workflow
    async def echo_all() -> int:
        count = 0
        while True:
            asked = await request("echo")
            asked.reply(asked.payload)
            count += 1
            if count == 100:
                return count

    handle = stage.app.start(echo_all)

    async def together() -> list[Any]:
        return await asyncio.gather(*(handle.aask("echo", number) for number in range(100)))

    assert stage.app.host.call(together()) == list(range(100))
    assert stage.end_of(handle).count("RequestAnswered") == 100


def test_requests_wait_for_a_workflow_that_receives_them_later(stage: Stage) -> None:
    @stage.app.workflow
    async def late() -> list[int]:
        await sleep(60)
        one, two = await gather(request("quote"), request("quote"))
        await sleep(60)
        two.reply(two.payload + 1)
        one.reply(one.payload + 1)
        return [one.payload, two.payload]

    handle = stage.app.start(late)
    client = stage.app.engine.client
    with pytest.raises(
        TimeoutError, match=r"not received by the workflow within 0 s; it stays open: .* id='a'"
    ):
        handle.ask("quote", 1, id="a", timeout=0)
    with pytest.raises(TimeoutError):
        handle.ask("quote", 2, id="b", timeout=0)
    found = stage.app.host.call(client.open_requests(handle.id))
    assert [(each.id, each.name, each.state) for each in found] == [
        ("a", "quote", "waiting"),
        ("b", "quote", "waiting"),
    ]
    sentences = {(wait.kind, wait.subject, wait.node, wait.count) for wait in handle.why()}
    assert ("kept", "request", "quote", 2) in sentences

    stage.pass_time(60)
    states = lambda: {each.state for each in stage.app.host.call(client.open_requests(handle.id))}  # noqa: E731
    stage.until("both are received", handle, lambda: states() == {"received"})
    with pytest.raises(TimeoutError, match="was received, and not answered within 0 s"):
        handle.ask("quote", 1, id="a", timeout=0)

    stage.pass_time(60)
    assert (handle.ask("quote", 1, id="a", timeout=10), handle.ask("quote", 2, id="b", timeout=10)) == (2, 3)
    assert stage.end_of(handle).output == [1, 2]


def test_an_answer_comes_with_the_turn_that_ends_the_workflow(stage: Stage) -> None:
    @stage.app.workflow
    async def once() -> str:
        (await request("last")).reply(None)
        return "done"

    handle = stage.app.start(once)
    assert handle.ask("last", timeout=10) is None
    assert stage.end_of(handle).output == "done"


@dataclasses.dataclass
class Quote:
    items: int


@dataclasses.dataclass
class Price:
    amount: float


@ONE_STACK
def test_payloads_and_answers_are_typed(stage: Stage) -> None:
    @stage.app.workflow
    async def typed() -> int:
        asked = await request("quote", type=Quote)
        assert isinstance(asked.payload, Quote)
        asked.reply(Price(asked.payload.items * 1.5))
        return asked.payload.items

    handle = stage.app.start(typed)
    with pytest.raises(RequestRejected, match="the payload of request 'quote' does not fit Quote"):
        handle.ask("quote", {"wrong": 1}, timeout=10)
    assert handle.ask("quote", Quote(4), returns=Price, timeout=10) == Price(6.0)
    assert stage.end_of(handle).output == 4


@ONE_STACK
def test_an_answer_that_does_not_fit_the_asked_type_is_an_error_of_the_asker(stage: Stage) -> None:
    handle = shop(stage, "python")
    with pytest.raises(InvalidInput, match="the answer to request 'quote'"):
        handle.ask("quote", 4, returns=Price, timeout=10)


@ONE_STACK
def test_a_request_is_answered_once_also_across_awaits(stage: Stage) -> None:
    @stage.app.workflow
    async def twice() -> str:
        asked = await request("quote")
        asked.reply(1)
        await sleep(0)
        try:
            asked.reply(2)
        except RuntimeError as error:
            return str(error)
        return "answered twice"

    handle = stage.app.start(twice)
    assert handle.ask("quote", id="q", timeout=10) == 1
    assert stage.end_of(handle).output == (
        "request 'quote' (q) has been answered already; a request is answered once"
    )


@ONE_STACK
def test_a_script_that_answers_twice_keeps_its_first_answer(stage: Stage) -> None:
    handle = stage.start_script(
        'const r = await Request.next("quote")\nRequest.reply(r, 1)\nawait Timer.delay(0)\nRequest.reply(r, 2)'
    )
    assert handle.ask("quote", id="q", timeout=10) == 1
    ended = stage.end_of(handle)
    assert ended.count("RequestAnswered") == 1
    assert handle.ask("quote", id="q", timeout=10) == 1


@LANGUAGES
def test_a_wait_for_a_request_gives_up_in_time(stage: Stage, language: str) -> None:
    if language == "script":
        handle = stage.start_script(
            'try { await Request.when("quote", {timeout: "1m"}) } catch (e) { return e.message }'
        )
    else:

        @stage.app.workflow
        async def limited() -> str:
            try:
                await request("quote", "1m")
            except TimeoutError as error:
                return str(error)
            return "received"

        handle = stage.app.start(limited)
    stage.until_event(handle, "Suspended", "request quote")
    [wait] = handle.why()
    assert (wait.sentence, wait.subject) == ("request 'quote' has not arrived", "request")
    assert wait.hint == f"send it with `dalsegno ask {handle.id} quote`"
    stage.pass_time(60)
    ended = stage.end_of(handle)
    assert ended.output == "no request 'quote' arrived in time"
    assert ended.count("TimerFired", "quote") == 1


def test_a_graph_receives_no_requests(stage: Stage) -> None:
    handle = stage.start(
        {
            "name": "g",
            "nodes": [{"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "go"}}],
            "edges": [],
        }
    )
    with pytest.raises(Conflict, match="runs a graph, which receives signals and answers no requests"):
        handle.ask("quote", timeout=10)
    handle.signal("go")
    stage.end_of(handle)


@LANGUAGES
def test_a_retry_from_the_failure_does_not_receive_the_requests_of_the_failed_execution(
    stage: Stage, language: str
) -> None:
    handle = shop(stage, language)
    assert handle.ask("quote", 3, timeout=10) == {"price": 6}
    with pytest.raises(TimeoutError):
        handle.ask("other", 1, timeout=0)
    with pytest.raises(Conflict, match="before it answered"):
        handle.ask("quote", "raise", timeout=10)

    again = handle.retry()
    assert again.ask("quote", 5, timeout=10) == {"price": 10}
    assert stage.app.host.call(stage.app.engine.client.open_requests(again.id)) == []
    assert again.ask("quote", "stop", timeout=10) == "bye"
    assert stage.end_of(again).output == [3, 5]


@ONE_STACK
def test_bad_requests_change_nothing(stage: Stage) -> None:
    handle = shop(stage, "python")
    for name, own, problem in (
        ("", "x", "name has 1 to"),
        ("n" * 600, "x", "name has 1 to"),
        ("a\0", "x", "NUL"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            handle.ask(name, 1, id=own)
    with pytest.raises(InvalidInput, match="id has 1 to"):
        handle.ask("quote", 1, id="i" * 600)
    with pytest.raises(InvalidInput, match="kept for requests"):
        handle.signal("request\x1fquote", {"id": "x", "name": "quote", "payload": 1})
    with pytest.raises(InvalidInput, match="kept for requests"):
        handle.signal("quote", 1, id="request\x1fx")
    assert [event.kind for event in handle.events() if "Re" in event.kind[:2]] == []
    handle.ask("quote", "stop", timeout=10)


@ONE_STACK
def test_an_answer_that_is_too_large_is_an_error_that_the_workflow_can_catch(stage: Stage) -> None:
    @stage.app.workflow
    async def large() -> None:
        asked = await request("quote")
        try:
            asked.reply("x" * 1_100_000)
        except LimitExceeded as error:
            asked.reject(str(error))

    handle = stage.app.start(large)
    with pytest.raises(RequestRejected, match="bytes of JSON; the limit is 1,048,576"):
        handle.ask("quote", timeout=10)


def test_large_payloads_arrive(stage: Stage) -> None:
    @stage.app.workflow
    async def measures() -> None:
        asked = await request("text")
        asked.reply(len(asked.payload))

    handle = stage.app.start(measures)
    assert handle.ask("text", "x" * 300_000, timeout=10) == 300_000
