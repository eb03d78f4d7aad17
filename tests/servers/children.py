"""Processes for heavy steps and checks, forked by one that has imported what they need.

Each application starts its own when it needs them. With an interpreter each, starting them takes longer than most tests
that come to need one. Tests about these processes themselves carry the marker ``own_interpreter``.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from dalsegno.engine.subprocesses import heavy_steps, job_pool
from dalsegno.engine.subprocesses.job_pool import KEPT_VARIABLES, ChildProcess, OffloadLimits
from tests.servers.forking import ForkedChild, fork_server


async def start_forked(limits: OffloadLimits, module: str = job_pool.MODULE) -> ChildProcess:
    """As `ChildProcess.start` does it."""
    server = fork_server(job_pool.MODULE, heavy_steps.MODULE)
    environment = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
    arguments = (str(limits.memory_bytes), str(max(1, round(limits.seconds) + 5)))
    child: Any = await ForkedChild.start(server, module, arguments, {**environment, "PYTHONSAFEPATH": "1"})
    return ChildProcess(child)


IN_PRODUCTION = vars(ChildProcess)["start"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """For each test, but not as a fixture of each: 17,000 of them would take seconds."""
    own = item.get_closest_marker("own_interpreter") is not None
    ChildProcess.start = IN_PRODUCTION if own else start_forked  # type: ignore[method-assign]
