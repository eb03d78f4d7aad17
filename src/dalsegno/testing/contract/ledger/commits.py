"""L1, L2, L3: commits.

* L1: a token is consumed by at most one applied transition.
* L2: all effects of a transition become visible, or none. Messages to other executions are in the same commit's
  outbox.
* L2: payloads are opaque bytes to every store, and ids are any Unicode text that users write.
* L2: tags change with the step or not at all; lists find the execution by them from then on.
* L3: ids are stable, so a repetition is detected.
"""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.effect import (
    FinishExecution,
    LeaveContext,
    OpenBarrier,
    ReplaceTags,
    StoreOutput,
    WakeMachine,
    WriteOutbox,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.transition import AlreadyApplied, Applied, Park, Refused, Stale, Transition
from dalsegno.ports.ledger import OutboxEntry
from dalsegno.testing.contract.archive.search import found
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
from dalsegno.testing.contract.script_builders import (
    item,
    new_script,
    open_items,
    open_split,
    resume_lease,
    resume_token,
    save,
)
from dalsegno.testing.contract.stack import ContractStack, Topic


class LedgerOnce(Topic):
    guarantees = frozenset(("L1",))

    async def test_l1_once_a_ready_token_is_leased_to_one_claim_only(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))

        first, second = await stack.claim(worker="w1"), await stack.claim(worker="w2")

        assert [lease.token for lease in first] == ["a"]
        assert second == []

    async def test_l1_once_concurrent_claims_share_tokens_without_overlap(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, *(token(f"t{number}") for number in range(20))))

        claims = await asyncio.gather(*(stack.claim(5, worker=f"w{number}") for number in range(6)))

        taken = [lease.token for leases in claims for lease in leases]
        assert sorted(taken) == sorted(f"t{number}" for number in range(20))

    async def test_l1_once_redelivered_commit_is_applied_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])
        await stack.apply(transition)
        before = await stack.picture()

        assert await stack.commit(transition) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_once_same_commit_twice_in_one_batch_is_applied_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])

        first, second = await stack.commit(transition, transition)

        assert isinstance(first, Applied)
        assert second == AlreadyApplied()
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted"]
        assert set(await stack.take()) == {"b"}

    async def test_l1_once_concurrent_duplicates_are_applied_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])

        outcomes = await asyncio.gather(*(stack.commit(transition) for _ in range(8)))

        kinds = sorted(type(outcome).__name__ for [outcome] in outcomes)
        assert kinds == ["AlreadyApplied"] * 7 + ["Applied"]
        assert (await stack.execution()).live == 1
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted"]

    async def test_l1_once_second_conclusion_about_a_consumed_token_is_stale(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), events=[event()]))
        before = await stack.picture()

        assert await stack.commit(step(lease, token("c"), events=[event("NodeFailed")])) == [Stale("fence")]
        assert await stack.picture() == before

    async def test_l1_once_consumed_token_is_not_handed_out_again(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))

        assert set(await stack.take()) == {"b"}
        assert set(await stack.tokens()) == {"b"}

    async def test_l1_once_commit_for_a_token_that_was_never_leased_is_stale(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))
        before = await stack.picture()

        outcomes = await stack.commit(
            Transition(RUN, (), (), "b", fence=0),
            Transition(RUN, (), (), "absent", fence=1),
            Transition("no-such-run", (), (), "a", fence=1),
        )

        assert outcomes == [Stale("fence"), Stale("unknown"), Stale("unknown")]
        assert await stack.picture() == before

    async def test_l1_once_second_start_of_the_same_execution_changes_nothing(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start(RUN, token("a")))
        before = await stack.picture()

        assert await stack.commit(start(RUN, token("z"))) == [AlreadyApplied()]
        assert await stack.picture() == before
        assert set(await stack.take()) == {"a"}

    async def test_l1_once_parking_twice_parks_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        parking = step(lease, events=[event("NodeRetrying")], park=Park(stack.clock.now() + 5, b"again", 2))
        await stack.apply(parking)
        before = await stack.picture()

        assert await stack.commit(parking) == [AlreadyApplied()]
        assert await stack.picture() == before
        assert await stack.take() == {}

    async def test_l1_once_a_chain_of_steps_consumes_each_token_once(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("t0"))
        for number in range(5):
            lease, following = leases[f"t{number}"], token(f"t{number + 1}")
            [applied] = await stack.apply(step(lease, StoreOutput(lease.token, b"%d" % number), following))
            assert [ready.token for ready in applied.ready] == [following.id]
            leases = await stack.take()

        assert set(leases) == set(await stack.tokens()) == {"t5"}
        stored = await stack.ledger.outputs(RUN, [f"t{number}" for number in range(6)])
        assert stored == {f"t{number}": b"%d" % number for number in range(5)}


