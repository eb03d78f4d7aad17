"""Payloads are opaque bytes to every store, and ids are whatever Unicode users write (L2)."""

from __future__ import annotations

import pytest

from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.effect import FinishExecution, LeaveContext, StoreOutput, WriteOutbox
from dalsegno.model.transition import Park
from dalsegno.testing.contract.build import (
    RUN,
    arrive,
    barrier,
    event,
    last,
    new_execution,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

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
