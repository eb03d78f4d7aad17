"""RabbitBroker on a real RabbitMQ, over the ledger in memory: what is acknowledged when, and life without RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBroker,
    MemoryLedger,
    MemoryPublications,
    MemoryStore,
)
from dalsegno.adapters.rabbitmq import (
    RabbitBroker,
    RabbitPublisher,
    RabbitServer,
    make_broker,
    receiver,
    taking,
)
from dalsegno.adapters.rabbitmq import broker as broker_module
from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message, Outcome
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.tasks import RabbitTasks
from dalsegno.adapters.rabbitmq.topology import DEAD, EXECUTION, LADDER, NODE_STATUS
from dalsegno.errors import BadConfiguration, Unavailable
from dalsegno.model.ids import traceparent
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.messages import ForeignMessage, OutgoingMessage, Taken
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import RUN, new_execution, start, step, token
from tests import servers
from tests.waiting import come_about

PATIENCE = 20.0


@dataclass
class Rig:
    """One ledger, and as many processes with a broker as a test wants."""

    url: str
    stack: ContractStack
    brokers: list[RabbitBroker] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    tasks: list[asyncio.Task[list[Lease]]] = field(default_factory=list)

    async def process(self, options: str = "") -> RabbitBroker:
        bare: Any = ContractStack(
            self.stack.ledger,
            self.stack.clock,
            self.stack.archive,
            broker=MemoryBroker(self.stack.ledger),  # type: ignore[arg-type]
            publications=self.stack.publications,
        )
        broker = await make_broker(self.url + options, bare)
        self.brokers.append(broker)
        return broker

    async def spawn(self, broker: RabbitBroker, *names: str, **options: Any) -> None:
        """Start an execution with these tokens, and announce them."""
        [applied] = await self.stack.apply(start(RUN, *(token(name, **options) for name in names)))
        await broker.announce(applied.ready)

    async def channel(self) -> Channel:
        connection = await Connection.open(parse_address(self.url))
        self.connections.append(connection)
        channel = await connection.channel()
        await channel.confirm()
        return channel

    async def depth(self, queue: str = EXECUTION) -> int:
        """Messages that wait in a queue, not counting those that are delivered."""
        channel = await self.channel()
        count, _ = await channel.depth(queue)
        await channel.connection.close()
        return count

    async def get(self, queue: str) -> Message:
        channel, found = await self.channel(), list[Message]()

        async def look() -> bool:
            message = await channel.get(queue)
            if message is not None:
                found.append(message)
                channel.ack(message.tag)
            return message is not None

        await come_about(look, f"a message in {queue}", PATIENCE)
        return found[0]

    async def publish(
        self, body: bytes, properties: Properties | None = None, queue: str = EXECUTION
    ) -> Outcome:
        channel = await self.channel()
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        channel.publish("", queue, properties or Properties(message_id="m1"), body, done.set_result)
        return await asyncio.wait_for(done, PATIENCE)


@pytest.fixture
async def rig(rabbitmq_url: str) -> AsyncIterator[Rig]:
    clock, store = FakeClock(), MemoryStore()
    stack = ContractStack(
        MemoryLedger(clock, store),
        clock,
        MemoryArchive(store, clock),
        publications=MemoryPublications(store, clock),
    )
    made = Rig(rabbitmq_url, stack)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    for broker in made.brokers:
        await broker.close()
    for connection in made.connections:
        await connection.close()


async def take(broker: RabbitBroker, limit: int = 10, worker: str = "w1", *queues: str) -> list[Lease]:
    return await asyncio.wait_for(broker.take(worker, queues or ("default", "system"), limit), PATIENCE)


async def leased(broker: RabbitBroker, count: int) -> list[Lease]:
    """Take until there are so many."""
    found: list[Lease] = []
    while len(found) < count:
        found += await take(broker)
    return found


# -- announcing and acknowledging ---------------------------------------------------------------------------------


async def test_message_names_the_token_and_says_what_is_known_of_it(rig: Rig) -> None:
    broker = await rig.process()
    transition = start(RUN, token("a", priority=7))
    broker.committed(transition)
    [applied] = await rig.stack.apply(transition)
    await broker.announce(applied.ready)

    message = await rig.get(EXECUTION)

    properties = message.properties
    assert (properties.priority, properties.delivery_mode, properties.content_type) == (
        7,
        PERSISTENT,
        "application/json",
    )
    assert properties.headers == {"traceparent": traceparent(RUN)}
    said = json.loads(message.body)
    assert said["token_id"] == "a"
    assert said["execution_id"] == RUN
    assert {
        "workflow_id",
        "current_node",
        "workflow_definition",
        "accumulated_context",
        "attempt",
        "fence",
    } <= said.keys()
    assert "$ref" in said["workflow_definition"]


async def test_message_of_a_token_that_a_timer_has_woken_names_its_node(rig: Rig) -> None:
    broker = await rig.process()
    await rig.stack.apply(start(RUN, token("a", node="pause", due=rig.stack.clock.now() + 5)))
    rig.stack.clock.advance(5)
    await broker.announce((await rig.stack.ledger.wake()).ready)
    assert json.loads((await rig.get(EXECUTION)).body)["current_node"] == "pause"


async def test_process_that_has_not_seen_an_execution_names_its_workflow(rig: Rig) -> None:
    """A scheduler fires timers of executions that others have started."""
    run = new_execution(RUN)
    await rig.stack.archive.put_definition(run.workflow, run.definition, "graph", b"{}")
    await rig.stack.apply(start(run, token("a", node="pause", due=rig.stack.clock.now() + 5)))
    rig.stack.clock.advance(5)
    scheduler = await rig.process()
    await scheduler.announce((await rig.stack.ledger.wake()).ready)

    said = json.loads((await rig.get(EXECUTION)).body)

    assert said["workflow_id"] == run.workflow
    assert said["workflow_definition"]["$ref"] == run.definition
    assert said["workflow_definition"]["name"] == run.workflow


async def test_message_of_an_execution_that_is_not_stored_any_more_is_sent_all_the_same(rig: Rig) -> None:
    broker = await rig.process()
    await broker.announce([ReadyToken("a", "removed", "default", 0)])
    said = json.loads((await rig.get(EXECUTION)).body)
    assert (said["execution_id"], said["workflow_id"]) == ("removed", "unknown")


async def test_message_is_acknowledged_after_the_step_and_not_before(rig: Rig) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a")
    [lease] = await take(broker)
    await come_about(lambda: broker.sender.unconfirmed == 0, "confirmations")
    await broker.close()
    assert await rig.depth() == 1  # its process ended before the step did

    broker = await rig.process()
    await rig.stack.ledger.release("w1", [lease])
    [lease] = await take(broker)
    await rig.stack.apply(step(lease))
    broker.settled(lease)
    await broker.close()
    assert await rig.depth() == 0


async def test_acknowledgement_waits_until_what_was_made_ready_is_confirmed(
    rig: Rig, rabbitmq_server: servers.RabbitServer
) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a")
    [lease] = await take(broker)
    [applied] = await rig.stack.apply(step(lease, token("b")))
    rabbitmq_server.suspend()
    try:
        await broker.announce(applied.ready)
        broker.settled(lease)
        await asyncio.sleep(0.1)
        assert broker.receiver._unanswered == 1
    finally:
        rabbitmq_server.resume()
    await come_about(lambda: broker.receiver._unanswered == 0, "the acknowledgement")
    assert [lease.token for lease in await take(broker)] == ["b"]


async def test_messages_are_acknowledged_together_up_to_the_oldest_that_is_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a", "b", "c", "d")
    leases = {lease.token: lease for lease in await leased(broker, 4)}
    await come_about(lambda: broker.sender.unconfirmed == 0, "confirmations")
    acknowledged: list[tuple[int, bool]] = []
    ack = Channel.ack

    def noted(channel: Channel, tag: int, *, multiple: bool = False) -> None:
        acknowledged.append((tag, multiple))
        ack(channel, tag, multiple=multiple)

    monkeypatch.setattr(Channel, "ack", noted)
    for tokens in (["a", "b", "d"], ["c"]):
        for name in tokens:
            await rig.stack.apply(step(leases[name]))
        for name in tokens:
            broker.settled(leases[name])
        await asyncio.sleep(0)

    assert acknowledged == [(2, True), (4, False), (3, False)]
    await broker.close()
    assert await rig.depth() == 0


async def test_message_that_is_put_aside_is_not_acknowledged_with_later_ones(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "LARGE", 2_000)
    monkeypatch.setattr(receiver, "HELD_BYTES", 5_000)
    monkeypatch.setattr(receiver, "PAUSE", 0.3)
    broker = await rig.process()
    await rig.stack.apply(start(RUN, token("a"), token("b"), token("c")))
    for name, size in (("a", 3_000), ("b", 3_000), ("c", 10)):
        body = json.dumps({"execution_id": RUN, "token_id": name, "more": "x" * size}).encode()
        assert await rig.publish(body) == "confirmed"

    found = await leased(broker, 2)
    assert [lease.token for lease in found] == ["a", "c"]  # with b, too much would be held
    for lease in found:
        await rig.stack.apply(step(lease))
        broker.settled(lease)

    assert [lease.token for lease in await leased(broker, 1)] == ["b"]


async def test_worker_with_much_to_do_leases_together_what_comes_within_a_moment(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "LITTLE", 0)
    monkeypatch.setattr(taking, "GATHER_PER_MESSAGE", 1.0)
    monkeypatch.setattr(taking, "LONGEST_GATHER", 1.0)
    broker = await rig.process()
    await rig.spawn(broker, "a")
    [held] = await take(broker)
    next_ones = asyncio.create_task(take(broker))
    [applied] = await rig.stack.apply(step(held, token("b"), token("c")))
    for each in applied.ready:
        await broker.announce([each])
        await come_about(lambda: broker.sender.unconfirmed == 0, "confirmations")
    assert {lease.token for lease in await next_ones} == {"b", "c"}


async def test_node_that_runs_long_is_acknowledged_while_it_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "ACKNOWLEDGED_AFTER", 0.2)
    monkeypatch.setattr(broker_module, "LOOK_FOR_LONG", 0.1)
    broker = await rig.process()
    await rig.spawn(broker, "a")
    [lease] = await take(broker)
    await come_about(lambda: broker.receiver._unanswered == 0, "the acknowledgement")
    await rig.stack.apply(step(lease))
    broker.settled(lease)


async def test_message_of_a_consumed_token_announces_again_what_is_ready(rig: Rig) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a")
    [lease] = await take(broker)
    await rig.stack.apply(step(lease, token("b")))  # and its process dies before it announces
    await broker.close()

    other = await rig.process()

    assert [lease.token for lease in await take(other, 10, "w2")] == ["b"]
    assert await rig.depth() == 0


async def test_message_of_a_leased_token_is_dropped(rig: Rig) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a")
    await rig.stack.take("somebody")
    waiting = asyncio.create_task(broker.take("w1", ["default"], 10))
    await come_about(lambda: broker.duplicates == 1, "the message")
    await come_about(lambda: broker.receiver._unanswered == 0, "the acknowledgement")
    assert not waiting.done()
    waiting.cancel()
    assert await rig.depth() == 0


async def test_worker_receives_no_more_than_it_can_run(rig: Rig) -> None:
    busy, free = await rig.process(), await rig.process()
    await rig.spawn(busy, *(f"t{number}" for number in range(10)))
    first = await take(busy, 2)
    second = await take(free, 20, "w2")
    while len(second) < 8:
        second += await take(free, 20, "w2")
    assert len(first) == 2
    assert {lease.token for lease in (*first, *second)} == {f"t{number}" for number in range(10)}


async def test_messages_that_nobody_takes_go_back(rig: Rig) -> None:
    stopping, other = await rig.process(), await rig.process()
    waiting = asyncio.create_task(stopping.take("w1", ["default", "system"], 10))
    await come_about(lambda: stopping.receiver._consumers, "the consumer")
    waiting.cancel()
    await rig.spawn(other, "a")
    assert [lease.token for lease in await take(other, 10, "w2")] == ["a"]


async def test_higher_priority_goes_first(rig: Rig) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "low", priority=-3)
    [applied] = await rig.stack.apply(start("other", token("high", priority=1_000_000)))
    await broker.announce(applied.ready)
    await come_about(lambda: broker.sender.unconfirmed == 0, "confirmations")
    assert [lease.token for lease in await take(broker, 1)] == ["high"]


async def test_queues_of_users_have_queues_of_their_own(rig: Rig) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a", queue="gpu")
    assert await rig.depth(f"{EXECUTION}.q.gpu") == 1
    assert [lease.token for lease in await take(broker, 10, "w1", "gpu", "system")] == ["a"]
    assert await rig.depth() == 0


async def test_those_who_serve_different_queues_get_only_their_tokens(rig: Rig) -> None:
    """A worker, and beside it in its process those who claim for programs elsewhere."""
    broker = await rig.process()
    for _ in range(3):
        worker = asyncio.create_task(take(broker))
        others = [asyncio.create_task(take(broker, 1, f"r{queue}", queue)) for queue in ("gpu", "mail")]
        await come_about(lambda: len(broker.receiver.others) == 2, "their channels")
        for queue in ("gpu", "mail", "default"):
            [applied] = await rig.stack.apply(start(f"{queue}-{len(rig.tasks)}", token(queue, queue=queue)))
            await broker.announce(applied.ready)
        found = await asyncio.gather(worker, *others)
        assert [[lease.queue for lease in leases] for leases in found] == [["default"], ["gpu"], ["mail"]]
        for leases in found:
            await rig.stack.apply(step(leases[0]))
            broker.settled(leases[0])
        rig.tasks += [worker]
    await come_about(lambda: not any(each.unanswered for each in broker.receiver.others), "acknowledgements")


async def test_channels_that_nobody_uses_are_closed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "MOST_TAKINGS", 3)
    broker = await rig.process()
    for number in range(6):
        waiting = asyncio.create_task(broker.take("w1", [f"q{number}"], 1))
        await come_about(lambda: broker.receiver.is_ready, "the connection")
        waiting.cancel()
        await asyncio.wait([waiting])
    assert len(broker.receiver.others) < 3
    await rig.spawn(broker, "a", queue="q5")
    assert [lease.token for lease in await take(broker, 1, "w1", "q5")] == ["a"]


async def test_queue_with_a_name_too_long_for_rabbitmq_is_served_from_the_ledger(rig: Rig) -> None:
    name = "q" * 250
    broker = await rig.process()
    waiting = asyncio.create_task(take(broker, 10, "w1", name))
    await asyncio.sleep(0)
    await rig.spawn(broker, "a", queue=name)
    assert [lease.token for lease in await waiting] == ["a"]


# -- RabbitMQ in trouble ------------------------------------------------------------------------------------------


async def test_lost_announcement_is_found_by_an_idle_worker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "IDLE_LOOK", 0.2)
    broker = await rig.process()
    await rig.stack.apply(start(RUN, token("a")))
    assert [lease.token for lease in await take(broker)] == ["a"]


async def test_all_that_an_outage_left_unannounced_is_claimed_in_turn_with_messages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait until a worker has nothing else to do; and what is announced is left to its messages."""
    broker = await rig.process()
    await rig.spawn(broker, "first")
    assert [lease.token for lease in await take(broker)] == ["first"]
    with monkeypatch.context() as outage:
        outage.setattr(broker.sender, "may_send", lambda: False)
        [applied] = await rig.stack.apply(start("lost", *(token(f"lost{number:02}") for number in range(30))))
        await broker.announce(applied.ready)
    cast(FakeClock, rig.stack.clock).advance(1)
    [applied] = await rig.stack.apply(start("sent", *(token(f"sent{number:02}") for number in range(30))))
    await broker.announce(applied.ready)
    await come_about(lambda: broker.receiver.waiting, "a message is delivered")

    kinds: list[str] = []
    claims = rig.stack.ledger.claim
    count = 0

    async def counted(*given: Any) -> list[Lease]:
        nonlocal count
        count += 1
        return await claims(*given)

    monkeypatch.setattr(rig.stack.ledger, "claim", counted)
    async with asyncio.timeout(taking.IDLE_LOOK):
        while len(kinds) < 60:
            kinds += [lease.token[:4] for lease in await take(broker, 5)]
    assert "sent" in kinds[:20]
    assert "lost" in kinds[:20]
    assert count <= 8


