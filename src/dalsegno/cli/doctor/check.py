"""One check: its subject, its status, and what to do if it does not pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import stdout
from dalsegno.errors import DalSegnoError

Status = Literal["ok", "warn", "fail"]
STYLES: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    detail: str
    cure: str | None = None


def judge(
    name: str, detail: str, *, fail: bool = False, warn: bool = False, cure: str | None = None
) -> Check:
    status: Status = "fail" if fail else "warn" if warn else "ok"
    return Check(name, status, detail, cure if status != "ok" else None)


def examined(name: str, look: Callable[[], Check | Sequence[Check]], cure: str) -> list[Check]:
    """Return the checks of ``look``. An exception becomes a failed check and does not prevent the others."""
    try:
        found = look()
    except Exception as error:  # noqa: BLE001 - a full disk, a right that is missing, a file that went away meanwhile
        return [broken(name, error, cure)]
    return [found] if isinstance(found, Check) else list(found)


async def examined_soon(name: str, look: Awaitable[Check | Sequence[Check]], cure: str) -> list[Check]:
    """The same for an awaitable."""
    try:
        found = await look
    except Exception as error:  # noqa: BLE001 - as above
        return [broken(name, error, cure)]
    return [found] if isinstance(found, Check) else list(found)


def broken(name: str, error: Exception, cure: str) -> Check:
    if isinstance(error, DalSegnoError):
        return judge(name, str(error), fail=True, cure=cure)
    message = error.strerror if isinstance(error, OSError) else None
    return judge(
        name, f"cannot be examined: {message or f'{type(error).__name__}: {error}'}", fail=True, cure=cure
    )


def as_object(checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "ok": not any(check.status == "fail" for check in checks),
        "checks": [asdict(check) for check in checks],
    }


def print_checks(checks: Sequence[Check]) -> None:
    console = stdout()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        about = Text(check.detail)
        if check.cure:
            about.append(f"\n{check.cure}", "dim")
        table.add_row(Text(check.status, STYLES[check.status]), Text(check.name), about)
    console.print(table)
    failed, warned = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
    warnings = "1 warning" if warned == 1 else f"{warned} warnings"
    verdict = f"{failed} failed, {warnings}" if failed or warned else "all is well"
    console.print(verdict, style="red" if failed else "yellow" if warned else "green")
