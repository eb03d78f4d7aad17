"""OpenTelemetry: one trace per execution, across workers and processes, without stored state."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dalsegno import App
from dalsegno.engine.tracing import ExecutionIds, read_traceparent
from dalsegno.model.ids import span_id, trace_id
from dalsegno.server.application import create_application
from tests.server.test_executions import deploy_script, ended

CALLS = """workflow calls(inputs) {
  await Task.run("outer", 1)
  return await Workflow.run("child", 2)
}
"""
CHILD = 'workflow child(inputs) {\n  return await Task.with({queue: "away"}).run("far", inputs)\n}\n'
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider = TracerProvider(id_generator=ExecutionIds())  # type: ignore[arg-type]
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
async def http(app: App, spans: InMemorySpanExporter) -> AsyncIterator[httpx.AsyncClient]:
    @app.task
    async def outer(n: int) -> int:
        with trace.get_tracer("mine").start_as_current_span("my own work"):
            return n

    application = create_application(app)
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            yield client


async def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    for _ in range(200):
        found = [span for span in spans.get_finished_spans() if span.name == name]
        if found:
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError(f"no span {name!r} in {[span.name for span in spans.get_finished_spans()]}")


async def test_a_trace_follows_an_execution_across_workers(
    http: httpx.AsyncClient, spans: InMemorySpanExporter
) -> None:
    await deploy_script(http, CHILD)
    await deploy_script(http, CALLS)
    answer = await http.post("/v1/executions", json={"workflow": "calls"}, headers={"traceparent": PARENT})
    execution = answer.json()["id"]
    body = {"worker": "w1", "queues": ["away"], "wait": 5}
    (task,) = (await http.post("/v1/tasks/claim", json=body)).json()["tasks"]
    await http.post(f"/v1/tasks/{task['id']}/complete", json={"fence": task["fence"], "output": 3})
    assert (await ended(http, execution))["output"] == 3

    root = await named(spans, "workflow calls")
    assert root.context is not None
    assert (root.parent, root.context.trace_id) == (None, trace_id(execution))
    assert root.context.span_id == span_id(execution)
    step = await named(spans, "task outer")
    own = await named(spans, "my own work")
    assert step.parent is not None
    assert own.parent is not None
    assert step.context is not None
    assert (step.parent.span_id, step.parent.trace_id) == (root.context.span_id, root.context.trace_id)
    assert own.parent.span_id == step.context.span_id
    assert [(link.context.trace_id, link.context.span_id) for link in root.links] == [
        read_traceparent(PARENT)
    ]

    child = await named(spans, "workflow child")
    assert child.context is not None
    assert child.context.trace_id == trace_id(task["execution"])
    assert root.context.trace_id in [link.context.trace_id for link in child.links]
    remote = await named(spans, "remote task far")
    assert remote.context is not None
    given = read_traceparent(task["traceparent"])
    assert given == (remote.context.trace_id, remote.context.span_id)
    assert remote.context.trace_id == child.context.trace_id


async def test_failures_are_marked(http: httpx.AsyncClient, spans: InMemorySpanExporter) -> None:
    graph = {"name": "fails", "nodes": [{"id": "it", "type": "task", "parameters": {"task": "fail"}}]}
    await ended(http, (await http.post("/v1/executions", json={"definition": graph})).json()["id"])
    for name in ("node it", "workflow fails"):
        span = await named(spans, name)
        assert (span.status.status_code.name, span.status.description) == ("ERROR", "no luck")


@pytest.mark.parametrize(
    "header",
    ["", "nonsense", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff-" + PARENT[3:], "00-xy" + PARENT[5:]],
)
def test_a_header_that_is_no_trace_context_is_ignored(header: str) -> None:
    assert read_traceparent(header) is None


def test_without_a_provider_nothing_of_opentelemetry_is_loaded() -> None:
    program = (
        "import sys\nfrom dalsegno import App\napp = App('memory:')\n"
        "with app.running():\n    assert app.engine.observer is None\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