async def test_deleted_queue_is_declared_again_and_the_message_sent_again(rig: Rig) -> None:
    broker = await rig.process()
    channel = await rig.channel()
    await channel.call(frames.QUEUE_DELETE, queue=EXECUTION)
    await rig.spawn(broker, "a")
    await come_about(lambda: broker.sender.unconfirmed == 0, "the confirmation")
    assert await rig.depth() == 1
    assert broker.sender.failed == 0


async def test_worker_goes_on_when_its_queue_is_deleted(rig: Rig) -> None:
    broker = await rig.process()
    waiting = asyncio.create_task(take(broker))
    await come_about(lambda: broker.receiver._consumers, "the consumer")
    await (await rig.channel()).call(frames.QUEUE_DELETE, queue=EXECUTION)
    await come_about(
        lambda: broker.receiver.link.connections == 2 and broker.receiver.is_ready, "the connection"
    )
    await rig.spawn(broker, "a")
    assert [lease.token for lease in await waiting] == ["a"]


async def published(publisher: RabbitPublisher, *messages: OutgoingMessage) -> int:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    publisher.publish(messages, answer.set_result)
    return await answer


async def _publish_until_blocked(broker: RabbitBroker) -> None:
    """The broker blocks a connection when it publishes during an alarm."""
    publisher = RabbitPublisher(broker.sender)
    while broker.sender.may_send():
        await published(publisher, OutgoingMessage("status", "0", b"{}"))


