"""Failure alerts: their settings, their messages, and delivery by HTTP or mail when executions of a workflow fail.

The URL of a receiver may be a secret itself (that of a chat's webhook is), so it is kept in the vault, together
with the secret that signs the messages (Standard Webhooks).
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
import smtplib
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.message import EmailMessage
from secrets import token_hex
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL as YARL_URL

from dalsegno.admin.webhook_signatures import PRESETS, sign
from dalsegno.engine.secrets import NewCredential, Vault
from dalsegno.errors import (
    CredentialNotFound,
    InvalidInput,
    NoSecretKey,
    NotDelivered,
    NotFound,
    SecretUnreadable,
)
from dalsegno.model.definition import VERSION_SIGN
from dalsegno.model.execution import ExecutionView
from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.egress import ALLOW_EVERYTHING, EgressDenied, EgressPolicy
from dalsegno.nodes.http.name_lookups import LookupsBusy, on_behalf_of
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
    """An alert as it is stored. Its receiver is either ``mail`` or a URL in the vault."""

    id: str
    workflow: str | None = None
    """None: every workflow."""
    mail: tuple[str, ...] = ()
    every: float = 60.0
    """Minimum seconds between two messages; failures in between are sent with the next one."""
    enabled: bool = True
    created_at: float = 0.0
    """Time of creation or last change: earlier failures are not reported."""
    target: str = ""
    """The receiver, without secret parts; set when the alert is stored."""
    signed: bool = False
    """Whether messages are signed. False for mail, and for alerts created before signatures existed."""


class SavedAlert(Struct, frozen=True):
    alert: Alert
    is_new: bool
    secret: str | None = None
    """The signing secret, if a new one was created. It cannot be read again."""


class Receiver(Struct, frozen=True):
    """The URL that messages are posted to, and the secrets that sign them: newest first, two for a while after a
    rotation."""

    url: str
    secrets: tuple[str, ...] = ()


class AlertRecords:
    def __init__(self, records: Records, vault: Vault) -> None:
        self.records = records
        self.vault = vault

    async def put(self, alert: Alert, url: str | None) -> SavedAlert:
        """Create or change an alert. For a new receiver a secret is created, and kept while the receiver has the
        same host."""
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
        """Create a new secret and return it. The previous one also signs for ``overlap`` seconds, so that receivers
        can switch."""
        if not 0 <= overlap <= LONGEST_OVERLAP:
            raise InvalidInput(f"'overlap' is from 0 to {LONGEST_OVERLAP / 86_400:g} days")
        alert = await self.get(id)
        if alert.mail:
            raise InvalidInput(f"alert '{id}' is sent by mail, which is not signed")
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
        """Return the stored fields; empty if there are none, or if no key can open them any more."""
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
    """Return a new secret in the format of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _kept(fields: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the previous secrets if the host is the same: another receiver must not learn them."""
    if URL not in fields or urlsplit(fields[URL]).netloc != urlsplit(url).netloc:
        return {}
    return {name: fields[name] for name in (SECRET, PREVIOUS, PREVIOUS_UNTIL) if name in fields}


def _shown(url: str | None, mail: Sequence[str]) -> str:
    """Return the receiver without secret parts."""
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
        raise InvalidInput("'url' contains characters that cannot be printed; write them percent-encoded")
    if url is not None and not _is_web(url):
        raise InvalidInput("'url' must begin with http:// or https:// and name a host")
    if len(alert.mail) > MOST_ADDRESSES:
        raise InvalidInput(f"'mail' takes at most {MOST_ADDRESSES} addresses")
    wrong = next((each for each in alert.mail if re.fullmatch(ADDRESS, each) is None), None)
    if wrong is not None:
        raise InvalidInput(f"'mail': {wrong[:100]!r} is not an address; write it like 'ops@example.com'")


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
    """Return the reader's name, which replaces that of a workflow in the vault: no workflow can have it."""
    return f"{VERSION_SIGN}alert.{id}"


SMTP_VARIABLE = "DALSEGNO_SMTP_URL"
FROM_VARIABLE = "DALSEGNO_MAIL_FROM"
SECONDS = 20.0
LONGEST_MESSAGE = 1000
_mail_threads = ThreadPoolExecutor(2, "dalsegno-mail")
"""Threads that wait for name servers and mail servers, separate from all other work. They start on demand."""


class Failed(Struct, frozen=True):
    """One failed execution, stored until it is reported. Its error was redacted before it was stored."""

    execution: str
    workflow: str
    version: int
    ended_at: str
    code: str
    message: str
    node: str
    link: str


class Message(Struct, frozen=True):
    id: str
    """The message id; unchanged when a message is repeated because its delivery is uncertain."""
    alert: str
    count: int
    """The number of failed executions; only the first of them are listed."""
    failures: tuple[Failed, ...]


def failed_of(view: ExecutionView, base: str) -> Failed:
    error = msgspec.json.decode(view.error) if view.error is not None else {}
    return Failed(
        view.id,
        view.workflow,
        view.version,
        datetime.fromtimestamp(view.ended_at or view.created_at, UTC).isoformat(),
        str(error.get("code") or ""),
        str(error.get("message") or "no reason recorded")[:LONGEST_MESSAGE],
        str(error.get("node") or ""),
        f"{base}/v1/executions/{view.id}",
    )


def body_of(message: Message) -> bytes:
    """Return the body to post. Each failure is an execution, with ``id`` and ``state`` as in the API; ``execution``
    is the earlier name of ``id``."""
    fields = msgspec.to_builtins(message)
    failures = [{"id": each["execution"], "state": "FAILED", **each} for each in fields["failures"]]
    return msgspec.json.encode({**fields, "failures": failures})


def test_message(alert: Alert, base: str) -> Message:
    """Return a test message. ``base``: the address of the server."""
    failed = Failed("0" * 32, alert.workflow or "any", 1, "", "TEST", "This is a test.", "", f"{base}/docs")
    return Message(f"test-{token_hex(8)}", alert.id, 1, (failed,))


async def send(
    records: AlertRecords, alert: Alert, message: Message, egress: EgressPolicy | None, now: float
) -> None:
    """Send a message. Raises NotDelivered, or the vault's error."""
    if alert.mail:
        await mail(alert.mail, message)
    else:
        await post(await records.receiver(alert, now), message, egress, now)


async def post(receiver: Receiver, message: Message, egress: EgressPolicy | None, now: float) -> None:
    """Post a message. Raises NotDelivered, without the URL, which may be a secret."""
    clients = HttpClients(egress or ALLOW_EVERYTHING)
    on_behalf_of.set(f"alert:{message.alert}")
    body = body_of(message)
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
    try:
        headers |= signed(receiver.secrets, message.id, body, now)
        target = YARL_URL(
            receiver.url
        )  # parsed as the client parses it: the policy checks the real target, not the text
        clients.check_host(target.host or "")
        session, limit = clients.session(), aiohttp.ClientTimeout(total=SECONDS)
        async with session.post(
            target, data=body, headers=headers, timeout=limit, allow_redirects=False
        ) as reply:
            if not 200 <= reply.status < 300:
                raise NotDelivered(f"the receiver answered {reply.status}")
    except (EgressDenied, LookupsBusy) as error:
        raise NotDelivered(str(error)) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise NotDelivered(f"the receiver cannot be reached ({type(error).__name__})") from None
    finally:
        await clients.close()


def signed(secrets: Sequence[str], id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers of Standard Webhooks. The time is that of the attempt; the id is the same for every
    attempt."""
    rule, found = PRESETS["standard"], dict[str, str]()
    for secret in reversed(secrets):
        before = found.get(rule.header)
        found = sign(rule, secret, body, now, id)
        if before is not None:
            found[rule.header] += f" {before}"
    return found


async def mail(addresses: Sequence[str], message: Message) -> None:
    """Send a mail through the server in ``DALSEGNO_SMTP_URL``. Raises NotDelivered."""
    try:
        await asyncio.get_running_loop().run_in_executor(_mail_threads, _send, _letter(addresses, message))
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise NotDelivered(f"the mail server did not accept it ({type(error).__name__})") from None


def _letter(addresses: Sequence[str], message: Message) -> EmailMessage:
    letter = EmailMessage()
    first = message.failures[0]
    more = f" and {message.count - 1} more" if message.count > 1 else ""
    letter["Subject"] = " ".join(f"{first.workflow} failed{more}".split())[:200]
    letter["From"] = os.environ.get(FROM_VARIABLE) or "dalsegno@localhost"
    letter["To"] = ", ".join(addresses)
    letter["Message-ID"] = f"<{message.id}@dalsegno>"
    letter.set_content(_text(message))
    return letter


def _text(message: Message) -> str:
    lines = [f"{message.count} failed.\n"] if message.count > 1 else []
    for each in message.failures:
        where = f" at node '{each.node}'" if each.node else ""
        lines.append(f"{each.workflow} v{each.version} failed{where} at {each.ended_at}")
        lines.append(f"  {' '.join(f'{each.code} {each.message}'.split())}\n  {each.link}\n")
    return "\n".join(lines)


def _send(letter: EmailMessage) -> None:
    url = os.environ.get(SMTP_VARIABLE, "")
    parts: Any = urlsplit(url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise NotDelivered(
            f"{SMTP_VARIABLE} is not set; write it like smtp://user:password@mail.example.com:587"
        )
    with _connected(parts) as server:
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(letter)


def _connected(parts: Any) -> smtplib.SMTP:
    safe = ssl.create_default_context()
    if parts.scheme == "smtps":
        return smtplib.SMTP_SSL(parts.hostname, parts.port or 465, timeout=SECONDS, context=safe)
    server = smtplib.SMTP(parts.hostname, parts.port or 587, timeout=SECONDS)
    server.ehlo()
    if server.has_extn("starttls"):
        server.starttls(context=safe)
        server.ehlo()
    elif parts.username:
        server.close()
        raise NotDelivered("the mail server offers no TLS, and a password is not sent without")
    return server
