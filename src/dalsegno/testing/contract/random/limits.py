"""Random interleavings against a model of limits that is simple enough to be correct by inspection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from msgspec.structs import replace

from dalsegno.model.limits import Allowance, Rate
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Park, ReadyToken, Transition
from dalsegno.testing.contract.builders import cancel, pause, resume, start, step, token
from dalsegno.testing.contract.random.interleavings import EXAMPLES, Program, programs
from dalsegno.testing.contract.stack import ContractStack, Topic

KEYS = ("a", "b", "c")
DECLARED = {"a": Allowance(concurrency=1), "b": Allowance(concurrency=3), "c": Allowance(rate=Rate(2, 50.0))}
RULES = (Allowance(concurrency=0), Allowance(concurrency=2), Allowance(5, Rate(3, 20.0)), None)
OPERATIONS = (
    "begin", "begin", "begin", "claim", "claim", "claim_few", "lease", "step", "step", "step", "park", "release", "die",
    "late", "cancel", "pause", "resume", "wake", "rule",
)  # fmt: skip
FOREVER = 1_000_000.0


@dataclass
class World:
    """A naive model of limits: a list of leases and a list of starts."""

    stack: ContractStack
    name: str
    held: dict[str, Lease] = field(default_factory=dict)
    """By execution; each has one token."""
    given: list[Lease] = field(default_factory=list)
    alive: dict[str, str] = field(default_factory=dict)
    """Unfinished executions, and the key of each."""
    asleep: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    rules: dict[str, Allowance] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    born: int = 0

    def key(self, key: str) -> str:
        return f"{self.name}-{key}"

    def bound(self, key: str) -> Allowance:
        own, rule = DECLARED[key], self.rules.get(key, Allowance())
        concurrency = rule.concurrency if rule.concurrency is not None else own.concurrency
        return Allowance(concurrency, rule.rate or own.rate)

    def used(self, key: str) -> int:
        return sum(1 for execution in self.held if self.alive.get(execution) == key)

    def has_room(self, key: str) -> bool:
        bound, now = self.bound(key), self.stack.clock.now()
        if bound.concurrency is not None and self.used(key) >= bound.concurrency:
            return False
        if bound.rate is None:
            return True
        recent = [at for at in self.starts.get(key, ()) if at > now - bound.rate.period]
        return len(recent) < bound.rate.starts

    def note(self, leases: Iterable[Lease]) -> None:
        """Check that the model permits each lease that the ledger gives, one after the other."""
        for lease in leases:
            key = self.alive[lease.execution]
            assert lease.execution not in self.held
            assert lease.execution not in self.asleep | self.paused
            assert self.has_room(key), f"one more of '{key}' than {self.bound(key)} allows"
            self.held[lease.execution] = lease
            self.given.append(lease)
            rate = self.bound(key).rate
            if rate is not None:  # starts count from the moment a rate is set, as many as it needs
                self.starts[key] = [*self.starts.get(key, ()), self.stack.clock.now()][-rate.starts :]

    def startable(self) -> set[str]:
        idle = set(self.alive) - set(self.held) - self.asleep - self.paused
        return {self.alive[execution] for execution in idle}

    async def compare(self) -> None:
        for key in KEYS:
            view = await self.stack.limits.get(self.key(key))
            assert view.in_use == self.used(key), key

    # -- operations, chosen by number -------------------------------------------------------------------------

    async def begin(self, a: int, b: int) -> None:
        key = KEYS[a % 3]
        execution = f"{self.name}-{self.born}"
        self.born += 1
        self.alive[execution] = key
        queue = "default" if b % 3 else "system"
        new = token("t", key=self.key(key), allows=DECLARED[key], priority=b % 2, queue=queue)
        await self.stack.apply(start(execution, new))

    async def claim(self, a: int, b: int) -> None:
        """After a claim without a limit on leases nothing is left that could start."""
        self.note(await self.stack.claim(1000))
        assert not [key for key in self.startable() if self.has_room(key)]

    async def claim_few(self, a: int, b: int) -> None:
        self.note(await self.stack.claim(1 + a % 3, worker="w2"))

    async def lease(self, a: int, b: int) -> None:
        named = [ReadyToken("t", execution, "default", 0) for execution in sorted(self.alive)]
        chosen = named[a % (len(named) + 1) :][: b % 4]
        self.note(await self.stack.ledger.lease("w1", chosen))

    async def step(self, a: int, b: int) -> None:
        if self.held:
            lease = self.pick(a)
            await self.commit(step(lease))
            del self.held[lease.execution], self.alive[lease.execution]

    async def park(self, a: int, b: int) -> None:
        if self.held:
            lease = self.pick(a)
            await self.commit(step(lease, park=Park(self.stack.clock.now() + FOREVER, b"", 1)))
            del self.held[lease.execution]
            self.asleep.add(lease.execution)

    async def release(self, a: int, b: int) -> None:
        if self.held:
            lease = self.pick(a)
            for worker in ("w1", "w2"):
                await self.stack.ledger.release(worker, [lease])
            del self.held[lease.execution]

    async def die(self, a: int, b: int) -> None:
        if a % 4 == 0:  # more deaths would make them suspects, which are leased one at a time
            await self.stack.ledger.expire(dead=["w1", "w2"])
            for lease in self.held.values():
                await self.cancelled(lease.execution)
            self.held.clear()

    async def late(self, a: int, b: int) -> None:
        """A worker that was stopped for a while commits for a lease that it no longer holds."""
        old = [lease for lease in self.given if self.held.get(lease.execution) is not lease]
        if old:
            lease = old[a % len(old)]
            [outcome] = await self.stack.commit(step(replace(lease, fence=lease.fence)))
            assert not isinstance(outcome, Applied)

    async def cancel(self, a: int, b: int) -> None:
        if self.alive:
            await self.cancelled(sorted(self.alive)[a % len(self.alive)])

    async def cancelled(self, execution: str) -> None:
        await self.commit(cancel(execution))
        self.held = {name: lease for name, lease in self.held.items() if name != execution}
        self.alive.pop(execution, None)
        self.asleep.discard(execution)
        self.paused.discard(execution)

    async def pause(self, a: int, b: int) -> None:
        idle = sorted(set(self.alive) - self.paused - set(self.held))
        if idle:
            await self.commit(pause(idle[a % len(idle)]))
            self.paused.add(idle[a % len(idle)])

    async def resume(self, a: int, b: int) -> None:
        for execution in sorted(self.paused):
            await self.commit(resume(execution))
        self.paused.clear()

    async def wake(self, a: int, b: int) -> None:
        self.stack.clock.advance(a)
        await self.stack.ledger.wake()

    async def rule(self, a: int, b: int) -> None:
        key, rule = KEYS[a % 3], RULES[b % len(RULES)]
        if rule is None:
            self.rules.pop(key, None)
            await self.stack.limits.remove(self.key(key))
        else:
            self.rules[key] = rule
            await self.stack.limits.set(self.key(key), rule)

    def pick(self, a: int) -> Lease:
        return self.held[sorted(self.held)[a % len(self.held)]]

    async def commit(self, transition: Transition) -> None:
        await self.stack.apply(transition)

    async def end(self) -> None:
        for execution in sorted(self.alive):
            await self.cancelled(execution)
        for key in KEYS:
            await self.stack.limits.remove(self.key(key))


class LimitsComparison(Topic):
    guarantees = frozenset(("M1", "M2", "M3"))
    needs = frozenset(("commit", "limits", "leases", "time", "pausing"))

    @settings(parent=EXAMPLES, max_examples=EXAMPLES.max_examples * 2 // 5)
    @given(program=programs(OPERATIONS))
    async def test_m1_bounded_and_given_back_in_any_interleaving(
        self, stack: ContractStack, program: Program
    ) -> None:
        world = World(stack, f"limits-{stack.clock.advance(1000):.0f}")
        try:
            for operation, a, b in program:
                await getattr(world, operation)(a, b)
            await world.compare()
        finally:
            await world.end()
        await world.compare()
