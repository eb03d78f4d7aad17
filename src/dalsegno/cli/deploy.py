"""The work of ``deploy``: check workflows of every kind, compare them with the store or server, and store all or
none.

Findings have the lines of the document. A server checks documents and scripts itself, because its application may
have node types of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from dalsegno.admin.triggers import triggers_of
from dalsegno.app import App
from dalsegno.cli.documents import Document
from dalsegno.cli.errors import InvalidDocument
from dalsegno.cli.programs import PythonDocument, check_script, located
from dalsegno.cli.run.requirements import refuse_document, unknown_tasks
from dalsegno.cli.target.stores import store_exists
from dalsegno.cli.target.target import Target, WorkflowApiArchive, opened, reached
from dalsegno.client.archive import Checked, ServerArchive
from dalsegno.engine.operations.diff import Changes, compare
from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.catalog import Catalog
from dalsegno.model.definition import Definition, DeployedTrigger

Status = Literal["new", "unchanged", "current again"]
"""``current again``: an older version was deployed again."""


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
    """Changes from the previous version; None if there is no previous version, or nothing changed."""
    alias: str | None = None
    alias_before: int | None = None
    triggers: tuple[DeployedTrigger, ...] = ()
    """The changes that its trigger nodes made to schedules and webhooks."""

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
    """Raise InvalidDocument if the document cannot be deployed."""
    if isinstance(document, PythonDocument):
        return  # checked when its file was imported
    if document.is_script:
        _check_script(document, None)
    else:
        compile_document(document, catalog)


def compile_document(document: Document, catalog: Catalog) -> tuple[Compiled, list[dict[str, Any]]]:
    """Return the compiled graph and its warnings. Raise InvalidDocument if it has errors."""
    try:
        compiled = load_graph(document.text, catalog, default_name=document.name)
    except InvalidDefinition as error:
        raise InvalidDocument(document.file, located(error.findings, document.text)) from None
    return compiled, located(compiled.warnings, document.text) if compiled.warnings else []


def check_tasks(app: App, document: Document, compiled: Compiled) -> list[dict[str, Any]]:
    """Return warnings about tasks that the given application lacks; a worker with another application may have
    them.
    """
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
    """Return the workflow's name and the warnings."""
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
    """Deploy one document.

    ``run_here``: refuse what this process cannot run before anything is stored. ``given``: the value of ``--app``, if
    there is one. ``triggers``: also create the schedules and webhooks of the document's trigger nodes.
    """
    name, warnings = _check(app, document, warn_tasks, run_here, given)
    archive = app.client.stack.archive
    before = await archive.definition(name)
    began = app.client.stack.clock.now()
    if triggers:
        app.engine.vault.keys.may_make = True  # a command is run by one user on one machine
    after = await _store(app, document, triggers=triggers)
    deployed = deployed_of(document, before, after, after.created_at >= began, warnings)
    if alias is None:
        return deployed
    known = (await archive.aliases(name)).get(alias)
    await archive.set_alias(name, alias, after.version)
    return replace(deployed, alias=alias, alias_before=known)


async def preview(
    where: Target, documents: Sequence[Document], *, warn_tasks: bool = False, alias: str | None = None
) -> list[Deployed]:
    """Return the effects of a deployment. The store is only read, and never created. Changes of schedules and
    webhooks are not determined on a server.
    """
    app = where.app
    is_new = where.server is None and not await store_exists(app.url)
    staged = [(document, await _stage(app, document, triggers=is_new)) for document in documents]
    previews: list[Deployed] = []
    async with _looking(where) as archive:
        for document, definition in staged:
            _, warnings = _check(app, document, warn_tasks, run_here=False)
            is_at_hand = archive is not None and where.server is None
            found = await _with_triggers(app, definition) if is_at_hand else definition
            deployed = await _previewed(archive, document, found, warnings)
            known = (await archive.aliases(definition.name)).get(alias) if archive and alias else None
            previews.append(replace(deployed, alias=alias, alias_before=known))
    return previews


@asynccontextmanager
async def _looking(where: Target) -> AsyncIterator[WorkflowApiArchive | None]:
    if where.server is None and not await store_exists(where.app.url):
        yield None
        return
    async with reached(where) as api:
        yield api.stack.archive


