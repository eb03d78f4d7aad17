"""A1, A5, A6: definitions.

* A1: a definition's name and version identify one content permanently.
* A5: aliases name versions.
* A6: a definition is removed only when nothing needs it, and its number is never reused.
"""

from __future__ import annotations

import msgspec
import pytest

from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.model.definition import Definition
from dalsegno.testing.contract.builders import cancel, new_execution, pause, start, token
from dalsegno.testing.contract.stack import ContractStack, Topic


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

    async def test_a1_immutable_list_is_read_in_pages_without_sources(self, stack: ContractStack) -> None:
        for name in ("e", "b", "d", "a", "c"):
            await stack.archive.put_definition(name, f"h-{name}", "graph", b"a long source")
        await stack.archive.remove_definition("d")

        first = await stack.archive.definitions(limit=2)
        assert [(found.name, found.hash, found.source) for found in first] == [
            ("a", "h-a", b""),
            ("b", "h-b", b""),
        ]
        assert [found.name for found in await stack.archive.definitions("b", 2)] == ["c", "e"]
        assert [found.name for found in await stack.archive.definitions("bb", 1)] == ["c"]
        assert await stack.archive.definitions("e", 2) == []

    async def test_a1_immutable_those_of_messages_are_counted(self, stack: ContractStack) -> None:
        for name in ("orders", "@orders", "@orders/script", "@", "A"):
            for content in ("h1", "h2"):
                await stack.archive.put_definition(name, content, "graph", b"{}")

        assert [await stack.archive.count_adopted(most) for most in (1, 6, 10)] == [1, 6, 6]
        await stack.archive.remove_definition("@orders", 1)
        assert await stack.archive.count_adopted(10) == 5

    async def test_a1_immutable_same_content_under_two_names(self, stack: ContractStack) -> None:
        first = await stack.archive.put_definition("a", "same", "graph", b"{}")
        second = await stack.archive.put_definition("b", "same", "graph", b"{}")

        assert (first.version, second.version) == (1, 1)
        found = await stack.archive.definition_by_hash("same")
        assert found is not None
        assert found.source == b"{}"

    async def test_a1_immutable_what_is_not_there_is_none(self, stack: ContractStack) -> None:
        await stack.archive.put_definition("orders", "h1", "graph", b"{}")

        assert await stack.archive.definition("absent") is None
        assert await stack.archive.definition("orders", 2) is None
        assert await stack.archive.definition("orders", 0) is None
        assert await stack.archive.definition_by_hash("h2") is None


