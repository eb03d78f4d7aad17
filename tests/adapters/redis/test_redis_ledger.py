"""What is particular to Redis: scripts that the server forgot, wide batches, a server that dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.redis import RedisLedger, RedisStore
from dalsegno.adapters.redis.encoding import ENTRIES_PER_CALL
from dalsegno.adapters.redis.keys import Keys
from dalsegno.errors import StoreFull, Unavailable
from dalsegno.model.effect import StoreOutput
from dalsegno.model.transition import AlreadyApplied, Applied, Refused, Stale
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.build import RUN, arrive, barrier, event, start, step, token
from tests.servers.redis import RedisServer


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[RedisLedger]:
    ledger = RedisLedger(await RedisStore.open(redis_url, FakeClock()))
    yield ledger
    await ledger.close()


def test_a_partition_tags_every_name() -> None:
    keys = Keys("p7")

    names = (*keys.shared, keys.base("x"), keys.of("x", "state"), keys.ready)

    assert all("{p7}" in name for name in names)
    assert Keys().of("x", "state") == "exec:x:state"
    assert Keys().timers == "scheduler:timers"


async def test_two_partitions_of_one_server_do_not_meet(redis_url: str) -> None:
    first = RedisLedger(await RedisStore.open(redis_url, FakeClock(), partition="p1"))
    second = RedisLedger(await RedisStore.open(redis_url, FakeClock(), partition="p2"))
    await first.commit([start(RUN, token("a"))])

    assert await second.inspect(RUN) is None
    assert await second.claim("w1", ["default"], 9) == []
    assert len(await first.claim("w1", ["default"], 9)) == 1
    await first.close()
    await second.close()


async def test_scripts_that_the_server_forgot_are_loaded_again(ledger: RedisLedger) -> None:
    await ledger.store.client.script_flush()

    [outcome] = await ledger.commit([start(RUN, token("a"))])

    assert isinstance(outcome, Applied)
    assert len(await ledger.claim("w1", ["default"], 1)) == 1


async def test_a_batch_wider_than_one_call_is_applied_in_order(ledger: RedisLedger) -> None:
    names = [f"t{number:03}" for number in range(2 * ENTRIES_PER_CALL)]
    await ledger.commit([start(RUN, *map(token, names))])
    leases = {lease.token: lease for lease in await ledger.claim("w1", ["default"], len(names))}
    spec = barrier(expected=len(names))

    outcomes = await ledger.commit(
        [step(leases[name], arrive(spec, slot)) for slot, name in enumerate(names)]
    )

    ready = [[found.token for found in outcome.ready] for outcome in outcomes if isinstance(outcome, Applied)]
    assert ready == [[]] * (len(names) - 1) + [["join-merge"]]


async def test_a_script_that_fails_changes_nothing_and_harms_no_other(ledger: RedisLedger) -> None:
    await ledger.commit([start(RUN, token("a"), token("b"), token("c"))])
    leases = {lease.token: lease for lease in await ledger.claim("w1", ["default"], 9)}
    broken = step(leases["b"], token("b2", priority="high"), events=[event()])  # type: ignore[arg-type]

    outcomes = await ledger.commit([step(leases["a"]), broken, step(leases["c"])])

    assert [type(outcome) for outcome in outcomes] == [Applied, Refused, Applied]
    found = await ledger.inspect(RUN)
    assert found is not None
    assert [view.id for view in found.tokens] == ["b"]
    assert (found.execution.live, found.execution.seq) == (1, 1)


async def test_a_server_without_memory_refuses_the_whole_commit(private_redis: RedisServer) -> None:
    ledger = RedisLedger(await RedisStore.open(private_redis.url, FakeClock()))
    await ledger.commit([start(RUN, token("a"))])
    [lease] = await ledger.claim("w1", ["default"], 1)
    before = await ledger.inspect(RUN)
    await ledger.store.client.config_set("maxmemory", "1")

    with pytest.raises(StoreFull):
        await ledger.commit([step(lease, StoreOutput("o", b"1"), token("b"), events=[event()])])

    await ledger.store.client.config_set("maxmemory", "0")
    assert await ledger.inspect(RUN) == before
    assert await ledger.outputs(RUN, ["o"]) == {}
    await ledger.close()


async def test_arrivals_over_two_connections_at_once_are_each_counted_once(
    ledger: RedisLedger, redis_url: str
) -> None:
    width, spec = 40, barrier(expected=40)
    await ledger.commit([start(RUN, *(token(f"t{slot}") for slot in range(width)))])
    leases = {lease.token: lease for lease in await ledger.claim("w1", ["default"], 99)}
    other = RedisLedger(await RedisStore.open(redis_url, FakeClock()))

    outcomes = await asyncio.gather(
        *(
            (ledger, other)[slot % 2].commit([step(leases[f"t{slot}"], arrive(spec, slot))])
            for slot in range(width)
        )
    )

    assert all(isinstance(outcome, Applied) for [outcome] in outcomes)
    ready = [found.token for [outcome] in outcomes if isinstance(outcome, Applied) for found in outcome.ready]
    assert ready == ["join-merge"]
    assert [slot.slot for slot in await ledger.slots(RUN, spec.id)] == list(range(width))
    await other.close()


async def test_what_was_acknowledged_survives_kill_9(private_redis: RedisServer) -> None:
    ledger = RedisLedger(await RedisStore.open(private_redis.url, FakeClock()))
    await ledger.commit([start(RUN, token("t0"))])
    transition = None
    for number in range(5):
        [lease] = await ledger.claim("w1", ["default"], 1)
        output = StoreOutput(lease.token, b"%d" % number)
        transition = step(lease, output, token(f"t{number + 1}"), events=[event()])
        [outcome] = await ledger.commit([transition])
        assert isinstance(outcome, Applied)
        private_redis.kill()
        with pytest.raises(Unavailable):
            await ledger.commit([transition])
        private_redis.start()

    assert transition is not None
    assert await ledger.commit([transition]) == [AlreadyApplied()]
    assert await ledger.commit([step(lease, token("other"))]) == [Stale("fence")]
    stored = await ledger.outputs(RUN, [f"t{number}" for number in range(9)])
    assert stored == {f"t{number}": b"%d" % number for number in range(5)}
    found = await ledger.inspect(RUN)
    assert found is not None
    assert found.execution.seq == 6
    await ledger.close()