async def test_under_an_alarm_work_is_claimed_from_the_ledger(
    rig: Rig, rabbitmq_server: servers.RabbitServer
) -> None:
    broker = await rig.process()
    waiting = asyncio.create_task(take(broker))
    await come_about(lambda: broker.receiver._consumers, "the consumer")
    rabbitmq_server.raise_memory_alarm()
    try:
        await rig.spawn(broker, "a")  # this may block the connection: the token is found all the same
        [lease] = await waiting
        assert lease.token == "a"
        asking = asyncio.create_task(_publish_until_blocked(broker))
        await come_about(lambda: "memory" in broker.sender.problem(), "the alarm")
        await asking
        [applied] = await rig.stack.apply(step(lease, token("b")))
        await broker.announce(applied.ready)
        broker.settled(lease)
        assert [lease.token for lease in await take(broker)] == ["b"]
        assert await published(RabbitPublisher(broker.sender), OutgoingMessage("status", "1", b"{}")) == 0
    finally:
        rabbitmq_server.clear_memory_alarm()
    await come_about(broker.sender.may_send, "the end of the alarm")


async def test_killed_rabbitmq_is_done_without_and_found_again(
    rig: Rig, rabbitmq_server: servers.RabbitServer
) -> None:
    broker = await rig.process()
    ready: list[bool] = []
    RabbitPublisher(broker.sender).on_ready(lambda: ready.append(True))
    await rig.spawn(broker, "a")
    [lease] = await take(broker)
    waiting = asyncio.create_task(take(broker))
    rabbitmq_server.kill()
    await come_about(lambda: not broker.sender.may_send(), "the loss")
    assert "lost" in broker.sender.problem() or "cannot be reached" in broker.sender.problem()
    [applied] = await rig.stack.apply(step(lease, token("b")))
    await broker.announce(applied.ready)
    broker.settled(lease)
    assert [lease.token for lease in await waiting] == ["b"]

    rabbitmq_server.start()

    await come_about(lambda: broker.sender.may_send() and broker.receiver.is_ready, "the connections")
    assert ready
    [applied] = await rig.stack.apply(start("second", token("c")))
    await broker.announce(applied.ready)
    assert "c" in [lease.token for lease in await take(broker)]
    assert await broker.sender.topology.missing(await _connection(rig)) == []


