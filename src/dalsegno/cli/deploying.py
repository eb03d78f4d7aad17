"""Workflows of every kind into a store: checked first, with the lines of what is wrong; compared with what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from dalsegno.app import App
from dalsegno.cli.desk import DeskArchive
from dalsegno.cli.documents import Document
from dalsegno.cli.findings import located
from dalsegno.cli.opening import opened
from dalsegno.cli.places import Where, reached
from dalsegno.cli.problems import InvalidDocument
from dalsegno.cli.python_documents import PythonDocument
from dalsegno.cli.scripts import check_script
from dalsegno.cli.stores import store_exists
from dalsegno.cli.tasks import refuse_document, unknown_tasks
from dalsegno.engine.comparing.versions import Changes, compare
from dalsegno.engine.scripting.sources import compile_checked
from dalsegno.errors import InvalidDefinition
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.model.definition import Definition, DeployedTrigger

Status = Literal["new", "unchanged", "current again"]
"""``current again``: an older version that was deployed once more."""


@dataclass(frozen=True, slots=True)
class Deployed:
    file: str
    name: str
    kind: str
    version: int
    hash: str
    status: Status
    warnings: list[dict[str, Any]]
    previous: int | None = None
    """The version that was current before."""
    changes: Changes | None = None
    """Compared with the previous version; None where there was none, or nothing changed."""
    alias: str | None = None
    alias_before: int | None = None
    triggers: tuple[DeployedTrigger, ...] = ()
    """What its trigger nodes have made."""

    def as_object(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "name": self.name,
            "kind": self.kind,
            "version": self.version,
            "hash": self.hash,
            "status": self.status,
            "previous": self.previous,
            "changes": self.changes.as_object() if self.changes is not None else None,
            "alias": self.alias,
            "warnings": self.warnings,
            "triggers": [msgspec.structs.asdict(each) for each in self.triggers],
        }


# -- checking -------------------------------------------------------------------------------------------------


def check_document(document: Document, catalog: Catalog) -> None:
    """Raises InvalidDocument for what cannot be deployed."""
    if isinstance(document, PythonDocument):
        return  # it was checked when its file was imported
    if document.is_script:
        _check_script(document, None)
    else:
        compile_document(document, catalog)


def compile_document(document: Document, catalog: Catalog) -> tuple[Compiled, list[dict[str, Any]]]:
    """The compiled graph and its warnings; raises InvalidDocument."""
    try:
        compiled = load_graph(document.text, catalog, default_name=document.name)
    except InvalidDefinition as error:
        raise InvalidDocument(document.file, located(error.findings, document.text)) from None
    return compiled, located(compiled.warnings, document.text) if compiled.warnings else []


def check_tasks(app: App, document: Document, compiled: Compiled) -> list[dict[str, Any]]:
    """Warnings about tasks that the given application does not have; a worker with another one may."""
    found = unknown_tasks(app, compiled.plan, compiled.definition_source, "warning", given=True)
    return located(found, document.text) if found else []


def _check_script(document: Document, tasks: list[str] | None) -> tuple[str, list[dict[str, Any]]]:
    checked = check_script(document, tasks)
    if not checked.valid or checked.name is None:
        raise InvalidDocument(document.file, checked.findings)
    return checked.name, checked.findings


def _check(
    app: App, document: Document, warn_tasks: bool, run_here: bool, given: str | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """The name it will have, and what is to be said about it."""
    if isinstance(document, PythonDocument):
        return document.program.name, []
    if document.is_script:
        return _check_script(document, list(app.tasks.names()) if warn_tasks else None)
    compiled, warnings = compile_document(document, app.registry)
    if run_here:
        source = compiled.definition_source
        refuse_document(app, document.file, document.text, compiled.plan, source, given)
    elif warn_tasks:
        warnings += check_tasks(app, document, compiled)
    return compiled.plan.name, warnings


# -- deploying ------------------------------------------------------------------------------------------------


async def deploy_document(
    app: App,
    document: Document,
    *,
    warn_tasks: bool = False,
    run_here: bool = False,
    given: str | None = None,
    alias: str | None = None,
    triggers: bool = False,
) -> Deployed:
    """``run_here``: what this process could not run is refused before anything is stored. ``given``: what the user
    called the application, if it is one of theirs. ``triggers``: with the schedules and webhooks of its nodes."""
    name, warnings = _check(app, document, warn_tasks, run_here, given)
    archive = app.client.stack.archive
    before = await archive.definition(name)
    began = app.client.stack.clock.now()
    if triggers:
        app.engine.vault.keys.may_make = True  # one person, one machine
    after = await _store(app, document, triggers=triggers)
    deployed = told_of(document, before, after, after.created_at >= began, warnings)
    if alias is None:
        return deployed
    known = (await archive.aliases(name)).get(alias)
    await archive.set_alias(name, alias, after.version)
    return replace(deployed, alias=alias, alias_before=known)


async def rehearse(
    where: Where, documents: Sequence[Document], *, warn_tasks: bool = False, alias: str | None = None
) -> list[Deployed]:
    """What deploying would do. The store is only looked at, and not created."""
    app = where.app
    staged = [(document, await _stage(app, document)) for document in documents]
    told: list[Deployed] = []
    async with _looking(where) as archive:
        for document, definition in staged:
            _, warnings = _check(app, document, warn_tasks, run_here=False)
            deployed = await _rehearsed(archive, document, definition, warnings)
            known = (await archive.aliases(definition.name)).get(alias) if archive and alias else None
            told.append(replace(deployed, alias=alias, alias_before=known))
    return told


@asynccontextmanager
async def _looking(where: Where) -> AsyncIterator[DeskArchive | None]:
    if where.server is None and not await store_exists(where.app.url):
        yield None
        return
    async with reached(where) as desk:
        yield desk.stack.archive


async def _rehearsed(
    archive: DeskArchive | None, document: Document, staged: Definition, warnings: list[dict[str, Any]]
) -> Deployed:
    versions = await archive.versions(staged.name) if archive is not None else []
    before = await archive.definition(staged.name) if archive is not None else None
    same = next((each for each in versions if each.hash == staged.hash), None)
    number = same.version if same is not None else len(versions) + 1
    after = msgspec.structs.replace(staged, version=number)
    return told_of(document, before, after, same is None, warnings)


def told_of(
    document: Document,
    before: Definition | None,
    after: Definition,
    new: bool,
    warnings: list[dict[str, Any]],
) -> Deployed:
    unchanged = before is not None and before.version == after.version
    status: Status = "unchanged" if unchanged else "new" if new or before is None else "current again"
    changes = compare(before, after) if before is not None and not unchanged else None
    previous = before.version if before is not None else None
    return Deployed(
        document.file,
        after.name,
        after.kind,
        after.version,
        after.hash,
        status,
        warnings,
        previous,
        changes,
        triggers=after.triggers,
    )


async def _store(app: App, document: Document, *, triggers: bool = False) -> Definition:
    if isinstance(document, PythonDocument):
        return await app.client.deploy_script(document.program)
    if document.is_script and triggers:
        return await app.adeploy_script(document.text.decode(), document.name)
    if document.is_script:
        return await app.client.deploy_script(compile_checked(document.text.decode(), document.name))
    if triggers:
        return await app.adeploy(document.text, document.name)
    return (await app.client.deploy(document.text, document.name, app.task_queue))[0]


async def _stage(app: App, document: Document) -> Definition:
    """The definition as a store would get it, from a store that is thrown away."""
    stage = App("memory:", settings=app.settings)
    stage.registry, stage.tasks = app.registry, app.tasks
    async with opened(stage, create=True):
        return await _store(stage, document)