EVERY_KIND = (
    token("b"),
    arrive(barrier(), 0, b"payload"),
    LeaveContext("", "0", b"context"),
    StoreOutput("out", b"output"),
    WriteOutbox("owed", "signal", b"message"),
)


class LedgerWhole(Topic):
    guarantees = frozenset(("L2",))

    async def test_l2_whole_all_effects_of_a_commit_are_visible(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, *EVERY_KIND, events=[event()]))

        assert set(await stack.tokens()) == {"b", "join-merge"}
        assert [slot.data for slot in await stack.ledger.slots(RUN, barrier().id)] == [b"payload"]
        assert await stack.ledger.left(RUN, "") == [LeftView("0", b"context")]
        assert await stack.ledger.outputs(RUN, ["out"]) == {"out": b"output"}
        assert await stack.ledger.outbox() == [OutboxEntry("owed", RUN, "signal", b"message")]
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted", "NodeWaiting"]

    async def test_l2_output_stored_again_replaces_the_earlier_one(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        await stack.apply(step(leases["a"], StoreOutput("turns/0", b"\x00" * 5000), StoreOutput("x", b"1")))

        await stack.apply(step(leases["b"], StoreOutput("turns/0", b"\xff")))
        assert await stack.ledger.outputs(RUN, ["turns/0", "x"]) == {"turns/0": b"\xff", "x": b"1"}

        await stack.apply(step(leases["c"], StoreOutput("turns/0", b""), finish("COMPLETED")))
        assert await stack.ledger.outputs(RUN, ["turns/0", "x"]) == {"turns/0": b"", "x": b"1"}

    async def test_l2_whole_a_refused_fence_lets_no_effect_through(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        before = await stack.picture()

        assert await stack.commit(step(lease, *EVERY_KIND, events=[event()], fence=99)) == [Stale("fence")]

        assert await stack.picture() == before
        assert await stack.ledger.slots(RUN, barrier().id) == []
        assert await stack.ledger.left(RUN, "") == []
        assert await stack.ledger.outputs(RUN, ["out"]) == {}
        assert await stack.ledger.outbox() == []

    async def test_l2_whole_a_start_is_visible_with_its_tokens_and_event(self, stack: ContractStack) -> None:
        assert await stack.ledger.inspect(RUN) is None

        [applied] = await stack.apply(start(RUN, token("a"), token("b"), StoreOutput("page", b"input")))

        assert {ready.token for ready in applied.ready} == {"a", "b"}
        assert (await stack.execution()).live == 2
        assert (await stack.execution()).state == "RUNNING"
        assert await stack.ledger.outputs(RUN, ["page"]) == {"page": b"input"}
        assert await stack.kinds() == ["ExecutionStarted"]

    async def test_l2_whole_a_stale_transition_does_not_harm_its_batch(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        outcomes = await stack.commit(
            step(leases["a"], token("a2"), events=[event(node="a")]),
            step(leases["a"], token("never"), fence=7),
            step(leases["b"], token("b2"), events=[event(node="b")]),
        )

        assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "Stale", "Applied"]
        assert set(await stack.tokens()) == {"a2", "b2"}

    async def test_l2_whole_live_count_follows_consumed_and_spawned_tokens(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, token("b"), token("c"), token("timeout", live=False, due=9e9)))

        assert (await stack.execution()).live == 2

    async def test_l2_whole_batch_of_many_executions(self, stack: ContractStack) -> None:
        names = [f"run-{number:02}" for number in range(30)]
        await stack.apply(*(start(name, token("a")) for name in names))
        leases = {lease.execution: lease for lease in await stack.claim(100)}
        assert sorted(leases) == names

        outcomes = await stack.commit(*(step(leases[name], token("b"), events=[event()]) for name in names))

        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        for name in names:
            assert set(await stack.tokens(name)) == {"b"}
            assert await stack.kinds(name) == ["ExecutionStarted", "NodeCompleted"]

    async def test_l2_whole_batch_of_five_hundred_transitions(self, stack: ContractStack) -> None:
        names = [f"t{number:03}" for number in range(500)]
        await stack.apply(start(RUN, *map(token, names)))
        leases = await stack.take()

        await stack.apply(*(step(leases[name], StoreOutput(name, name.encode())) for name in names))

        assert await stack.ledger.outputs(RUN, names) == {name: name.encode() for name in names}
        assert (await stack.execution()).live == 0

    async def test_l2_whole_an_empty_batch_has_no_outcomes(self, stack: ContractStack) -> None:
        assert await stack.commit() == []

    @pytest.mark.parametrize("name", ["lone \ud800 surrogate", "nul \x00 character"])
    async def test_l2_whole_what_a_store_cannot_hold_is_refused_alone(
        self, stack: ContractStack, name: str
    ) -> None:
        """A store may accept or refuse it, but must not change it. A refusal affects no other transition."""
        leases = await stack.begin(token("a"), token("b"), token("c"))
        odd = NewEvent("NodeCompleted", name, "", stack.clock.now())

        first, outcome, third = await stack.commit(
            step(leases["a"], StoreOutput("a", b"1")),
            step(leases["b"], StoreOutput("b", b"2"), events=[odd]),
            step(leases["c"], StoreOutput("c", b"3")),
        )

        assert isinstance(first, Applied)
        assert isinstance(third, Applied)
        stored = await stack.ledger.outputs(RUN, ["a", "b", "c"])
        nodes = [found.node for found in await stack.events()]
        if isinstance(outcome, Refused):
            assert stored == {"a": b"1", "c": b"3"}
            assert name not in nodes
            assert set(await stack.tokens()) == {"b"}
        else:
            assert stored == {"a": b"1", "b": b"2", "c": b"3"}
            assert nodes[-1] == name


class LedgerOutbox(Topic):
    guarantees = frozenset(("L2",))

    async def test_l2_outbox_entries_stay_until_they_are_delivered(self, stack: ContractStack) -> None:
        owed = [WriteOutbox(f"m{number}", "signal", b"%d" % number) for number in range(3)]
        await stack.apply(start(RUN, *owed))

        first, again = await stack.ledger.outbox(), await stack.ledger.outbox()
        assert first == again
        assert {entry.id: entry.data for entry in first} == {"m0": b"0", "m1": b"1", "m2": b"2"}

        await stack.ledger.delivered(["m1"])
        assert {entry.id for entry in await stack.ledger.outbox()} == {"m0", "m2"}

    async def test_l2_outbox_gives_at_most_the_limit_and_all_in_the_end(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, *(WriteOutbox(f"m{number}", "x", b"") for number in range(5))))

        seen: list[str] = []
        while entries := await stack.ledger.outbox(2):
            assert len(entries) <= 2
            seen += [entry.id for entry in entries]
            await stack.ledger.delivered([entry.id for entry in entries])

        assert sorted(seen) == ["m0", "m1", "m2", "m3", "m4"]

    async def test_l2_outbox_delivering_twice_is_harmless(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, WriteOutbox("m", "x", b"")))

        await stack.ledger.delivered(["m"])
        await stack.ledger.delivered(["m", "never-existed"])

        assert await stack.ledger.outbox() == []

    async def test_l2_outbox_same_id_is_owed_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, WriteOutbox("m", "x", b"first")))

        await stack.apply(command(RUN, WriteOutbox("m", "x", b"second")))

        assert [entry.data for entry in await stack.ledger.outbox()] == [b"first"]

    async def test_l2_outbox_of_an_ended_execution_is_still_owed(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, WriteOutbox("m", "result", b"done"), finish()))

        assert [entry.id for entry in await stack.ledger.outbox()] == ["m"]


