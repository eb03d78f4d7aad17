"""A3: search by time, by text, by several criteria at once, page by page; schedules, with every filter."""

from __future__ import annotations

from dalsegno.model.effect import FinishExecution
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.testing.contract.builders import cancel, event, new_execution, pause, start, step, token
from dalsegno.testing.contract.stack import ContractStack, Topic

ERROR = (
    b'{"message":"Connection to db-7 refused (try 3)","code":"NODE_ERROR","type":"OSError","node":"charge"}'
)


async def found(stack: ContractStack, **where: object) -> list[str]:
    views = await stack.archive.executions(ExecutionFilter(**where))  # type: ignore[arg-type]
    return [view.id for view in views]


async def fail(stack: ContractStack, name: str, error: bytes, **about: object) -> None:
    await stack.apply(start(new_execution(name, **about), token(f"{name} t")))
    lease = (await stack.take())[f"{name} t"]
    await stack.apply(step(lease, FinishExecution("FAILED", event("ExecutionFailed"), error=error)))
    while await stack.ledger.sweep():
        pass


class ArchiveTimes(Topic):
    guarantees = frozenset(("A3",))
    needs = frozenset(("commit", "archive"))

    async def test_a3_filtered_by_when_it_was_created(self, stack: ContractStack) -> None:
        for number in range(6):
            await stack.apply(start(new_execution(f"run-{number}", created_at=float(number)), token("t")))

        assert await found(stack, created_since=4.0) == ["run-5", "run-4"]
        assert await found(stack, created_until=2.0) == ["run-1", "run-0"]
        assert await found(stack, created_since=2.0, created_until=4.0) == ["run-3", "run-2"]
        assert await found(stack, created_since=2.0, created_until=4.0, workflow="orders") == [
            "run-3",
            "run-2",
        ]
        assert await found(stack, created_since=9.0) == []

    async def test_a3_filtered_by_when_it_ended(self, stack: ContractStack) -> None:
        """The order is newest creation first, regardless of when they ended. A running execution has not ended."""
        now = stack.clock.now()
        for number in range(5):
            run = new_execution(f"run-{number}", created_at=now + number / 10, workflow=f"w{number % 2}")
            await stack.apply(start(run, token("t")))
        for number in (3, 1, 2, 0):
            stack.clock.advance(10)
            await stack.apply(cancel(f"run-{number}"))

        assert await found(stack, ended_since=now + 15) == ["run-2", "run-1", "run-0"]
        assert await found(stack, ended_until=now + 25) == ["run-3", "run-1"]
        assert await found(stack, ended_since=now + 15, ended_until=now + 35) == ["run-2", "run-1"]
        assert await found(stack, ended_since=now + 15, workflow="w0") == ["run-2", "run-0"]
        assert await found(stack, ended_since=now + 15, states=("FAILED",)) == []
        assert await found(stack, ended_since=now + 15, states=("RUNNING",)) == []

    async def test_a3_pages_go_on_after_a_place_that_is_gone(self, stack: ContractStack) -> None:
        for number in range(4):
            await stack.apply(start(new_execution(f"run-{number}", created_at=float(number)), token("t")))
        await stack.apply(cancel("run-2"))
        assert await stack.archive.remove(["run-2"]) == ["run-2"]

        page = await stack.archive.executions(ExecutionFilter(), before=Place(2.0, "run-2"))

        assert [view.id for view in page] == ["run-1", "run-0"]


