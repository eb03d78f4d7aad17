"""L4 and the lease part of L6: fences, heartbeats, lost workers, and releases."""

from __future__ import annotations

from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Park, ReadyToken, Stale
from dalsegno.testing.contract.builders import RUN, cancel, event, start, step, token
from dalsegno.testing.contract.stack import ContractStack, Topic

LEASE_SECONDS = 60.0


async def lose(stack: ContractStack, worker: str = "w1") -> tuple[ReadyToken, ...]:
    """Let the worker die: its heartbeat stops, its leases expire."""
    stack.ledger.heartbeat(worker, LEASE_SECONDS)
    stack.clock.advance(LEASE_SECONDS + 1)
    return await stack.ledger.expire()


class LedgerFences(Topic):
    guarantees = frozenset(("L4",))
    needs = frozenset(("commit", "leases"))

    async def test_l4_fenced_commit_after_the_lease_was_lost_is_stale(self, stack: ContractStack) -> None:
        old = (await stack.begin(token("a")))["a"]
        await lose(stack)
        before = await stack.picture()

        assert await stack.commit(step(old, token("b"), events=[event()])) == [Stale("fence")]
        assert await stack.picture() == before

    async def test_l4_fenced_commit_under_an_older_fence_is_stale(self, stack: ContractStack) -> None:
        old = (await stack.begin(token("a")))["a"]
        await lose(stack)
        new = (await stack.take("w2"))["a"]
        assert new.fence > old.fence

        assert await stack.commit(step(old, token("b"))) == [Stale("fence")]
        await stack.apply(step(new, token("c")))

        assert set(await stack.tokens()) == {"c"}

    async def test_l4_fenced_late_twin_learns_that_its_work_is_done(self, stack: ContractStack) -> None:
        old = (await stack.begin(token("a")))["a"]
        await lose(stack)
        new = (await stack.take("w2"))["a"]
        await stack.apply(step(new, token("b")))

        assert await stack.commit(step(old, token("b"))) == [AlreadyApplied()]
        assert (await stack.execution()).live == 1

    async def test_l4_fenced_released_lease_is_worth_nothing(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.ledger.release("w1", [lease])

        assert await stack.commit(step(lease, token("b"))) == [Stale("fence")]
        assert set(await stack.tokens()) == {"a"}

    async def test_l4_fenced_old_lease_cannot_release_the_new_one(self, stack: ContractStack) -> None:
        old = (await stack.begin(token("a")))["a"]
        await lose(stack)
        new = (await stack.take("w2"))["a"]

        await stack.ledger.release("w1", [old])

        assert (await stack.tokens())["a"].owner == "w2"
        await stack.apply(step(new, token("b")))

    async def test_l4_fenced_kept_token_carries_fence_one(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        [applied] = await stack.apply(step(lease, token("b"), keep=["b"], worker="w1"))
        assert applied.kept == ("b",)
        assert applied.ready == ()
        assert (await stack.tokens())["b"].owner == "w1"
        assert await stack.take("w2") == {}

        kept = Lease("b", RUN, 1, "", "node", "b", b"{}", "default", 0, 1, 0, "", 0.0, "", 0)
        await stack.apply(step(kept, token("c")))

        assert set(await stack.tokens()) == {"c"}

    async def test_l4_fenced_kept_token_of_a_lost_worker_is_taken_back(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), keep=["b"], worker="w1"))

        assert [ready.token for ready in await lose(stack)] == ["b"]
        assert (await stack.take("w2"))["b"].fence == 2

    async def test_l4_fenced_only_asked_for_tokens_are_kept(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, token("b"), token("c"), keep=["b", "z"], worker="w1"))

        assert applied.kept == ("b",)
        assert [ready.token for ready in applied.ready] == ["c"]

    async def test_l4_fenced_parked_tokens_are_not_kept(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, token("b", due=9e9), keep=["b"], worker="w1"))

        assert applied.kept == ()
        assert (await stack.tokens())["b"].state == "parked"


