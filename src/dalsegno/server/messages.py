"""What an alert says, and how it gets to its receiver: by HTTP or by mail."""

from __future__ import annotations

import asyncio
import os
import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from dalsegno.engine.webhook_signatures import PRESETS, sign
from dalsegno.errors import NotDelivered
from dalsegno.model.execution import ExecutionView
from dalsegno.nodes.egress import ALLOW_EVERYTHING, EgressDenied, EgressPolicy
from dalsegno.nodes.http_client import HttpClients
from dalsegno.server.alerts import Receiver
from dalsegno.server.schemas.values import moment

SMTP_VARIABLE = "DALSEGNO_SMTP_URL"
FROM_VARIABLE = "DALSEGNO_MAIL_FROM"
SECONDS = 20.0
LONGEST_MESSAGE = 1000


class Failed(Struct, frozen=True):
    """One failed execution, as it is kept until receivers are told. Its error was redacted before it was stored."""

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
    """The same where a message is sent again, because it is not known whether it arrived."""
    alert: str
    count: int
    """How many executions failed; the first of them are listed."""
    failures: tuple[Failed, ...]


def failed_of(view: ExecutionView, base: str) -> Failed:
    error = msgspec.json.decode(view.error) if view.error is not None else {}
    return Failed(
        view.id,
        view.workflow,
        view.version,
        moment(view.ended_at or view.created_at).isoformat(),
        str(error.get("code") or ""),
        str(error.get("message") or "no reason recorded")[:LONGEST_MESSAGE],
        str(error.get("node") or ""),
        f"{base}/v1/executions/{view.id}",
    )


def body_of(message: Message) -> bytes:
    """What is posted. Each failure is an execution, with its ``id`` and ``state`` as everywhere; ``execution`` is the
    earlier name of ``id``."""
    told = msgspec.to_builtins(message)
    failures = [{"id": each["execution"], "state": "FAILED", **each} for each in told["failures"]]
    return msgspec.json.encode({**told, "failures": failures})


async def post(receiver: Receiver, message: Message, egress: EgressPolicy | None, now: float) -> None:
    """Raises NotDelivered, without the URL: it may be a secret."""
    clients = HttpClients(egress or ALLOW_EVERYTHING)
    body = body_of(message)
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
    try:
        headers |= signed(receiver.secrets, message.id, body, now)
        target = URL(
            receiver.url
        )  # as the client reads it: what it connects to is judged, not what was typed
        clients.check_host(target.host or "")
        session, limit = clients.session(), aiohttp.ClientTimeout(total=SECONDS)
        async with session.post(
            target, data=body, headers=headers, timeout=limit, allow_redirects=False
        ) as reply:
            if not 200 <= reply.status < 300:
                raise NotDelivered(f"the receiver answered {reply.status}")
    except EgressDenied as error:
        raise NotDelivered(str(error)) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise NotDelivered(f"the receiver cannot be reached ({type(error).__name__})") from None
    finally:
        await clients.close()


def signed(secrets: Sequence[str], id: str, body: bytes, now: float) -> dict[str, str]:
    """Headers as Standard Webhooks wants them. The time is that of the attempt; the id is the same for each of them."""
    rule, found = PRESETS["standard"], dict[str, str]()
    for secret in reversed(secrets):
        before = found.get(rule.header)
        found = sign(rule, secret, body, now, id)
        if before is not None:
            found[rule.header] += f" {before}"
    return found


async def mail(addresses: Sequence[str], message: Message) -> None:
    """By the server that ``DALSEGNO_SMTP_URL`` names. Raises NotDelivered."""
    try:
        await asyncio.to_thread(_send, _letter(addresses, message))
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise NotDelivered(f"the mail server does not take it ({type(error).__name__})") from None


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
