"""M3 and M4: starts paced by key, and keys that take turns."""

from __future__ import annotations

from dalsegno.model.limits import Allowance, Rate
from dalsegno.model.transition import ReadyToken
from dalsegno.testing.contract.build import (
    new_execution,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.ledger_limits import ONE, fill, names
from dalsegno.testing.contract.stack import ContractStack


class LedgerRates(Topic):
    guarantees = frozenset(("M3",))
    needs = frozenset(("commit", "limits", "leases", "time"))

    async def test_m3_paced_in_any_period(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 6, Allowance(rate=Rate(2, 10.0)))
        assert names(await stack.claim(limit=1)) == ["mail-0"]
        stack.clock.advance(6)
        assert names(await stack.claim()) == ["mail-1"]

        stack.clock.advance(3.9)
        assert await stack.claim() == []
        stack.clock.advance(0.1)
        assert names(await stack.claim()) == ["mail-2"]
        assert await stack.claim() == []
        stack.clock.advance(6)
        assert names(await stack.claim()) == ["mail-3"]

    async def test_m3_paced_by_starts_not_by_ends(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2, Allowance(rate=Rate(1, 10.0)))
        [lease] = await stack.claim()
        await stack.apply(step(lease))

        assert await stack.claim() == []

    async def test_m3_paced_token_is_woken_when_its_time_comes(self, stack: ContractStack) -> None:
        told: list[float] = []
        stack.limits.on_opening(told.append)
        await fill(stack, "mail", 2, Allowance(rate=Rate(1, 10.0)))
        began = stack.clock.now()
        await stack.claim()

        assert told == [began + 10]
        woken = await stack.ledger.wake()
        assert (woken.ready, woken.next_due) == ((), began + 10)
        stack.clock.advance(10)
        woken = await stack.ledger.wake()
        assert [ready.token for ready in woken.ready] == ["mail-1"]
        assert names(await stack.claim()) == ["mail-1"]

    async def test_m3_paced_by_what_operators_set(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, Allowance(rate=Rate(1, 10.0)))
        await stack.claim()
        await stack.limits.set("mail", Allowance(rate=Rate(2, 10.0)))

        assert names(await stack.claim()) == ["mail-1"]
        assert await stack.claim() == []
        view = await stack.limits.get("mail")
        assert view.opens_at == stack.clock.now() + 10

    async def test_m3_paced_leases_by_name(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2, Allowance(rate=Rate(1, 10.0)))
        ready = [ReadyToken(f"mail-{number}", f"run-mail-{number}", "default", 0) for number in range(2)]

        assert names(await stack.ledger.lease("w1", ready)) == ["mail-0"]
        assert await stack.claim() == []
        stack.clock.advance(10)
        assert names(await stack.ledger.lease("w1", ready)) == ["mail-1"]


class LedgerTurns(Topic):
    guarantees = frozenset(("M4",))
    needs = frozenset(("commit", "limits", "leases"))

    async def test_m4_in_turns_although_one_key_has_many(self, stack: ContractStack) -> None:
        await fill(stack, "a", 4, None)
        stack.clock.advance(1)
        await fill(stack, "b", 2, None)
        await fill(stack, "c", 1, None)

        order = [(await stack.claim(limit=1))[0].token for _ in range(7)]

        assert order == ["a-0", "b-0", "c-0", "a-1", "b-1", "a-2", "a-3"]

    async def test_m4_in_turns_within_one_claim(self, stack: ContractStack) -> None:
        await fill(stack, "a", 3, None)
        await fill(stack, "b", 3, None)

        assert names(await stack.claim(limit=4)) == ["a-0", "b-0", "a-1", "b-1"]

    async def test_m4_in_turns_after_priorities(self, stack: ContractStack) -> None:
        await fill(stack, "a", 2, None)
        await fill(stack, "b", 2, None, priority=5)
        await stack.apply(start("run-x", token("x", priority=3)))
        await stack.apply(start(new_execution("run-y"), token("y")))

        assert names(await stack.claim()) == ["b-0", "b-1", "x", "a-0", "a-1", "y"]

    async def test_m4_in_turns_with_tokens_that_have_no_key_by_age(self, stack: ContractStack) -> None:
        for name, key in (("x0", None), ("k0", "k"), ("x1", None), ("k1", "k"), ("x2", None)):
            await stack.apply(start(f"run-{name}", token(name, key=key)))
            stack.clock.advance(1)

        order = [(await stack.claim(limit=1))[0].token for _ in range(5)]

        assert order == ["x0", "k0", "x1", "k1", "x2"]

    async def test_m4_in_turns_past_keys_without_room(self, stack: ContractStack) -> None:
        for number in range(50):
            await fill(stack, f"full{number}", 3)
        assert len(await stack.claim()) == 50
        stack.clock.advance(1)
        await fill(stack, "free", 1)
        await stack.apply(start("run-x", token("x")))

        assert names(await stack.claim(limit=5)) == ["free-0", "x"]

    async def test_m4_in_turns_a_more_urgent_token_of_a_full_key_goes_first(
        self, stack: ContractStack
    ) -> None:
        await fill(stack, "mail", 3)
        [lease] = await stack.claim()
        assert await stack.claim() == []
        await stack.apply(start("run-urgent", token("urgent", key="mail", allows=ONE, priority=9)))

        await stack.apply(step(lease))

        assert names(await stack.claim()) == ["urgent"]
