"""Webhooks: records of their settings, with their secrets as credentials in the vault.

A path belongs to one webhook. It has a record of its own, so that a delivery finds its webhook by two reads
regardless of the number of webhooks, and only one of two concurrent claims of a path succeeds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

import msgspec
from msgspec import Struct

from dalsegno.admin.webhook_signatures import PRESETS, Signature, Style, standard_key
from dalsegno.engine.secrets import NewCredential, Vault
from dalsegno.errors import (
    Conflict,
    CredentialNotFound,
    CredentialRefused,
    InvalidInput,
    NoSecretKey,
    NotFound,
    SecretUnreadable,
)
from dalsegno.model.definition import VERSION_SIGN, parse_target
from dalsegno.ports.archive import Archive
from dalsegno.ports.records import Record, Records

KIND = "webhook"
PATHS = "webhook-path"
ID = "[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"
PATH = r"[A-Za-z0-9_.~-]{1,100}(/[A-Za-z0-9_.~-]{1,100}){0,9}"
HEADER = "[a-z0-9!#$%&'*+.^_`|~-]{1,100}"
METHODS = ("POST", "PUT", "PATCH")
"""No GET: pages and mail scanners open any link, and there would be no body to sign."""
NEVER_PASSED = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-forwarded-authorization")
)
ALWAYS_PASSED = ("content-type", "user-agent")
SECRET = "secret"  # noqa: S105 - the name of the field
SECRETS = "webhook."
"""Prefix of the names of their credentials."""
SHORTEST_SECRET = 8
UNCHECKABLE = (CredentialNotFound, CredentialRefused, NoSecretKey, SecretUnreadable)
"""Errors that prevent a secret from being read."""


LONGEST_WAIT = 60.0
"""Seconds for which a delivery may wait for the result."""
DELIVERY_FIELDS: dict[Style, str] = {"stripe": "id", "slack": "event_id"}
"""These senders sign a repeated delivery again: its id is in the body."""


class WebhookOptions(TypedDict, total=False):
    """Options of a webhook, other than its id and workflow."""

    path: str
    """Deliveries are sent to ``/v1/hooks/<path>``; the default path is the id."""
    secret: str | None
    """The secret the sender signs with. Without it the stored one is kept."""
    signature: Style | Signature
    """The signature scheme of the sender; default: ``github``."""
    methods: Sequence[str]
    headers: Sequence[str]
    """Names of headers that the workflow gets, in addition to ``content-type`` and ``user-agent``."""
    delivery_header: str
    delivery_field: str | None
    """The place of a delivery's id: the same id starts the workflow once."""
    sync_seconds: float | None
    """Seconds for which the sender waits for the workflow's output."""
    body_bytes: int
    rate: int
    """Deliveries a minute, for each server."""
    enabled: bool
    tags: Mapping[str, str]
    description: str


class Webhook(Struct, frozen=True):
    """A webhook as it is stored, without its secret."""

    id: str
    path: str
    workflow: str
    signature: Signature
    methods: tuple[str, ...] = ("POST",)
    headers: tuple[str, ...] = ()
    """Names of headers that the workflow gets, in addition to `ALWAYS_PASSED`."""
    delivery_header: str = ""
    delivery_field: str = ""
    """The place of a delivery's id: a header, or a field of the JSON body such as ``event.id``."""
    sync_seconds: float | None = None
    """Seconds for which a delivery waits for the result; None: it does not wait."""
    body_bytes: int = 1024 * 1024
    rate: int = 600
    """Deliveries a minute, for each server."""
    enabled: bool = True
    tags: dict[str, str] = {}
    description: str = ""
    created_at: float = 0.0
    credential: str = ""
    """The credential with its secret, which lists the workflow; if empty, the webhook has a secret of its own."""

    @staticmethod
    def new(id: str, workflow: str, options: WebhookOptions, now: float) -> Webhook:
        """Create a webhook with the defaults of its signature style. Header names may contain upper case."""
        given = options.get("signature", "github")
        signature = PRESETS[given] if isinstance(given, str) else given
        field = options.get("delivery_field")
        return Webhook(
            id=id,
            path=options.get("path", id).strip("/"),
            workflow=workflow,
            signature=signature,
            methods=tuple(dict.fromkeys(options.get("methods", ("POST",)))),
            headers=tuple(name.lower() for name in options.get("headers", ())),
            delivery_header=options.get("delivery_header", "").lower(),
            delivery_field=DELIVERY_FIELDS.get(signature.style, "") if field is None else field,
            sync_seconds=options.get("sync_seconds"),
            body_bytes=options.get("body_bytes", 1024 * 1024),
            rate=options.get("rate", 600),
            enabled=options.get("enabled", True),
            tags=dict(options.get("tags", {})),
            description=options.get("description", ""),
            created_at=now,
        )

    @property
    def is_signed(self) -> bool:
        return self.signature.style != "none"

    def check(self) -> None:
        """Raise InvalidInput that names the invalid field."""
        _fits(ID, self.id, "id", "letters, digits, '_', '-' and '.', at most 80")
        _fits(PATH, self.path, "path", "like 'github/push': parts of letters, digits and - _ . ~")
        if set(self.path.split("/")) & {".", ".."}:
            raise InvalidInput("'path': '.' and '..' are not names")
        parse_target(self.workflow)
        wrong = next((each for each in self.methods if each not in METHODS), None)
        if wrong is not None or not self.methods:
            raise InvalidInput(f"'methods' are among {', '.join(METHODS)}; not {wrong or 'none'}")
        self._check_headers()
        if self.sync_seconds is not None and not 0 < self.sync_seconds <= LONGEST_WAIT:
            raise InvalidInput(
                f"'sync_seconds' is above 0 and at most {LONGEST_WAIT:g}; not {self.sync_seconds:g}"
            )

    def _check_headers(self) -> None:
        rule = self.signature
        for where, name in (("signature/header", rule.header), ("signature/timestamp", rule.timestamp)):
            if name:
                _fits(HEADER, name, where, "the name of a header")
        for index, name in enumerate(self.headers):
            _fits(HEADER, name, f"headers/{index}", "the name of a header")
            if name in NEVER_PASSED or name in (rule.header, rule.timestamp):
                raise InvalidInput(f"'headers/{index}': '{name}' is never given to a workflow")
        if self.delivery_header:
            _fits(HEADER, self.delivery_header, "delivery_header", "the name of a header")


