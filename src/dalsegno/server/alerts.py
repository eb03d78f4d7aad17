"""Failure alerts as people set them up: whom to tell when executions of a workflow fail.

Addresses of receivers may be secrets themselves (the URL of a chat's webhook is), so they are kept in the vault, and
with them the secret that signs what is sent there (Standard Webhooks).
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dalsegno.engine.secrets import NewCredential, Vault
from dalsegno.errors import CredentialNotFound, InvalidInput, NoSecretKey, NotFound, SecretUnreadable
from dalsegno.model.definition import VERSION_SIGN
from dalsegno.ports.records import Record, Records

KIND = "alert"
STATE = "alert-state"
ID = "[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"
ADDRESS = r"[^@\s,;<>]{1,64}@[A-Za-z0-9.-]{1,255}"
URL = "url"
SECRET = "secret"  # noqa: S105 - the name of a field, as the two below
PREVIOUS = "previous_secret"
PREVIOUS_UNTIL = "previous_until"
SECRET_BYTES = 32
MOST_ADDRESSES = 20
LONGEST_OVERLAP = 30 * 86_400.0


class Alert(Struct, frozen=True):
    """Goes either to ``mail`` or to a URL that is in the vault."""

    id: str
    workflow: str | None = None
    """None: every workflow."""
    mail: tuple[str, ...] = ()
    every: float = 60.0
    """Seconds between two messages; what fails meanwhile comes with the next one."""
    enabled: bool = True
    created_at: float = 0.0
    """Also when it was changed: failures before that are not told."""
    target: str = ""
    """What may be shown of the receiver; set when it is stored."""
    signed: bool = False
    """Whether messages carry a signature. Not by mail, and not where it was set up before there were signatures."""


class SavedAlert(Struct, frozen=True):
    alert: Alert
    is_new: bool
    secret: str | None = None
    """The secret that signs its messages, where one was made. It cannot be read again."""


class Receiver(Struct, frozen=True):
    """Where messages are posted, and the secrets that sign them: the newest first, two for a while after a rotation."""

    url: str
    secrets: tuple[str, ...] = ()


class AlertBook:
    def __init__(self, records: Records, vault: Vault) -> None:
        self.records = records
        self.vault = vault

    async def put(self, alert: Alert, url: str | None) -> SavedAlert:
        """Create or change an alert. A secret is made for a new receiver, and kept for the host that has it."""
        _check(alert, url)
        alert = msgspec.structs.replace(alert, target=_shown(url, alert.mail), signed=url is not None)
        made = None
        if url is not None:
            kept = _kept(await self._fields(alert.id), url)
            made = None if SECRET in kept else new_secret()
            await self._seal(alert.id, {SECRET: made or "", **kept, URL: url})
        else:
            await self._forget(alert.id)
        before = await self.records.get(KIND, alert.id)
        await self.records.put(KIND, alert.id, msgspec.json.encode(alert))
        return SavedAlert(alert, before is None, made)

    async def rotate(self, id: str, overlap: float, now: float) -> str:
        """A new secret. The one before signs as well for ``overlap`` seconds, so that receivers can change over."""
        if not 0 <= overlap <= LONGEST_OVERLAP:
            raise InvalidInput(f"'overlap' is from 0 to {LONGEST_OVERLAP / 86_400:g} days")
        alert = await self.get(id)
        if alert.mail:
            raise InvalidInput(f"alert '{id}' goes by mail, which is not signed")
        fields = await self.vault.resolve(_name(id), _reader(id))
        before = {}
        if SECRET in fields and overlap > 0:
            before = {PREVIOUS: fields[SECRET], PREVIOUS_UNTIL: f"{now + overlap:.0f}"}
        made = new_secret()
        await self._seal(id, {URL: fields[URL], SECRET: made, **before})
        await self.records.put(KIND, id, msgspec.json.encode(msgspec.structs.replace(alert, signed=True)))
        return made

    async def receiver(self, alert: Alert, now: float) -> Receiver:
        fields = await self.vault.resolve(_name(alert.id), _reader(alert.id))
        found = [fields[SECRET]] if SECRET in fields else []
        if PREVIOUS in fields and now < float(fields[PREVIOUS_UNTIL]):
            found.append(fields[PREVIOUS])
        return Receiver(fields[URL], tuple(found))

    async def _fields(self, id: str) -> Mapping[str, str]:
        """As they are stored; empty where there are none, or where no key opens them any more."""
        try:
            return dict(await self.vault.resolve(_name(id), _reader(id)))
        except (CredentialNotFound, NoSecretKey, SecretUnreadable):
            return {}

    async def _seal(self, id: str, fields: Mapping[str, str]) -> None:
        await self.vault.put(NewCredential(_name(id), "custom", fields, (), (_reader(id),)))

    async def get(self, id: str) -> Alert:
        found = await self.records.get(KIND, id) if re.fullmatch(ID, id) else None
        if found is None:
            raise NotFound(f"there is no alert '{id[:100]}'; `dalsegno alerts ls` lists them")
        return _read(found)

    async def page(self, after: str = "", limit: int = 100) -> Sequence[Alert]:
        return [_read(record) for record in await self.records.page(KIND, after, limit)]

    async def remove(self, id: str) -> None:
        await self.get(id)
        await self.records.remove(KIND, id)
        await self.records.remove(STATE, id)
        await self._forget(id)

    async def _forget(self, id: str) -> None:
        try:
            await self.vault.remove(_name(id))
        except CredentialNotFound:
            return


def new_secret() -> str:
    """As Standard Webhooks writes them."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _kept(fields: Mapping[str, str], url: str) -> dict[str, str]:
    """Secrets of the receiver before, where it is the same host: another one must not know what signs for it."""
    if URL not in fields or urlsplit(fields[URL]).netloc != urlsplit(url).netloc:
        return {}
    return {name: fields[name] for name in (SECRET, PREVIOUS, PREVIOUS_UNTIL) if name in fields}


def _shown(url: str | None, mail: Sequence[str]) -> str:
    """Without what may be secret in it."""
    if url is None:
        return ", ".join(mail)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}/…"


def _check(alert: Alert, url: str | None) -> None:
    if re.fullmatch(ID, alert.id) is None:
        raise InvalidInput(f"'id': {alert.id[:100]!r} does not fit; use up to 80 letters, digits and _ - .")
    if (url is None) == (not alert.mail):
        raise InvalidInput("give either 'url' or 'mail': where the alert goes")
    if url is not None and not url.isprintable():
        raise InvalidInput("'url' holds characters that cannot be printed; write them percent-encoded")
    if url is not None and not _is_web(url):
        raise InvalidInput("'url' must begin with http:// or https:// and name a host")
    if len(alert.mail) > MOST_ADDRESSES:
        raise InvalidInput(f"'mail' takes at most {MOST_ADDRESSES} addresses")
    wrong = next((each for each in alert.mail if re.fullmatch(ADDRESS, each) is None), None)
    if wrong is not None:
        raise InvalidInput(f"'mail': {wrong[:100]!r} is no address; write it like 'ops@example.com'")


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _read(record: Record) -> Alert:
    return msgspec.json.decode(record.data, type=Alert)


def _name(id: str) -> str:
    return f"alert.{id}"


def _reader(id: str) -> str:
    """In the place of a workflow that may use the credential: no workflow has such a name."""
    return f"{VERSION_SIGN}alert.{id}"
