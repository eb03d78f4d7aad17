"""Versions of Python workflows that executions in flight run, and names in their code that the program lacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from dalsegno.errors import CodeMissing, NotFound
from dalsegno.model.execution import ExecutionState
from dalsegno.model.suggestion import listed
from dalsegno.ports.archive import ExecutionFilter

if TYPE_CHECKING:
    from dalsegno.engine.client import Client
    from dalsegno.engine.elsewhere import OwnWorkflows

UNFINISHED: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED")
MOST_EXECUTIONS = 10_000
"""Looked at, the newest first."""
AT_ONCE = 500


class LackingVersion(Struct, frozen=True):
    """A version that executions in flight run, and whose code uses names that are gone."""

    workflow: str
    version: int
    names: tuple[str, ...]
    executions: int
    """As far as they were looked at."""

    @property
    def sentence(self) -> str:
        count = "1 execution" if self.executions == 1 else f"{self.executions:,} executions"
        return (
            f"version {self.version} of '{self.workflow}' uses {listed(list(self.names))}, which this program does not"
            f" have; {count} in flight may wait for it: keep the old name until they have ended, or run a worker with"
            " the old program"
        )


async def lacking_versions(client: Client, own: OwnWorkflows) -> list[LackingVersion]:
    """Of workflows whose module this program has imported; what belongs to other programs is theirs."""
    found: list[LackingVersion] = []
    for version, executions in (await _unfinished(client)).items():
        if version in own.versions:
            continue
        try:
            program = await client.definitions.script(version)
        except (CodeMissing, NotFound):
            continue
        if names := program.lacking():
            known = program.definition
            found.append(LackingVersion(known.name, known.version, tuple(sorted(names)), executions))
    return sorted(found, key=lambda each: (each.workflow, each.version))


async def _unfinished(client: Client) -> Counter[str]:
    """Executions by the version that they run."""
    where = ExecutionFilter(states=UNFINISHED, kinds=("python",))
    found: Counter[str] = Counter()
    before = None
    while page := await client.executions(where, before, AT_ONCE):
        found.update(view.definition for view in page)
        before = page[-1].id
        if found.total() >= MOST_EXECUTIONS or len(page) < AT_ONCE:
            break
    return found