class LedgerLostWorkers(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "leases"))

    async def test_l6_lost_lease_is_ready_again_and_counted(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))

        lost = await lose(stack)

        assert lost == (ReadyToken("a", RUN, "default", 0, "a"),)
        lease = (await stack.take("w2"))["a"]
        assert (lease.losses, lease.attempt) == (1, 1)

    async def test_l6_heartbeat_keeps_leases(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        for _ in range(5):
            stack.ledger.heartbeat("w1", LEASE_SECONDS)
            stack.clock.advance(LEASE_SECONDS - 1)
            assert await stack.ledger.expire() == ()

        await stack.apply(step(lease, token("b")))

    async def test_l6_only_the_silent_worker_loses_its_leases(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a"), token("b")))
        [silent] = await stack.claim(1, worker="w1")
        [talking] = await stack.claim(1, worker="w2")
        stack.ledger.heartbeat("w1", LEASE_SECONDS)
        stack.clock.advance(LEASE_SECONDS + 1)
        stack.ledger.heartbeat("w2", LEASE_SECONDS)

        assert [ready.token for ready in await stack.ledger.expire()] == [silent.token]
        assert (await stack.tokens())[talking.token].owner == "w2"

    async def test_l6_worker_known_to_be_dead_loses_its_leases_at_once(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        stack.ledger.heartbeat("w1", LEASE_SECONDS)

        assert [ready.token for ready in await stack.ledger.expire(dead=["w1"])] == ["a"]
        assert await stack.ledger.workers() == []

    async def test_l6_leases_of_a_worker_that_never_sent_a_heartbeat_are_taken_back(
        self, stack: ContractStack
    ) -> None:
        """It died between its first claim and its first heartbeat."""
        await stack.begin(token("a"))

        assert [ready.token for ready in await stack.ledger.expire()] == ["a"]

    async def test_l6_expiring_twice_counts_one_loss(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await lose(stack)

        assert await stack.ledger.expire() == ()
        assert (await stack.tokens())["a"].losses == 1

    async def test_l6_losses_add_up(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        for losses in range(5):
            assert (await stack.take())["a"].losses == losses
            await lose(stack)

        assert (await stack.take())["a"].losses == 5

    async def test_l6_losses_are_those_of_one_attempt(self, stack: ContractStack) -> None:
        """A token whose step was committed, even as a failure that is retried, is no longer a suspect."""
        await stack.begin(token("a"))
        await lose(stack)
        lease = (await stack.take())["a"]

        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, b"", attempt=2)))

        assert (await stack.tokens())["a"].losses == 0

    async def test_l6_released_lease_is_ready_again_without_loss(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.ledger.release("w1", [lease])

        assert (await stack.tokens())["a"].owner is None
        again = (await stack.take("w2"))["a"]
        assert (again.losses, again.attempt) == (0, 1)
        assert again.fence > lease.fence

    async def test_l6_lease_handed_back_as_lost_counts_a_loss(self, stack: ContractStack) -> None:
        """Its worker works on for others: only this one token was lost."""
        leases = await stack.begin(token("a"), token("b"))

        await stack.ledger.release("w1", [leases["a"]], lost=True)

        tokens = await stack.tokens()
        assert (tokens["a"].state, tokens["a"].losses) == ("ready", 1)
        assert (tokens["b"].state, tokens["b"].losses) == ("leased", 0)
        assert (await stack.take("w2"))["a"].fence > leases["a"].fence

    async def test_l6_leases_of_a_worker_are_found_by_its_name(self, stack: ContractStack) -> None:
        """A process that takes over for one that died needs exactly the leases that it held."""
        leases = await stack.begin(token("a"), token("b"), token("c"))
        await stack.apply(step(leases["b"]))
        await stack.ledger.release("w1", [leases["c"]])
        await stack.apply(start("run-2", token("d")))
        await stack.take("w2")

        assert [lease.token for lease in await stack.ledger.held_by("w1")] == ["a"]
        [held] = await stack.ledger.held_by("w1")
        assert held == leases["a"]
        assert {lease.token for lease in await stack.ledger.held_by("w2")} == {"c", "d"}
        assert await stack.ledger.held_by("w3") == []

    async def test_l6_leases_of_an_ended_execution_are_not_held(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(cancel())

        assert await stack.ledger.held_by("w1") == []

    async def test_l6_suspects_are_handed_out_one_at_a_time(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a"), token("b")))
        for _ in range(3):
            assert len(await stack.take()) == 2
            await lose(stack)
        await stack.apply(start("run-2", token("innocent")))

        first = await stack.take("w1")
        assert len(set(first) & {"a", "b"}) == 1
        assert "innocent" in first
        assert await stack.take("w1") == {}
        assert len(await stack.take("w2")) == 1

    async def test_l6_suspect_makes_room_for_the_next_once_it_is_through(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a"), token("b")))
        for _ in range(3):
            await stack.take()
            await lose(stack)
        [first] = (await stack.take()).values()

        await stack.apply(step(first))

        [second] = (await stack.take()).values()
        assert {first.token, second.token} == {"a", "b"}

    async def test_l6_workers_are_listed_with_their_leases(self, stack: ContractStack) -> None:
        await stack.begin(token("a"), token("b"))
        stack.ledger.heartbeat("w1", LEASE_SECONDS, b'{"host":"here"}')
        stack.ledger.heartbeat("w2", 5)

        first, second = sorted(await stack.ledger.workers(), key=lambda worker: worker.id)

        assert (first.id, first.leases, first.info) == ("w1", 2, b'{"host":"here"}')
        assert first.expires_at == stack.clock.now() + LEASE_SECONDS
        assert (second.id, second.leases, second.info) == ("w2", 0, b"")

    async def test_l6_workers_are_known_by_name_until_they_are_gone(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        assert await stack.ledger.known_workers() == []
        for worker in ("w2", "w1"):
            stack.ledger.heartbeat(worker, LEASE_SECONDS)

        assert await stack.ledger.known_workers() == ["w1", "w2"]
        await stack.ledger.expire(dead=["w1"])
        assert await stack.ledger.known_workers() == ["w2"]


class LedgerNamedLeases(Topic):
    """``lease``: exchanges a broker's message for a lease."""

    guarantees = frozenset(("L1",))
    needs = frozenset(("commit", "leases"))

    async def test_l1_named_token_is_leased_once(self, stack: ContractStack) -> None:
        [applied] = await stack.apply(start(RUN, token("a")))

        [lease] = await stack.ledger.lease("w1", applied.ready)

        assert (lease.token, lease.execution, lease.fence) == ("a", RUN, 1)
        assert await stack.ledger.lease("w2", applied.ready) == []
        assert await stack.take() == {}

    async def test_l1_named_tokens_that_are_not_ready_are_passed_over(self, stack: ContractStack) -> None:
        [applied] = await stack.apply(start(RUN, token("a"), token("b"), token("sleeper", due=9e9)))
        await stack.apply(step((await stack.claim(1))[0]))
        names = [
            *applied.ready,
            ReadyToken("sleeper", RUN, "default", 0),
            ReadyToken("z", "nowhere", "default", 0),
        ]

        assert [lease.token for lease in await stack.ledger.lease("w1", names)] == ["b"]

    async def test_l1_named_token_of_an_ended_execution_is_passed_over(self, stack: ContractStack) -> None:
        [applied] = await stack.apply(start(RUN, token("a")))
        await stack.apply(cancel())

        assert await stack.ledger.lease("w1", applied.ready) == []
