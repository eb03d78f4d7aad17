"""Failure alerts as people set them up: whom to tell when executions of a workflow fail.

Addresses of receivers may be secrets themselves (the URL of a chat's webhook is), so they are kept in the vault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dalsegno.engine.secrets import NewCredential, Vault
from dalsegno.errors import CredentialNotFound, InvalidInput, NotFound
from dalsegno.model.definition import VERSION_SIGN
from dalsegno.ports.records import Record, Records

KIND = "alert"
STATE = "alert-state"
ID = "[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"
ADDRESS = r"[^@\s,;<>]{1,64}@[A-Za-z0-9.-]{1,255}"
URL = "url"
MOST_ADDRESSES = 20


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


class AlertBook:
    def __init__(self, records: Records, vault: Vault) -> None:
        self.records = records
        self.vault = vault

    async def put(self, alert: Alert, url: str | None) -> tuple[Alert, bool]:
        """Creates or changes one; whether it is new."""
        _check(alert, url)
        alert = msgspec.structs.replace(alert, target=_shown(url, alert.mail))
        if url is not None:
            new = NewCredential(_name(alert.id), "custom", {URL: url}, (), (_reader(alert.id),))
            await self.vault.put(new)
        else:
            await self._forget(alert.id)
        before = await self.records.get(KIND, alert.id)
        await self.records.put(KIND, alert.id, msgspec.json.encode(alert))
        return alert, before is None

    async def url(self, alert: Alert) -> str:
        return (await self.vault.resolve(_name(alert.id), _reader(alert.id)))[URL]

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
