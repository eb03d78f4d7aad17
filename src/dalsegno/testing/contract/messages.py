"""Messages of other programs are taken in once, and the marks of what is published to them."""

from __future__ import annotations

from dalsegno.model.effect import EndScope, OpenBarrier, OpenScope, TakeMessage
from dalsegno.model.transition import AlreadyApplied, Applied, Stale
from dalsegno.testing.contract.builders import (
    RUN,
    aggregator,
    arrive,
    barrier,
    command,
    event,
    finish,
    last,
    new_execution,
    start,
    step,
    token,
)
from dalsegno.testing.contract.stack import ContractStack, Topic


class LedgerMessages(Topic):
    """Messages that arrive in an execution, or begin it."""

    guarantees = frozenset(("L1", "L5"))
    needs = frozenset(("commit", "leases", "sweep"))

    async def test_l1_once_for_a_message_that_arrives_twice(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        first = command(RUN, TakeMessage("m1"), token("b"), events=(event("ArrivalDropped", "b"),))
        again = command(RUN, TakeMessage("m1"), token("c"))

        [applied] = await stack.apply(first)

        assert [ready.token for ready in applied.ready] == ["b"]
        before = await stack.picture()
        assert await stack.commit(again) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_once_also_after_what_it_spawned_is_consumed(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(command(RUN, TakeMessage("m1"), token("b")))
        await stack.apply(step((await stack.take())["b"]))

        assert await stack.commit(command(RUN, TakeMessage("m1"), token("b"))) == [AlreadyApplied()]

    async def test_l1_once_for_the_message_that_began_the_execution(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, TakeMessage("m1"), token("a")))

        assert await stack.commit(start(RUN, TakeMessage("m2"), token("b"))) == [AlreadyApplied()]
        assert await stack.commit(command(RUN, TakeMessage("m1"), token("b"))) == [AlreadyApplied()]
        assert isinstance((await stack.commit(command(RUN, TakeMessage("m2"), token("b"))))[0], Applied)

    async def test_l5_one_ending_before_a_message(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(command(RUN, finish()))

        assert await stack.commit(command(RUN, TakeMessage("m1"), token("b"))) == [Stale("finished")]
        assert await stack.commit(command("absent", TakeMessage("m1"), token("b"))) == [Stale("unknown")]

    async def test_l5_one_ending_of_the_scope_a_message_names(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        spec = aggregator()
        opening = (OpenBarrier(spec), OpenScope("/s:0", spec.id, 0))
        await stack.apply(command(RUN, TakeMessage("m1", "/s:0", (spec.id,)), *opening, token("b", "/s:0")))
        await stack.apply(command(RUN, TakeMessage("m2", "/s:0", (spec.id,)), *opening, token("c", "/s:0")))
        await stack.apply(command(RUN, EndScope("/s:0", b"1")))

        late = command(RUN, TakeMessage("m3", "/s:0", (spec.id,)), *opening, token("d", "/s:0"))

        assert await stack.commit(late) == [Stale("scope")]
        assert "d" not in await stack.tokens()

    async def test_l5_one_ending_of_the_split_a_message_names(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        spec = aggregator(expected=1)
        opening = (OpenBarrier(spec), OpenScope("/s:0", spec.id, 0))
        await stack.apply(
            command(RUN, TakeMessage("m1", "/s:0", (spec.id,)), *opening, EndScope("/s:0", b"1"))
        )

        opening = (OpenBarrier(spec), OpenScope("/s:1", spec.id, 1))
        late = command(RUN, TakeMessage("m2", "/s:1", (spec.id,)), *opening, token("d", "/s:1"))

        assert await stack.commit(late) == [Stale("scope")]


class LedgerDeadlinesFromOutside(Topic):
    """An arrival from outside may bring a deadline to a barrier that had none."""

    guarantees = frozenset(("L6", "L7"))
    needs = frozenset(("commit", "leases", "time"))

    async def test_l7_barriers_open_once_at_a_deadline_that_came_later(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        inside, outside = barrier(expected=3), barrier(expected=3, timeout=30.0)
        await stack.apply(step(leases["a"], arrive(inside, 0)))

        [applied] = await stack.apply(command(RUN, TakeMessage("m1"), arrive(outside, 1)))

        assert applied.next_due == stack.clock.now() + 30
        assert (await stack.barriers())["merge"].deadline == stack.clock.now() + 30
        stack.clock.advance(31)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["join-merge"]
        assert (await stack.take())["join-merge"].reason == "timeout"

    async def test_l7_barriers_open_once_and_a_later_deadline_changes_nothing(
        self, stack: ContractStack
    ) -> None:
        await stack.begin(token("a"))
        await stack.apply(command(RUN, TakeMessage("m1"), arrive(barrier(expected=3, timeout=30.0), 0)))
        due = stack.clock.now() + 30
        stack.clock.advance(10)

        await stack.apply(command(RUN, TakeMessage("m2"), arrive(barrier(expected=3, timeout=30.0), 1)))

        assert (await stack.barriers())["merge"].deadline == due


class PublicationMarks(Topic):
    """How far the statuses of an execution are published."""

    guarantees = frozenset(("L2", "L6", "A4"))
    needs = frozenset(("commit", "leases", "sweep", "archive", "publications"))

    async def begin_published(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(publishes=True), token("a")))

    async def test_l2_whole_with_the_mark_of_a_published_execution(self, stack: ContractStack) -> None:
        await self.begin_published(stack)
        await stack.apply(start("other", token("b")))

        assert (await stack.publications.unfinished()).executions == (RUN,)
        claims = await stack.publications.claim("p1", [RUN, "other", "absent"], 10)
        assert (claims.marks, claims.held) == ({RUN: 0}, set())

    async def test_l2_whole_with_the_claim_of_the_process_that_starts_a_published_execution(
        self, stack: ContractStack
    ) -> None:
        until = stack.clock.now() + 10
        new = new_execution(publishes=True, publisher="p1", published_until=until)
        await stack.apply(start(new, token("a")))
        marks = stack.publications

        assert (await marks.claim("p2", [RUN], 10)).held == {RUN}
        assert (await marks.claim("p1", [RUN], 10)).marks == {RUN: 0}
        stack.clock.advance(11)
        assert (await marks.claim("p2", [RUN], 10)).marks == {RUN: 0}

    async def test_mark_is_held_by_one_process_until_it_is_confirmed(self, stack: ContractStack) -> None:
        await self.begin_published(stack)
        marks = stack.publications
        await marks.claim("p1", [RUN], 10)

        assert (await marks.claim("p2", [RUN], 10)).held == {RUN}
        assert (await marks.claim("p1", [RUN], 10)).marks == {RUN: 0}
        await marks.confirm("p2", {RUN: 9}, [RUN])
        await marks.confirm("p1", {RUN: 1})

        assert (await marks.claim("p2", [RUN], 10)).marks == {RUN: 1}

    async def test_l6_nothing_stuck_when_the_process_that_publishes_dies(self, stack: ContractStack) -> None:
        await self.begin_published(stack)
        await stack.publications.claim("p1", [RUN], 10)
        stack.clock.advance(11)

        assert (await stack.publications.claim("p2", [RUN], 10)).marks == {RUN: 0}

    async def test_unfinished_are_those_with_events_that_are_not_confirmed(
        self, stack: ContractStack
    ) -> None:
        await self.begin_published(stack)
        marks = stack.publications
        await marks.claim("p1", [RUN], 10)
        await marks.confirm("p1", {RUN: 1})
        assert (await marks.unfinished()).executions == ()
        assert await marks.last_events([RUN, "absent"]) == {RUN: 1}

        [applied] = await stack.apply(step((await stack.take())["a"], last(), events=(event(),)))
        assert applied.events(RUN) == (await marks.news({RUN: 1}))[RUN].events
        assert (await marks.unfinished()).executions == (RUN,)
        while await stack.ledger.sweep():
            pass
        assert (await marks.unfinished()).executions == (RUN,)
        assert (await marks.unfinished(after=RUN)).executions == ()

    async def test_unfinished_are_found_page_by_page(self, stack: ContractStack) -> None:
        for name in ("c", "a", "b", "d"):
            await stack.apply(start(new_execution(name, publishes=True), token(f"t-{name}")))
        await stack.publications.confirm("p1", {"b": 1})

        seen, after = [], ""
        while True:
            page = await stack.publications.unfinished(after, 2)
            seen.append(page.executions)
            after = page.after
            if not after:
                break

        assert seen == [("a",), ("c", "d"), ()]

    async def test_news_are_the_events_after_a_number(self, stack: ContractStack) -> None:
        tags = (("team", "a"),)
        new = new_execution(publishes=True, tags=tags, priority=3)
        await stack.apply(start(new, token("a"), token("b")))
        await stack.apply(start("other", token("c")))
        leases = await stack.take()
        await stack.apply(step(leases["a"], events=(event(data=b'{"x":1}'),)))

        news = await stack.publications.news({RUN: 0, "other": 1, "absent": 0})

        assert set(news) == {RUN, "other"}
        assert news[RUN].events == await stack.events()
        assert news["other"].events == []
        assert (news[RUN].workflow, news[RUN].definition, news[RUN].kind) == (
            "orders",
            "hash-of-orders",
            "graph",
        )
        assert (news[RUN].state, news[RUN].priority, news[RUN].tags) == ("RUNNING", 3, tags)
        assert (news[RUN].is_told, news[RUN].context) == (False, None)
        assert (await stack.publications.news({RUN: 1}))[RUN].events == (await stack.events())[1:]
        assert len((await stack.publications.news({RUN: 0}, 1))[RUN].events) == 1

    async def test_news_are_told_once_the_sweep_has_recorded_what_was_called_off(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start(new_execution(publishes=True), token("a")))
        await stack.apply(command(RUN, finish("CANCELLED")))
        assert not (await stack.publications.news({RUN: 0}))[RUN].is_told
        while await stack.ledger.sweep():
            pass

        news = (await stack.publications.news({RUN: 0}))[RUN]

        assert (news.is_told, news.state) == (True, "CANCELLED")
        assert [found.kind for found in news.events][1:] == ["ExecutionCancelled", "NodeCancelled"]

    async def test_a4_retention_waits_for_the_completion(self, stack: ContractStack) -> None:
        await self.begin_published(stack)
        await stack.apply(step((await stack.take())["a"], last(), events=(event(),)))
        while await stack.ledger.sweep():
            pass
        later = stack.clock.now() + 10
        assert await stack.archive.remove_ended(later) == 0
        assert await stack.archive.remove_ended(later + 6 * 86_400) == 0

        await stack.publications.claim("p1", [RUN], 10)
        await stack.publications.confirm("p1", {RUN: 3}, [RUN])

        assert (await stack.publications.claim("p1", [RUN], 10)).marks == {}
        assert await stack.archive.remove_ended(later) == 1

    async def test_a4_retention_waits_for_a_completion_no_longer_than_a_week(
        self, stack: ContractStack
    ) -> None:
        await self.begin_published(stack)
        await stack.apply(step((await stack.take())["a"], last(), events=(event(),)))
        while await stack.ledger.sweep():
            pass

        assert await stack.archive.remove_ended(stack.clock.now() + 7 * 86_400 + 10) == 1
        assert (await stack.publications.news({RUN: 0})) == {}
        assert (await stack.publications.unfinished()).executions == (RUN,)
