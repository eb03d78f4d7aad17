"""Open approvals: listing and deciding them.

A decision is delivered directly to the token that asked for it. A second decision is rejected, and no decision can be
taken for one on a later question. A signal with the approval's name works too and is buffered like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Raw, Struct
from msgspec.json import encode

from dalsegno.core.graph.external_waits import (
    awaiting_in,
    needs_form,
    read_decision,
    refuse_problems,
    signal_of,
)
from dalsegno.core.graph.step_input import decode_body
from dalsegno.core.scripts.token_bodies import decode_task, succeeded
from dalsegno.core.values import encode_value
from dalsegno.engine.executions import StoredExecutions, all_executions
from dalsegno.engine.secrets.vault import NODE_PREFIX
from dalsegno.engine.subprocesses.job_pool import payload_problems
from dalsegno.engine.upkeep.outbox import below
from dalsegno.errors import Conflict, InvalidDefinition, InvalidInput, NotFound
from dalsegno.model.effect import DeliverToToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ENDED, UNDER_WAY, ExecutionKind, ExecutionView
from dalsegno.model.token import TokenView
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import ExecutionFilter

MOST_LISTED = 100
ASKING: tuple[ExecutionKind, ...] = ("graph", "script", "python")
"""Kinds of executions that can ask for approvals."""


class Approval(Struct, frozen=True):
    """A question that an execution waits for people to answer."""

    execution: str
    workflow: str
    node: str
    message: str
    approvers: tuple[str, ...]
    form: dict[str, Any] | None
    """JSON Schema of the data that accompany an approval."""
    since: float
    due: float | None
    """When the node times out."""
    signal: str
    indexes: tuple[int, ...] = ()
    """Index of the item in every split around the node, outermost first."""
    token: str = ""


class ApprovalPlace(NamedTuple):
    """Cursor of a list of approvals."""

    execution: str
    since: float
    token: str


def _age(place: ApprovalPlace) -> tuple[float, str, str]:
    return place.since, place.execution, place.token


def place_of(approval: Approval) -> ApprovalPlace:
    return ApprovalPlace(approval.execution, approval.since, approval.token)


class Approvals:
    def __init__(self, stored: StoredExecutions) -> None:
        self.stored = stored
        self._asking: dict[str, bool] = {}

    # -- queries ----------------------------------------------------------------------------------------------

    async def of(
        self, execution: str, limit: int | None = None, after: ApprovalPlace | None = None
    ) -> list[Approval]:
        """Return the open approvals of an execution and its unfinished children, oldest first."""
        asked = await self._with_children(await self.stored.outline(execution))
        return [each for each in asked if after is None or _age(place_of(each)) > _age(after)][:limit]

    async def _with_children(self, view: ExecutionView) -> list[Approval]:
        found = await self._open(view)
        for child in await below(self.stored.executions, view.id) if view.state not in ENDED else ():
            found += await self._open(child)
        return sorted(found, key=lambda each: _age(place_of(each)))

    async def pending(
        self, workflow: str | None = None, limit: int = MOST_LISTED, after: ApprovalPlace | None = None
    ) -> list[Approval]:
        """Return the open approvals of all executions, those of the newest execution first. Only executions in which
        a node waits for a signal are read.
        """
        found = await self._rest_of_page(after) if after is not None else []
        if len(found) < limit:
            async for view in self._waiting(workflow, after.execution if after is not None else None):
                found += await self._open(view)
                if len(found) >= limit:
                    break
        return found[:limit]

    async def _rest_of_page(self, after: ApprovalPlace) -> list[Approval]:
        """Return the further approvals of the execution at which a page ended; it may have ended meanwhile, or be
        gone.
        """
        view = await self.stored.stack.archive.outline(after.execution)
        asked = await self._open(view) if view is not None else []
        return [each for each in asked if place_of(each) > after]

    def _waiting(self, workflow: str | None, before: str | None) -> AsyncIterator[ExecutionView]:
        where = ExecutionFilter(workflow, UNDER_WAY, kinds=ASKING, awaits_signal=True)
        return all_executions(self.stored.stack.archive, where, before)

    async def _open(self, view: ExecutionView) -> list[Approval]:
        if view.state in ENDED or view.kind not in ASKING:
            return []
        if view.kind == "graph" and not await self._asks(view.definition):
            return []
        inspection = await self.stored.stack.ledger.inspect(view.id)
        tokens = inspection.tokens if inspection is not None else ()
        found = [_approval(view, token) for token in tokens]
        return sorted((each for each in found if each is not None), key=lambda each: (each.since, each.token))

    async def _asks(self, definition: str) -> bool:
        """Return True if a graph has nodes that ask people, or cannot be loaded because this process lacks a node
        type.
        """
        if definition not in self._asking:
            definitions = self.stored.definitions
            try:
                plan = (await definitions.by_hash(definition)).plan
            except (InvalidDefinition, NotFound):
                self._asking[definition] = True
            else:
                names = {node.type for node in plan.nodes.values()}
                self._asking[definition] = any(definitions.types.get(name).receive for name in names)
        return self._asking[definition]

    # -- deciding ---------------------------------------------------------------------------------------------

    async def decide(
        self,
        execution: str,
        node: str,
        decision: str,
        data: Any = None,
        by: str | None = None,
        index: int | Sequence[int] | None = None,
        comment: str | None = None,
    ) -> None:
        """Answer an open approval. ``index`` names the item of a split. A question that the execution does not ask
        itself may be one of its children's.

        Raises InvalidInput, without a change, if the decision does not fit the question, and Conflict if the approval
        is not open.
        """
        view = await self.stored.outline(execution)
        if view.state in ENDED:
            raise Conflict(f"execution {execution} has ended ({view.state}): there is nothing to decide")
        asked = await self._open(view)
        if all(each.node != node for each in asked):
            asked = await self._with_children(view)
        approval = _only_match(asked, node, index)
        execution = approval.execution
        payload = read_decision({"decision": decision, "data": data, "by": by, "comment": comment})
        if approval.form and needs_form(payload):
            stored, given = self.stored, encode_value(data, "the decision's data")
            problems = await payload_problems(approval.form, given, stored.limits, stored.offload)
            refuse_problems(approval.form, data, problems)
        raw = encode_decision(payload)
        result = await self.stored.results.of_raw(execution, raw, "the decision")
        now = self.stored.stack.ledger.now()
        shown = b'{"payload":%b}' % raw if result.blob is None else None
        event = NewEvent("SignalReceived", approval.signal, "", now, shown)
        effect = DeliverToToken(approval.token, f"signal:{approval.signal}", succeeded(0, result).data)
        outcome = await self.stored.committer.commit(
            Transition(execution, (effect,), (event,)), wait_for_store=False
        )
        if not isinstance(outcome, Applied):
            raise Conflict(f"node '{node}' of execution {execution} no longer waits for a decision")


def _approval(view: ExecutionView, token: TokenView) -> Approval | None:
    awaiting = awaiting_in(token)
    if awaiting is None or awaiting.question is None:
        return None
    question = awaiting.question
    return Approval(
        execution=view.id,
        workflow=view.workflow,
        node=token.node.removeprefix(NODE_PREFIX),
        message=str(question.get("message", "")),
        approvers=tuple(str(each) for each in question.get("approvers", ())),
        form=question.get("form"),
        since=awaiting.since,
        due=awaiting.due,
        signal=signal_of(awaiting) or "",
        indexes=_indexes(token),
        token=token.id,
    )


def _indexes(token: TokenView) -> tuple[int, ...]:
    """Return the indexes of a question: for a node, those of the items around it; for a script, the number of the
    question.
    """
    if token.kind != "task":
        return tuple(loop.index for loop in decode_body(token.data).loops)
    promise = decode_task(token.data).promise
    return () if promise is None else (promise,)


def encode_decision(payload: Mapping[str, Any]) -> bytes:
    """Encode a decision. Data that arrived as JSON are not decoded again."""
    is_read = not isinstance(payload["data"], Raw)
    return encode_value(payload, "the decision") if is_read else encode(payload)


def _only_match(found: Sequence[Approval], node: str, index: int | Sequence[int] | None) -> Approval:
    wanted = None if index is None else (index,) if isinstance(index, int) else tuple(index)
    asked = [each for each in found if each.node == node and wanted in (None, each.indexes)]
    if not asked:
        open_nodes = ", ".join(sorted({f"'{each.node}'" for each in found})) or "none"
        raise Conflict(
            f"node '{node}' is not waiting for a decision; open approvals of this execution: {open_nodes}"
        )
    if len({each.execution for each in asked}) > 1:
        others = ", ".join(f"execution {each.execution}" for each in asked[:10])
        raise InvalidInput(f"several children wait for a decision at '{node}'; name one of them: {others}")
    if len(asked) > 1:
        items = ", ".join(str(list(each.indexes)) for each in asked[:10])
        raise InvalidInput(
            f"node '{node}' waits for {len(asked)} decisions; say which item by index: {items}"
        )
    return asked[0]
