"""Removing definitions that nothing needs any more."""

from __future__ import annotations

from dalsegno.engine.schedules import ScheduleBook
from dalsegno.engine.written import forget_texts
from dalsegno.errors import Conflict
from dalsegno.model.definition import Version, parse_target, read_version
from dalsegno.server.deliveries import book_of
from dalsegno.server.office import Office

MOST_NAMED = 10
AT_ONCE = 200


async def remove_definition(office: Office, name: str, version: int | None = None) -> None:
    """Schedules and webhooks are looked at first; the store itself sees to executions and aliases, in one
    transaction. Those that a deploy of the workflow made go with it."""
    what = f"'{name}'" if version is None else f"version {version} of '{name}'"
    made = await office.engine.triggers.made(name)
    for kind, found in (
        ("schedule", await _schedules(office, name, version)),
        ("webhook", await _webhooks(office, name, version)),
    ):
        needing = [each for each in found if each not in made.names(kind)]
        if needing:
            named = ", ".join(f"'{each}'" for each in needing[:MOST_NAMED])
            raise Conflict(f"{what} is started by the {kind} {named}; remove or change the {kind} first")
    stack = office.client.stack
    gone = [each for each in await stack.archive.versions(name) if version in (None, each.version)]
    await stack.archive.remove_definition(name, version)
    await forget_texts(stack.records, gone)
    for each in gone:
        await office.client.definition_approvals.withdraw(each.hash)
    office.client.definitions.forget(name)
    if version is None:
        await office.engine.triggers.remove_all(name)


async def _schedules(office: Office, name: str, version: int | None) -> list[str]:
    client = office.client
    book = ScheduleBook(client.stack, client.committer, client.definitions)
    specs = [view.spec for view in await book.list() if view.state != "FAILED"]
    return [spec.name for spec in specs if _needs(spec.workflow, spec.version, name, version)]


async def _webhooks(office: Office, name: str, version: int | None) -> list[str]:
    """Those that are switched off, too: they are switched on again without a look at what they start."""
    book = book_of(office)
    needing: list[str] = []
    after = ""
    while page := await book.page(after, AT_ONCE):
        needing += [each.id for each in page if _needs(*parse_target(each.workflow), name, version)]
        after = page[-1].id
    return needing


def _needs(workflow: str, wanted: Version, name: str, version: int | None) -> bool:
    """One without a version follows the current one, and one with an alias the alias: those are guarded themselves."""
    return workflow == name and (version is None or read_version(wanted) == version)
