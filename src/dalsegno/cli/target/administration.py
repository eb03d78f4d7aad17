"""The administration calls of a command, on a store opened here or on a server.

Keys, credentials, protected names, alerts, webhooks and limits. Each has the calls of ``dalsegno.Client`` that commands
use; a ``…Here`` class implements them on an open store. Values of credentials are never returned. Secrets of webhooks
are returned only by a store that is opened here, to sign a test delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar, Unpack

from dalsegno.admin.alerts import Alert, AlertRecords, SavedAlert, send, test_message
from dalsegno.admin.keys import Key, KeyRecords, NewKey, Scope, read_quotas
from dalsegno.admin.webhooks import SavedWebhook, Webhook, WebhookOptions, WebhookRecords, missing_workflow
from dalsegno.app import App
from dalsegno.cli.errors import Refusal
from dalsegno.cli.options import Place
from dalsegno.cli.target.target import Target, opened, where_to
from dalsegno.cli.views.credentials import print_key_file
from dalsegno.engine.operations.limits import OperatorLimits
from dalsegno.engine.secrets import CredentialInfo, NewCredential, Rotation
from dalsegno.engine.secrets.credentials import CredentialOptions, SavedCredential
from dalsegno.engine.secrets.definition_approvals import (
    STORE,
    ApprovedDefinition,
    DefinitionList,
    ProtectedName,
)
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, Version, parse_target
from dalsegno.model.limits import LimitView

if TYPE_CHECKING:
    from dalsegno.client import Client
    from dalsegno.client.admin.access import ClientCredentials, ClientKeys, ClientProtectedNames
    from dalsegno.client.admin.operations import ClientLimits
    from dalsegno.client.admin.webhooks import ClientAlerts, ClientWebhooks

B = TypeVar("B")
T = TypeVar("T")

PAGE = 500
"""Records that are read from a store at once."""


@dataclass(frozen=True, slots=True)
class Administration(Generic[B]):
    """One group of calls: ``there`` on ``dalsegno.Client``, ``here`` on an open store."""

    here: Callable[[App], B]
    there: Callable[[Client], B]
    makes_store: bool = False
    """Create the store if it does not exist."""

    def use(self, place: Place, work: Callable[[B], Awaitable[T]], *, make_store: bool = False) -> T:
        """Run ``work`` with these calls and return its result."""

        async def run() -> T:
            where = where_to(place.store, place.server, place.app)
            async with self.opened(where, make_store=make_store) as administration:
                return await work(administration)

        return asyncio.run(run())

    @asynccontextmanager
    async def opened(self, where: Target, *, make_store: bool = False) -> AsyncIterator[B]:
        if where.server is None:
            async with opened(where.app, create=make_store or self.makes_store):
                yield self.here(where.app)
            return
        from dalsegno.cli.target.server import remote_client  # noqa: PLC0415 - only who speaks HTTP pays for it

        async with remote_client(where.server) as client:
            yield self.there(client)


async def _all_pages(
    page: Callable[[str, int], Awaitable[Sequence[T]]], place: Callable[[T], str]
) -> list[T]:
    """Return all records of a store; ``page`` reads those after a place."""
    found: list[T] = []
    while more := await page(place(found[-1]) if found else "", PAGE):
        found += more
    return found


class KeysHere:
    def __init__(self, app: App) -> None:
        self._records = KeyRecords(app.client.stack.records, app.client.stack.clock)

    async def aadd(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        expires: str | None,
        queues: Sequence[str] | None,
        quotas: Mapping[str, int | None] | None,
    ) -> NewKey:
        return await self._records.add(name, scopes, expires, "cli", queues, read_quotas(dict(quotas or {})))

    async def aset(
        self, key: str, *, queues: Sequence[str] | None, quotas: Mapping[str, int | None] | None
    ) -> Key:
        return await self._records.set((await self._records.find(key)).id, queues=queues, quotas=quotas)

    async def alist(self, *, revoked: bool) -> list[Key]:
        return [key for key in await self._records.all() if revoked or key.revoked_at is None]

    async def arevoke(self, key: str) -> Key:
        return await self._records.revoke((await self._records.find(key)).id)


Keys: TypeAlias = "KeysHere | ClientKeys"
KEYS: Administration[Keys] = Administration(KeysHere, lambda client: client.keys)


class CredentialsHere:
    def __init__(self, app: App) -> None:
        self._client = app.client
        self._vault = app.engine.vault
        self._webhooks = WebhookRecords(app.client.stack.records, self._vault)

    async def aput(
        self,
        name: str,
        type: str,
        fields: Mapping[str, str] | None,
        **options: Unpack[CredentialOptions],
    ) -> SavedCredential:
        self._vault.keys.may_make = True  # a command is run by one user on one machine
        new = NewCredential(name, type, fields, **options)
        stored = await self._vault.put(new)
        print_key_file(self._vault)
        return SavedCredential(*stored)

    async def alist(self) -> list[CredentialInfo]:
        return await _all_pages(self._vault.page, lambda each: each.name)

    async def aremove(self, name: str) -> None:
        await self._webhooks.remove_credential(name)

    async def arotate(self) -> Rotation:
        return await self._vault.rotate()

    async def adefinitions(self) -> DefinitionList:
        approvals = self._client.definition_approvals
        grace = await approvals.grace()
        until = grace.until if grace is not None and grace.until else None
        return DefinitionList(tuple(await approvals.listed()), until)

    async def aapprove(self, hash: str) -> ApprovedDefinition:
        found = await self._client.approve_definition(hash)
        return ApprovedDefinition(found.name, found.version, found.hash)

    async def awithdraw(self, hash: str) -> None:
        await self._client.withdraw_approval(hash)

    async def aend_grace(self) -> None:
        await self._client.definition_approvals.end_grace()


class ProtectedNamesHere:
    def __init__(self, app: App) -> None:
        self._names = app.engine.vault.protected_names

    async def alist(self) -> list[ProtectedName]:
        return await self._names.all()

    async def aprotect(self, name: str) -> ProtectedName:
        return await self._names.protect(name, STORE)

    async def aunprotect(self, name: str) -> None:
        if not await self._names.unprotect(name):
            raise NotFound(f"the name '{name}' is not protected by an admin")


class Approving:
    """Credentials, and the lookup of a workflow's hash."""

    def __init__(self, credentials: Credentials, definitions: _Definitions) -> None:
        self.credentials = credentials
        self._definitions = definitions

    async def hash_of(self, workflow: str) -> str:
        """Return the content hash of ``name``, ``name@3`` or ``name@stable``. Raise NotFound if it is not deployed."""
        name, version = parse_target(workflow)
        found = await self._definitions.definition(name, version)
        if found is None:
            raise NotFound(
                f"no workflow '{workflow}' is deployed here; `dalsegno versions NAME` lists versions"
            )
        return found.hash


