"""Webhooks on a terminal: reading secrets, sending test deliveries, printing."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
from rich.table import Table

from dalsegno.admin.webhook_signatures import PRESETS, Style, new_secret, sign
from dalsegno.admin.webhooks import Webhook
from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import iso, print_table, stderr, stdout
from dalsegno.cli.target.administration import Sender

DEFAULT_SERVER = "http://127.0.0.1:8700"


def secret_for(style: str, variable: str | None, *, from_stdin: bool, keep: bool) -> tuple[str | None, bool]:
    """Return the secret, and whether it was generated here."""
    if keep or style == "none":
        return None, False
    if variable is not None:
        return secret_in(variable), False
    if from_stdin:
        return sys.stdin.read().rstrip("\r\n"), False
    return new_secret(style), True


def secret_in(variable: str) -> str:
    if variable not in os.environ:
        raise Refusal(f"the variable {variable} with the secret is not set", "Export it first.")
    return os.environ[variable]


def read_style(given: str) -> Style:
    style = next((each for each in PRESETS if each == given), None)
    if style is None:
        raise Refusal(f"signature.style: there is no style '{given}'", f"Styles: {', '.join(PRESETS)}.")
    return style


def as_object(webhook: Webhook) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(webhook)
    return {**fields, "url": f"/v1/hooks/{webhook.path}", "created_at": iso(webhook.created_at)}


def print_added(webhook: Webhook, secret: str | None, *, is_new: bool) -> None:
    """Print the webhook. A generated secret goes to stdout alone, so that it can be piped."""
    if secret is not None:
        print(secret)
    console = stderr() if secret is not None else stdout()
    verb = "added" if is_new else "changed"
    console.print(
        f"{verb} webhook '{webhook.id}': /v1/hooks/{webhook.path} starts {webhook.workflow}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if secret is not None:
        console.print("Its secret is shown this once: give it to the sender.", style="dim")


def print_warning(warning: str) -> None:
    """Print on stderr: stdout may be read by a program."""
    stderr().print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def print_webhooks(found: Sequence[Webhook]) -> None:
    console = stdout()
    if not found:
        console.print("no webhooks; `dalsegno webhook add ID` adds one", style="dim", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("id", "path", "workflow", "signature", "answers", "state"):
        table.add_column(title)
    for each in found:
        answers = "at once" if each.sync_seconds is None else f"after {each.sync_seconds:g} s at most"
        state = "enabled" if each.enabled else "disabled"
        table.add_row(each.id, f"/v1/hooks/{each.path}", each.workflow, each.signature.style, answers, state)
    print_table(console, table)


async def send_signed(
    sender: Sender, id: str, body: Any, to: str | None, secret: str | None
) -> tuple[int, str]:
    """Send a signed delivery; return status and text of the response. Without ``secret`` the stored one signs."""
    webhook = await sender.webhook(id)
    content = msgspec.json.encode(body)
    delivery = f"test-{secrets.token_hex(8)}"
    known = secret if secret is not None or not webhook.is_signed else await sender.secret(webhook)
    headers = sign(webhook.signature, known or "", content, time.time(), delivery)
    headers["content-type"] = "application/json"
    if webhook.delivery_header:
        headers[webhook.delivery_header] = delivery
    url = f"{(to or sender.url or DEFAULT_SERVER).rstrip('/')}/v1/hooks/{webhook.path}"
    try:
        async with httpx.AsyncClient(timeout=90) as client:
            answer = await client.request(webhook.methods[0], url, content=content, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Refusal(
            f"{url} does not answer: {str(error) or type(error).__name__}", "Is the server there? See --to."
        ) from None
    return answer.status_code, answer.text
