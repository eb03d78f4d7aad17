"""What is kept of a clean-up that is cut off or terminated, while its tasks go on being done."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dalsegno.adapters.memory import MemoryBlobs, MemoryLedger
from dalsegno.core.scripts.kept import decode_kept
from dalsegno.core.scripts.token_bodies import TaskBody, encode_body
from dalsegno.engine.scripts.kept import read_kept
from dalsegno.model.effect import SettlePromise
from dalsegno.model.machine import Completion
from dalsegno.model.transition import Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import RUN, step
from dalsegno.testing.contract.script_builders import suspend, task, tasks
from dalsegno.testing.contract.stack import ContractStack

READS = 3


class MovingLedger(MemoryLedger):
    """Commits something after so many reads."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.reads, self.after = 0, -1
        self.then: list[Transition] = []

    async def _read(self) -> None:
        self.reads += 1
        if self.reads == self.after:
            await self.commit(self.then)

    async def machine(self, execution: str) -> Any:
        view = await super().machine(execution)
        await self._read()
        return view

    async def inspect(self, execution: str) -> Any:
        inspection = await super().inspect(execution)
        await self._read()
        return inspection


@pytest.mark.parametrize("ok", [True, False])
@pytest.mark.parametrize("after", range(1, READS + 1))
async def test_task_that_is_done_while_it_is_read_is_kept_once(after: int, ok: bool) -> None:
    """Else the execution that goes on would wait for ever, or do it again although it was done."""
    ledger = MovingLedger()
    stack = ContractStack(ledger, ledger.clock)  # type: ignore[arg-type]  # a ledger is all it needs
    body = encode_body(TaskBody(Raw(b"1"), 1, None, 1))
    await suspend(stack, task("refund", data=body), need=9)
    lease = (await tasks(stack))["refund"]
    ledger.then = [step(lease, SettlePromise(Completion(1, ok, b"done")))]
    ledger.reads, ledger.after = 0, after

    view, kept = await read_kept(ledger, MemoryBlobs(ledger.store), RUN, "cut off")

    assert (ledger.reads, view is not None and view.version) == (READS, 1)
    assert kept is not None
    found = decode_kept(kept)
    asked = [each.promise for each in found.tasks]
    assert asked + [each.promise for each in found.completions] == [1]
    assert (asked == []) == (after < READS)