class LedgerIds(Topic):
    guarantees = frozenset(("L3",))

    async def test_l3_stable_ids_spawning_a_live_id_again_changes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], token("c", data=b"first")))

        [applied] = await stack.apply(step(leases["b"], token("c", data=b"second")))

        assert applied.ready == ()
        assert (await stack.take())["c"].data == b"first"
        assert (await stack.execution()).live == 1

    async def test_l3_repetition_that_writes_other_turns_of_the_journal(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, StoreOutput("turns/0", b"first"), token("b")))

        again = step(lease, token("b"))
        assert [type(outcome) for outcome in await stack.commit(again)] == [AlreadyApplied]
        other = step(lease, StoreOutput("turned", b"first"), token("b"))
        assert await stack.commit(other) == [Stale("fence")]
        assert await stack.ledger.outputs(RUN, ["turns/0"]) == {"turns/0": b"first"}

    async def test_l3_stable_ids_a_consumed_id_is_not_revived(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))

        await stack.apply(command(RUN, token("a")))

        assert set(await stack.take()) == {"b"}
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_the_same_id_twice_in_one_transition_is_one_token(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, token("b"), token("b")))

        assert [ready.token for ready in applied.ready] == ["b"]
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_same_conclusion_with_another_time_is_already_applied(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), events=[event(data=b"took 1 ms")]))

        stack.clock.advance(3)
        again = step(lease, token("b"), events=[event(data=b"took 2 ms")])

        assert await stack.commit(again) == [AlreadyApplied()]
        assert [found.data for found in await stack.events()][1:] == [b"took 1 ms"]

    async def test_l3_stable_ids_same_conclusion_under_an_older_fence_is_already_applied(
        self, stack: ContractStack
    ) -> None:
        """Two workers ran the same step. The one that lost its lease learns that the step is already committed."""
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))

        assert await stack.commit(step(lease, token("b"), fence=lease.fence - 1)) == [AlreadyApplied()]

    async def test_l3_stable_ids_opening_a_barrier_again_changes_nothing(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        before = await stack.barriers()

        await stack.apply(step(items[0], OpenBarrier(aggregator(expected=99))))

        assert await stack.barriers() == before
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_opening_scopes_again_changes_nothing(self, stack: ContractStack) -> None:
        await open_split(stack, 2)

        [applied] = await stack.apply(command(RUN, *open_items(2)))

        assert applied.ready == ()
        assert await stack.take() == {}

    async def test_l3_stable_ids_of_one_execution_do_not_meet_those_of_another(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start("run-a", token("t", data=b"a")), start("run-b", token("t", data=b"b")))
        leases = {lease.execution: lease for lease in await stack.claim()}
        assert {name: lease.data for name, lease in leases.items()} == {"run-a": b"a", "run-b": b"b"}

        await stack.apply(step(leases["run-a"], arrive(barrier(), 0), arrive(barrier(), 1)))

        assert set(await stack.tokens("run-a")) == {"join-merge"}
        assert set(await stack.tokens("run-b")) == {"t"}
        assert await stack.barriers("run-b") == {}

    async def test_l3_stable_ids_another_epoch_is_another_version(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        foreign = step(lease, token("b"))
        other = type(foreign)(RUN, foreign.effects, (), "a", lease.fence, item(0), epoch=7)

        assert await stack.commit(other) == [Stale("version")]
        assert set(await stack.tokens()) == {"a"}


PAYLOADS = {
    "empty": b"",
    "null": b"null",
    "empty-list": b"[]",
    "empty-object": b"{}",
    "nested-empties": b'{"a":[],"b":{},"c":[[],{}]}',
    "key-order": b'{"z":1,"a":2,"m":3}',
    "duplicate-keys": b'{"a":1,"a":2}',
    "2^60": b"1152921504606846976",
    "2^80": b"1208925819614629174706176",
    "exact-number-text": b"[1.0,1e3,-0.0,0.1000]",
    "escaped-nul": b'"a\\u0000b"',
    "raw-nul": b"\x00a\x00",
    "not-utf-8": b"\xff\xfe\x80",
    "looks-like-hex": b"\\x00",
    "newlines": b"a\r\nb\n",
    "unicode": '"𝄋 dal segno, ÄÖÜ ☃"'.encode(),
    "every-byte": bytes(range(256)),
    "one-mebibyte": bytes(range(256)) * 4096,
}
ODD_NAMES = ("führung ☃ 𝄋", "a'b\"c;--", "A", "a", "a ", "%s{0}$1", "x/y:z|w", "e\u0301", "é")


class LedgerPayloads(Topic):
    guarantees = frozenset(("L2",))

    @pytest.mark.parametrize("data", PAYLOADS.values(), ids=PAYLOADS.keys())
    async def test_l2_payload_survives_everywhere(self, stack: ContractStack, data: bytes) -> None:
        await stack.apply(start(new_execution(input=data), token("a", data=data), token("b")))
        leases = await stack.take()
        assert leases["a"].data == data
        owed = WriteOutbox("m", "x", data)
        left = LeaveContext("", "k", data)

        await stack.apply(
            step(
                leases["a"],
                StoreOutput("o", data),
                arrive(barrier(), 0, data),
                left,
                owed,
                events=[event(data=data)],
            )
        )

        assert (await stack.execution()).input == data
        assert await stack.ledger.outputs(RUN, ["o"]) == {"o": data}
        assert await stack.ledger.slots(RUN, barrier().id) == [SlotView(0, live=True, data=data)]
        assert await stack.ledger.left(RUN, "") == [LeftView("k", data)]
        assert [entry.data for entry in await stack.ledger.outbox()] == [data]
        assert [found.data for found in await stack.events() if found.kind == "NodeCompleted"] == [data]

    @pytest.mark.parametrize("data", PAYLOADS.values(), ids=PAYLOADS.keys())
    async def test_l2_payload_of_parked_tokens_and_endings_survives(
        self, stack: ContractStack, data: bytes
    ) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], park=Park(9e9, data, 2)))
        assert (await stack.tokens())["a"].data == data

        ending = FinishExecution("FAILED", event("ExecutionFailed", ""), data, data, data)
        await stack.apply(step(leases["b"], ending))

        execution = await stack.execution()
        assert (execution.output, execution.context, execution.error) == (data, data, data)

    async def test_l2_payload_nothing_is_not_the_same_as_empty(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        ending = FinishExecution("COMPLETED", event("ExecutionCompleted", "", data=None), None, b"", None)

        await stack.apply(step(lease, ending, events=[event(data=b"")]))

        execution = await stack.execution()
        assert (execution.output, execution.context, execution.error) == (None, b"", None)
        assert [found.data for found in await stack.events()][1:] == [b"", None]

    async def test_l2_payload_output_stored_again_is_the_same_output(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        await stack.apply(step(leases["a"], StoreOutput("o", b"same")))
        await stack.apply(step(leases["b"], StoreOutput("o", b"same")))

        assert await stack.ledger.outputs(RUN, ["o"]) == {"o": b"same"}


class LedgerNames(Topic):
    guarantees = frozenset(("L2",))

    async def test_l2_names_survive_and_stay_apart(self, stack: ContractStack) -> None:
        await stack.apply(*(start(name, token(name, queue=name, data=name.encode())) for name in ODD_NAMES))

        for name in ODD_NAMES:
            [lease] = await stack.claim(queues=[name])
            assert (lease.token, lease.execution, lease.node, lease.queue) == (name, name, name, name)
            await stack.apply(step(lease, StoreOutput(name, name.encode()), events=[event(node=name)]))
        for name in ODD_NAMES:
            assert await stack.ledger.outputs(name, ODD_NAMES) == {name: name.encode()}
            assert [found.node for found in await stack.events(name)] == ["", name]

    async def test_l2_names_of_barriers_and_scopes_stay_apart(self, stack: ContractStack) -> None:
        leases = await stack.begin(*(token(name) for name in ODD_NAMES))

        await stack.apply(
            *(step(leases[name], arrive(barrier(name), 0, name.encode())) for name in ODD_NAMES)
        )

        assert {view.node for view in (await stack.barriers()).values()} == set(ODD_NAMES)
        for name in ODD_NAMES:
            assert [slot.data for slot in await stack.ledger.slots(RUN, barrier(name).id)] == [name.encode()]

    async def test_l2_names_keys_are_ordered_by_code_point(self, stack: ContractStack) -> None:
        keys = ["10", "2", "1", "B", "a", "_", "é", "Z", "1/2", "1.2", "\U0001d10b", "\uffff"]
        await stack.apply(start(RUN, *(LeaveContext("", key, key.encode()) for key in keys)))

        assert [left.key for left in await stack.ledger.left(RUN, "")] == sorted(keys)

    async def test_l2_names_key_left_twice_holds_the_later_context(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], last("same", b"first")))

        await stack.apply(step(leases["b"], last("same", b"second")))

        assert await stack.ledger.left(RUN, "") == [LeftView("same", b"second")]

    async def test_l2_names_slots_are_ordered_by_number(self, stack: ContractStack) -> None:
        spec = barrier(expected=99)
        await stack.apply(start(RUN, *(arrive(spec, slot) for slot in (10, 2, 1, 33, 0))))

        assert [slot.slot for slot in await stack.ledger.slots(RUN, spec.id)] == [0, 1, 2, 10, 33]
        page = await stack.ledger.slots(RUN, spec.id, after=1, limit=2)
        assert [slot.slot for slot in page] == [2, 10]


