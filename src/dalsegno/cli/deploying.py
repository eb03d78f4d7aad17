"""Documents into a store: checked first, with the lines of what is wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dalsegno.app import App
from dalsegno.cli.documents import Document
from dalsegno.cli.findings import located
from dalsegno.cli.problems import InvalidDocument
from dalsegno.cli.tasks import refuse_document, unknown_tasks
from dalsegno.errors import InvalidDefinition
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Deployed:
    file: str
    name: str
    version: int
    hash: str
    status: str
    """``new``, ``unchanged``, or ``current again`` for an older version that was deployed once more."""
    warnings: list[dict[str, Any]]

    def as_object(self) -> dict[str, Any]:
        return asdict(self)


def compile_document(document: Document, catalog: Catalog) -> tuple[Compiled, list[dict[str, Any]]]:
    """The compiled graph and its warnings; raises InvalidDocument."""
    try:
        compiled = load_graph(document.text, catalog, default_name=document.name)
    except InvalidDefinition as error:
        raise InvalidDocument(document.file, located(error.findings, document.text)) from None
    return compiled, located(compiled.warnings, document.text) if compiled.warnings else []


def check_tasks(app: App, document: Document, compiled: Compiled) -> list[dict[str, Any]]:
    """Warnings about tasks that the given application does not have; a worker with another one may."""
    found = unknown_tasks(app, compiled.plan, compiled.definition_source, "warning")
    return located(found, document.text) if found else []


async def deploy_document(
    app: App, document: Document, *, warn_tasks: bool = False, run_here: bool = False
) -> Deployed:
    """``run_here``: what this process could not run is refused before anything is stored."""
    compiled, warnings = compile_document(document, app.registry)
    if run_here:
        refuse_document(app, document.file, document.text, compiled.plan, compiled.definition_source)
    elif warn_tasks:
        warnings += check_tasks(app, document, compiled)
    archive = app.client.stack.archive
    before = await archive.definition(compiled.plan.name)
    began = app.client.stack.clock.now()
    after, _ = await app.client.deploy(document.text, document.name, app.task_queue)
    if before is not None and before.version == after.version:
        status = "unchanged"
    else:
        status = "new" if before is None or after.created_at >= began else "current again"
    return Deployed(document.file, after.name, after.version, after.hash, status, warnings)
