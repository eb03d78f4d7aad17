"""The report of moving a stored machine to another version of its program."""

from __future__ import annotations

from msgspec import Struct

from dalsegno.lang.runtime.alignment import Doubt, Path, Site

ADVICE_LABEL = 'give the await the same label in both versions, await ….named("…")'
ADVICE_MIGRATION = "give a migration with the new version"


class FrameMove(Struct, frozen=True):
    """A running function: the line where it waits in the old version, and in the new one if there is one."""

    function: str
    old_line: int
    new_line: int | None = None


class Reason(Struct, frozen=True):
    """Why a machine cannot be moved, and what to do about it."""

    message: str
    old_line: int
    new_line: int | None = None
    advice: str = ""

    def __str__(self) -> str:
        there = "" if self.new_line is None else f", line {self.new_line} of the new version"
        advice = f"; {self.advice}" if self.advice else ""
        return f"line {self.old_line}{there}: {self.message}{advice}"


class Movement(Struct, frozen=True):
    """What maps, outermost frame first; and either the moved machine or the reasons against it."""

    frames: tuple[FrameMove, ...] = ()
    reasons: tuple[Reason, ...] = ()
    data: bytes = b""
    """The snapshot of the moved machine; empty if it was refused."""

    @property
    def maps(self) -> bool:
        return not self.reasons


class Immovable(Exception):
    """A single reason against moving the machine."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def doubtful(doubt: Doubt) -> Immovable:
    """Return the refusal of a place without a counterpart."""
    site, lines = doubt.site, sorted({found.line for found in doubt.candidates})
    shown = f"the {site.kind} of {shown_key(site)}"
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {' and '.join(map(str, lines))}"
    if doubt.is_elsewhere:
        message = f"{shown} may be the changed one or the equal one of the new version, in {where}"
    elif len(doubt.candidates) > 1:
        message = f"{shown} may be any of those in {where} of the new version"
    elif doubt.candidates:
        message = f"{shown} may be the one in {where} of the new version, or may be gone"
    else:
        message = f"{shown} is not at this place of the new version: it is gone, or inside other blocks"
    first = lines[0] if lines else None
    return Immovable(Reason(message, site.line, first, ADVICE_LABEL))


def shown_key(site: Site) -> str:
    """Return the name of what a site calls or awaits, for messages."""
    parts = site.key if isinstance(site.key, tuple) else (site.key,)
    return " ".join(f"'{part}'" for part in parts if isinstance(part, str) and part) or "an expression"


def check_blocks(old: Path, new: Path) -> None:
    """Refuse a place whose blocks keep other state than those around its counterpart."""
    leaf = old[-1]
    is_labelled = leaf.label is not None and leaf.label == new[-1].label
    ours, theirs = ([site for site in path if site.keeps_state] for path in (old, new))
    if [(site.kind, site.key) for site in ours] != [(site.kind, site.key) for site in theirs]:
        message = "the loops, 'with' and 'finally' blocks around it are others than before"
        raise Immovable(Reason(message, leaf.line, new[-1].line, "leave them as they were"))
    if is_labelled:
        return
    for before, after in zip(ours, theirs, strict=True):
        if before.detail != after.detail:
            message = f"the '{before.kind}' around it goes through, or enters, something else than before"
            raise Immovable(Reason(message, before.line, after.line, ADVICE_LABEL))
