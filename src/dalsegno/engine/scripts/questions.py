"""Questions of scripts to people: a task that is parked until a person has decided, like an approval node of a graph.
Lists, decisions, links and signals treat the parked token like a node's.
"""

from __future__ import annotations

from typing import Any

from dalsegno.core.graph.external_waits import for_program, signal_of
from dalsegno.core.graph.step_input import Awaiting
from dalsegno.core.scripts.tasks import TaskDone, await_decision, nothing
from dalsegno.core.scripts.token_bodies import TaskBody
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.core.values import decode_value, encode_value, refuse_size
from dalsegno.engine.scripts.task_inputs import TaskInputs
from dalsegno.engine.secrets.vault import NODE_PREFIX
from dalsegno.engine.steps.contexts import LogSink
from dalsegno.engine.steps.external_waits import arrival_of, passed_over, useless_signal
from dalsegno.engine.steps.values import Results
from dalsegno.lang.durations import duration_text
from dalsegno.lang.runtime.effects import APPROVAL, ErrorValue
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import AwaitSignal, NodeTypes, Unacceptable
from dalsegno.ports.records import Blobs


class Questions:
    def __init__(
        self,
        ledger: Ledger,
        blobs: Blobs,
        types: NodeTypes,
        results: Results,
        inputs: TaskInputs,
        log: LogSink,
    ) -> None:
        self.ledger = ledger
        self.blobs = blobs
        self.types = types
        self.results = results
        self.inputs = inputs
        self._log = log

    def ask(self, lease: Lease, body: TaskBody, asked: AwaitSignal, began: float) -> Transition:
        """Park the token until a decision or its timeout. It uses no slot meanwhile."""
        question = dict(asked.question or {})
        what = f"what '{lease.node}' asks"
        refuse_size(len(encode_value(question, what)), what, self.results.limits.value_bytes)
        now = self.ledger.now()
        due = now + asked.timeout if asked.timeout is not None else None
        return await_decision(lease, body, Awaiting(SIGNAL + asked.name, now, due, question), began, now)

    async def answered(
        self, lease: Lease, body: TaskBody, awaiting: Awaiting, began: float
    ) -> TaskDone | Transition:
        """Return the result of the question, or a transition that keeps waiting because what arrived was no valid
        decision.
        """
        if lease.reason != "arrival":
            return TaskDone(began, body.line, error=_too_late(awaiting))
        raw = await arrival_of(lease, self.ledger, self.blobs)
        if raw is None:
            return nothing(lease)  # the execution has ended and was swept
        receive = self.types.get(lease.node.removeprefix(NODE_PREFIX)).receive
        payload: Any = decode_value(raw)
        try:
            received = payload
            if receive is not None:
                received = receive(await self.inputs.value(lease.execution, body), payload)
        except Unacceptable as error:
            self._log(lease.execution, lease.node, "warning", passed_over(error))
            problem = useless_signal(error, lease.node)
            return await_decision(lease, body, awaiting, began, self.ledger.now(), problem)
        if lease.node == APPROVAL:
            received = for_program(received)
        result = await self.results.of(lease.execution, received, f"the output of '{lease.node}'")
        return TaskDone(began, body.line, result)


def _too_late(awaiting: Awaiting) -> ErrorValue:
    waited = max((awaiting.due or awaiting.since) - awaiting.since, 0.0)
    message = (awaiting.question or {}).get("message") or signal_of(awaiting)
    return ErrorValue("TimeoutError", f"no decision was made within {duration_text(waited)}: {message}")
