"""Tasks for workers of other programs on RabbitMQ.

- ``tasks.<queue>`` holds the copies: durable, max priority 10. Results arrive in ``workflow.results``. One is
  acknowledged after its step is committed.
- RabbitMQ gives the message of a worker whose connection is gone to the next one, marked as redelivered. That worker
  does not run it but reports the loss, with the code ``WORKER_LOST``. While a queue has no consumer, what came back is
  found here, by the same mark.
- What is in a queue cannot be listed. That RabbitMQ has lost everything shows by a queue of ours that is gone with the
  rest.
- Tokens of these queues are announced through ``workflow.execution.q.<queue>``, as all are. Its messages are read here
  as hints.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from dalsegno.adapters.rabbitmq.amqp.address import Address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message, Outcome
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import NOT_FOUND, ChannelClosed, ConnectionLost
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.announcements import token_of
from dalsegno.adapters.rabbitmq.foreign_messages import AT, CODE, LONGEST_REASON, OUR_HEADERS, REASON
from dalsegno.adapters.rabbitmq.link import Link
from dalsegno.adapters.rabbitmq.topology import (
    DEAD,
    EXCHANGE,
    EXECUTION,
    HIGHEST_PRIORITY,
    Topology,
    execution_queue_name,
    exists,
)
from dalsegno.errors import DalSegnoError
from dalsegno.ports.task_transport import (
    ForeignResult,
    ForeignWorker,
    QueueReport,
    Settle,
    Settlement,
    TaskCopy,
)

logger = logging.getLogger("dalsegno.rabbitmq")

RESULTS = "workflow.results"
MARKER = "workflow.results.marker"
"""An empty queue of ours: without it, everything that was handed out is gone."""
ARGUMENTS = {"x-max-priority": HIGHEST_PRIORITY}
AT_ONCE = 100
"""Results that are settled concurrently."""
CONFIRM_SECONDS = 5.0
PAUSE = 1.0
DRAIN_LOOK = 0.1
MOST_READ = 1000
"""Copies that are read to find those that came back."""
READ_EVERY = 5.0
MOST_WITHDRAWN = 10_000


def queue_of_tasks(queue: str) -> str:
    return f"tasks.{queue}"


class RabbitTasks:
    """The port of task transports."""

    name = "RabbitMQ"
    lists_copies = False
    brings_announcements = True

    def __init__(self, address: Address, topology: Topology) -> None:
        self.link = self._new_link(address)
        self._address = address
        self._topology = topology
        self._channel: Channel | None = None
        self._settle: Settle | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._draining: asyncio.Task[None] | None = None
        self._drained = False
        self._declared: set[str] = set()
        self._heard: dict[str, asyncio.Event] = {}
        """The queues whose announcements are read, and whether there was one."""
        self._consumed: set[str] = set()
        self._changing = asyncio.Lock()
        self._emptied: set[str] | None = None
        """After RabbitMQ was found empty: the queues that were reported so."""
        self._deleted: set[str] = set()
        """Queues that were found deleted and not reported so yet."""
        self._had_consumers: set[str] = set()
        """Queues that had a consumer since their messages were last looked through."""
        self._read_at: dict[str, float] = {}
        self._withdrawn: dict[str, None] = {}
        self._came_back: dict[str, dict[tuple[str, int], Message]] = {}
        """By queue: copies of workers that are gone. Each is acknowledged when it is withdrawn, after the loss is
        committed: a leader that dies before leaves it to the next one."""

    def _new_link(self, address: Address) -> Link:
        return Link(address, "tasks", self._set_up)

    async def _set_up(self, connection: Connection) -> None:
        """Declare the queues, and receive results and announcements."""
        self._declared.clear()
        self._consumed.clear()
        self._came_back.clear()
        self._drained = False
        if not await exists(connection, MARKER):
            self._emptied = set()
        channel = await connection.channel()
        await channel.confirm()
        await channel.declare_queue(MARKER)
        await channel.declare_exchange(EXCHANGE, "topic")
        await channel.declare_queue(RESULTS)
        await channel.bind(RESULTS, EXCHANGE, RESULTS)
        channel.on_closed = self._closed
        channel.on_cancelled = self._cancelled
        channel.prefetch(AT_ONCE)
        self._channel = channel
        await channel.consume(RESULTS, RESULTS, lambda message: self._received(channel, message))
        for queue in self._heard:
            await self._listen(channel, queue)

    def _closed(self, error: ChannelClosed | ConnectionLost) -> None:
        connection = self.link.connection
        if isinstance(error, ChannelClosed) and connection is not None and connection.lost is None:
            connection.abort(str(error), error.reply_code)

    def _cancelled(self, tag: str) -> None:
        """A queue that is read here was deleted: everything is declared again with the next connection."""
        if self.link.connection is not None:
            self.link.connection.abort(f"the queue '{tag}' was deleted")

    def _note_missing(self, queue: str, error: DalSegnoError) -> None:
        """Note that a queue was deleted, and with it what was handed out."""
        is_missing = isinstance(error, ChannelClosed) and error.reply_code == NOT_FOUND
        if is_missing and f"'{queue_of_tasks(queue)}'" in str(error):
            self._deleted.add(queue)

    @property
    def _usable(self) -> Channel | None:
        channel = self._channel
        return channel if self.link.is_ready and channel is not None and channel.closed is None else None

    # -- workers --------------------------------------------------------------------------------------------------

    async def workers(self, queues: Sequence[str]) -> Sequence[ForeignWorker] | None:
        channel = self._usable
        if channel is None:
            return None
        found: list[ForeignWorker] = []
        try:
            for queue in queues:
                await self._declare(channel, queue)
                _, consumers = await channel.depth(queue_of_tasks(queue))
                if consumers:
                    self._had_consumers.add(queue)
                found += [
                    ForeignWorker(f"{queue}-consumer-{number}", (queue,), 0, 0.0)
                    for number in range(1, consumers + 1)
                ]
        except DalSegnoError as error:
            for queue in queues:
                self._note_missing(queue, error)
            logger.warning("the workers of RabbitMQ cannot be counted: %s", error)
            return None
        return found

    def queues(self) -> list[str]:
        """Return the names of the queues of tasks that are in use here."""
        return [queue_of_tasks(queue) for queue in sorted(self._declared)]

    async def _declare(self, channel: Channel, queue: str) -> None:
        if queue not in self._declared:
            name = queue_of_tasks(queue)
            await channel.declare_queue(name, arguments=ARGUMENTS)
            await channel.bind(name, EXCHANGE, name)
            self._declared.add(queue)

    # -- handing out ----------------------------------------------------------------------------------------------

    async def announced(self, queue: str, seconds: float) -> None:
        heard = self._heard.setdefault(queue, asyncio.Event())
        channel = self._usable
        try:
            if channel is not None and queue not in self._consumed:
                await self._listen(channel, queue)
            async with asyncio.timeout(seconds if channel is not None else PAUSE):
                await heard.wait()
        except TimeoutError:
            return
        except DalSegnoError as error:
            logger.warning("announcements of queue '%s' cannot be read: %s", queue, error)
            await asyncio.sleep(PAUSE)
        finally:
            heard.clear()

    async def _listen(self, channel: Channel, queue: str) -> None:
        async with self._changing:
            if queue in self._consumed:
                return
            self._consumed.add(queue)
            await self._topology.declare_execution_queues(channel, [queue])
            name = execution_queue_name(queue)
            await channel.consume(name, name, lambda message: self._hint(channel, queue, message))

    def _hint(self, channel: Channel, queue: str, message: Message) -> None:
        """Note an announcement. A message of another program is sent on to where our workers read."""
        self._heard[queue].set()
        if token_of(message.body, message.delivery.routing_key) is not None:
            channel.ack(message.tag)
            return

        def sent(outcome: Outcome) -> None:
            if outcome == "confirmed":
                channel.ack(message.tag)
            else:
                channel.nack(message.tag)

        properties = replace(message.properties, user_id=None)
        channel.publish("", EXECUTION, properties, message.body, sent)

    async def hand_out(self, tasks: Sequence[TaskCopy]) -> Sequence[str]:
        channel = self._usable
        if channel is None or channel.connection.lost is not None:
            return ()
        try:
            for queue in {task.queue for task in tasks}:
                await self._declare(channel, queue)
        except DalSegnoError as error:
            logger.warning("tasks cannot be handed out over RabbitMQ: %s", error)
            return ()
        answers = [self._publish(channel, task) for task in tasks]
        await asyncio.wait(answers, timeout=CONFIRM_SECONDS)
        pairs = zip(tasks, answers, strict=True)
        return [task.id for task, answer in pairs if answer.done() and answer.result() == "confirmed"]

    def _publish(self, channel: Channel, task: TaskCopy) -> asyncio.Future[Outcome]:
        properties = Properties(
            content_type="application/json",
            headers={"traceparent": task.traceparent},
            delivery_mode=PERSISTENT,
            priority=min(max(task.priority, 0), HIGHEST_PRIORITY),
            message_id=_name(task.id, task.fence),
        )
        return self._send(channel, queue_of_tasks(task.queue), properties, task.body)

    def _send(
        self, channel: Channel, queue: str, properties: Properties, body: bytes
    ) -> asyncio.Future[Outcome]:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        channel.publish("", queue, properties, body, done)
        return answer

    async def withdraw(self, queue: str, copies: Sequence[tuple[str, int]]) -> None:
        """Remove copies that came back, and note the others: they are removed if they are met while the queue has no
        consumer.
        """
        came_back, channel = self._came_back.get(queue, {}), self._usable
        for copy in copies:
            message = came_back.pop(copy, None)
            if message is None:
                self._withdrawn[_name(*copy)] = None
            elif channel is not None:
                channel.ack(message.tag)
        while len(self._withdrawn) > MOST_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]

    # -- what became of the copies --------------------------------------------------------------------------------

    async def report(self, queue: str) -> QueueReport | None:
        channel = self._usable
        if channel is None:
            return None
        try:
            await self._declare(channel, queue)
            messages, consumers = await channel.depth(queue_of_tasks(queue))
            await self._look_for_returned(channel, queue, messages, consumers)
        except DalSegnoError as error:
            self._note_missing(queue, error)
            logger.warning("the queue 'tasks.%s' cannot be read: %s", queue, error)
            return None
        emptied = queue in self._deleted or (self._emptied is not None and queue not in self._emptied)
        self._deleted.discard(queue)
        if self._emptied is not None:
            self._emptied.add(queue)
        return QueueReport(None, list(self._came_back.get(queue, ())), emptied)

    async def _look_for_returned(self, channel: Channel, queue: str, messages: int, consumers: int) -> None:
        """Take the copies that came back from connections that are gone. Only read while there is no consumer, whom
        this would keep waiting.
        """
        if consumers:
            self._had_consumers.add(queue)
            return
        now = asyncio.get_running_loop().time()
        is_due = queue in self._had_consumers or now - self._read_at.get(queue, -READ_EVERY) >= READ_EVERY
        self._had_consumers.discard(queue)
        if not messages or not is_due:
            return
        self._read_at[queue] = now
        for _ in range(min(messages, MOST_READ)):
            message = await channel.get(queue_of_tasks(queue))
            if message is None:
                break
            name = message.properties.message_id or ""
            copy = _copy_of(message.body)
            if name in self._withdrawn or copy is None:
                self._withdrawn.pop(name, None)
            elif message.delivery.redelivered:
                self._came_back.setdefault(queue, {})[copy] = message
                continue
            else:  # giving it back would mark it as redelivered
                outcome = await self._send(channel, queue_of_tasks(queue), message.properties, message.body)
                if outcome != "confirmed":
                    return
            channel.ack(message.tag)

    # -- results --------------------------------------------------------------------------------------------------

    def start(self, settle: Settle) -> None:
        if self._settle is None:
            self._settle = settle
            self.link = self._new_link(self._address)
            self.link.start()
            self._draining = asyncio.get_running_loop().create_task(self._drain(), name="results in RabbitMQ")

    def is_drained(self) -> bool:
        return self._drained and self._usable is not None

    async def _drain(self) -> None:
        """Note when all results that were there have been settled."""
        while True:
            channel = self._usable
            if channel is not None and not self._drained:
                try:
                    messages, _ = await channel.depth(RESULTS)
                    self._drained = not messages and not self._settling
                except DalSegnoError as error:
                    logger.debug("the results in RabbitMQ cannot be counted: %s", error)
            await asyncio.sleep(DRAIN_LOOK if not self._drained else PAUSE)

    async def stop(self) -> None:
        self._settle = None
        tasks = [*self._settling, *([self._draining] if self._draining is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._drained = False
        await self.link.close()

    def _received(self, channel: Channel, message: Message) -> None:
        if self._settle is None:
            return  # stopping: RabbitMQ gives it to the next orchestrator
        task = asyncio.get_running_loop().create_task(self._take_in(channel, self._settle, message))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _take_in(self, channel: Channel, settle: Settle, message: Message) -> None:
        settlement = await settle(ForeignResult(message.body, RESULTS))
        if settlement.verdict == "unknown" and not await self._bury(channel, message, settlement):
            return  # the connection is gone: it is delivered again
        channel.ack(message.tag)

    async def _bury(self, channel: Channel, message: Message, settlement: Settlement) -> bool:
        given = message.properties.headers or {}
        headers = {key: value for key, value in given.items() if key not in OUR_HEADERS}
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        headers |= {REASON: settlement.reason[:LONGEST_REASON], CODE: settlement.code, AT: at}
        properties = replace(
            message.properties, headers=headers, user_id=None, expiration=None, delivery_mode=PERSISTENT
        )
        return await self._send(channel, DEAD, properties, message.body) == "confirmed"


class _Named(msgspec.Struct):
    id: str
    fence: int


def _copy_of(body: bytes) -> tuple[str, int] | None:
    try:
        named = msgspec.json.decode(body, type=_Named)
    except msgspec.MsgspecError:
        return None
    return named.id, named.fence


def _name(task: str, fence: int) -> str:
    return f"{task}/{fence}"
