"""Delayed starts and triggers through a server, by the client and by the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dalsegno import Client, InvalidInput
from dalsegno.errors import Conflict
from tests.cli.conftest import Invoke, invoke
from tests.client.documents import GREET
from tests.server.conftest import LiveServer

__all__ = ["invoke"]

TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    "when", [{"delay": "1d"}, {"start_at": TOMORROW}, {"start_at": TOMORROW.timestamp()}]
)
def test_a_delayed_start_is_pending_until_it_is_triggered(client: Client, when: dict[str, Any]) -> None:
    client.deploy(GREET)
    run = client.with_options(**when).start("greet", name="Ada")
    assert run.status().state == "PENDING"
    [reason] = run.why()
    assert reason.due == pytest.approx(
        TOMORROW.timestamp(), abs=3600
    )  # counted from when this module was loaded
    run.trigger()
    run.trigger()
    assert run.result(timeout=10) == "Hello, Ada!"


def test_a_trigger_may_bring_another_input_once(client: Client) -> None:
    client.deploy(GREET)
    run = client.with_options(delay="1d").start("greet", name="Ada")
    run.trigger({"name": "Grace"})
    assert run.result(timeout=10) == "Hello, Grace!"
    with pytest.raises(Conflict, match="it has begun"):
        run.trigger({"name": "Ada"})


def test_impossible_times_are_refused_in_the_same_words(client: Client) -> None:
    client.deploy(GREET)
    with pytest.raises(InvalidInput, match="'delay': 'soon'"):
        client.with_options(delay="soon").start("greet")
    with pytest.raises(InvalidInput, match="not a point in time"):
        client.with_options(start_at="soon").start("greet")


def test_why_and_trigger_work_against_a_server(client: Client, live: LiveServer, invoke: Invoke) -> None:
    client.deploy(GREET)
    run = client.with_options(delay="1d").start("greet", name="Ada")
    told = invoke("why", run.id, "--server", live.url)
    assert "it starts when it is due, or when it is triggered: in" in told.stdout
    assert invoke("trigger", run.id, "--server", live.url).exit_code == 0
    assert run.result(timeout=10) == "Hello, Ada!"


def test_what_is_submitted_waits_for_its_trigger(client: Client, live: LiveServer, invoke: Invoke) -> None:
    client.deploy(GREET)
    run = client.with_options(idempotency_key="k-1").submit("greet", name="Ada")
    assert (run.status().state, [each.kind for each in run.why()]) == ("PENDING", ["trigger"])
    assert client.with_options(idempotency_key="k-1").submit("greet", name="Ada").id == run.id
    run.trigger({"name": "Grace"})
    assert run.result(timeout=10) == "Hello, Grace!"

    submitted = invoke("submit", "greet", "--input", '{"name": "Eve"}', "--server", live.url)
    again = client.handle(submitted.stdout.strip())
    assert again.status().state == "PENDING"
    again.trigger()
    assert again.result(timeout=10) == "Hello, Eve!"


async def test_it_is_submitted_from_a_loop_too(live: LiveServer) -> None:
    async with Client(live.url) as client:
        await client.adeploy(GREET)
        run = await client.asubmit("greet", name="Ada")
        assert (await run.astatus()).state == "PENDING"
        await run.atrigger()
        assert await run.aresult(timeout=10) == "Hello, Ada!"


def test_an_input_that_does_not_fit_is_refused_when_it_is_submitted(client: Client) -> None:
    client.deploy({**GREET, "input_schema": {"type": "object", "required": ["name"]}})
    with pytest.raises(InvalidInput):
        client.submit("greet", {})
