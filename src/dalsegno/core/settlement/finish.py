"""The ending of an execution, and the tasks of a script that outlive it."""

from __future__ import annotations

import msgspec

from dalsegno.core.settlement.application import Application
from dalsegno.core.settlement.rows import ExecutionRow, TokenRow
from dalsegno.model.effect import FinishExecution
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import task_execution_id
from dalsegno.model.transition import ReadyToken


def finish(work: Application, effect: FinishExecution) -> None:
    execution = work.execution
    if effect.hand_over:
        _hand_over(work)
    execution.state = effect.state
    execution.ended_at = work.now
    execution.output, execution.context, execution.error = effect.output, effect.context, effect.error
    work.record(effect.event)
    work.give_up_all_slots()
    if execution.notify is not None:
        work.owes = True
        work.rows.add_outbox(execution.id, f"{execution.id}/ended", "ended", execution.notify)


def _hand_over(work: Application) -> None:
    """Turn the script's unfinished live tasks into executions of their own.

    Such a token is not kept leased to the committing worker, which would know it by the wrong execution.
    """
    if not work.execution.live:
        return
    unfinished = work.rows.unfinished_tokens(work.execution.id)
    tasks = [token for token in unfinished if token.kind == "task" and token.live]
    moved = {token.id for token in tasks}
    if not moved:
        return
    work.ready = [ready for ready in work.ready if ready.token not in moved]
    for token in tasks:
        if token.id in work.kept:
            token.state, token.owner, token.fence = "ready", None, 0
        _make_independent(work, token)
    work.kept = [token for token in work.kept if token not in moved]


def _make_independent(work: Application, token: TokenRow) -> None:
    rows, now = work.rows, work.now
    new = NewExecution(
        id=task_execution_id(token.id),
        workflow=token.node,
        version=0,
        definition="",
        input=token.data,
        created_at=now,
        priority=token.priority,
        parent=work.execution.id,
        relation="task",
        kind="task",
    )
    execution = ExecutionRow(
        new.id,
        "RUNNING",
        "",
        seq=1,
        live=1 if token.live else 0,
        priority=new.priority,
        touched_at=now,
        kind="task",
    )
    rows.create_execution(execution, new)
    rows.save_execution(execution)
    rows.add_event(new.id, 1, NewEvent("ExecutionStarted", "", "", now), None, None)
    if token.state == "held":
        token.state, token.ready_at = "ready", now
    rows.move_token(token, new.id)
    if token.state == "ready":
        work.ready.append(ReadyToken(token.id, new.id, token.queue, token.priority, token.node))
    named = msgspec.json.encode({"execution": new.id})
    work.record(NewEvent("TaskHandedOver", token.node, token.scope, now, named, token.id))
