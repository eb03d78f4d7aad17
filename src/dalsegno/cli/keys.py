"""API keys as data and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import iso, moment, print_table, span, stderr, stdout
from dalsegno.cli.problems import Refusal
from dalsegno.server.access import GRANTS, Scope
from dalsegno.server.keys import Key


def read_scopes(given: Sequence[str]) -> tuple[Scope, ...]:
    """Several options, or several words with commas."""
    words = [word.strip() for text in given for word in text.split(",")]
    wrong = next((word for word in words if word not in GRANTS), None)
    if wrong is not None:
        raise Refusal(f"there is no scope '{wrong}'", f"Scopes: {', '.join(GRANTS)}.")
    return cast("tuple[Scope, ...]", tuple(words))


def as_object(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": iso(key.created_at),
        "created_by": key.created_by,
        "expires_at": iso(key.expires_at),
        "revoked_at": iso(key.revoked_at),
        "used_at": iso(key.used_at),
    }


def print_new_key(key: Key, text: str) -> None:
    """The key alone on stdout, so that it can be piped to where it is kept."""
    until = f", valid until {moment(key.expires_at)}" if key.expires_at is not None else ""
    print(text)
    console = stderr()
    console.print(f"key '{key.name}' with {', '.join(key.scopes)}{until}", markup=False)
    console.print("It is shown this once. Send it as: Authorization: Bearer ds_…", style="dim", markup=False)


def print_keys(keys: Sequence[Key], now: float) -> None:
    console = stdout()
    if not keys:
        console.print("no keys", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("id", no_wrap=True, style="dim")
    table.add_column("key", no_wrap=True, overflow="ellipsis")
    for title in ("scopes", "made", "used", "state"):
        table.add_column(title, no_wrap=True)
    for key in keys:
        used = f"{span(now - key.used_at)} ago" if key.used_at is not None else "never"
        made = f"{span(now - key.created_at)} ago"
        table.add_row(key.id, Text(key.name, "bold"), ", ".join(key.scopes), made, used, _state(key, now))
    print_table(console, table)


def _state(key: Key, now: float) -> Text:
    wrong = key.why_not(now)
    if wrong is not None:
        return Text("revoked" if key.revoked_at is not None else "expired", "red")
    if key.expires_at is not None:
        return Text(f"expires in {span(key.expires_at - now)}", "yellow")
    return Text("valid", "green")