class _Definitions(Protocol):
    async def definition(self, name: str, version: Version = None) -> Definition | None: ...


def _approving_here(app: App) -> Approving:
    return Approving(CredentialsHere(app), app.client.stack.archive)


def _approving_there(client: Client) -> Approving:
    from dalsegno.client.archive import ServerArchive  # noqa: PLC0415 - only who speaks HTTP pays for it

    return Approving(client.credentials, ServerArchive(client.client.transport))


Credentials: TypeAlias = "CredentialsHere | ClientCredentials"
ProtectedNames: TypeAlias = "ProtectedNamesHere | ClientProtectedNames"
CREDENTIALS: Administration[Credentials] = Administration(CredentialsHere, lambda client: client.credentials)
APPROVING: Administration[Approving] = Administration(_approving_here, _approving_there)
PROTECTED_NAMES: Administration[ProtectedNames] = Administration(
    ProtectedNamesHere, lambda client: client.protected_names
)


DEFAULT_SERVER = "http://127.0.0.1:8700"
"""The server that links in a test message point to, if the message is sent from here."""


class AlertsHere:
    def __init__(self, app: App) -> None:
        self._clock = app.client.stack.clock
        self._egress = app.egress
        self._records = AlertRecords(app.client.stack.records, app.engine.vault)

    async def aput(
        self, id: str, *, url: str | None, mail: Sequence[str], workflow: str | None, every: float
    ) -> SavedAlert:
        self._records.vault.keys.may_make = True  # a command is run by one user on one machine
        new = Alert(id, workflow, tuple(mail), every, created_at=self._clock.now())
        return await self._records.put(new, url)

    async def arotate(self, id: str, *, overlap: float) -> str:
        return await self._records.rotate(id, overlap, self._clock.now())

    async def alist(self) -> list[Alert]:
        return await _all_pages(self._records.page, lambda each: each.id)

    async def aremove(self, id: str) -> None:
        await self._records.remove(id)

    async def atest(self, id: str) -> None:
        """Send the test message from this process."""
        alert = await self._records.get(id)
        message = test_message(alert, DEFAULT_SERVER)
        await send(self._records, alert, message, self._egress, self._clock.now())


