"""Name lookups have threads of their own, and a workflow whose names are not answered holds up no other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from dalsegno.admin import alerts as messages
from dalsegno.admin.alerts import Failed, Message, Receiver, mail, post
from dalsegno.errors import NotDelivered
from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.egress import ALLOW_EVERYTHING
from dalsegno.nodes.http.name_lookups import SHARE, LookupsBusy, NameLookups, on_behalf_of
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from tests.nodes.fakes import FakeContext, run_node

SOON = 30.0
"""Seconds after which a test gives up; what it waits for takes milliseconds."""


class NameServer:
    """The system's resolver: names of `silent.example` are not answered before `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def getaddrinfo(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        with self._lock:
            self.asked.append(host)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if host.endswith("silent.example"):
                self.answers.wait(60)
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        finally:
            with self._lock:
                self.at_once -= 1


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    yield server
    server.answers.set()


@pytest.fixture
async def narrow_executor() -> ThreadPoolExecutor:
    """The loop's own threads, as few as a small machine has."""
    executor = ThreadPoolExecutor(2)
    asyncio.get_running_loop().set_default_executor(executor)
    return executor


async def fetch(clients: HttpClients, url: str, workflow: str, **parameters: Any) -> Any:
    context = FakeContext(services={"http": HttpService(make=lambda: clients)})
    context.workflow = workflow
    return await run_node("http", {"url": url, **parameters}, context)


async def failure_of(clients: HttpClients, url: str, workflow: str, **parameters: Any) -> Any:
    with pytest.raises(NodeError) as caught:
        await fetch(clients, url, workflow, **parameters)
    return caught.value.failure


async def abandon(clients: HttpClients, workflow: str, many: int) -> set[str]:
    urls = [f"http://a{index}.silent.example/" for index in range(many)]
    failures = await asyncio.gather(*(failure_of(clients, url, workflow, timeout=0.05) for url in urls))
    return {failure.code for failure in failures}


async def test_names_that_nobody_answers_hold_up_neither_threads_nor_other_workflows(
    names: NameServer, clients: HttpClients, server: TestServer, narrow_executor: ThreadPoolExecutor
) -> None:
    assert await abandon(clients, "hostile", 40) <= {"HTTP_TIMEOUT", "HTTP_DNS_BUSY"}
    async with asyncio.timeout(SOON):
        await asyncio.to_thread(int)
        output = await fetch(clients, f"http://honest.example:{server.port}/echo", "honest")
    assert output["status"] == 200
    assert len(names.asked) == SHARE + 1
    assert not names.answers.is_set()


async def test_a_workflow_with_a_full_share_is_refused_at_once_until_the_system_returns(
    names: NameServer, clients: HttpClients, server: TestServer
) -> None:
    url = f"http://honest.example:{server.port}/echo"
    await abandon(clients, "hostile", SHARE)
    failure = await failure_of(clients, url, "hostile", timeout=SOON)
    assert (failure.code, failure.retryable) == ("HTTP_DNS_BUSY", True)
    assert failure.retry_after == 5.0
    assert "'honest.example' was not looked up" in failure.message
    names.answers.set()
    async with asyncio.timeout(SOON):
        while True:
            try:
                output = await fetch(clients, url, "hostile")
                break
            except NodeError:
                await asyncio.sleep(0.01)
    assert output["status"] == 200


async def test_requests_that_wait_for_a_place_are_refused_when_all_places_are_abandoned(
    names: NameServer,
) -> None:
    lookups = NameLookups()
    running = [
        asyncio.create_task(lookups.addresses(f"{each}.silent.example", 80, 2)) for each in range(SHARE)
    ]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(lookups.addresses("honest.example", 80, 2))
    await asyncio.sleep(0)
    for each in running:
        each.cancel()
    async with asyncio.timeout(SOON):
        with pytest.raises(LookupsBusy):
            await waiting


async def test_a_request_that_ends_while_it_waits_takes_no_place(names: NameServer) -> None:
    lookups = NameLookups()
    running = [
        asyncio.create_task(lookups.addresses(f"{each}.silent.example", 80, 2)) for each in range(SHARE)
    ]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(lookups.addresses("late.silent.example", 80, 2))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    names.answers.set()
    found = await asyncio.gather(*running, return_exceptions=True)
    assert {type(each) for each in found} == {socket.gaierror}
    assert "late.silent.example" not in names.asked
    assert len(await lookups.addresses("honest.example", 80, 2)) == 1


async def test_many_names_of_one_workflow_take_turns_and_are_all_found(names: NameServer) -> None:
    lookups = NameLookups()
    async with asyncio.timeout(SOON):
        found = await asyncio.gather(*(lookups.addresses(f"{each}.example", 443, 0) for each in range(100)))
    assert [each[0]["hostname"] for each in found] == [f"{each}.example" for each in range(100)]
    assert {(each[0]["host"], each[0]["port"]) for each in found} == {("127.0.0.1", 443)}
    assert names.most_at_once <= SHARE


async def test_requesters_share_the_places(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.nodes.http.name_lookups.MOST", SHARE)
    lookups = NameLookups()

    async def look_up(requester: str, host: str) -> Any:
        on_behalf_of.set(requester)
        return await lookups.addresses(host, 80, 0)

    first = [asyncio.create_task(look_up("a", f"{each}.silent.example")) for each in range(2 * SHARE)]
    await asyncio.sleep(0)
    other = asyncio.create_task(look_up("b", "b.example"))
    await asyncio.sleep(0)
    names.answers.set()
    async with asyncio.timeout(SOON):
        assert (await other)[0]["host"] == "127.0.0.1"
        await asyncio.wait(first)
    assert names.asked.index("b.example") <= SHARE + 1, "the next place that became free was b's"


async def test_a_name_that_was_found_is_remembered(names: NameServer) -> None:
    lookups = NameLookups()
    for _ in range(3):
        await lookups.addresses("honest.example", 80, 0)
    assert names.asked == ["honest.example"]


# --- alerts ------------------------------------------------------------------------------------

MESSAGE = Message("m", "ops", 1, (Failed("e", "w", 1, "now", "C", "m", "", "http://link/"),))


async def test_alerts_whose_receiver_has_no_answering_name_server_are_refused_at_once(
    names: NameServer, narrow_executor: ThreadPoolExecutor
) -> None:
    async def tell(host: str) -> None:
        await post(Receiver(f"http://{host}/"), MESSAGE, ALLOW_EVERYTHING, 0.0)

    sent = [asyncio.create_task(tell(f"{each}.silent.example")) for each in range(SHARE)]
    async with asyncio.timeout(SOON):
        while True:
            await asyncio.wait(sent, timeout=0.001)
            if len(names.asked) == SHARE:
                break
        for each in sent:
            each.cancel()
        await asyncio.wait(sent)
        with pytest.raises(NotDelivered, match="was not looked up"):
            await tell("late.silent.example")
        await asyncio.to_thread(int)


async def test_a_mail_does_not_wait_for_the_threads_of_the_loop(
    narrow_executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(messages, "_send", sent.append)
    over = threading.Event()
    blocked = [asyncio.get_running_loop().run_in_executor(None, over.wait, 60) for _ in range(2)]
    try:
        async with asyncio.timeout(SOON):
            await mail(["ops@example.com"], MESSAGE)
    finally:
        over.set()
        await asyncio.gather(*blocked)
    assert len(sent) == 1
