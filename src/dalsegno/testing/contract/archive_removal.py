"""A6: definitions go only when nothing needs them, and their numbers never come back."""

from __future__ import annotations

import pytest

from dalsegno.errors import Conflict, NotFound
from dalsegno.testing.contract.build import cancel, new_execution, pause, start, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


async def put(stack: ContractStack, *contents: str, name: str = "orders", kind: str = "graph") -> None:
    for content in contents:
        await stack.archive.put_definition(name, content, kind, content.encode())


class ArchiveRemovedDefinitions(Topic):
    guarantees = frozenset(("A1", "A6"))
    needs = frozenset(("commit", "archive", "pausing"))

    async def test_a6_guarded_removal_one_version_goes(self, stack: ContractStack) -> None:
        await put(stack, "h1", "h2", "h3")

        assert await stack.archive.remove_definition("orders", 2) == 1

        assert [found.version for found in await stack.archive.versions("orders")] == [3, 1]
        assert await stack.archive.definition("orders", 2) is None
        assert await stack.archive.definition_by_hash("h2") is None

    async def test_a6_guarded_removal_all_versions_go_with_their_parts(self, stack: ContractStack) -> None:
        await put(stack, "h1", "h2")
        await put(stack, "p1", name="orders/check", kind="script")
        await put(stack, "x1", name="orders2")

        assert await stack.archive.remove_definition("orders") == 2

        assert [found.name for found in await stack.archive.definitions()] == ["orders2"]
        assert await stack.archive.versions("orders/check") == []

    async def test_a6_guarded_removal_numbers_are_not_given_again(self, stack: ContractStack) -> None:
        await put(stack, "h1", "h2", "h1")
        await stack.archive.remove_definition("orders", 2)
        await put(stack, "h3")
        assert [found.version for found in await stack.archive.versions("orders")] == [3, 1]

        await stack.archive.remove_definition("orders")
        await put(stack, "h1")

        current = await stack.archive.definition("orders")
        assert current is not None
        assert current.version == 4

    async def test_a6_guarded_removal_unfinished_executions_hold_their_version(
        self, stack: ContractStack
    ) -> None:
        await put(stack, "h1", "h2", "h3")
        await stack.apply(start(new_execution("run-1", version=1), token("a")))
        await stack.apply(start(new_execution("run-2", version=2), token("b")))
        await stack.apply(pause("run-1"), cancel("run-2"))

        with pytest.raises(Conflict, match="run-1"):
            await stack.archive.remove_definition("orders", 1)
        with pytest.raises(Conflict, match="run-1"):
            await stack.archive.remove_definition("orders")
        assert await stack.archive.remove_definition("orders", 2) == 1

        await stack.apply(cancel("run-1"))
        assert await stack.archive.remove_definition("orders") == 2

    async def test_a6_guarded_removal_aliases_and_the_current_version_are_held(
        self, stack: ContractStack
    ) -> None:
        await put(stack, "h1", "h2")
        await stack.archive.set_alias("orders", "stable", 1)

        for version in (1, None):
            with pytest.raises(Conflict, match="'stable'"):
                await stack.archive.remove_definition("orders", version)
        with pytest.raises(Conflict, match="current"):
            await stack.archive.remove_definition("orders", 2)
        await stack.archive.remove_alias("orders", "stable")

        assert await stack.archive.remove_definition("orders", 1) == 1

    async def test_a6_guarded_removal_what_is_not_there_cannot_go(self, stack: ContractStack) -> None:
        await put(stack, "h1")

        for name, version in (("nobody", None), ("orders", 2), ("orders", 10**30)):
            with pytest.raises(NotFound, match=name):
                await stack.archive.remove_definition(name, version)
