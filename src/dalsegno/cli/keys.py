"""API keys as data and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import iso, moment, print_table, span, stderr, stdout
from dalsegno.cli.problems import Refusal
from dalsegno.server.access import GRANTS, Scope
from dalsegno.server.keys import ALL_QUEUES, Key
from dalsegno.server.quotas import NAMES, Quotas, read_quotas

DEFAULT = "default"
"""Takes a quota back to the server's default."""


def read_scopes(given: Sequence[str]) -> tuple[Scope, ...]:
    """Several options, or several words with commas."""
    words = [word.strip() for text in given for word in text.split(",")]
    wrong = next((word for word in words if word not in GRANTS), None)
    if wrong is not None:
        raise Refusal(f"there is no scope '{wrong}'", f"Scopes: {', '.join(GRANTS)}.")
    return cast("tuple[Scope, ...]", tuple(words))


def read_quota_options(given: Mapping[str, str | None]) -> dict[str, int | None]:
    """Those that are given: a number, 0 for no limit, or the word for the server's default."""
    return {name: _read_quota(name, text) for name, text in given.items() if text is not None}


def _read_quota(name: str, text: str) -> int | None:
    if text == DEFAULT:
        return None
    if text.replace("_", "").replace(",", "").isdecimal():
        return int(text.replace("_", "").replace(",", ""))
    option = name.replace("_", "-")
    raise Refusal(
        f"--{option} {text}: that is not a number", f"Write a number, 0 for no limit, or '{DEFAULT}'."
    )


def read_default_quotas(given: Sequence[str]) -> Quotas:
    """``starts-per-minute=600``, several times."""
    found: dict[str, int | None] = {}
    for text in given:
        name, _, number = text.partition("=")
        found[name.strip().replace("-", "_")] = _read_quota("quota", number.strip())
    return read_quotas(found)


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
        "queues": list(key.queues) if key.queues is not None else None,
        "quotas": _set_quotas(key),
    }


def _set_quotas(key: Key) -> dict[str, int]:
    return {name: value for name in NAMES if (value := getattr(key.quotas, name)) is not None}


def print_new_key(key: Key, text: str) -> None:
    """The key alone on stdout, so that it can be piped to where it is kept."""
    until = f", valid until {moment(key.expires_at)}" if key.expires_at is not None else ""
    print(text)
    console = stderr()
    queues = f" for {_queues(key)}" if key.queues is not None else ""
    console.print(f"key '{key.name}' with {', '.join(key.scopes)}{queues}{until}", markup=False)
    console.print("It is shown this once. Send it as: Authorization: Bearer ds_…", style="dim", markup=False)


def print_keys(keys: Sequence[Key], now: float) -> None:
    console = stdout()
    if not keys:
        console.print("no keys", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("id", no_wrap=True, style="dim")
    table.add_column("key", no_wrap=True, overflow="ellipsis")
    for title in ("scopes", "queues", "made", "used", "state"):
        table.add_column(title, no_wrap=True)
    with_quotas = any(map(_set_quotas, keys))
    if with_quotas:
        table.add_column("quotas")
    for key in keys:
        used = f"{span(now - key.used_at)} ago" if key.used_at is not None else "never"
        made = f"{span(now - key.created_at)} ago"
        row = (
            key.id,
            Text(key.name, "bold"),
            ", ".join(key.scopes),
            _queues(key),
            made,
            used,
            _state(key, now),
        )
        table.add_row(*row, *((_quotas(key),) if with_quotas else ()))
    print_table(console, table)


def _queues(key: Key) -> Text:
    """All of them is worth a warning where nobody has said so."""
    if key.queues is None:
        return Text("all queues", "yellow") if key.serves_all else Text("")
    return Text("all queues" if ALL_QUEUES in key.queues else ", ".join(key.queues))


def _quotas(key: Key) -> str:
    found = _set_quotas(key).items()
    return ", ".join(
        f"{name.replace('_', ' ')} {f'{value:,}' if value else 'no limit'}" for name, value in found
    )


def _state(key: Key, now: float) -> Text:
    wrong = key.why_not(now)
    if wrong is not None:
        return Text("revoked" if key.revoked_at is not None else "expired", "red")
    if key.expires_at is not None:
        return Text(f"expires in {span(key.expires_at - now)}", "yellow")
    return Text("valid", "green")
