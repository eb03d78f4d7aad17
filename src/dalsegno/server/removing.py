"""Removing definitions that nothing needs any more."""

from __future__ import annotations

from dalsegno.core.schedules import ScheduleSpec
from dalsegno.engine.schedules import ScheduleBook
from dalsegno.errors import Conflict
from dalsegno.model.definition import read_version
from dalsegno.server.office import Office


async def remove_definition(office: Office, name: str, version: int | None = None) -> None:
    """Schedules are looked at first; the store itself sees to executions and aliases, in one transaction."""
    needing = [spec.name for spec in await _schedules(office) if _needs(spec, name, version)]
    if needing:
        what = f"'{name}'" if version is None else f"version {version} of '{name}'"
        named = ", ".join(f"'{each}'" for each in needing[:10])
        raise Conflict(f"{what} is started by the schedule {named}; remove or change the schedule first")
    await office.client.stack.archive.remove_definition(name, version)
    office.client.definitions.forget(name)


async def _schedules(office: Office) -> list[ScheduleSpec]:
    client = office.client
    book = ScheduleBook(client.stack, client.committer, client.definitions)
    return [view.spec for view in await book.list() if view.state != "FAILED"]


def _needs(spec: ScheduleSpec, name: str, version: int | None) -> bool:
    """One without a version follows the current one, and one with an alias the alias: those are guarded themselves."""
    return spec.workflow == name and (version is None or read_version(spec.version) == version)
