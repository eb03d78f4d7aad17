"""Failure alerts on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from dalsegno.cli.output import iso, print_table, stdout
from dalsegno.cli.problems import Refusal
from dalsegno.server.alerts import Alert


def url_for(mail: Sequence[str], variable: str | None, *, from_stdin: bool) -> str | None:
    """The receiver's URL; None where the alert goes by mail."""
    if variable is not None:
        if variable not in os.environ:
            raise Refusal(f"the variable {variable} with the URL is not set", "Export it first.")
        return os.environ[variable]
    if from_stdin:
        return sys.stdin.read().strip()
    if not mail:
        raise Refusal("no receiver", "Give --mail ADDRESS, or a URL by --env or --stdin.")
    return None


def as_object(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.id,
        "workflow": alert.workflow,
        "target": alert.target,
        "every": alert.every,
        "enabled": alert.enabled,
        "created_at": iso(alert.created_at),
        "signed": alert.signed,
    }


def print_secret(secret: str) -> None:
    print(f"secret, which signs its messages and is shown this once: {secret}")


def print_alerts(found: Sequence[Alert]) -> None:
    console = stdout()
    if not found:
        console.print("no alerts; `dalsegno alerts add ID` adds one", style="dim", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("id", "workflow", "goes to", "every", "state", "signed"):
        table.add_column(title)
    for each in found:
        state = "enabled" if each.enabled else "disabled"
        signed = "yes" if each.signed else "no"
        table.add_row(each.id, each.workflow or "all", each.target, f"{each.every:g} s", state, signed)
    print_table(console, table)
