"""Definitions: putting and removing them, each in one transaction that holds the name's row."""

from __future__ import annotations

from dalsegno.adapters.postgres.store import Transaction
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, no_such_version
from dalsegno.model.removal import Needs, refuse_needed, unknown

NAMED = 3
"""Executions that a refusal names."""


async def put_definition(rows: Transaction, new: Definition) -> Definition:
    [(highest,)] = await rows.fetch("definition.lock", new.name)
    found = await rows.fetch("definition.by_name_and_hash", new.name, new.hash)
    if not found:
        given = (new.hash, new.kind, new.source, new.created_at)
        found = await rows.fetch("definition.insert", new.name, highest + 1, *given)
    definition = Definition(*found[0])
    await rows.fetch("definition.set_current", definition.name, definition.version)
    return definition


async def set_alias(rows: Transaction, name: str, alias: str, version: int) -> None:
    await rows.fetch("definition.lock_known", [name])
    if not await rows.fetch("definition.version", name, version):
        raise NotFound(no_such_version(name, version))
    await rows.fetch("definition.set_alias", name, alias, version)


async def remove_definition(rows: Transaction, name: str, version: int | None) -> int:
    """How many versions went. Only what nothing needs any more."""
    parts = [part for (part,) in await rows.fetch("definition.parts", name)]
    locked = dict(await rows.fetch("definition.lock_known", [name, *parts]))
    current = locked.get(name)
    if current is None or (version is not None and not await rows.fetch("definition.version", name, version)):
        raise unknown(name, version)
    whole = [name, *parts] if version is None else [name]
    unfinished = await rows.fetch("definition.unfinished_of", whole, version, NAMED)
    aliases = await rows.fetch("definition.aliases", name)
    needs = Needs(
        unfinished=tuple(execution for (execution,) in unfinished),
        aliases=tuple(alias for alias, meant in aliases if version in (None, meant)),
        current=current == version,
    )
    refuse_needed(name, version, needs)
    gone = await rows.fetch("definition.delete", whole, version)
    if version is None:
        await rows.fetch("definition.forget_current", whole)
    return sum(1 for (removed,) in gone if removed == name)
