"""A1: a definition's name and version name one content for ever."""

from __future__ import annotations

from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class ArchiveDefinitions(Topic):
    guarantees = frozenset(("A1",))
    needs = frozenset(("archive",))

    async def test_a1_immutable_versions_count_from_one(self, stack: ContractStack) -> None:
        first = await stack.archive.put_definition("orders", "h1", "graph", b'{"v":1}')
        second = await stack.archive.put_definition("orders", "h2", "graph", b'{"v":2}')

        assert (first.name, first.version, first.hash, first.kind) == ("orders", 1, "h1", "graph")
        assert (second.version, second.source) == (2, b'{"v":2}')
        assert first.created_at == stack.clock.now()

    async def test_a1_immutable_same_content_is_the_same_version(self, stack: ContractStack) -> None:
        first = await stack.archive.put_definition("orders", "h1", "graph", b"{}")
        stack.clock.advance(60)

        assert await stack.archive.put_definition("orders", "h1", "graph", b"{}") == first

    async def test_a1_immutable_an_old_version_can_become_current_again(self, stack: ContractStack) -> None:
        for content in ("h1", "h2", "h1"):
            await stack.archive.put_definition("orders", content, "graph", content.encode())

        current = await stack.archive.definition("orders")
        assert current is not None
        assert (current.version, current.source) == (1, b"h1")
        third = await stack.archive.put_definition("orders", "h3", "graph", b"h3")
        assert third.version == 3

    async def test_a1_immutable_any_version_can_be_read(self, stack: ContractStack) -> None:
        stored = [
            await stack.archive.put_definition("orders", f"h{number}", "graph", bytes([number, 0, 255]))
            for number in range(1, 4)
        ]

        for definition in stored:
            assert await stack.archive.definition("orders", definition.version) == definition
            assert await stack.archive.definition_by_hash(definition.hash) == definition
        assert await stack.archive.definition("orders") == stored[-1]

    async def test_a1_immutable_names_have_versions_of_their_own(self, stack: ContractStack) -> None:
        for name in ("b", "a", "B", "ä"):
            definition = await stack.archive.put_definition(name, f"h-{name}", "graph", name.encode())
            assert definition.version == 1

        assert [found.name for found in await stack.archive.definitions()] == ["B", "a", "b", "ä"]

    async def test_a1_immutable_list_shows_the_current_version_of_each_name(
        self, stack: ContractStack
    ) -> None:
        for content in ("h1", "h2", "h1"):
            await stack.archive.put_definition("orders", content, "graph", b"{}")

        assert [(found.name, found.version) for found in await stack.archive.definitions()] == [("orders", 1)]

    async def test_a1_immutable_same_content_under_two_names(self, stack: ContractStack) -> None:
        first = await stack.archive.put_definition("a", "same", "graph", b"{}")
        second = await stack.archive.put_definition("b", "same", "graph", b"{}")

        assert (first.version, second.version) == (1, 1)
        found = await stack.archive.definition_by_hash("same")
        assert found is not None
        assert found.source == b"{}"

    async def test_a1_immutable_what_is_not_there_is_none(self, stack: ContractStack) -> None:
        await stack.archive.put_definition("orders", "h1", "graph", b"{}")

        assert await stack.archive.definition("nobody") is None
        assert await stack.archive.definition("orders", 2) is None
        assert await stack.archive.definition("orders", 0) is None
        assert await stack.archive.definition_by_hash("h2") is None
