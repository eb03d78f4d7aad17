"""Executions that are triggered with another input where a limit makes them wait: they begin with that one, once."""

from __future__ import annotations

from dalsegno.model.effect import BeginExecution
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.model.transition import AlreadyApplied, Stale, Transition
from dalsegno.testing.contract.build import RUN, command, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.ledger_pending import begin_in_time, submit, trigger
from dalsegno.testing.contract.stack import ContractStack


def line_up(input: bytes, name: str = "triggered") -> Transition:
    """Triggered with another input where a limit makes it wait."""
    waiting = token(name, kind="start", node="", queue=SYSTEM_QUEUE, live=False)
    return command(RUN, BeginExecution(input, in_line=name), waiting)


class LedgerPendingInLine(Topic):
    guarantees = frozenset(("L1", "L6"))
    needs = frozenset(("commit", "time", "archive", "pending"))

    async def test_l6_another_input_waits_in_line_with_the_token_that_will_begin_it(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(submit())

        [applied] = await stack.apply(line_up(b"2"))

        assert [ready.token for ready in applied.ready] == ["triggered"]
        assert ((await stack.execution()).state, (await stack.execution()).input) == ("PENDING", b"2")
        await stack.apply(begin_in_time((await stack.take())["triggered"]))
        assert ((await stack.execution()).state, (await stack.execution()).input) == ("RUNNING", b"2")
        assert set(await stack.take()) == {"a"}

    async def test_l1_whoever_was_to_begin_it_with_the_old_input_comes_too_late(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(submit(due=stack.clock.now() + 1))
        stack.clock.advance(1)
        await stack.ledger.wake()
        lease = (await stack.take())["start"]
        await stack.apply(line_up(b"2"))

        assert await stack.commit(begin_in_time(lease)) == [Stale("fence")]
        assert (await stack.execution()).state == "PENDING"
        assert set(await stack.take()) == {"triggered"}

    async def test_l1_second_input_in_line_changes_nothing(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(line_up(b"2"))
        before = await stack.picture()

        assert await stack.commit(line_up(b"3"), line_up(b"2")) == [AlreadyApplied(), AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_nothing_stands_in_line_behind_what_has_begun(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(trigger())

        assert await stack.commit(line_up(b"2")) == [AlreadyApplied()]
        assert (await stack.execution()).input == b"{}"
        assert set(await stack.take()) == {"a"}
