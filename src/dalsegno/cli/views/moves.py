"""``move``, and what ``validate --against-live`` says of moves: chunk by chunk, with the reasons of those refused."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno.cli.output import emit, several, stderr
from dalsegno.engine.operations.moves import Moved, MoveRefusal, MoveReport

SHOWN_IDS = 5
"""Executions that are named for each reason."""


def show_progress(total: MoveReport) -> None:
    """Say on a terminal how far a move has come."""
    console = stderr()
    if console.is_terminal:
        refused = f", {len(total.refusals):,} refused" if total.refusals else ""
        console.print(f"  {total.moved:,} moved{refused} …", style="dim")


def as_object(report: MoveReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    fields.pop("next", None)
    return fields


def show_report(report: MoveReport, *, json: bool) -> None:
    if json:
        emit(as_object(report))
    else:
        print_report(report)


def print_report(report: MoveReport) -> None:
    verb = "could be moved" if report.dry_run else "moved"
    print(
        f"{report.workflow}: {several(report.moved, 'execution')} of version {report.from_version} {verb} to version"
        f" {report.to_version}"
    )
    for line in report_lines(report):
        print(line)


def report_lines(report: MoveReport) -> list[str]:
    """Return what else became of the executions, those refused by their reasons."""
    lines = []
    if report.there:
        lines.append(f"  {several(report.there, 'execution')} had been moved already")
    if report.ended:
        lines.append(f"  {several(report.ended, 'execution')} ended meanwhile")
    by_reason: dict[str, list[MoveRefusal]] = {}
    for refusal in report.refusals:
        by_reason.setdefault(refusal.detail, []).append(refusal)
    for detail, refused in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        lines.append(f"  {several(len(refused), 'execution')} cannot go on there: {_ids(refused)}")
        lines += [f"    {line}" for line in detail.splitlines()]
    return lines


def _ids(refused: list[MoveRefusal]) -> str:
    named = ", ".join(each.execution for each in refused[:SHOWN_IDS])
    more = len(refused) - SHOWN_IDS
    return f"{named} and {more:,} more" if more > 0 else named


def show_moved(moved: Moved, *, json: bool) -> None:
    if json:
        emit(msgspec.to_builtins(moved))
        return
    versions = f"from version {moved.from_version} to version {moved.to_version}"
    match moved.state:
        case "there":
            print(f"{moved.execution} has version {moved.to_version} already")
        case "movable":
            print(f"{moved.execution} could be moved {versions}")
        case _:
            print(f"moved {moved.execution} {versions}")
    for frame in moved.frames:
        print(f"  {frame.function}, line {frame.old_line}: {frame.old_text}")
        print(f"    goes on in line {frame.new_line}: {frame.new_text}")
