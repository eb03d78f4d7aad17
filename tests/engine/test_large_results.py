"""Large results of workers of other programs are read beside the event loop."""

from __future__ import annotations

import json

import pytest

from dalsegno import App
from dalsegno.engine.remote.foreign_results import BAD_RESULT, ForeignResults
from dalsegno.engine.remote.orchestrator import Orchestrator, RemoteSettings
from dalsegno.ports.task_transport import ForeignResult
from tests.loop_gaps import LoopGaps

pytestmark = pytest.mark.own_interpreter
SMALL_PARTS = json.dumps([{"k": [number % 7]} for number in range(400_000)])
"""5 MB in 1.2 million parts: decoding them takes most of a second."""
GRAPH = {
    "name": "foreign",
    "nodes": [{"id": "n", "type": "task", "parameters": {"task": "far"}, "queue": "elsewhere"}],
    "output": "{{ $n.length }}",
}


async def test_the_event_loop_goes_on_while_a_large_result_is_taken_in() -> None:
    app = App("memory:")
    async with app.running():
        await app.adeploy(GRAPH)
        handle = await app.astart("foreign")
        orchestrator = Orchestrator(app.engine, RemoteSettings(lease=300, first=300))
        results = results_of(app, orchestrator)
        (task,) = await orchestrator.claim("w", ["elsewhere"], 1, 20)
        named = json.dumps({"id": task.id, "fence": task.lease.fence, "success": True})
        body = f'{named[:-1]}, "output": {SMALL_PARTS}}}'
        await results.settle(ForeignResult(b"{" + b" " * 70_000, "test"))  # starts the process

        async with LoopGaps() as gaps:
            settled = await results.settle(ForeignResult(body.encode(), "test"))

        assert (settled.verdict, settled.id) == ("taken", task.id)
        assert gaps.longest < 0.2
        assert await handle.aresult() == 400_000
        await results.close()
        await orchestrator.stop()


async def test_a_large_result_that_cannot_be_read_is_a_dead_letter() -> None:
    app = App("memory:")
    async with app.running():
        orchestrator = Orchestrator(app.engine, RemoteSettings(lease=300, first=300))
        results = results_of(app, orchestrator)
        for body in (b"[" * 100_000, b'{"id": "e.t", "success": true, "output": "%b"}' % (b"x" * 100_000)):
            settled = await results.settle(ForeignResult(body, "test"))
            assert (settled.verdict, settled.code) == ("unknown", BAD_RESULT)
        assert results.counts == {"unknown": 2}
        await results.close()
        await orchestrator.stop()


def results_of(app: App, orchestrator: Orchestrator) -> ForeignResults:
    stack, claims = app.engine.stack, orchestrator._claims
    return ForeignResults(
        stack.ledger,
        stack.archive,
        claims.answers,
        claims.remote_leases,
        lambda queue: None,
        lambda queue: None,
    )
