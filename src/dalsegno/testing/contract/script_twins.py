"""The same for scripts: a script and a graph whose tokens wait for signals and children."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dalsegno.model.effect import DeliverToToken, DropTokens, WakeMachine
from dalsegno.model.execution import ENDED
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import Lease, TokenView
from dalsegno.testing.contract.build import cancel, command, event, start, token
from dalsegno.testing.contract.script_decisions import NAMES, PROMISES, decide_script
from dalsegno.testing.contract.scripts import (
    ask_to_end,
    delivered,
    new_script,
    resume_token,
    signal,
    task,
)
from dalsegno.testing.contract.stack import ContractStack
from dalsegno.testing.contract.twins import WORKER, Twins

MANY = 10_000
"""More than all examples on one store leave in its outbox."""


class ScriptTwins(Twins):
    @property
    def script(self) -> str:
        return self.executions[0]

    async def begin(self) -> None:
        script, graph = self.executions
        first = task(f"{script}.t")  # tasks may become executions, so their ids are this pair's own
        await self.commit(start(new_script(script, notify=b"tell"), resume_token(script), first))
        await self.commit(start(graph, token("p"), token("q"), token("r")))

    async def end(self) -> None:
        await super().end()
        for side in (self.subject, self.reference):
            await side.commit(*(cancel(execution) for execution in self._handed_over()))

    def _handed_over(self) -> list[str]:
        """Executions that tasks may have become."""
        names = {lease.token for lease in self.leases if lease.kind == "task"}
        names |= {f"{name}.{number}" for name in {lease.token for lease in self.leases} for number in (0, 1)}
        return sorted(task_execution_id(name) for name in names)

    # -- operations, chosen by number -------------------------------------------------------------------------

    async def batch(self, a: int, b: int) -> None:
        if not self.held:
            await self.claim(a, b)
        chosen = [self.held.pop((a * b) % len(self.held)) for _ in range(min(a % 5, len(self.held)))]
        await self.commit(*[await self._decide(lease, b + index) for index, lease in enumerate(chosen)])

    async def late(self, a: int, b: int) -> None:
        if self.leases:
            lease = self.leases[-1 - a % len(self.leases)]
            await self.commit(await self._decide(replace(lease, fence=lease.fence - b % 2), b))

    async def moved(self, a: int, b: int) -> None:
        """A worker finds that the task it runs has an execution of its own."""
        tasks = [lease for lease in self.leases if lease.kind == "task"]
        if tasks:
            lease = tasks[-1 - a % len(tasks)]
            own = replace(lease, execution=task_execution_id(lease.token), execution_kind="task")
            await self.commit(await self._decide(own, b))

    async def _decide(self, lease: Lease, choice: int) -> Any:
        machine = await self.reference.ledger.machine(lease.execution)
        return decide_script(lease, machine, choice, WORKER)

    async def post(self, a: int, b: int) -> None:
        posted = signal(f"s{a % 40}", NAMES[b % 3], b"%d" % b, self.executions[a % 2])
        await self.commit(posted, *([posted] if b % 5 == 0 else []))

    async def deliver(self, a: int, b: int) -> None:
        await self.commit(command(self.script, delivered(a % PROMISES), events=[event("ChildEnded")]))
        if self.leases:
            lease = self.leases[-1 - b % len(self.leases)]
            await self.commit(command(lease.execution, DeliverToToken(lease.token, "child:c", b"%d" % b)))

    async def drop(self, a: int, b: int) -> None:
        if self.leases:
            names = tuple(lease.token for lease in self.leases[-1 - a % 3 :])
            await self.commit(command(self.executions[b % 2], DropTokens(names)))

    async def nudge(self, a: int, b: int) -> None:
        await self.commit(command(self.executions[a % 2], WakeMachine()))

    async def ask(self, a: int, b: int) -> None:
        """Seldom to the graph, which ends at once."""
        target = self.executions[1] if a > 95 else self.script
        await self.commit(ask_to_end(target))

    # -- comparison -------------------------------------------------------------------------------------------

    async def compare(self) -> None:
        await super().compare()
        for execution in self._handed_over():
            mine = await self.subject.ledger.inspect(execution)
            theirs = await self.reference.ledger.inspect(execution)
            assert (mine is None) == (theirs is None)
            if theirs is not None:
                assert await self._look(self.subject, execution) == await self._look(
                    self.reference, execution
                )
        notices = [
            entry for entry in await self.subject.ledger.outbox(MANY) if entry.execution == self.script
        ]
        assert notices == await self.reference.ledger.outbox()

    async def _look(self, side: ContractStack, execution: str) -> dict[str, Any]:
        look = await super()._look(side, execution)
        if look["execution"].state not in ENDED:
            look["machine"] = await side.ledger.machine(execution)
        arrivals = [f"{lease.token}/arrival" for lease in self.leases]
        look["arrivals"] = await side.ledger.outputs(execution, sorted(arrivals))
        return look

    def _open_tokens(self, execution: str, tokens: tuple[TokenView, ...]) -> dict[str, TokenView]:
        found = super()._open_tokens(execution, tokens)
        return {
            name: replace(view, data=b"") if view.kind == "resume" else view for name, view in found.items()
        }
