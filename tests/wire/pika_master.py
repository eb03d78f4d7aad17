"""A master that knows only WIRE: a plain pika client that sends execution messages and reads what comes back."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel

from dalsegno.core.wire.execution_message import message_schema
from dalsegno.graph.json_schema.shape import check_input

EXCHANGE = "workflows"
EXECUTION, DEAD = "workflow.execution", "workflow.execution.dead"
STATUS, COMPLETION = "workflow.node.status", "workflow.completion"
PATIENCE = 30.0
ENDS = ("success", "failed", "cancelled")


class Letter(NamedTuple):
    """A message that was received."""

    queue: str
    at: float
    properties: Any
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw)
        return found


class PikaMaster:
    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()
        self.statuses: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """By execution, in the order in which they came."""
        self.completions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.late: list[dict[str, Any]] = []
        """What came after its completion."""
        self.dead: list[Letter] = []
        self.letters: list[Letter] = []
        self.sent_at: dict[str, float] = {}
        """When the first message of an execution was sent."""
        self.announced: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """What workers are told, by execution: copies of all messages to them."""
        for queue in (STATUS, COMPLETION, DEAD):
            self.channel.basic_consume(queue, self._received, auto_ack=True)
        copies = self.channel.queue_declare("", exclusive=True).method.queue
        for key in (EXECUTION, f"{EXECUTION}.q.#"):
            self.channel.queue_bind(copies, EXCHANGE, key)
        self.channel.basic_consume(copies, self._announced, auto_ack=True)

    def close(self) -> None:
        self.connection.close()

    # -- sending ----------------------------------------------------------------------------------------------

    def send(self, body: dict[str, Any] | bytes, *, exchange: str = EXCHANGE, **properties: Any) -> None:
        if isinstance(body, dict):
            self.sent_at.setdefault(str(body.get("execution_id")), time.time())
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kept = pika.BasicProperties(delivery_mode=2, **properties)
        self.channel.basic_publish(exchange, EXECUTION, raw, kept, mandatory=True)

    # -- receiving --------------------------------------------------------------------------------------------

    def _received(self, channel: Any, method: Any, properties: Any, raw: bytes) -> None:
        letter = Letter(method.consumer_tag, time.time(), properties, raw)
        queue = method.routing_key if method.exchange == EXCHANGE else DEAD
        letter = letter._replace(queue=queue)
        self.letters.append(letter)
        if queue not in (STATUS, COMPLETION):
            self.dead.append(letter)
            return
        body = letter.body | {"id": properties.message_id}
        name = body["execution_id"]
        if self.completions[name]:
            self.late.append(body)
        (self.statuses if queue == STATUS else self.completions)[name].append(body)

    def _announced(self, channel: Any, method: Any, properties: Any, raw: bytes) -> None:
        self.letters.append(Letter(EXECUTION, time.time(), properties, raw))
        if b'"token_id"' in raw:
            body = json.loads(raw)
            self.announced[body["execution_id"]].append(body)

    def receive(self, seconds: float = 0.02) -> None:
        self.connection.process_data_events(time_limit=seconds)

    def until(self, what: str, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < end, f"never came true: {what}"
            self.receive()

    def completion(self, execution: str, patience: float = PATIENCE) -> dict[str, Any]:
        self.until(f"the completion of {execution}", lambda: self.completions[execution], patience)
        return self.completions[execution][0]

    def told(self, execution: str) -> list[tuple[str, str]]:
        return [(body["node_id"], body["status"]) for body in self.statuses[execution]]

    # -- what always holds ------------------------------------------------------------------------------------

    def problems(self, execution: str) -> list[str]:
        """Return what an execution that has ended breaks of the rules for every execution."""
        statuses, completions = self.statuses[execution], self.completions[execution]
        found = [f"{len(completions)} completions"] * (len(completions) != 1)
        found += [f"after the completion: {body}" for body in self.late if body["execution_id"] == execution]
        ids = [body["id"] for body in statuses]
        found += [f"{len(ids) - len(set(ids))} statuses twice"] * (len(ids) != len(set(ids)))
        for body in (*statuses, *completions):
            schema = message_schema("node-status" if "node_id" in body else "completion")
            found += [f"{each} in {body}" for each in check_input(schema, body)]
        return [*found, *_order(statuses), *self._ending(execution, statuses, completions[-1])]

    def _ending(self, execution: str, statuses: list[dict[str, Any]], done: dict[str, Any]) -> list[str]:
        found = []
        context = done["final_context"]
        if "$trigger" not in context:
            found.append("no $trigger")
        for body in statuses:
            if body["status"] == "success" and "lineage_stack" not in body:
                key = f"${body['node_id']}"
                if body["output"] is not None and context.get(key) != body["output"]:
                    found.append(f"{key} is not what its status says")
                if key not in context:
                    found.append(f"{key} is not in the final context")
        if any(body["executed_at"] > done["completed_at"] for body in statuses):
            found.append("a status is later than the completion")
        ended, told = _seconds(done["completed_at"]), done["total_duration_ms"] / 1000
        most = ended - self.sent_at.get(
            execution, ended - told
        )  # it begins after its first message was sent,
        least = ended - min((_seconds(body["executed_at"]) for body in statuses), default=ended)
        if not least - 0.05 <= told <= most + 0.05:  # and before its first node ran
            found.append(f"it says {told} s, and took between {least} and {most} s")
        if (done["error"] is None) != (done["status"] == "completed"):
            found.append(f"{done['status']} with the error {done['error']}")
        return found


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _order(statuses: list[dict[str, Any]]) -> list[str]:
    """``running`` comes before the end of each run, and each run ends once."""
    found = []
    running: dict[str, int] = defaultdict(int)
    ended: dict[str, int] = defaultdict(int)
    for body in statuses:
        run = f"{body['node_id']}{[frame['item_index'] for frame in body.get('lineage_stack', [])]}"
        if body["status"] == "running":
            running[run] += 1
        if body["status"] in ENDS:
            ended[run] += 1
            if body["status"] != "cancelled" and running[run] < ended[run]:
                found.append(f"{run} ended before it was running")
    return found + [f"{run} was running and never ended" for run in running if not ended[run]]