Alerts: TypeAlias = "AlertsHere | ClientAlerts"
ALERTS: Administration[Alerts] = Administration(AlertsHere, lambda client: client.alerts, makes_store=True)


class WebhooksHere:
    """The calls of ``client.webhooks``, and the signing of test deliveries."""

    url = None
    """URL of the server that has the webhooks; None: they are in a store."""

    def __init__(self, app: App) -> None:
        self._records = WebhookRecords(app.client.stack.records, app.engine.vault)
        self._clock = app.client.stack.clock
        self._archive = app.client.stack.archive

    async def aput(self, id: str, workflow: str, **options: Unpack[WebhookOptions]) -> SavedWebhook:
        self._records.vault.keys.may_make = True  # a command is run by one user on one machine
        new = Webhook.new(id, workflow, options, self._clock.now())
        made, is_new = await self._records.put(new, options.get("secret"))
        return SavedWebhook(made, is_new, await missing_workflow(self._archive, made))

    async def aget(self, id: str) -> Webhook:
        return await self._records.get(id)

    async def alist(self) -> list[Webhook]:
        return await _all_pages(self._records.page, lambda each: each.id)

    async def aremove(self, id: str) -> None:
        await self._records.remove(id)

    async def webhook(self, id: str) -> Webhook:
        return await self._records.get(id)

    async def secret(self, webhook: Webhook) -> str:
        return await self._records.secret(webhook)


class SenderOnServer:
    """The signing of test deliveries."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def url(self) -> str | None:
        return self._client.client.transport.url

    async def webhook(self, id: str) -> Webhook:
        return await self._client.webhooks.aget(id)

    async def secret(self, webhook: Webhook) -> str:
        raise Refusal(
            f"a server returns no secrets, and so not that of the webhook '{webhook.id}'",
            "Give it with --env VARIABLE, or open the store itself with --store.",
        )


Webhooks: TypeAlias = "WebhooksHere | ClientWebhooks"
Sender: TypeAlias = "WebhooksHere | SenderOnServer"
WEBHOOKS: Administration[Webhooks] = Administration(
    WebhooksHere, lambda client: client.webhooks, makes_store=True
)
SENDERS: Administration[Sender] = Administration(WebhooksHere, SenderOnServer, makes_store=True)


class LimitsHere:
    def __init__(self, app: App) -> None:
        self._limits = OperatorLimits(app.client.stack)

    async def alist(self, limit: int) -> list[LimitView]:
        return await self._limits.page("", limit)

    async def aset(self, key: str, *, concurrency: int | None, rate: str | None) -> LimitView:
        return await self._limits.set(key, concurrency, rate)

    async def aremove(self, key: str) -> None:
        if not await self._limits.remove(key):
            raise NotFound(f"no limit is set for the key '{key}'")


Limits: TypeAlias = "LimitsHere | ClientLimits"
LIMITS: Administration[Limits] = Administration(LimitsHere, lambda client: client.limits)