async def test_messages_that_wait_while_nothing_can_be_sent_do_not_stop_the_event_loop(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await rig.process()
    await rig.spawn(broker, "a")
    waiting = asyncio.create_task(broker.take("w1", ["default"], 1))
    await come_about(lambda: broker.receiver._consumers, "the consumer")
    [lease] = await waiting
    broker.receiver.waiting.append(broker._held[lease.token].message)
    monkeypatch.setattr(broker.sender, "may_send", lambda: False)
    blocked = asyncio.create_task(broker.take("w1", ["default"], 1))
    await asyncio.sleep(0.05)  # never returns if the task does not let go
    assert not blocked.done()
    blocked.cancel()
    broker.receiver.waiting.clear()


async def _connection(rig: Rig) -> Any:
    return (await rig.channel()).connection


async def test_broker_that_is_away_at_the_start_is_no_error_but_a_wrong_password_is(rig: Rig) -> None:
    away = Rig("amqp://guest:secret-word@127.0.0.1:1", rig.stack)
    broker = await away.process()
    try:
        waiting = asyncio.create_task(take(broker))
        await rig.spawn(broker, "a")
        assert [lease.token for lease in await waiting] == ["a"]
        assert "secret-word" not in broker.sender.problem()
    finally:
        await broker.close()
    wrong = Rig(rig.url.replace("guest:guest", "guest:secret-word"), rig.stack)
    with pytest.raises(BadConfiguration, match="ACCESS_REFUSED") as raised:
        await wrong.process()
    assert "secret-word" not in str(raised.value)


# -- other programs -----------------------------------------------------------------------------------------------


class Desk:
    """An intake that answers as a test wants."""

    def __init__(self, answer: Callable[[ForeignMessage], Taken]) -> None:
        self.answer = answer
        self.seen: list[ForeignMessage] = []

    async def take(self, message: ForeignMessage) -> Taken:
        self.seen.append(message)
        return self.answer(message)


async def receiving(rig: Rig, answer: Callable[[ForeignMessage], Taken]) -> tuple[RabbitBroker, Desk]:
    broker, desk = await rig.process(), Desk(answer)
    broker.foreign.start(desk)
    task = asyncio.create_task(broker.take("w1", ["default", "system"], 10))
    rig.tasks.append(task)
    return broker, desk


async def test_foreign_message_is_taken_in_and_acknowledged(rig: Rig) -> None:
    broker, desk = await receiving(rig, lambda message: Taken("applied", "x"))
    await rig.publish(
        b'{"execution_id": "x"}', Properties(message_id="id-1", headers={"traceparent": "00-1"})
    )
    await come_about(lambda: broker.foreign.taken == 1, "the message")
    await come_about(lambda: broker.receiver._unanswered == 0, "the acknowledgement")
    assert desk.seen == [ForeignMessage(b'{"execution_id": "x"}', EXECUTION, "id-1", {"traceparent": "00-1"})]
    assert await rig.depth() == 0


async def test_refused_message_is_a_dead_letter_byte_for_byte(rig: Rig) -> None:
    await receiving(rig, lambda message: Taken("refused", "", "no node of that name", "UNKNOWN_NODE"))
    sent = Properties(
        message_id="id-1", user_id="guest", priority=3, correlation_id="c", headers={"mine": [1, {"a": "b"}]}
    )
    await rig.publish(b"\xff\x00 no JSON", sent)
    dead = await rig.get(DEAD)
    assert dead.body == b"\xff\x00 no JSON"
    properties = dead.properties
    headers = dict(properties.headers or {})
    assert (properties.message_id, properties.priority, properties.correlation_id) == ("id-1", 3, "c")
    assert headers.pop("x-dalsegno-reason") == "no node of that name"
    assert headers.pop("x-dalsegno-code") == "UNKNOWN_NODE"
    assert headers.pop("x-dalsegno-user-id") == "guest"
    assert headers.pop("x-dalsegno-at")
    assert headers == {"mine": [1, {"a": "b"}]}
    assert await rig.depth() == 0


async def test_message_over_ten_mebibytes_is_refused_with_a_reason(rig: Rig) -> None:
    _, desk = await receiving(rig, lambda message: Taken("refused", "", "it is too large", "TOO_LARGE"))
    body = b"x" * (11 * 1024 * 1024)
    await rig.publish(body)
    dead = await rig.get(DEAD)
    assert dead.body == body
    assert (dead.properties.headers or {})["x-dalsegno-code"] == "TOO_LARGE"
    assert [len(message.body) for message in desk.seen] == [len(body)]


async def test_message_larger_than_all_that_may_be_held_is_never_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "HELD_BYTES", 1_000_000)
    _, desk = await receiving(rig, lambda message: Taken("applied"))
    body = b"x" * 1_000_001
    await rig.publish(body)
    dead = await rig.get(DEAD)
    assert dead.body == body
    assert (dead.properties.headers or {})["x-death"][0]["reason"] == "rejected"
    assert desk.seen == []


