"""Random programs that failed are retried from their failure, beside crashes, lost replies and late messages: what had
completed does not run again and, where no race decides, the retry comes to the same end.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from dalsegno.errors import Conflict
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import promise_token_id
from dalsegno.testing.simulation.environment.faults import Fault
from dalsegno.testing.simulation.programs.judge import ScriptCase, draw_script
from dalsegno.testing.simulation.programs.program import Child, Group, promises
from dalsegno.testing.simulation.programs.run_program import ScriptWorld
from tests.effort import first

pytestmark = pytest.mark.own_interpreter

CHUNK = 60
CHUNKS = 100
MOST_PROMISES = 500
COMMANDS = ("cancel", "pause", "resume")
LATER = 2
"""How much later faults strike than in an ordinary run, so that they also strike the retry."""


class RetryWorld(ScriptWorld):
    """Retries the main execution if it has failed and kept its machine."""

    again = ""
    refused = ""

    async def observe_end(self) -> None:
        view = await self.client.status(self.execution)
        if view.state == "FAILED" and view.context is not None:
            try:
                self.again = await self.client.rerun(self.execution, key="again")
                assert await self.client.rerun(self.execution, key="again") == self.again
            except Conflict as refused:
                self.refused = str(refused)
            await self.until_quiet()
        await super().observe_end()


@dataclass
class Retried:
    findings: list[str]
    was_retried: bool = False
    was_compared: bool = False
    """Whether its end was compared with that of the first execution."""


def retried(case: ScriptCase) -> Retried:
    schedule = [fault for fault in case.schedule if fault.kind not in COMMANDS]
    late = [Fault(each.kind, each.at * LATER, each.arg) for each in schedule]
    world = RetryWorld(case.scenario, late, case.order)
    run = world.run()
    findings = list(run.findings)
    if not world.again:
        return Retried(findings)
    before, after = run.executions[run.main], run.executions[world.again]
    doubled = completed(run.main, before.events) & completed(world.again, after.events)
    findings += [f"promise {number} had completed, and ran again" for number in sorted(doubled)]
    if case.scenario.program.timeout is not None or races(case):
        return Retried(findings, was_retried=True)
    if outcome(before.view) != outcome(after.view):
        findings.append(f"it failed with {before.view.error!r}, its retry came to {outcome(after.view)}")
    return Retried(findings, was_retried=True, was_compared=True)


def completed(execution: str, events: list[Event]) -> set[int]:
    """The numbers of the tasks whose result has counted."""
    tokens = {promise_token_id(execution, number): number for number in range(MOST_PROMISES)}
    return {
        tokens[event.token] for event in events if event.kind == "TaskCompleted" and event.token in tokens
    }


def races(case: ScriptCase) -> bool:
    """Whether another order of completions may lead to another end; children may be retried or started again."""
    return any(
        isinstance(each, Child) or (isinstance(each, Group) and each.kind in ("race", "any"))
        for body in case.scenario.program.workflows.values()
        for each in promises(body)
    )


def outcome(view: ExecutionView) -> tuple[str, str]:
    return view.state, str(msgspec.json.decode(view.error or b"{}").get("code"))


@pytest.mark.parametrize("start", first(1, range(0, CHUNK * CHUNKS, CHUNK)))
def test_what_had_completed_does_not_run_again_in_a_retry(start: int) -> None:
    failures, tries = [], 0
    for seed in range(start, start + CHUNK):
        found = retried(draw_script(seed))
        failures += [f"seed {seed}: {finding}" for finding in found.findings]
        tries += found.was_retried
    assert not failures, "\n".join(failures[:10])
    assert tries > CHUNK // 15, f"only {tries} executions were retried"
