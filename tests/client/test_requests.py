"""Requests to workflows on a server: the same answers and errors as without one."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno import App, Client, Conflict, RequestRejected
from dalsegno.client import executions as calls
from dalsegno.errors import KeyReused
from dalsegno.handle import Handle
from tests.client.conftest import LiveServer

QUOTES = """
let open = []
while (true) {
  const r = await Request.next("a/quote")
  if (r.payload == "keep") {
    open.push(r)
  } else if (r.payload == "flush") {
    for (const one of open) { Request.reply(one, "at last") }
    Request.reply(r, open.length)
  } else if (r.payload == "no") {
    Request.reject(r, "not today")
  } else if (r.payload == "end") {
    return "over"
  } else {
    Request.reply(r, r.payload * 2)
  }
}
"""


@pytest.fixture
def run(app: App, live: LiveServer, client: Client) -> Handle:
    app.deploy_script(QUOTES, "quotes")
    return client.start("quotes")


def test_requests_are_answered_and_refused(run: Handle) -> None:
    assert run.ask("a/quote", 4, timeout=10) == 8
    assert run.ask("a/quote", 4, id="x", returns=int) == 8
    assert run.ask("a/quote", 4, id="x") == 8
    with pytest.raises(KeyReused, match="'x' was used for another request"):
        run.ask("a/quote", 5, id="x")
    with pytest.raises(RequestRejected, match="not today"):
        run.ask("a/quote", "no")


def test_a_request_outlives_the_patience_of_its_asker(run: Handle) -> None:
    with pytest.raises(TimeoutError, match=r"was .*received.* within 0\.1 s; it stays open: .*id='k'"):
        run.ask("a/quote", "keep", id="k", timeout=0.1)
    assert run.ask("a/quote", "flush") == 1
    assert run.ask("a/quote", "keep", id="k", timeout=10) == "at last"


async def test_an_asker_waits_with_one_poll_after_the_other(
    live: LiveServer, app: App, run: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LONG_POLL", 0.05)
    async with Client(live.url) as client:
        handle = client.handle(run.id)
        kept = asyncio.ensure_future(handle.aask("a/quote", "keep", id="k"))
        done, _ = await asyncio.wait((kept,), timeout=0.3)
        assert not done
        assert await handle.aask("a/quote", "flush") == 1
        assert await kept == "at last"


def test_an_execution_that_ends_leaves_no_asker_waiting(run: Handle) -> None:
    with pytest.raises(Conflict, match=r"ended \(COMPLETED\) before it answered request 'a/quote'"):
        run.ask("a/quote", "end")
    with pytest.raises(Conflict, match="it has ended"):
        run.ask("a/quote", 1)
