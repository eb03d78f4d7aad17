"""How long the queues are: for whoever looks."""

from __future__ import annotations

from dalsegno.ports.ledger import QueueView
from dalsegno.testing.contract.build import RUN, start, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class LedgerQueues(Topic):
    """Counting changes nothing, and is right at any moment."""

    guarantees = frozenset(("L9",))
    needs = frozenset(("commit", "leases"))

    async def test_l9_queues_show_what_is_ready_since_when_and_what_is_leased(
        self, stack: ContractStack
    ) -> None:
        began = stack.clock.now()
        await stack.apply(start(RUN, token("a"), token("b"), token("c", queue="other"), token("z", due=9e9)))
        assert await stack.ledger.queues() == [
            QueueView("default", 2, 0, began),
            QueueView("other", 1, 0, began),
        ]

        [lease] = await stack.claim(1)
        assert await stack.ledger.queues() == [
            QueueView("default", 1, 1, began),
            QueueView("other", 1, 0, began),
        ]

        await stack.apply(step(lease))
        assert await stack.ledger.queues() == [
            QueueView("default", 1, 0, began),
            QueueView("other", 1, 0, began),
        ]

    async def test_l9_queues_with_limit_keys_are_counted_together_with_the_others(
        self, stack: ContractStack
    ) -> None:
        began = stack.clock.now()
        await stack.apply(start(RUN, token("a"), token("b", key="k")))
        assert await stack.ledger.queues() == [QueueView("default", 2, 0, began)]

    async def test_l9_queues_of_each_kind_are_all_found_and_in_order(self, stack: ContractStack) -> None:
        began = stack.clock.now()
        keys = {"b": None, "d": "k", "a": "k", "c": None, "e": "j"}
        await stack.apply(
            start(
                RUN, *(token(f"{name}{n}", queue=name, key=key) for name, key in keys.items() for n in (1, 2))
            )
        )
        assert await stack.ledger.queues() == [QueueView(name, 2, 0, began) for name in "abcde"]

    async def test_l9_empty_queues_are_not_shown(self, stack: ContractStack) -> None:
        assert await stack.ledger.queues() == []
