"""Documents into a store: checked first, with the lines of what is wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dalsegno.app import App
from dalsegno.cli.documents import Document
from dalsegno.cli.findings import located
from dalsegno.cli.problems import InvalidDocument
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


async def deploy_document(app: App, document: Document) -> Deployed:
    compiled, warnings = compile_document(document, app.registry)
    archive = app.client.stack.archive
    before = await archive.definition(compiled.plan.name)
    began = app.client.stack.clock.now()
    after, _ = await app.client.deploy(document.text, document.name, app.task_queue)
    if before is not None and before.version == after.version:
        status = "unchanged"
    else:
        status = "new" if before is None or after.created_at >= began else "current again"
    return Deployed(document.file, after.name, after.version, after.hash, status, warnings)
