"""Moves as the routes use them: to a deployed version, or a check against a script that is not deployed."""

from __future__ import annotations

from dalsegno.engine.operations.moves import MoveReport
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.model.definition import Definition, no_such_version, read_version
from dalsegno.server.executions.definitions import prepare_source
from dalsegno.server.http import deadlines
from dalsegno.server.schemas.definitions import DefinitionSource
from dalsegno.server.schemas.moves import MovesRequest
from dalsegno.server.services import ServerServices


async def move_chunk(services: ServerServices, name: str, asked: MovesRequest) -> MoveReport:
    client = services.client
    deadlines.allow()
    if asked.source is None:
        if asked.to is None:
            raise InvalidInput("/body/to: name the version to which executions are moved")
        return await client.move_some(
            name, asked.before, asked.to, dry_run=asked.dry_run, cursor=asked.cursor, limit=asked.limit
        )
    if asked.to is not None or not asked.dry_run:
        raise InvalidInput(
            "/body/source: executions are moved to a deployed version; a source is only checked, with 'dry_run' and"
            " without 'to'"
        )
    old = await client.stack.archive.definition(name, read_version(asked.before))
    if old is None:
        raise NotFound(no_such_version(name, asked.before))
    program = await _undeployed(services, name, asked.source)
    return await client.moving.to_program(
        name, old.version, program, dry_run=True, cursor=asked.cursor, limit=asked.limit
    )


async def _undeployed(services: ServerServices, name: str, source: str) -> ScriptProgram:
    """Return a script under the number that it would get."""
    archive = services.client.stack.archive
    made = await prepare_source(services, DefinitionSource(source=source, kind="script", name=name))
    if made.name != name:
        raise InvalidInput(f"/body/source: it is a script of the name '{made.name}', not '{name}'")
    [newest] = await archive.versions(name, 1)
    number = await archive.version_of(name, made.hash) or newest.version + 1
    definition = Definition(name, number, made.hash, made.kind, made.source)
    program = await services.client.definitions.provisional(definition)
    if not isinstance(program, ScriptProgram):
        raise Conflict(f"'{name}' is a graph there, and a graph's executions keep their version")
    return program
