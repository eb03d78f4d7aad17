"""An honest workflow beside others that burn whatever they are allowed, in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dalsegno.engine.settings import EngineLimits
from dalsegno.lang import Limits
from tests.scenarios.documents import echo, edit, graph
from tests.scenarios.stage import Stage

BURN = "let n = 0\nwhile (true) { n = n + 1 }\nreturn n"
LIMITS = EngineLimits(scripts=Limits(instructions=150_000), expressions=Limits(instructions=400_000))


@pytest.fixture
def stage(tmp_path: object) -> Iterator[Stage]:
    with Stage(f"sqlite:///{tmp_path}/neighbours.db", limits=LIMITS) as running:
        yield running


def latencies(stage: Stage, runs: int) -> list[float]:
    """Seconds of an honest workflow with a single step, the shortest first."""
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        assert stage.app.start("honest", {"n": 1}).result(timeout=30) == 2
        found.append(time.perf_counter() - began)
    return sorted(found)


def test_fifty_scripts_and_heavy_expressions_do_not_delay_an_honest_step(stage: Stage) -> None:
    stage.app.deploy(graph("a", {"a": echo("{{ $trigger.n + 1 }}")}, name="honest"))
    stage.app.deploy_script(BURN, "burning")
    product = "$trigger.n.map(a => $trigger.n.slice(0, 60).map(b => a + b).length).length"
    # Each is within the limit of one evaluation, which all twelve of a node share.
    heavy = {f"x{number}": f"{{{{ {product} + {number} }}}}" for number in range(12)}
    stage.app.deploy(graph("a", {"a": edit(heavy)}, name="computing"))
    latencies(stage, 3)
    hostile = [stage.app.start("burning") for _ in range(50)]
    hostile += [stage.app.start("computing", {"n": list(range(1000))}) for _ in range(5)]
    honest = latencies(stage, 12)
    # A busy machine delays one or the other; without one budget per step and slices, seconds pass.
    assert honest[len(honest) // 2] < 0.25, honest
    assert honest[-1] < 1.0, honest
    ended = [handle.wait(timeout=60) for handle in hostile]
    assert {one.state for one in ended} == {"FAILED"}
    assert all(b"00 instructions in one" in (one.error or b"") for one in ended)