class ArchiveText(Topic):
    guarantees = frozenset(("A3", "A4"))
    needs = frozenset(("commit", "archive", "sweep"))

    async def test_a3_text_finds_an_id_by_its_beginning(self, stack: ContractStack) -> None:
        for number, name in enumerate(("0198aaaabbbb", "0198aaaacccc", "0299aaaabbbb")):
            await stack.apply(start(new_execution(name, created_at=float(number)), token("t")))

        assert await found(stack, text="0198aaaa") == ["0198aaaacccc", "0198aaaabbbb"]
        assert await found(stack, text="0198aaaabbbb") == ["0198aaaabbbb"]
        assert await found(stack, text="0198aaa") == [], "shorter beginnings mean too much"

    async def test_a3_text_finds_keys_tag_values_and_parts_of_names(self, stack: ContractStack) -> None:
        runs = (
            new_execution("keyed", created_at=5.0, idempotency_key="order-17"),
            new_execution("tagged", created_at=4.0, tags=(("customer", "order-17"), ("copy", "order-17"))),
            new_execution("named", created_at=3.0, workflow="Re-Order-17 nightly"),
            new_execution("other", created_at=2.0, idempotency_key="order-171", tags=(("order-17", "x"),)),
        )
        await stack.apply(*(start(run, token(f"{run.id} t")) for run in runs))

        assert await found(stack, text="order-17") == ["keyed", "tagged", "named"]
        assert await found(stack, text="order-17", workflow="orders") == ["keyed", "tagged"]
        assert await found(stack, text="order-17", tags=(("copy", "order-17"),)) == ["tagged"]
        assert await found(stack, text="order-17", states=("FAILED",)) == []
        assert await found(stack, text="NIGHTLY") == ["named"]
        assert await found(stack, text="nowhere") == []

    async def test_a3_text_finds_failures_by_their_words(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        await fail(stack, "refused", ERROR, created_at=now)
        await fail(stack, "broken", b'{"message":"Connection lost"}', created_at=now + 1)
        await fail(stack, "odd", b'"no object"', created_at=now + 2)

        assert await found(stack, text="connection") == ["broken", "refused"]
        assert await found(stack, text="REFUSED connection") == ["refused"]
        assert await found(stack, text="oserror") == ["refused"]
        assert await found(stack, text="connection", created_until=now + 1) == ["refused"]
        assert await found(stack, text="connection", workflow="other") == []
        assert await found(stack, text="connect") == [], "words are whole words"

    async def test_a3_text_that_means_many_workflows(self, stack: ContractStack) -> None:
        for number in range(30):
            run = new_execution(f"run-{number:02}", workflow=f"job-{number}", created_at=float(number))
            await stack.apply(start(run, token("t")))

        assert await found(stack, text="job-2") == [f"run-{number:02}" for number in (*range(29, 19, -1), 2)]
        assert len(await found(stack, text="job")) == 30

    async def test_a3_text_pages_neither_repeat_nor_omit(self, stack: ContractStack) -> None:
        for number in range(9):
            created, tags = float(number // 3), (("a", "many"), ("b", "many"))
            if number % 2:
                run = new_execution(f"run-{number}", created_at=created, tags=tags)
            else:
                run = new_execution(f"run-{number}", created_at=created, idempotency_key="many")
            await stack.apply(start(run, token("t")))
        seen: list[str] = []

        while page := await stack.archive.executions(
            ExecutionFilter(text="many"), before=seen[-1] if seen else None, limit=2
        ):
            seen += [view.id for view in page]

        assert seen == [f"run-{number}" for number in range(8, -1, -1)]

    async def test_a4_removed_failures_are_not_found_any_more(self, stack: ContractStack) -> None:
        await fail(stack, "refused", ERROR)

        assert await stack.archive.remove(["refused", "nowhere"]) == ["refused"]
        await stack.apply(start(new_execution("refused"), token("again")))

        assert await found(stack, text="connection") == []


class ArchiveHistoryText(Topic):
    guarantees = frozenset(("A2",))
    needs = frozenset(("commit", "archive", "sweep"))

    async def test_a2_history_of_a_cancelled_execution_is_told_after_the_sweep(
        self, stack: ContractStack
    ) -> None:
        """Not before the sweep, which records the cancellation of the nodes that had not run."""
        await stack.apply(start(new_execution("run-1"), token("a"), token("b")))
        await stack.apply(cancel("run-1"))
        before = await stack.archive.newest_events(["run-1"])
        assert not await stack.archive.is_told("run-1")

        while await stack.ledger.sweep(1):
            if await stack.archive.is_told("run-1"):
                break
        told = await stack.archive.newest_events(["run-1"])
        while await stack.ledger.sweep():
            pass

        assert told["run-1"] == before["run-1"] + 2
        assert await stack.archive.newest_events(["run-1"]) == told
        assert await stack.archive.is_told("run-1")


SCHEDULES = ExecutionFilter(kinds=("schedule",))


class ArchiveSchedules(Topic):
    guarantees = frozenset(("A3",))
    needs = frozenset(("commit", "archive", "pausing", "scripts"))

    async def _start_all(self, stack: ContractStack) -> None:
        """Start seven schedules of two names, each between two executions of a workflow with the same name."""
        for number in range(7):
            name, at = "ab"[number % 2], stack.clock.now() + 2 * number
            schedule = new_execution(
                f"s{number}", workflow=name, kind="schedule", created_at=at, tags=(("n", str(number % 3)),)
            )
            other = new_execution(f"x{number}", workflow=name, created_at=at + 1, parent="s0")
            await stack.apply(start(schedule, token("a")), start(other, token("a")))
        await stack.apply(cancel("s1"), pause("s2"))

    async def _names(self, stack: ContractStack, **where: object) -> list[str]:
        asked = ExecutionFilter(kinds=("schedule",), **where)  # type: ignore[arg-type]
        return [view.id for view in await stack.archive.executions(asked)]

    async def test_a3_newest_first_schedules_alone(self, stack: ContractStack) -> None:
        await self._start_all(stack)

        assert await self._names(stack) == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]

    async def test_a3_newest_first_schedules_in_pages(self, stack: ContractStack) -> None:
        await self._start_all(stack)
        seen: list[str] = []

        while page := await stack.archive.executions(SCHEDULES, seen[-1] if seen else None, 3):
            seen += [view.id for view in page]

        assert seen == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]

    async def test_a3_newest_first_schedules_by_every_filter(self, stack: ContractStack) -> None:
        await self._start_all(stack)

        assert await self._names(stack, workflow="a") == ["s6", "s4", "s2", "s0"]
        assert await self._names(stack, states=("PAUSED", "CANCELLED")) == ["s2", "s1"]
        assert await self._names(stack, states=("RUNNING",), workflow="b") == ["s5", "s3"]
        assert await self._names(stack, tags=(("n", "0"),)) == ["s6", "s3", "s0"]
        assert await self._names(stack, parent="s0") == []
        assert await self._names(stack, relations=("child",)) == []
