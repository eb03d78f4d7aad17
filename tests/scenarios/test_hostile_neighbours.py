"""An honest workflow beside others that burn whatever they are allowed, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from dalsegno.engine.settings import EngineLimits
from dalsegno.handle import Handle
from dalsegno.lang import Limits
from tests.scenarios.documents import echo, edit, graph
from tests.scenarios.stage import Stage

BURN = "let n = 0\nwhile (true) { n = n + 1 }\nreturn n"
LIMITS = EngineLimits(
    scripts=Limits(instructions=1_200_000),
    expressions=Limits(instructions=1_200_000),
    step_instructions=1_200_000,
)
"""A second of work or so: without slices the event loop would do nothing else for as long."""


@pytest.fixture
def stage(tmp_path: object) -> Iterator[Stage]:
    with Stage(f"sqlite:///{tmp_path}/neighbours.db", limits=LIMITS) as running:
        yield running


def seconds_of(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def run_honest(stage: Stage) -> None:
    """A workflow with a single step."""
    assert stage.app.start("honest", {"n": 1}).result(timeout=30) == 2


def test_scripts_and_heavy_expressions_do_not_delay_an_honest_step(stage: Stage) -> None:
    stage.app.deploy(graph("a", {"a": echo("{{ $trigger.n + 1 }}")}, name="honest"))
    stage.app.deploy_script(BURN, "burning")
    product = "$trigger.n.map(a => $trigger.n.map(b => a + b).length).length"
    stage.app.deploy(graph("a", {"a": edit({"x": f"{{{{ {product} }}}}"})}, name="computing"))
    run_honest(stage)
    alone = seconds_of(lambda: stage.app.start("burning").wait(timeout=60))
    hostile: list[Handle] = []
    starts = [("burning", None)] * 4 + [("computing", {"n": list(range(1000))})] * 2
    delays = [
        seconds_of(lambda: hostile.append(stage.app.start(name, payload)))  # noqa: B023 - called at once
        for name, payload in starts
    ]
    delays += [seconds_of(lambda: run_honest(stage)) for _ in range(8)]
    assert "RUNNING" in {handle.status().state for handle in hostile}, "they were beside it all the time"
    assert max(delays) < alone / 2, (delays, alone)
    ended = [handle.wait(timeout=60) for handle in hostile]
    assert {one.state for one in ended} == {"FAILED"}
    assert all(b"00 instructions in" in (one.error or b"") for one in ended)