class SavedWebhook(NamedTuple):
    webhook: Webhook
    is_new: bool
    warning: str | None = None
    """Why deliveries are refused, if they are."""


async def missing_workflow(archive: Archive, webhook: Webhook) -> str | None:
    """Return a warning if the workflow is not deployed: deliveries are refused until it is."""
    name, version = parse_target(webhook.workflow)
    if await archive.definition(name, version) is not None:
        return None
    return f"there is no workflow '{webhook.workflow}' in this store: deliveries are refused until it is deployed"


def _fits(pattern: str, text: str, where: str, wanted: str) -> None:
    if re.fullmatch(pattern, text) is None:
        raise InvalidInput(f"'{where}': {text[:100]!r} does not fit; write {wanted}")


class WebhookRecords:
    def __init__(self, records: Records, vault: Vault) -> None:
        self.records = records
        self.vault = vault

    async def put(self, webhook: Webhook, secret: str | None) -> tuple[Webhook, bool]:
        """Create or change a webhook; return it and whether it is new. Without a secret the stored one is kept."""
        webhook.check()
        before = await self.records.get(KIND, webhook.id)
        if before is not None:
            webhook = msgspec.structs.replace(webhook, created_at=_read(before).created_at)
        await self._take_path(webhook)  # first: if the path is refused, the secret must stay unchanged
        await self._keep_secret(webhook, secret)
        await self.records.put(KIND, webhook.id, msgspec.json.encode(webhook))
        if before is not None and (old := _read(before).path) != webhook.path:
            await self._leave_path(old, webhook.id)
        return webhook, before is None

    async def _keep_secret(self, webhook: Webhook, secret: str | None) -> None:
        if not webhook.is_signed or webhook.credential:
            if secret is not None:
                reason = "'signature/style' is 'none'" if not webhook.credential else "it has a credential"
                raise InvalidInput(f"'secret' has no effect where {reason}")
            await self._forget_secret(webhook.id)
            return
        if secret is None:
            await self._require_secret(webhook)
            return
        if len(secret) < SHORTEST_SECRET:
            raise InvalidInput(f"'secret' has fewer than {SHORTEST_SECRET} characters")
        if webhook.signature.style == "standard":
            standard_key(secret)
        described = f"signs deliveries of the webhook '{webhook.id}'"
        name, reader = _secret_name(webhook.id), _reader(webhook.id)
        await self.vault.put(
            NewCredential(name, "custom", {SECRET: secret}, (), (reader,), description=described)
        )

    async def _require_secret(self, webhook: Webhook) -> None:
        try:
            found = await self.secret(webhook)
        except CredentialNotFound:
            raise InvalidInput(
                "'secret' is needed: deliveries are checked with it; 'signature/style': 'none' asks for no check"
            ) from None
        if webhook.signature.style == "standard":
            standard_key(found)

    async def secret(self, webhook: Webhook) -> str:
        if not webhook.is_signed:
            return ""
        if webhook.credential:
            found = await self.vault.resolve(webhook.credential, parse_target(webhook.workflow)[0])
            if SECRET not in found:
                raise CredentialNotFound(f"the credential '{webhook.credential}' has no field '{SECRET}'")
            return found[SECRET]
        name = _secret_name(webhook.id)
        found = await self.vault.resolve(name, _reader(webhook.id))
        if SECRET not in found:
            raise CredentialNotFound(f"the credential '{name}' has no field '{SECRET}'")
        return found[SECRET]

    async def problem(self, webhook: Webhook) -> str | None:
        """Return why its deliveries cannot be checked, if so: they are refused meanwhile."""
        try:
            await self.secret(webhook)
        except UNCHECKABLE as error:
            return f"deliveries are refused, because they cannot be checked: {error}; set its 'secret' again"
        return None

    async def needing(self, credential: str) -> str | None:
        """Return the webhook that checks its deliveries with this credential."""
        owner = credential.removeprefix(SECRETS)
        found = (
            await self.records.get(KIND, owner) if owner != credential and re.fullmatch(ID, owner) else None
        )
        return owner if found is not None and _read(found).is_signed else None

    async def remove_credential(self, name: str) -> None:
        """Remove a credential from the vault, unless a webhook needs it."""
        owner = await self.needing(name)
        if owner is not None:
            raise Conflict(
                f"the credential '{name}' signs deliveries of the webhook '{owner}'; remove the webhook instead, or set"
                " its 'secret' to change it"
            )
        await self.vault.remove(name)

    async def _forget_secret(self, id: str) -> None:
        try:
            await self.vault.remove(_secret_name(id))
        except CredentialNotFound:
            return

    async def _take_path(self, webhook: Webhook) -> None:
        for _ in range(3):
            taken = await self.records.get(PATHS, webhook.path)
            owner = taken.data.decode() if taken is not None else None
            if owner == webhook.id:
                return
            if owner is not None and await self._lives_at(owner, webhook.path):
                raise Conflict(f"the path '{webhook.path}' belongs to the webhook '{owner}'")
            version = taken.version if taken is not None else 0
            if await self.records.put(PATHS, webhook.path, webhook.id.encode(), version) is not None:
                return
        raise Conflict(f"the path '{webhook.path}' was taken by others at the same time; try again")

    async def _lives_at(self, id: str, path: str) -> bool:
        """Whether the webhook at a path still uses it: a process that died between two writes leaves a stale path
        record."""
        found = await self.records.get(KIND, id)
        return found is not None and _read(found).path == path

    async def _leave_path(self, path: str, id: str) -> None:
        found = await self.records.get(PATHS, path)
        if found is not None and found.data.decode() == id:
            await self.records.remove(PATHS, path, found.version)

    async def check_path(self, webhook: Webhook) -> None:
        """Raise Conflict if another webhook has its path."""
        owner = await self.at(webhook.path, disabled=True)
        if owner is not None and owner.id != webhook.id:
            raise Conflict(f"the path '{webhook.path}' belongs to the webhook '{owner.id}'")

    async def find(self, id: str) -> Webhook | None:
        found = await self.records.get(KIND, id) if re.fullmatch(ID, id) else None
        return _read(found) if found is not None else None

    async def get(self, id: str) -> Webhook:
        found = await self.find(id)
        if found is None:
            raise NotFound(f"there is no webhook '{id[:100]}'; `dalsegno webhook ls` lists them")
        return found

    async def at(self, path: str, *, disabled: bool = False) -> Webhook | None:
        """Return the webhook that accepts deliveries at this path; with ``disabled`` also a disabled one."""
        owner = await self.records.get(PATHS, path) if re.fullmatch(PATH, path) else None
        found = await self.records.get(KIND, owner.data.decode()) if owner is not None else None
        webhook = _read(found) if found is not None else None
        if webhook is None or webhook.path != path:
            return None
        return webhook if webhook.enabled or disabled else None

    async def page(self, after: str = "", limit: int = 100) -> Sequence[Webhook]:
        return [_read(record) for record in await self.records.page(KIND, after, limit)]

    async def remove(self, id: str) -> None:
        webhook = await self.get(id)
        await self.records.remove(KIND, id)
        await self._leave_path(webhook.path, id)
        await self._forget_secret(id)


def _read(record: Record) -> Webhook:
    return msgspec.json.decode(record.data, type=Webhook)


def _secret_name(id: str) -> str:
    return f"{SECRETS}{id}"


def _reader(id: str) -> str:
    """Return the reader's name, which replaces that of a workflow in the vault: no workflow can have it."""
    return f"{VERSION_SIGN}webhook.{id}"
