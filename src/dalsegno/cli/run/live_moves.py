"""Which executions in flight could go on with a program that is not deployed yet, and which could not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from msgspec import Struct

from dalsegno.app import App
from dalsegno.cli.documents import Document
from dalsegno.cli.target.server import remote_client
from dalsegno.cli.target.target import opened
from dalsegno.engine.client import Client
from dalsegno.engine.operations.moves import MoveReport, move_all
from dalsegno.engine.operations.unfinished_versions import UnfinishedVersion, unfinished_versions
from dalsegno.engine.scripts.programs import compile_checked, definition_hash
from dalsegno.lang import FlowProgram
from dalsegno.lang.python import PythonProgram
from dalsegno.model.execution import SCRIPTED


class LiveMoves(Struct, frozen=True):
    reports: tuple[MoveReport, ...] = ()
    """For each version with executions in flight, what became of them in a dry run."""
    unchecked: tuple[str, ...] = ()
    """Python workflows whose executions can only be checked where their program is."""

    @property
    def are_all_movable(self) -> bool:
        return not any(report.refusals for report in self.reports)


async def moves_here(app: App, documents: Sequence[Document]) -> LiveMoves:
    """Try the executions of the store of ``app`` with these scripts, and with the application's workflows."""
    async with opened(app) as client:
        found = [code async for code in _programs(app, documents)]
        versions = await unfinished_versions(client) if found else []
        reports = [
            report for code in found for report in await _tried(client, code, _of(versions, code.name))
        ]
    return LiveMoves(tuple(reports))


async def _programs(app: App, documents: Sequence[Document]) -> AsyncIterator[FlowProgram | PythonProgram]:
    for document in documents:
        yield compile_checked(document.text.decode(), document.name)
    for name in app.workflows.names():
        code = app.workflows.program(name)
        if code is not None:
            yield code


async def _tried(
    client: Client, code: FlowProgram | PythonProgram, versions: Sequence[UnfinishedVersion]
) -> list[MoveReport]:
    """Try the executions of each version that is not the same as the program."""
    others = [each for each in versions if each.hash != definition_hash(code)]
    if not others:
        return []
    [newest] = await client.stack.archive.versions(code.name, 1)
    number = await client.stack.archive.version_of(code.name, definition_hash(code))
    program = client.definitions.undeployed(code, number or newest.version + 1)
    trial = partial(client.moving.to_program, target=program, dry_run=True)
    return [
        await move_all(lambda cursor, each=each: trial(code.name, each.version, cursor=cursor))  # type: ignore[misc]
        for each in others
    ]


async def moves_there(server: str, app: App, documents: Sequence[Document]) -> LiveMoves:
    """Let a server try its executions with these scripts."""
    reports: list[MoveReport] = []
    async with remote_client(server) as there:
        versions = await there.aunfinished_versions()
        for document in documents:
            source = document.text.decode()
            code = compile_checked(source, document.name)
            for each in _of(versions, code.name):
                if each.hash == definition_hash(code):
                    continue
                trial = partial(
                    there.client.move_some, code.name, each.version, None, dry_run=True, source=source
                )
                reports.append(await move_all(lambda cursor, trial=trial: trial(cursor=cursor)))  # type: ignore[misc]
    mine = set(app.workflows.names())
    unchecked = {each.workflow for each in versions if each.kind == "python" and each.workflow in mine}
    return LiveMoves(tuple(reports), tuple(sorted(unchecked)))


def _of(versions: Sequence[UnfinishedVersion], workflow: str) -> list[UnfinishedVersion]:
    return [each for each in versions if each.workflow == workflow and each.kind in SCRIPTED]
