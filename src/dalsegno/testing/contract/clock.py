"""C1: every component of one engine shares one clock, in Unix seconds."""

from __future__ import annotations

from dalsegno.testing.contract.builders import RUN, finish, start, step, token
from dalsegno.testing.contract.stack import ContractStack, Topic


class SharedClock(Topic):
    guarantees = frozenset(("C1",))

    async def test_c1_clock_stamps_what_the_ledger_does(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        assert (await stack.execution()).touched_at == stack.clock.now()
        assert lease.ready_at == stack.clock.now()

        later = stack.clock.advance(12.5)
        await stack.apply(step(lease, finish()))

        execution = await stack.execution()
        assert (execution.touched_at, execution.ended_at) == (later, later)

    async def test_c1_clock_is_what_the_ledger_tells_the_core(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        assert stack.ledger.now() == stack.clock.now()

        stack.clock.advance(3600)
        await stack.apply(start("run-2", token("a")))

        assert stack.ledger.now() == stack.clock.now()

    async def test_c1_clock_that_jumps_back_breaks_nothing(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        stack.clock.set(stack.clock.now() - 1000)

        await stack.apply(step(lease, token("b")))

        assert set(await stack.take()) == {"b"}

    async def test_c1_clock_keeps_fractions(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 0.123456
        await stack.apply(start(RUN, token("a", due=due)))

        assert (await stack.tokens())["a"].due == due