async def _previewed(
    archive: WorkflowApiArchive | None, document: Document, staged: Definition, warnings: list[dict[str, Any]]
) -> Deployed:
    versions = await archive.versions(staged.name) if archive is not None else []
    before = await archive.definition(staged.name) if archive is not None else None
    same = next((each for each in versions if each.hash == staged.hash), None)
    number = same.version if same is not None else len(versions) + 1
    after = msgspec.structs.replace(staged, version=number)
    return deployed_of(document, before, after, same is None, warnings)


def deployed_of(
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
        program = document.program
        return await triggers_of(app.engine).deploy(
            program.name, "python", b"", lambda: app.client.deploy_script(program)
        )
    if document.is_script:
        return await app.adeploy_script(document.text.decode(), document.name)
    if triggers:
        return await app.adeploy(document.text, document.name)
    return (await app.client.deploy(document.text, document.name, app.task_queue))[0]


async def _stage(app: App, document: Document, *, triggers: bool) -> Definition:
    """Return the definition as a store would hold it, by deploying to a temporary store in memory. ``triggers``: with
    the changes of its trigger nodes."""
    stage = App("memory:", settings=app.settings)
    stage.registry, stage.tasks = app.registry, app.tasks
    async with opened(stage, create=True):
        stored = await _store(stage, document)
        return await _with_triggers(stage, stored) if triggers else stored


async def _with_triggers(app: App, definition: Definition) -> Definition:
    """Return the definition with the changes that its trigger nodes would make to schedules and webhooks of this
    store."""
    changes = await triggers_of(app.engine).would_change(definition.name, definition.kind, definition.source)
    return msgspec.structs.replace(definition, triggers=tuple(each.as_deployed() for each in changes))


async def deploy_there(
    archive: ServerArchive, documents: Sequence[Document], *, alias: str | None = None
) -> list[Deployed]:
    """Deploy to a server. If one document is invalid, none is stored."""
    checked = [(document, await _deploying_check(archive, document)) for document in documents]
    return [await _deploy(archive, document, found, alias) for document, found in checked]


async def _deploying_check(archive: ServerArchive, document: Document) -> Checked:
    found = await archive.validate(document.text, document.name, script=document.is_script)
    if not found.valid:
        raise InvalidDocument(document.file, findings_of(document, found, "error"))
    return found


def findings_of(document: Document, found: Checked, severity: str) -> list[dict[str, Any]]:
    """Return findings with lines. Those of a script have lines; for a graph they are looked up in the text."""
    if document.is_script:
        return [
            {
                "pointer": each.pointer,
                "rule": each.rule or "invalid",
                "severity": severity,
                "message": each.message,
                "line": each.line,
                "column": each.column,
            }
            for each in found.findings
        ]
    findings = [
        Finding(each.pointer, each.rule or "invalid", each.message, severity) for each in found.findings
    ]
    return located(findings, document.text)


async def _deploy(archive: ServerArchive, document: Document, found: Checked, alias: str | None) -> Deployed:
    name = found.name or document.name
    before, known = await archive.definition(name), {each.version for each in await archive.versions(name)}
    stored = await archive.deploy(document.text, document.name, script=document.is_script)
    after = await archive.definition(stored.name, stored.version) or stored
    after = msgspec.structs.replace(after, triggers=stored.triggers)
    new = stored.version not in known
    deployed = deployed_of(document, before, after, new, findings_of(document, found, "warning"))
    if alias is None:
        return deployed
    meant = (await archive.aliases(stored.name)).get(alias)
    await archive.set_alias(stored.name, alias, stored.version)
    return replace(deployed, alias=alias, alias_before=meant)


async def deploy_documents(
    where: Target,
    documents: Sequence[Document],
    *,
    warn_tasks: bool = False,
    alias: str | None = None,
    dry_run: bool = False,
) -> list[Deployed]:
    """Deploy documents. ``dry_run``: return what would change and store nothing. ``warn_tasks``: warn of tasks that
    the application lacks.
    """
    if where.server is not None and not dry_run:
        from dalsegno.cli.run.launch import deploy_all  # noqa: PLC0415 - only who speaks HTTP pays for it

        return await deploy_all(where, documents, alias)
    app = where.app
    for document in documents:
        check_document(document, app.registry)  # if one document is invalid, none is stored
    if dry_run:
        return await preview(where, documents, warn_tasks=warn_tasks, alias=alias)
    async with opened(app, create=True):
        return [
            await deploy_document(app, each, warn_tasks=warn_tasks, alias=alias, triggers=True)
            for each in documents
        ]
