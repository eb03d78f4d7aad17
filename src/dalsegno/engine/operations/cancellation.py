"""Ending executions from outside. Cancel lets a script clean up, terminate ends it at once, and an unfinished
clean-up is continued by a new execution.
"""

from __future__ import annotations

from msgspec import Raw

from dalsegno.core import commands
from dalsegno.core.scripts.ending import cancel_script, terminate_script, termination
from dalsegno.core.scripts.kept import decode_kept, start_cleanup
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.operations.troubles import CLEANUP
from dalsegno.engine.scripts.kept import read_kept
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.starting.start import Ancestry, Launcher, Started, StartOptions, new_execution
from dalsegno.errors import Conflict
from dalsegno.model.execution import CLEANUP_RELATION, SCRIPTED, ExecutionView
from dalsegno.model.ids import repeated_execution_id
from dalsegno.model.transition import AlreadyApplied, Applied, Stale, Transition

LOOKED_AT = 1000
"""Outbox entries that are searched for a letter in flight."""
MOST_TRIES = 100
"""Attempts to terminate a script whose machine advances each time it is read."""


class Cancellation:
    def __init__(self, stored: StoredExecutions, launcher: Launcher) -> None:
        self.stored = stored
        self.launcher = launcher

    async def cancel(self, execution: str, reason: str | None) -> None:
        """Cancel an execution. A graph ends at once; a script is interrupted at its await and cleans up. A second
        cancel has no effect.
        """
        view = await self.stored.outline(execution)
        await self.stored.inputs.keep_of(view)
        now = self.stored.stack.ledger.now()
        if view.kind in SCRIPTED:
            transition = cancel_script(execution, now, reason)
        else:
            transition = commands.cancel(execution, now, reason, children=self._may_have_children(view))
        await self.stored.command(transition, "cancel")

    def _may_have_children(self, view: ExecutionView) -> bool:
        """Return True if a graph has nodes that wait for executions, or is not loaded here."""
        program = self.stored.definitions.cached(view.definition)
        return view.kind == "graph" and (program is None or bool(program.plan.children))

    async def terminate(self, execution: str, reason: str | None) -> None:
        """End an execution at once. The unfinished state of a script is kept and reported by a dead letter."""
        view = await self.stored.outline(execution)
        if view.kind not in SCRIPTED:
            await self.stored.inputs.keep_of(view)
            now, children = self.stored.stack.ledger.now(), self._may_have_children(view)
            await self.stored.command(
                commands.terminate(execution, now, reason, children=children), "terminate"
            )
            return
        for _ in range(MOST_TRIES):
            transition = await self._termination(execution, reason)
            outcome = await self.stored.committer.commit(transition, wait_for_store=False)
            if isinstance(outcome, Applied | AlreadyApplied):
                return
            if not isinstance(outcome, Stale) or outcome.reason != "version":
                raise await self.stored.refusal(outcome, execution, "terminate")
        raise Conflict(
            f"cannot terminate execution {execution} now: it changes too fast; pause it first, then terminate it"
        )

    async def _termination(self, execution: str, reason: str | None) -> Transition:
        """Return the termination of a script for its current machine; it is refused if the machine advances first.
        Tokens are read first: a task that ends meanwhile is requested again by the execution that continues the
        clean-up, and not missed.
        """
        ledger, blobs = self.stored.stack.ledger, self.stored.results.blobs
        view, kept = await read_kept(ledger, blobs, execution, termination(reason))
        return terminate_script(execution, view, ledger.now(), reason, kept)

    async def has_letter(self, execution: str) -> bool:
        """Return True if the clean-up is unfinished and its dead letter neither continued nor dropped. The outbox is
        read first: a letter leaves it when it is on record.
        """
        stack = self.stored.stack
        waiting = await stack.ledger.outbox(LOOKED_AT)
        if any(entry.topic == "cleanup" and entry.execution == execution for entry in waiting):
            return True
        return await stack.records.get(CLEANUP, execution) is not None

    async def clean_up(self, execution: str, starter: str | None = None) -> Started:
        """Start a new execution that continues the clean-up of an ended one. Idempotent."""
        stored = self.stored
        view = await stored.status(execution)
        if view.kind not in SCRIPTED or view.context is None:
            raise Conflict(f"execution {execution} has no unfinished clean-up: it is {view.state}")
        program = await stored.definitions.any_by_hash(view.definition)
        if not isinstance(program, ScriptProgram):
            raise Conflict(f"execution {execution} is not a script and has no clean-up")
        now, kept = stored.stack.ledger.now(), decode_kept(view.context)
        own = repeated_execution_id(view.id, CLEANUP_RELATION)
        options = StartOptions(tags=dict(view.tags), priority=view.priority, starter=starter)
        ancestry = Ancestry(own, kept.state_of or view.id, CLEANUP_RELATION)
        new = new_execution(program, Raw(view.input), options, now, stored.limits, ancestry)
        return await self.launcher.create(new, start_cleanup(new, kept, now))