async def test_fault_of_the_system_climbs_the_ladder_and_then_it_is_dead(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(message: ForeignMessage) -> Taken:
        raise RuntimeError("no luck")

    broker, _ = await receiving(rig, fail)
    properties = Properties(message_id="id-1")
    for number, (queue, _) in enumerate(LADDER):
        await rig.publish(b"{}", properties)
        waiting = await rig.get(queue)
        properties = waiting.properties
        assert (properties.headers or {})["x-dalsegno-tries"] == number + 1
    await rig.publish(b"{}", properties)
    dead = await rig.get(DEAD)
    assert "no luck" in (dead.properties.headers or {})["x-dalsegno-reason"]
    assert broker.foreign.retried == 3


async def test_while_the_store_is_away_a_message_goes_back(rig: Rig) -> None:
    answers: list[Taken | Exception] = [Unavailable("no store"), Taken("applied")]

    def answer(message: ForeignMessage) -> Taken:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    broker, desk = await receiving(rig, answer)
    await rig.publish(b"{}")
    await come_about(lambda: broker.foreign.taken == 1, "the second try")
    assert len(desk.seen) == 2
    await come_about(lambda: broker.receiver._unanswered == 0, "the acknowledgement")
    assert await rig.depth(DEAD) == await rig.depth(LADDER[0][0]) == 0


# -- statuses, and the server as people see it --------------------------------------------------------------------


async def test_statuses_are_published_in_order_and_counted(rig: Rig) -> None:
    broker = await rig.process()
    publisher = RabbitPublisher(broker.sender)
    messages = [
        OutgoingMessage("status", f"e:{n}:running", b"%d" % n, 12, "00-ab-cd-01" * (n % 2)) for n in range(20)
    ]
    assert publisher.ready()
    assert await published(publisher, *messages) == 20
    assert await published(publisher, OutgoingMessage("completion", "e:21:completed", b"{}")) == 1
    for number, headers in ((0, None), (1, {"traceparent": "00-ab-cd-01"})):
        message = await rig.get(NODE_STATUS)
        assert message.body == b"%d" % number
        assert message.properties == Properties(
            content_type="application/json",
            headers=headers,
            delivery_mode=PERSISTENT,
            priority=10,
            message_id=f"e:{number}:running",
        )
    assert await rig.depth("workflow.completion") == 1


async def test_doctor_and_metrics_see_the_queues(rig: Rig) -> None:
    broker = await rig.process()
    seen = RabbitServer(broker, RabbitTasks(broker.sender.link.address, broker.sender.topology))
    assert (seen.connected(), seen.problem(), await seen.examine()) == (True, "", [])
    assert "guest:guest" not in seen.url
    await rig.spawn(broker, "a")
    await rig.publish(b"{}", queue=DEAD)
    await come_about(lambda: broker.sender.unconfirmed == 0, "confirmations")
    rig.stack.clock.advance(7)
    await rig.stack.apply(start("later", token("b")))
    measured = await seen.measure()
    assert (measured.figures["confirmed"], measured.unconfirmed) == (1, 0)
    found = {each.place: (each.kind, each.messages) for each in measured.backlogs}
    assert found.pop(EXECUTION) == ("messages", 1)
    assert found.pop(DEAD) == ("dead", 1)
    assert {kind for kind, _ in found.values()} == {"statuses", "completions", "results", "retries"}
    assert {messages for _, messages in found.values()} == {0}
    waiting = {each.place: each.waiting for each in measured.backlogs if each.waiting != 0}
    assert waiting == {EXECUTION: 7, DEAD: None}  # of dead letters nobody knows it
    await (await rig.channel()).call(frames.QUEUE_DELETE, queue=LADDER[0][0])
    assert await seen.examine() == [
        f"the queue '{LADDER[0][0]}' is missing",
        "1 dead letters wait: dalsegno dead ls",
    ]


async def test_messages_of_others_are_held_within_bounds(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "MOST_FOREIGN", 5)
    monkeypatch.setattr(receiver, "HELD_BYTES", 1_000_000)
    monkeypatch.setattr(receiver, "PAUSE", 0.1)
    free = asyncio.Event()

    class SlowDesk(Desk):
        async def take(self, message: ForeignMessage) -> Taken:
            self.seen.append(message)
            await free.wait()
            return Taken("applied")

    broker, desk = await rig.process(), SlowDesk(lambda message: Taken("applied"))
    broker.foreign.start(desk)
    for number in range(60):
        await rig.publish(b"{}" if number % 2 else b" " * 300_000, Properties(message_id=str(number)))
    rig.tasks.append(asyncio.create_task(broker.take("w1", ["default", "system"], 10)))
    await come_about(lambda: len(desk.seen) >= 5, "the first messages")
    await come_about(lambda: broker.receiver.delivered >= 12, "more messages")
    for _ in range(5):
        await broker.receiver.link.connection.channel()  # type: ignore[union-attr]  # what was on its way is here
    assert len(desk.seen) <= 5 + 2 * 10
    assert sum(len(message.body) for message in desk.seen) <= 1_000_000 + 60
    free.set()
    await come_about(lambda: broker.foreign.taken == 60, "all are taken in the end")
