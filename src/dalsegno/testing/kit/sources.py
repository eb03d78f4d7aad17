"""Workflows as tests specify them: a deployed one by name, a file, a script's source text, a graph document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dalsegno.app import App
from dalsegno.engine.client import Client
from dalsegno.errors import InvalidInput
from dalsegno.lang import compile as compile_script
from dalsegno.model.definition import Definition

SCRIPTS = (".flow",)
GRAPHS = (".json", ".yaml", ".yml")
_NAME = re.compile(r"[\w.-]+(@[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """``document`` is None for a name."""

    name: str | None
    document: str | Mapping[str, Any] | None = None
    is_script: bool = False
    path: Path | None = None

    @property
    def named(self) -> str | None:
        """Return the name if this source is an already deployed workflow."""
        return self.name if self.document is None else None

    async def deploy(self, app: App, client: Client) -> Definition:
        if self.document is None:
            raise InvalidInput(f"{self.name!r} is a name; give a file, a source text or a document to deploy")
        if self.is_script:
            return await client.deploy_script(compile_script(str(self.document), self.name))
        definition, _ = await client.deploy(self.document, self.name, app.task_queue)
        return definition


def read_source(workflow: str | Path | Mapping[str, Any], name: str | None = None) -> Source:
    if isinstance(workflow, Mapping):
        return Source(name, workflow)
    if isinstance(workflow, Path) or workflow.endswith((*SCRIPTS, *GRAPHS)):
        return _read_file(Path(workflow), name)
    if _NAME.fullmatch(workflow):
        return Source(workflow)
    return Source(name or "script", workflow, is_script=True)


def _read_file(path: Path, name: str | None) -> Source:
    if path.suffix not in (*SCRIPTS, *GRAPHS):
        listed = ", ".join((*SCRIPTS, *GRAPHS))
        raise InvalidInput(f"{path}: a workflow's file ends with one of {listed}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"the workflow {path} cannot be read: {error.strerror}") from error
    return Source(name or path.stem, text, path.suffix in SCRIPTS, path.resolve())
