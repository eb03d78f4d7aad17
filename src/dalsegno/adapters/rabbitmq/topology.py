"""The exchanges and queues of this project on RabbitMQ: what they are, and how an existing one differs.

Every process declares all of them when it connects, so the order of starts does not matter. A queue that exists with
other arguments is left alone: RabbitMQ cannot change them, and deleting it would delete what lies in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from dalsegno.adapters.rabbitmq.amqp.channel import Channel
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import (
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelClosed,
    ConnectionLost,
)
from dalsegno.adapters.rabbitmq.amqp.fields import LONGEST_SHORT_STRING
from dalsegno.errors import BadConfiguration
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE

EXCHANGE = "workflows"
DEAD_LETTER_EXCHANGE = "workflow.execution.dlx"
EXECUTION = "workflow.execution"
NODE_STATUS = "workflow.node.status"
COMPLETION = "workflow.completion"
DEAD = "workflow.execution.dead"
LADDER = (
    ("workflow.execution.retry.5s", 5_000),
    ("workflow.execution.retry.25s", 25_000),
    ("workflow.execution.retry.125s", 125_000),
)
TIMEOUT = "workflow.timeout"
TIMEOUT_PROCESS = "workflow.timeout.process"
HIGHEST_PRIORITY = 10
HOUR = 3_600_000
DAY = 24 * HOUR
MOST_DIFFERENCES = 20

_DIFFERENCE = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for (?:queue|exchange) '.*': "
    r"received (?P<received>.+?) but current is (?P<current>.+)",
    re.DOTALL,
)
_VALUE = re.compile(r"(?:the value )?'(?P<value>.*?)'(?: of type '(?P<type>\w+)')?")


class Queue(Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    durable: bool = True


class Difference(Struct, frozen=True):
    """An argument of an existing queue that is not as it is declared here."""

    queue: str
    argument: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.argument} of the queue '{self.queue}' is {self.found} instead of {self.wanted}"


class TopologyDiffers(BadConfiguration):
    def __init__(self, differences: Sequence[Difference], vhost: str) -> None:
        self.differences = tuple(differences)
        queues = list(dict.fromkeys(each.queue for each in differences))
        commands = "; ".join(f"rabbitmqctl delete_queue -p {vhost} '{queue}' --if-empty" for queue in queues)
        super().__init__(
            "RabbitMQ has queues with other arguments, which cannot be changed: "
            + ", ".join(map(str, differences))
            + f". Delete them when they are empty ({commands}), or use another vhost; until then work is found in "
            "the store"
        )


def execution_queue(queue: str) -> Queue:
    """Return the queue of RabbitMQ through which the tokens of a queue travel."""
    arguments = {
        "x-message-ttl": DAY,
        "x-max-priority": HIGHEST_PRIORITY,
        "x-dead-letter-exchange": DEAD_LETTER_EXCHANGE,
    }
    return Queue(execution_queue_name(queue), arguments)


def execution_queue_name(queue: str) -> str:
    return EXECUTION if queue in {DEFAULT_QUEUE, SYSTEM_QUEUE} else f"{EXECUTION}.q.{queue}"


def fits(queue: str) -> bool:
    """Return False for a name that RabbitMQ cannot hold: its tokens are found in the ledger only."""
    return len(execution_queue_name(queue).encode("utf-8", "surrogateescape")) <= LONGEST_SHORT_STRING


def fixed_queues() -> list[Queue]:
    """Return all queues but those of the queues with names of users."""
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": EXECUTION}
    fired = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": TIMEOUT_PROCESS}
    return [
        execution_queue(DEFAULT_QUEUE),
        Queue(NODE_STATUS, {"x-message-ttl": HOUR, "x-max-priority": HIGHEST_PRIORITY}, durable=False),
        Queue(COMPLETION, {"x-message-ttl": 7 * DAY, "x-max-priority": HIGHEST_PRIORITY}),
        *(Queue(name, {"x-message-ttl": milliseconds, **back}) for name, milliseconds in LADDER),
        Queue(DEAD),
        Queue(TIMEOUT, fired),
        Queue(TIMEOUT_PROCESS, {"x-message-ttl": DAY}),
    ]


class Topology:
    """Declares everything on a connection, and remembers what the broker made different."""

    def __init__(self) -> None:
        self.status_is_durable = ""
        """Why the queue of statuses is durable, as a sentence; empty if it is not."""
        self._queues: dict[str, Queue] = {}
        """Queues with names of users, which this process announces to or serves."""

    def queues(self) -> list[Queue]:
        return [self._as_accepted(each) for each in (*fixed_queues(), *self._queues.values())]

    def execution_queues(self) -> list[str]:
        """Return the names of those queues on RabbitMQ."""
        return [queue.name for queue in self._queues.values()]

    def knows(self, queue: str) -> bool:
        return execution_queue_name(queue) == EXECUTION or queue in self._queues

    async def declare(self, connection: Connection) -> None:
        """Declare everything. Raise `TopologyDiffers` with every difference if a queue exists otherwise."""
        channel = await connection.channel()
        try:
            await channel.declare_exchange(EXCHANGE, "topic")
            await channel.declare_exchange(DEAD_LETTER_EXCHANGE, "fanout")
            for queue in self.queues():
                await self._declare(channel, queue)
            await channel.bind(DEAD, DEAD_LETTER_EXCHANGE, "")
        except (ChannelClosed, ConnectionLost) as error:
            if not self._makes_status_durable(error):
                raise await self._explained(connection, error) from None
        else:
            await channel.close()
            return
        if connection.lost is None:
            await self.declare(connection)
        else:
            raise ConnectionLost("the queue of statuses is declared again, as a durable one")

    async def declare_execution_queues(self, channel: Channel, queues: Iterable[str]) -> None:
        for name in queues:
            queue = execution_queue(name)
            await self._declare(channel, queue)
            if queue.name != EXECUTION:
                self._queues[name] = queue

    async def _declare(self, channel: Channel, queue: Queue) -> None:
        await channel.declare_queue(queue.name, durable=queue.durable, arguments=queue.arguments)
        await channel.bind(queue.name, EXCHANGE, queue.name)

    def _as_accepted(self, queue: Queue) -> Queue:
        if queue.name == NODE_STATUS and self.status_is_durable:
            return Queue(queue.name, queue.arguments, durable=True)
        return queue

    def _makes_status_durable(self, error: ChannelClosed | ConnectionLost) -> bool:
        """Return True if a broker refused only that the queue of statuses is not durable: it is declared so then."""
        text = str(error)
        if self.status_is_durable:
            return False
        if "transient_nonexcl_queues" in text:
            self.status_is_durable = (
                f"the queue '{NODE_STATUS}' is durable: this RabbitMQ refuses shared queues that are not"
            )
        elif f"inequivalent arg 'durable' for queue '{NODE_STATUS}'" in text:
            self.status_is_durable = f"the queue '{NODE_STATUS}' is durable: it was declared so before"
        return bool(self.status_is_durable)

    async def _explained(
        self, connection: Connection, error: ChannelClosed | ConnectionLost
    ) -> BadConfiguration | ChannelClosed | ConnectionLost:
        if not isinstance(error, ChannelClosed) or error.reply_code != PRECONDITION_FAILED:
            return error
        if found := await self.differences(connection):
            return TopologyDiffers(found, connection.address.vhost)
        return BadConfiguration(f"RabbitMQ refuses the declaration: {error.reply_text}")

    async def differences(self, connection: Connection) -> list[Difference]:
        """Return every argument that differs, of all queues that exist."""
        found: list[Difference] = []
        for queue in self.queues():
            if await exists(connection, queue.name):
                found += await _differences(connection, queue)
        return found

    async def missing(self, connection: Connection) -> list[str]:
        return [queue.name for queue in self.queues() if not await exists(connection, queue.name)]


async def exists(connection: Connection, queue: str) -> bool:
    channel = await connection.channel()
    try:
        await channel.depth(queue)
    except ChannelClosed as error:
        if error.reply_code == NOT_FOUND:
            return False
        raise
    await channel.close()
    return True


async def _differences(connection: Connection, queue: Queue) -> list[Difference]:
    """Return the differences of one queue. The broker names one at a time, so what it names is declared next."""
    found: list[Difference] = []
    arguments, durable = dict(queue.arguments), queue.durable
    for _ in range(MOST_DIFFERENCES):
        channel = await connection.channel()
        try:
            await channel.declare_queue(queue.name, durable=durable, arguments=arguments)
        except ChannelClosed as error:
            match = _DIFFERENCE.search(error.reply_text)
            if match is None:
                found.append(
                    Difference(queue.name, "a property", "as declared here", f"another ({error.reply_text})")
                )
                return found
        else:
            await channel.close()
            return found
        name, current = match["name"], _value(match["current"])
        wanted = queue.durable if name == "durable" else queue.arguments.get(name)
        found.append(Difference(queue.name, name, _shown(wanted), _shown(current)))
        if name == "durable":
            durable = not durable
        elif not name.startswith("x-"):
            return found  # exclusive or auto-delete: such a queue belongs to another program
        elif current is None:
            arguments.pop(name, None)
        else:
            arguments[name] = current
    return found


def _value(text: str) -> Any:
    match = _VALUE.match(text)
    if match is None:
        return None
    value, kind = match["value"], match["type"]
    if kind == "longstr":
        return value
    if value in {"true", "false"}:
        return value == "true"
    return int(value) if re.fullmatch(r"-?\d+", value) else value


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else repr(value)