ENV, INTAKE, REVIEW = ("env", "prod"), ("stage", "intake"), ("stage", "review")
TO_REVIEW = ReplaceTags((ENV, REVIEW), (INTAKE,), (REVIEW,))


async def begin(stack: ContractStack, *others: str) -> None:
    """Create script executions in the first stage."""
    for number, name in enumerate((RUN, *others)):
        run = new_script(name, tags=(ENV, INTAKE), created_at=float(number))
        await stack.apply(start(run, resume_token(name)))


async def tags_of(stack: ContractStack, execution: str = RUN) -> tuple[tuple[str, str], ...]:
    view = await stack.archive.execution(execution)
    assert view is not None
    return view.tags


class LedgerTags(Topic):
    guarantees = frozenset(("L1", "L2", "L4", "A3"))
    needs = frozenset(("commit", "leases", "archive", "scripts", "sweep"))

    async def test_a3_running_execution_is_found_by_tags_it_has_set(self, stack: ContractStack) -> None:
        await begin(stack, "other")
        changed = event("TagsChanged", "", data=b'{"tags":{"stage":"review"}}')
        await stack.apply(step(await resume_lease(stack, 0), TO_REVIEW, save(0), events=(changed,)))

        assert await tags_of(stack) == (ENV, REVIEW)
        assert await found(stack, tags=(REVIEW,)) == [RUN]
        assert await found(stack, tags=(INTAKE,)) == ["other"]
        assert await found(stack, tags=(ENV,)) == ["other", RUN]
        assert await found(stack, tags=(ENV, REVIEW)) == [RUN]
        assert await found(stack, text="review") == [RUN]
        assert await found(stack, text="intake") == ["other"]
        assert (await stack.execution()).tags == (ENV, REVIEW)
        assert (await stack.kinds())[-1] == "TagsChanged"

    async def test_a3_tags_set_in_the_last_step_are_those_of_the_ended(self, stack: ContractStack) -> None:
        await begin(stack)
        await stack.apply(step(await resume_lease(stack, 0), TO_REVIEW, save(0), finish()))
        while await stack.ledger.sweep():
            pass

        assert await tags_of(stack) == (ENV, REVIEW)
        assert await found(stack, tags=(REVIEW,), states=("COMPLETED",)) == [RUN]
        assert await found(stack, tags=(INTAKE,)) == []

    async def test_a3_all_tags_can_go_and_the_first_can_come(self, stack: ContractStack) -> None:
        await begin(stack)
        await stack.apply(step(await resume_lease(stack, 0), ReplaceTags((), (ENV, INTAKE), ()), save(0)))
        assert await tags_of(stack) == ()
        assert await found(stack, tags=(ENV,)) == []

        await stack.apply(command(RUN, WakeMachine()))
        await stack.apply(step(await resume_lease(stack, 1), ReplaceTags((REVIEW,), (), (REVIEW,)), save(1)))
        assert await found(stack, tags=(REVIEW,)) == [RUN]

    async def test_l1_same_step_again_changes_no_tags(self, stack: ContractStack) -> None:
        await begin(stack)
        first = step(await resume_lease(stack, 0), TO_REVIEW, save(0))
        await stack.apply(first, command(RUN, WakeMachine()))
        back = ReplaceTags((ENV, INTAKE), (REVIEW,), (INTAKE,))
        await stack.apply(step(await resume_lease(stack, 1), back, save(1)))

        assert await stack.commit(first) == [AlreadyApplied()]
        assert await tags_of(stack) == (ENV, INTAKE)
        assert await found(stack, tags=(REVIEW,)) == []

    async def test_l4_refused_step_changes_no_tags(self, stack: ContractStack) -> None:
        await begin(stack)
        late = await resume_lease(stack, 0)
        await stack.ledger.release("w1", [late])
        again = await resume_lease(stack, 0)

        assert await stack.commit(step(late, TO_REVIEW, save(0))) == [Stale("fence")]
        assert await tags_of(stack) == (ENV, INTAKE)
        assert await found(stack, tags=(REVIEW,)) == []
        await stack.apply(step(again, TO_REVIEW, save(0)))
        assert await found(stack, tags=(REVIEW,)) == [RUN]

    async def test_l2_batch_of_executions_each_with_its_own_tags(self, stack: ContractStack) -> None:
        names = [f"own-{number}" for number in range(5)]
        await begin(stack, *names)
        leases = {lease.execution: lease for lease in await stack.claim(100)}
        steps = []
        for name in names:
            own = ("owner", name)
            steps.append(step(leases[name], ReplaceTags((ENV, own), (INTAKE,), (own,)), save(0)))
        await stack.apply(*steps)

        for name in names:
            assert await found(stack, tags=(("owner", name),)) == [name]
        assert await found(stack, tags=(INTAKE,)) == [RUN]

    async def test_a3_removed_executions_leave_no_row_of_a_tag_they_set(self, stack: ContractStack) -> None:
        await begin(stack)
        await stack.apply(step(await resume_lease(stack, 0), TO_REVIEW, save(0), finish()))
        while await stack.ledger.sweep():
            pass
        assert await stack.archive.remove([RUN]) == [RUN]
        assert await found(stack, tags=(REVIEW,)) == []
        assert await found(stack, text="review") == []
