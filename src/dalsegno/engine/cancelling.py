"""Ending executions from outside: cancel lets a script clean up, terminate ends it at once, and a clean-up that did not
come to its end is taken up by a new execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from dalsegno.core import commands
from dalsegno.core.cleanup import RELATION, decode_unfinished, start_cleanup, unfinished
from dalsegno.core.script_ending import cancel_script, terminate_script, termination
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.starting import Ancestry, Started, StartOptions, new_execution
from dalsegno.errors import Conflict
from dalsegno.model.execution import SCRIPTED, ExecutionView
from dalsegno.model.ids import repeated_execution_id
from dalsegno.model.transition import AlreadyApplied, Applied, Stale, Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

MOST_TRIES = 100
"""Of terminating a script whose machine moves on each time it is read."""


class Cancelling:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def cancel(self, execution: str, reason: str | None) -> None:
        """A graph ends at once; a script is told at its await and cleans up. Doing it again changes nothing."""
        view = await self.client.outline(execution)
        now = self.client.stack.ledger.now()
        if view.kind in SCRIPTED:
            transition = cancel_script(execution, now, reason)
        else:
            transition = commands.cancel(execution, now, reason, children=self._may_have_children(view))
        await self._commit(transition, "cancel")

    def _may_have_children(self, view: ExecutionView) -> bool:
        """Whether a graph has nodes that wait for executions; one that is not at hand may."""
        program = self.client.definitions.cached(view.definition)
        return view.kind == "graph" and (program is None or bool(program.plan.children))

    async def terminate(self, execution: str, reason: str | None) -> None:
        """Ends it at once. What a script had not done yet is kept, and a dead letter says so."""
        view = await self.client.outline(execution)
        if view.kind not in SCRIPTED:
            now, children = self.client.stack.ledger.now(), self._may_have_children(view)
            await self._commit(commands.terminate(execution, now, reason, children=children), "terminate")
            return
        for _ in range(MOST_TRIES):
            transition = await self._termination(execution, reason)
            outcome = await self.client.committer.commit(transition, patient=False)
            if isinstance(outcome, Applied | AlreadyApplied):
                return
            if not isinstance(outcome, Stale) or outcome.reason != "version":
                raise await self.client.refusal(outcome, execution, "terminate")
        raise Conflict(
            f"cannot terminate execution {execution} now: it goes on too fast; pause it, then terminate it"
        )

    async def _termination(self, execution: str, reason: str | None) -> Transition:
        """By its machine as it stands; it is refused if that moves on before."""
        ledger = self.client.stack.ledger
        view, inspection = await ledger.machine(execution), await ledger.inspect(execution)
        kept = None
        if view is not None and inspection is not None and inspection.execution.state != "PENDING":
            kept = unfinished(view, inspection.tokens, termination(reason))
        return terminate_script(execution, view, ledger.now(), reason, kept)

    async def _commit(self, transition: Transition, verb: str) -> None:
        outcome = await self.client.committer.commit(transition, patient=False)
        if not isinstance(outcome, Applied | AlreadyApplied):
            raise await self.client.refusal(outcome, transition.execution, verb)

    async def clean_up(self, execution: str, starter: str | None = None) -> Started:
        """A new execution that goes on with the clean-up of an ended one. Doing it twice makes one."""
        client = self.client
        view = await client.status(execution)
        if view.kind not in SCRIPTED or view.context is None:
            raise Conflict(f"execution {execution} has no clean-up to go on with: it is {view.state}")
        program = await client.definitions.any_by_hash(view.definition)
        if not isinstance(program, ScriptProgram):
            raise Conflict(f"execution {execution} is no script and has no clean-up")
        now = client.stack.ledger.now()
        own = repeated_execution_id(view.id, RELATION)
        options = StartOptions(tags=dict(view.tags), priority=view.priority, starter=starter)
        new = new_execution(
            program, Raw(view.input), options, now, client.limits, Ancestry(own, view.id, RELATION)
        )
        return await client.launcher.create(new, start_cleanup(new, decode_unfinished(view.context), now))
