"""Metrics: what a server counts, as Prometheus reads it."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dalsegno import App
from dalsegno.errors import Unavailable
from dalsegno.server.operations.metrics import OTHER, WORKFLOWS, Histogram, Meter
from tests.server.conftest import LiveServer
from tests.server.test_definitions import GRAPH
from tests.server.test_executions import WAITS, deploy_script, ended

HEAD = b"POST /v1/executions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


async def scrape(http: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """Values by name and labels, in the order of the labels' names."""
    answer = await http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_executions_steps_and_commits_are_counted(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    for n in range(3):
        started = await http.post("/v1/executions", json={"workflow": "sum", "input": {"n": n}})
        await ended(http, started.json()["id"])
    found = await scrape(http)
    assert found["dalsegno_executions_started_total", "sum"] == 3
    assert found["dalsegno_executions_ended_total", "COMPLETED", "sum"] == 3
    assert found["dalsegno_steps_total", "node"] == 6
    assert found["dalsegno_step_seconds_count",] == 6
    assert found["dalsegno_commit_seconds_count",] == found["dalsegno_commit_transitions_count",] > 0
    assert found["dalsegno_commit_transitions_sum",] >= 6
    assert found["dalsegno_http_requests_total", "POST", "/v1/executions", "201"] == 3
    assert found["dalsegno_store_up",] == 1
    assert found["dalsegno_workers", "alive"] == 1


async def test_endings_by_command_have_their_workflow_too(http: httpx.AsyncClient) -> None:
    await deploy_script(http, WAITS)
    execution = (await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"]
    await http.post(f"/v1/executions/{execution}/cancel")
    await http.post(f"/v1/executions/{execution}/cancel")
    await ended(http, execution)
    assert (await scrape(http))["dalsegno_executions_ended_total", "CANCELLED", "waits"] == 1


async def test_queues_are_measured(http: httpx.AsyncClient) -> None:
    graph = {"name": "q", "nodes": [{"id": "it", "type": "task", "queue": "x", "parameters": {"task": "t"}}]}
    await http.post("/v1/executions", json={"definition": graph})
    found = await scrape(http)
    assert found["dalsegno_queue_ready", "x"] == 1
    assert found["dalsegno_queue_oldest_seconds", "x"] >= 0


async def test_refusals_are_counted_without_a_series_per_path(http: httpx.AsyncClient) -> None:
    for n in range(5):
        await http.get(f"/v1/nothing/{n}")
    found = await scrape(http)
    assert found["dalsegno_http_requests_total", "GET", "none", "404"] == 5


async def test_a_store_out_of_reach_still_gives_what_is_known(http: httpx.AsyncClient, app: App) -> None:
    async def broken() -> None:
        raise Unavailable("gone")

    app.client.stack.ledger.queues = broken  # type: ignore[method-assign,assignment]
    assert (await scrape(http))["dalsegno_store_up",] == 0


def test_names_of_workflows_make_a_bounded_number_of_series() -> None:
    meter = Meter()
    labels = {meter.label(f"workflow {n}") for n in range(3 * WORKFLOWS)}
    assert len(labels) == WORKFLOWS + 1
    assert OTHER in labels
    assert meter.label("workflow 0") == "workflow 0"


def test_a_histogram_counts_up_to_its_bounds() -> None:
    counted = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 99.0):
        counted.add(value)
    assert counted.buckets() == [("1", 2.0), ("2", 3.0), ("+Inf", 4.0)]
    assert counted.total == 102.0


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"Content-Length: 1000\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    ],
    ids=["leaves", "bad chunk"],
)
async def test_callers_that_hang_up_are_no_errors_of_the_server(live: LiveServer, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(live.url.rpartition(":")[2]))
    writer.write(sent)
    await writer.drain()
    writer.write_eof()
    await reader.read()
    writer.close()
    async with asyncio.timeout(20), httpx.AsyncClient(base_url=live.url) as http:
        found: dict[tuple[str, ...], float] = {}
        while not any(key[0] == "dalsegno_http_requests_total" and "POST" in key for key in found):
            found = await scrape(http)
    statuses = {key[-1] for key in found if key[0] == "dalsegno_http_requests_total" and "POST" in key}
    assert statuses == {"499"}
