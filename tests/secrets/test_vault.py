"""The vault on its stores: what is stored, who may use it, and rotation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dalsegno.engine.secrets import KeySource, NewCredential, Vault
from dalsegno.engine.secrets.keys import new_key
from dalsegno.errors import (
    CredentialNotFound,
    CredentialRefused,
    DefinitionNotApproved,
    InvalidInput,
    NoSecretKey,
    SecretUnreadable,
)
from dalsegno.ports.records import Record
from dalsegno.ports.secrets import Credential, host_fits
from dalsegno.ports.stack import Stack
from dalsegno.wiring import open_stack
from tests.rows import rows
from tests.secrets.conftest import bearer, vault_with

KEY = new_key()


async def raw(stack: Stack, name: str = "crm") -> Record:
    found = await stack.records.get("credential", name)
    assert found is not None
    return found


async def test_what_is_put_is_resolved_and_only_sealed_in_the_store(stack: Stack) -> None:
    vault = vault_with(stack, KEY)
    info, is_new = await vault.put(bearer(description="for the CRM"))
    assert (is_new, info.fields, info.hosts, info.workflows) == (
        True,
        ("token",),
        ("api.example.com",),
        ("*",),
    )
    found = await vault.resolve("crm", "any")
    assert (found.name, found.type, found["token"]) == ("crm", "bearer", "t0ken-of-the-crm")
    assert b"t0ken" not in (await raw(stack)).data
    assert "t0ken" not in repr((info, found, bearer()))


async def test_a_change_counts_from_the_next_use_on(stack: Stack) -> None:
    vault, worker = vault_with(stack, KEY), vault_with(stack, KEY)
    await vault.put(bearer())
    await worker.resolve("crm", "w")
    info, is_new = await vault.put(bearer(token="another-token"))
    assert (is_new, info.version) == (False, 2)
    assert (await worker.resolve("crm", "w"))["token"] == "another-token"
    await vault.remove("crm")
    with pytest.raises(CredentialNotFound, match="'crm'"):
        await worker.resolve("crm", "w")
    with pytest.raises(CredentialNotFound):
        await vault.remove("crm")


async def test_values_are_kept_where_none_are_given(stack: Stack) -> None:
    vault = vault_with(stack, KEY)
    with pytest.raises(InvalidInput, match="give its 'fields'"):
        await vault.put(bearer(fields=None))
    await vault.put(bearer())
    await vault.put(bearer(fields=None, hosts=("api.example.org",)))
    found = await vault.resolve("crm", "w")
    assert (found["token"], found.hosts) == ("t0ken-of-the-crm", ("api.example.org",))
    with pytest.raises(InvalidInput, match="changes from 'bearer' to 'query'"):
        await vault.put(bearer(fields=None, type="query", sent_as="key"))


@pytest.mark.parametrize(
    ("patterns", "workflow", "permitted"),
    [
        (("*",), "anything", True),
        (("billing-*", "crm"), "billing-eu", True),
        (("billing-*", "crm"), "crm", True),
        (("billing-*",), "rebilling-eu", False),
        (("billing",), "billing/below", False),
        (("billing/*",), "billing/below", True),
        (("below",), "billing/below", False),
    ],
)
async def test_only_listed_workflows_may_use_it(
    stack: Stack, patterns: tuple[str, ...], workflow: str, permitted: bool
) -> None:
    vault = vault_with(stack, KEY)
    await vault.put(bearer(workflows=patterns))
    if permitted:
        assert (await vault.resolve("crm", workflow))["token"]
        return
    with pytest.raises(CredentialRefused, match=f"'crm' may not be used by workflow '{workflow}'"):
        await vault.resolve("crm", workflow)
    assert (await vault.open("crm"))["token"], "a server may use it for itself"


async def test_a_task_on_its_own_counts_by_its_name_and_a_library_node_gets_nothing(stack: Stack) -> None:
    vault = vault_with(stack, KEY)
    await vault.put(bearer(workflows=("billing", "node:*")))
    assert (await vault.resolve("crm", "billing", ""))["token"]
    with pytest.raises(CredentialRefused):
        await vault.resolve("crm", "node:http", "")


async def test_a_listed_name_alone_opens_nothing(stack: Stack) -> None:
    vault = vault_with(stack, KEY)
    await vault.put(bearer(workflows=("billing",)))
    stored = await stack.archive.put_definition("billing", "h1", "graph", b"{}")
    with pytest.raises(DefinitionNotApproved, match="billing version 1"):
        await vault.resolve("crm", "billing", "h1")
    await vault.approvals.approve(stored, ("h1-part",), "ann")
    assert (await vault.resolve("crm", "billing", "h1"))["token"]
    assert (await vault.resolve("crm", "billing/part", "h1-part"))["token"]
    with pytest.raises(CredentialRefused):
        await vault.resolve("crm", "billing", "of-no-definition")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a b"}, "cannot be a credential's name"),
        ({"name": ""}, "cannot be a credential's name"),
        ({"type": "oauth"}, "'type' must be one of"),
        ({"hosts": ()}, "needs 'hosts'"),
        ({"hosts": ("ftp://api.example.com",)}, "'hosts/0'"),
        ({"hosts": ("http://http://a.example",)}, "'hosts/0'"),
        ({"hosts": ("ok.example", "api.*")}, "'hosts/1'"),
        ({"hosts": ("api.example.com/v1",)}, "'hosts/0'"),
        ({"hosts": ("api.example.com:99999",)}, "'hosts/0'"),
        ({"hosts": ("",)}, "'hosts/0'"),
        ({"workflows": ("",)}, "'workflows/0'"),
        ({"workflows": ()}, "needs 'workflows'"),
        ({"sent_as": "X"}, "does not apply"),
        ({"type": "header", "fields": {"value": "sekret1"}}, "name of the header"),
        ({"type": "header", "fields": {"value": "sekret1"}, "sent_as": "a b"}, "name of the header"),
        ({"type": "header", "fields": {"value": "sekret1"}, "sent_as": "Host"}, "belongs to the connection"),
        ({"fields": {"password": "sekret1"}}, "the fields 'token', and no other"),
        ({"fields": {"token": "sekret1", "more": "sekret2"}}, "and no other"),
        ({"fields": {}}, "the fields 'token'"),
        ({"fields": {"token": "short"}}, "'fields/token' is shorter"),
        ({"fields": {"token": "sekret1\n"}}, "control character"),
        ({"fields": {"token": "sekret\udc00"}}, "surrogate"),
        ({"fields": {"token": "x" * 9000}}, "longer than"),
        ({"type": "custom", "fields": {}}, "1 to 50 fields"),
        ({"type": "custom", "fields": {"a b": "c"}}, "field's name"),
    ],
)
async def test_what_makes_no_sense_is_refused_without_telling_values(
    stack: Stack, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await vault_with(stack, KEY).put(replace(bearer(), **change))
    assert said in str(caught.value)
    assert "sekret" not in str(caught.value)
    assert await stack.records.page("credential") == []


async def test_types_and_what_they_hold(stack: Stack) -> None:
    vault = vault_with(stack, KEY)
    for new in (
        NewCredential("basic", "basic", {"username": "ann", "password": ""}, ("*",), ("*",)),
        NewCredential(
            "header", "header", {"value": "sekret"}, ("a.example:8443",), ("*",), sent_as="X-Api-Key"
        ),
        NewCredential("smtp", "custom", {"host": "mx", "port": "25", "key": "line 1\nline 2"}, (), ("*",)),
    ):
        await vault.put(new)
        assert new.fields is not None
        assert dict(await vault.resolve(new.name, "w")) == new.fields
    assert [each.name for each in await vault.page()] == ["basic", "header", "smtp"]
    assert (await vault.info("header")).sent_as == "X-Api-Key"
    with pytest.raises(KeyError, match=r"no field 'pasword'; it has 'host', 'port', 'key'"):
        (await vault.resolve("smtp", "w"))["pasword"]


# --- keys --------------------------------------------------------------------------------------


async def test_without_a_key_nothing_is_stored(stack: Stack) -> None:
    vault = vault_with(stack)
    with pytest.raises(NoSecretKey, match="new-key"):
        await vault.put(bearer())
    assert await vault.page() == []


async def test_another_key_is_named(stack: Stack) -> None:
    await vault_with(stack, KEY).put(bearer())
    other = vault_with(stack, new_key())
    used = (await other.info("crm")).keys[0]
    with pytest.raises(SecretUnreadable, match=f"'crm' is sealed with key {used}"):
        await other.resolve("crm", "w")


@pytest.mark.parametrize(
    "change", [{"hosts": ["evil.example"]}, {"workflows": ["evil"]}, {"type": "basic"}, {"sent_as": "X"}]
)
async def test_whoever_widens_a_list_in_the_store_makes_it_unreadable(
    stack: Stack, change: dict[str, Any]
) -> None:
    vault = vault_with(stack, KEY)
    await vault.put(bearer(workflows=("evil", "w")))
    forged = msgspec.json.decode((await raw(stack)).data) | change
    await stack.records.put("credential", "crm", msgspec.json.encode(forged))
    with pytest.raises(SecretUnreadable, match="changed in the store without the key"):
        await vault.resolve("crm", "evil")


async def test_a_sealed_value_cannot_be_moved_to_another_credential(stack: Stack) -> None:
    vault = vault_with(stack, KEY)
    await vault.put(bearer())
    await stack.records.put("credential", "mine", (await raw(stack)).data)
    with pytest.raises(SecretUnreadable):
        await vault.resolve("mine", "w")


async def test_rotation_seals_everything_anew(stack: Stack) -> None:
    old, new = new_key(), new_key()
    for number in range(150):
        await vault_with(stack, old).put(bearer(f"c{number:03}", f"token-number-{number}"))
    both = vault_with(stack, new, old)
    await both.put(bearer("c000", "token-number-0"))
    done = await both.rotate()
    assert (len(done.rotated), done.current, done.unreadable) == (149, 1, {})
    after = vault_with(stack, new)
    assert (await after.resolve("c149", "w"))["token"] == "token-number-149"
    again = await after.rotate()
    assert (again.rotated, again.current) == ([], 150)


async def test_a_rotation_that_was_cut_short_goes_on(stack: Stack) -> None:
    old, new = new_key(), new_key()
    for number in range(10):
        await vault_with(stack, old).put(bearer(f"c{number}"))
    both = vault_with(stack, new, old)
    put, left = stack.records.put, 4

    async def dies(kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        nonlocal left
        left -= 1
        if left < 0:
            raise asyncio.CancelledError
        return await put(kind, id, data, expected)

    both.records = _Changed(stack.records, dies)  # type: ignore[assignment]
    with pytest.raises(asyncio.CancelledError):
        await both.rotate()
    for number in range(10):
        assert (await vault_with(stack, new, old).resolve(f"c{number}", "w"))["token"]
    done = await vault_with(stack, new, old).rotate()
    assert (len(done.rotated), done.current) == (6, 4)


async def test_a_change_during_a_rotation_is_not_lost(stack: Stack) -> None:
    old, new = new_key(), new_key()
    await vault_with(stack, old).put(bearer())
    both = vault_with(stack, new, old)
    put = stack.records.put

    async def slow(kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        both.records = stack.records
        await vault_with(stack, old).put(bearer(token="changed-meanwhile"))
        return await put(kind, id, data, expected)

    both.records = _Changed(stack.records, slow)  # type: ignore[assignment]
    assert (await both.rotate()).rotated == ["crm"]
    assert (await vault_with(stack, new).resolve("crm", "w"))["token"] == "changed-meanwhile"


async def test_what_no_key_opens_is_reported_and_left(stack: Stack) -> None:
    old, lost, new = new_key(), new_key(), new_key()
    await vault_with(stack, old).put(bearer("a"))
    await vault_with(stack, lost).put(bearer("b"))
    before = await raw(stack, "b")
    done = await vault_with(stack, new, old).rotate()
    assert (done.rotated, list(done.unreadable)) == (["a"], ["b"])
    assert await raw(stack, "b") == before


async def test_two_who_set_the_same_one_both_end(stack: Stack) -> None:
    vaults = [vault_with(stack, KEY) for _ in range(5)]
    await asyncio.gather(*(vault.put(bearer(token=f"token-{at}")) for at, vault in enumerate(vaults)))
    assert (await vaults[0].info("crm")).version == 5
    assert (await vaults[0].resolve("crm", "w"))["token"].startswith("token-")


async def test_a_vault_in_memory_needs_no_key() -> None:
    stack = await open_stack("memory:")
    vault = Vault(stack.records, stack.archive, KeySource("memory:", {}), stack.clock)
    await vault.put(bearer())
    assert (await vault.resolve("crm", "w"))["token"] == "t0ken-of-the-crm"


class _Changed:
    """Records with another ``put``."""

    def __init__(self, records: Any, put: Any) -> None:
        self.put, self.get, self.page = put, records.get, records.page


# --- hosts -------------------------------------------------------------------------------------


@rows(
    ("entry", "scheme", "host", "port", "fits"),
    [
        ("api.example.com", "https", "API.example.com.", 443, True),
        ("api.example.com", "https", "api.example.com", None, True),
        ("api.example.com", "https", "api.example.com", 8443, False),
        ("api.example.com", "http", "api.example.com", 80, False),
        ("api.example.com", "http", "api.example.com", 443, False),
        ("https://api.example.com", "https", "api.example.com", 443, True),
        ("api.example.com", "https", "api.example.com.evil.net", 443, False),
        ("api.example.com", "https", "evilapi.example.com", 443, False),
        ("*.example.com", "https", "a.b.example.com", 443, True),
        ("*.example.com", "http", "a.b.example.com", 80, False),
        ("*.example.com", "https", "example.com", 443, False),
        ("*.example.com", "https", "evilexample.com", 443, False),
        ("api.example.com:8443", "https", "api.example.com", 8443, True),
        ("api.example.com:8443", "https", "api.example.com", 443, False),
        ("api.example.com:8443", "http", "api.example.com", 8443, False),
        ("api.example.com:*", "https", "api.example.com", 9000, True),
        ("api.example.com:*", "http", "api.example.com", 9000, False),
        ("http://localhost:9000", "http", "localhost", 9000, True),
        ("http://localhost:9000", "https", "localhost", 9000, True),
        ("http://localhost:9000", "http", "localhost", 9001, False),
        ("http://localhost", "http", "localhost", 80, True),
        ("http://localhost", "https", "localhost", 443, True),
        ("http://localhost", "http", "localhost", 8080, False),
        ("http://localhost:*", "http", "localhost", 8080, True),
        ("http://[::1]:80", "http", "::1", 80, True),
        ("[::1]", "https", "::2", 443, False),
        ("*", "https", "anywhere.example", 443, True),
        ("*", "https", "anywhere.example", 8443, False),
        ("*", "http", "anywhere.example", 80, False),
    ],
)
def test_which_addresses_an_entry_means(
    entry: str, scheme: str, host: str, port: int | None, fits: bool
) -> None:
    assert host_fits(entry, host, port, scheme) is fits
    assert Credential("c", "bearer", {}, [entry]).permits_host(host, port, scheme) is fits
    assert not Credential("c", "bearer", {}, []).permits_host(host, port, scheme)


def test_a_certificate_that_is_not_checked_counts_as_plain_http() -> None:
    assert not host_fits("api.example.com", "api.example.com", 443, "https", verified=False)
    assert host_fits("http://api.example.com", "api.example.com", 443, "https", verified=False)
