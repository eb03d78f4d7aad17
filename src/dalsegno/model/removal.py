"""When a definition may be removed; the same rules and sentences for every store."""

from __future__ import annotations

from msgspec import Struct

from dalsegno.errors import Conflict, NotFound
from dalsegno.model.definition import no_such_version


class Needs(Struct, frozen=True):
    """What still needs a definition."""

    unfinished: tuple[str, ...] = ()
    """Some of the executions."""
    aliases: tuple[str, ...] = ()
    current: bool = False
    """Whether it is the version that a start without a version means."""


def unknown(name: str, version: int | None) -> NotFound:
    if version is not None:
        return NotFound(no_such_version(name, version))
    return NotFound(f"there is no workflow '{name}' in this store")


def refuse_needed(name: str, version: int | None, needs: Needs) -> None:
    """Raises a Conflict that says what needs it and what to do."""
    what = f"'{name}'" if version is None else f"version {version} of '{name}'"
    if needs.unfinished:
        named = ", ".join(needs.unfinished)
        raise Conflict(f"{what} is needed by unfinished executions ({named} …); let them end or cancel them")
    if needs.aliases:
        named = ", ".join(f"'{alias}'" for alias in needs.aliases)
        raise Conflict(
            f"{what} is what the alias {named} means; remove the alias or set it to another version"
        )
    if needs.current:
        raise Conflict(
            f"{what} is the current one; deploy another version first, or remove the workflow with all its versions"
        )
