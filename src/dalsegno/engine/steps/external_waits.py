"""The shell around nodes that wait for external events: their requests, and the events that arrive."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno.core.graph import external_waits
from dalsegno.core.graph.complete import Step
from dalsegno.core.graph.external_waits import ChildRequest
from dalsegno.core.graph.step_input import Awaiting, Result, StepInput
from dalsegno.core.scripts.token_bodies import BLOB
from dalsegno.core.values import decode_value, encode_value, refuse_size
from dalsegno.engine.steps.budget import is_light
from dalsegno.engine.steps.contexts import LogSink
from dalsegno.engine.steps.values import Results
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.failure import Failure
from dalsegno.model.ids import arrival_id
from dalsegno.model.token import Lease
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import AwaitSignal, NodeError, NodeTypes, StartChild, Unacceptable
from dalsegno.ports.records import Blobs


class ExternalWaits:
    def __init__(
        self, ledger: Ledger, blobs: Blobs, types: NodeTypes, results: Results, log: LogSink
    ) -> None:
        self.ledger = ledger
        self.blobs = blobs
        self.types = types
        self.results = results
        self._log = log

    # -- requests of nodes ------------------------------------------------------------------------------------

    def await_signal(self, step_input: StepInput, asked: AwaitSignal) -> Step:
        _require_text(step_input, "the name of the signal", asked.name)
        question = dict(asked.question) if asked.question is not None else None
        what = f"what node '{step_input.lease.node}' asks"
        refuse_size(len(encode_value(question, what)), what, self.results.limits.value_bytes)
        return external_waits.await_signal(step_input, asked.name, _due(step_input, asked.timeout), question)

    def start_child(self, step_input: StepInput, asked: StartChild) -> Step | Result:
        """Return the step that parks the token, or the node's output if it does not wait."""
        node = step_input.node
        _require_text(step_input, "the name of the workflow", asked.workflow)
        if asked.wait and node.id not in step_input.plan.children:
            raise NodeError(
                f"a node of type '{node.type}' cannot wait for an execution: declare the type with children=True",
                code="WRONG_NODE_TYPE",
                retryable=False,
            )
        what = f"the input of the execution that node '{node.id}' starts"
        raw = encode_value({} if asked.input is None else asked.input, what)
        refuse_size(len(raw), what, self.results.limits.value_bytes)
        request = ChildRequest(asked.workflow, raw, asked.version, asked.definition)
        if asked.wait:
            return external_waits.await_child(step_input, request, _due(step_input, None))
        child = external_waits.start_detached(step_input, request)
        return Result(encode_value({"id": child}))

    # -- arrivals ---------------------------------------------------------------------------------------------

    async def woken(self, step_input: StepInput, awaiting: Awaiting) -> Result | Failure | Step:
        """Return the node's output, its failure, or a step that keeps waiting. The input is no longer one of a
        waiting node.
        """
        step_input.body = msgspec.structs.replace(step_input.body, awaiting=None)
        if step_input.lease.reason != "arrival":
            step_input.orders += external_waits.give_up_child(awaiting)
            return external_waits.timed_out(step_input, awaiting)
        raw = await arrival_of(step_input.lease, self.ledger, self.blobs)
        if raw is None:
            # The execution has ended and its rows are swept: any decision here will be refused.
            return Failure(
                "the execution or signal that the node waited for no longer exists",
                node=step_input.lease.node,
                retryable=False,
            )
        if external_waits.awaited_child(awaiting) is not None:
            return await self._child_ended(step_input, raw)
        return await self._signalled(step_input, awaiting, raw)

    async def _child_ended(self, step_input: StepInput, raw: bytes) -> Result | Failure:
        ended = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if "error" in ended:
            return external_waits.child_failure(step_input.lease.node, decode_value(ended["error"]))
        what = f"the output of node '{step_input.lease.node}'"
        return await self.results.of_raw(step_input.lease.execution, bytes(ended["output"]), what)

    async def _signalled(self, step_input: StepInput, awaiting: Awaiting, raw: bytes) -> Result | Step:
        node, execution = step_input.node, step_input.lease.execution
        receive = self.types.get(node.type).receive
        what = f"the output of node '{node.id}'"
        if receive is None:
            return await self.results.of_raw(execution, raw, what)
        try:
            received: Any = receive(node.parameters.raw, decode_value(raw))
        except Unacceptable as error:
            problem = useless_signal(error, node.id)
            self._log(execution, node.id, "warning", passed_over(error))
            return external_waits.wait_on(step_input, awaiting, problem)
        return await self.results.of(execution, received, what)


async def arrival_of(lease: Lease, ledger: Ledger, blobs: Blobs) -> bytes | None:
    """Return what has arrived for a parked token; None if its execution has ended and its rows are swept."""
    name = arrival_id(lease.token)
    found = (await ledger.outputs(lease.execution, [name])).get(name)
    if found is None or found[:1] != BLOB:
        return found[1:] if found is not None else None
    if is_light.get():
        raise Heavy
    return await blobs.get(lease.execution, found[1:].decode())


def useless_signal(error: Unacceptable, node: str) -> Failure:
    """Return the record of a signal that does not fit; its receiver keeps waiting."""
    return Failure(str(error), code="UNACCEPTABLE_SIGNAL", type="Unacceptable", node=node)


def passed_over(error: Unacceptable) -> str:
    return f"a signal could not be used and is skipped: {error}"


def _require_text(step_input: StepInput, what: str, name: Any) -> None:
    """Raise NodeError unless the name is text: custom node types may return anything."""
    if not isinstance(name, str) or not name:
        raise NodeError(
            f"node '{step_input.lease.node}' of type '{step_input.node.type}' must give {what} as text, not {name!r}",
            code="WRONG_NODE_TYPE",
            retryable=False,
        )


def _due(step_input: StepInput, timeout: float | None) -> float | None:
    """Return the time at which the wait times out: as the node requests, else by its ``timeout`` in the document."""
    limit = timeout if timeout is not None else step_input.node.timeout
    return step_input.now + limit if limit is not None else None