class ArchiveAliases(Topic):
    guarantees = frozenset(("A5",))
    needs = frozenset(("archive",))

    async def test_a5_aliases_versions_are_listed_newest_first(self, stack: ContractStack) -> None:
        stored = await _three_versions(stack)
        await stack.archive.put_definition("other", "h1", "graph", b"{}")
        await stack.archive.put_definition("orders", "h1", "graph", b"h1")

        listed = [msgspec.structs.replace(each, source=b"") for each in stored[::-1]]
        assert await stack.archive.versions("orders") == listed
        assert await stack.archive.versions("orders", 2) == listed[:2]
        assert await stack.archive.versions("orders", 2, before=3) == listed[1:]
        assert await stack.archive.versions("orders", before=1) == []
        assert await stack.archive.versions("orders", 1, before=10**12) == listed[:1]
        assert await stack.archive.versions("absent") == []

    async def test_a5_aliases_a_version_is_found_by_its_content(self, stack: ContractStack) -> None:
        await _three_versions(stack)
        await stack.archive.put_definition("other", "h4", "graph", b"{}")
        await stack.archive.put_definition("orders", "h2", "graph", b"h2")

        found = [await stack.archive.version_of("orders", each) for each in ("h1", "h2", "h3", "h4")]
        assert found == [1, 2, 3, None]
        assert await stack.archive.version_of("orders") == 2
        assert await stack.archive.version_of("absent") is None

    async def test_a5_aliases_alias_names_a_version(self, stack: ContractStack) -> None:
        first, second, _ = await _three_versions(stack)
        await stack.archive.set_alias("orders", "stable", 1)
        await stack.archive.set_alias("orders", "next-2", 2)

        assert await stack.archive.definition("orders", "stable") == first
        assert await stack.archive.definition("orders", "next-2") == second
        assert await stack.archive.aliases("orders") == {"next-2": 2, "stable": 1}

    async def test_a5_aliases_alias_can_be_moved(self, stack: ContractStack) -> None:
        await _three_versions(stack)
        for version in (3, 1, 2):
            await stack.archive.set_alias("orders", "stable", version)

        found = await stack.archive.definition("orders", "stable")
        assert found is not None
        assert found.version == 2
        assert await stack.archive.aliases("orders") == {"stable": 2}

    async def test_a5_aliases_alias_stays_when_another_version_becomes_current(
        self, stack: ContractStack
    ) -> None:
        await stack.archive.put_definition("orders", "h1", "graph", b"h1")
        await stack.archive.set_alias("orders", "stable", 1)
        await stack.archive.put_definition("orders", "h2", "graph", b"h2")

        stable = await stack.archive.definition("orders", "stable")
        assert stable is not None
        assert stable.version == 1

    async def test_a5_aliases_removed_alias_names_nothing(self, stack: ContractStack) -> None:
        await _three_versions(stack)
        await stack.archive.set_alias("orders", "stable", 1)

        assert await stack.archive.remove_alias("orders", "stable") is True
        assert await stack.archive.remove_alias("orders", "stable") is False
        assert await stack.archive.definition("orders", "stable") is None
        assert await stack.archive.aliases("orders") == {}
        assert len(await stack.archive.versions("orders")) == 3

    async def test_a5_aliases_names_have_aliases_of_their_own(self, stack: ContractStack) -> None:
        for name in ("a", "b"):
            for content in ("h1", "h2"):
                await stack.archive.put_definition(name, content, "graph", b"{}")
        await stack.archive.set_alias("a", "stable", 1)
        await stack.archive.set_alias("b", "stable", 2)
        await stack.archive.remove_alias("a", "stable")

        assert await stack.archive.aliases("a") == {}
        assert await stack.archive.aliases("b") == {"stable": 2}

    async def test_a5_aliases_latest_is_the_current_version(self, stack: ContractStack) -> None:
        await _three_versions(stack)
        assert await stack.archive.definition("orders", "latest") == await stack.archive.definition(
            "orders", 3
        )
        await stack.archive.put_definition("orders", "h2", "graph", b"h2")

        assert await stack.archive.definition("orders", "latest") == await stack.archive.definition(
            "orders", 2
        )
        assert await stack.archive.aliases("orders") == {}

    async def test_a5_aliases_digits_are_a_version(self, stack: ContractStack) -> None:
        _, second, _ = await _three_versions(stack)

        assert await stack.archive.definition("orders", "2") == second
        assert await stack.archive.definition("orders", "002") == second
        for nothing in ("0", "4", "9" * 40, 10**30):
            assert await stack.archive.definition("orders", nothing) is None

    async def test_a5_aliases_alias_of_what_is_not_there_is_refused(self, stack: ContractStack) -> None:
        await _three_versions(stack)

        for name, version in (("orders", 4), ("orders", 0), ("orders", 10**30), ("absent", 1)):
            with pytest.raises(NotFound, match=f"'{name}' has no version"):
                await stack.archive.set_alias(name, "stable", version)
        assert await stack.archive.definition("orders", "stable") is None

    async def test_a5_aliases_latest_cannot_be_set(self, stack: ContractStack) -> None:
        await _three_versions(stack)

        with pytest.raises(InvalidInput, match="'latest' always means the current version"):
            await stack.archive.set_alias("orders", "latest", 1)

    async def test_a5_aliases_words_that_cannot_be_an_alias_are_refused(self, stack: ContractStack) -> None:
        await _three_versions(stack)

        for word in ("", "3", "Stable", "a b", "a@b", "-a", "ä", "a\n", "a" * 64):
            with pytest.raises(InvalidInput, match="alias"):
                await stack.archive.set_alias("orders", word, 1)
            if word != "3":
                with pytest.raises(InvalidInput, match="neither"):
                    await stack.archive.definition("orders", word)


async def _three_versions(stack: ContractStack) -> list[Definition]:
    return [
        await stack.archive.put_definition("orders", content, "graph", content.encode())
        for content in ("h1", "h2", "h3")
    ]


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

        for name, version in (("absent", None), ("orders", 2), ("orders", 10**30)):
            with pytest.raises(NotFound, match=name):
                await stack.archive.remove_definition(name, version)
