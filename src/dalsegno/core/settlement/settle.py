"""One transition against the rows: refuse it, recognise it, or apply it whole."""

from __future__ import annotations

from dalsegno.core.settlement.effects import APPLY, Application
from dalsegno.core.settlement.rows import ExecutionRow, TokenRow
from dalsegno.core.settlement.scopes import is_closed
from dalsegno.core.settlement.workspace import Workspace
from dalsegno.model.effect import CreateExecution, PauseExecution, ResumeExecution
from dalsegno.model.execution import ENDED
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition


def settle(transition: Transition, rows: Workspace, now: float) -> Outcome:
    execution = rows.execution(transition.execution)
    if transition.token is None:
        return _settle_command(transition, execution, rows, now)
    if execution is None:
        return Stale("unknown")
    token = rows.token(transition.execution, transition.token)
    if token is None:
        return Stale("finished" if execution.state in ENDED else "unknown")
    try:
        digest = transition.digest()
    except UnicodeEncodeError as error:
        return Refused(f"a name is not valid Unicode: {error}")
    refusal = _refusal(transition, execution, token, digest, rows)
    if refusal is not None:
        return refusal
    work = Application(transition, execution, rows, now)
    _release_token(transition, token, digest, work)
    return work.run()


def _refusal(
    transition: Transition, execution: ExecutionRow, token: TokenRow, digest: bytes, rows: Workspace
) -> Outcome | None:
    if token.state != "leased" or token.fence != transition.fence:
        if token.digest == digest:
            return AlreadyApplied()
        return Stale("finished" if execution.state in ENDED else "fence")
    if execution.state in ENDED:
        return Stale("finished")
    if transition.epoch != execution.epoch:
        return Stale("version")
    if token.scope and is_closed(rows, execution.id, token.scope):
        return Stale("scope")
    return None


def _release_token(transition: Transition, token: TokenRow, digest: bytes, work: Application) -> None:
    """Consumes the token, or puts it to sleep under a new attempt."""
    park = transition.park
    token.owner = None
    token.digest = digest
    if park is None:
        token.state = "consumed"
        token.data = b""
        if token.live:
            work.count(token.scope, -1)
    else:
        token.data = park.data
        token.attempt = park.attempt
        token.due = park.due
        token.losses = 0
        token.reason = ""
        work.park(token)
    work.rows.save_token(token)


def _settle_command(
    transition: Transition, execution: ExecutionRow | None, rows: Workspace, now: float
) -> Outcome:
    first = transition.effects[0] if transition.effects else None
    if isinstance(first, CreateExecution):
        if execution is not None:
            return AlreadyApplied()
        new = first.execution
        execution = ExecutionRow(new.id, "RUNNING", new.definition, priority=new.priority, touched_at=now)
        rows.create_execution(execution, new)
        return Application(transition, execution, rows, now).run()
    if execution is None:
        return Stale("unknown")
    if execution.state in ENDED:
        return Stale("finished")
    if transition.scope and is_closed(rows, execution.id, transition.scope):
        return Stale("scope")
    paused = execution.state == "PAUSED"
    if (isinstance(first, PauseExecution) and paused) or (isinstance(first, ResumeExecution) and not paused):
        return AlreadyApplied()
    return Application(transition, execution, rows, now).run()


__all__ = ["APPLY", "Applied", "settle"]
