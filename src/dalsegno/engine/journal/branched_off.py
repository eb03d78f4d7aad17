"""The first turn of an execution that branches off from an earlier turn of another one: that of a retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.core.scripts.branch import BRANCH, Branch, decode_branch, no_variable
from dalsegno.core.scripts.kept import KeptMachine
from dalsegno.core.values import decode_value
from dalsegno.engine.scripts.advance import Job
from dalsegno.engine.scripts.moving import MoveRefused
from dalsegno.engine.scripts.programs import RunningMachine, ScriptProgram
from dalsegno.engine.scripts.retry import Retry
from dalsegno.engine.steps.budget import refuse_if_light
from dalsegno.lang import SnapshotError
from dalsegno.ports.ledger import Ledger


async def read_branch(ledger: Ledger, execution: str) -> Branch:
    """Return what an execution starts from."""
    data = (await ledger.outputs(execution, [BRANCH])).get(BRANCH)
    if data is None:
        raise SnapshotError(f"the state from which execution {execution} starts is not stored")
    refuse_if_light(len(data))
    return decode_branch(data)


class BranchedOff(Retry):
    """The execution from an earlier turn of which another one starts."""

    def __init__(self, branch: Branch, *given: Any) -> None:
        super().__init__(*given)
        self._branch = branch

    async def kept(self) -> KeptMachine:
        return self._branch.kept

    async def definition(self) -> str:
        return self._branch.definition

    async def loader(
        self,
        program: ScriptProgram,
        snapshot: bytes,
        job: Job,
        context: Mapping[str, Any] | None = None,
        old: ScriptProgram | None = None,
    ) -> Callable[[], RunningMachine]:
        branch = self._branch
        begin = await super().loader(program, snapshot, job, context, old)

        def load() -> RunningMachine:
            machine = begin()
            for name, raw in branch.variables.items():
                try:
                    machine.assign(name, decode_value(raw))
                except LookupError as error:
                    raise MoveRefused(no_variable(name, branch, str(error))) from None
            return machine

        return load
