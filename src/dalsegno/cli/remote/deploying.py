"""Documents and scripts into a server's store. It checks them: its application may have node types of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dalsegno.cli.deploying import Deployed, told_of
from dalsegno.cli.documents import Document
from dalsegno.cli.findings import located
from dalsegno.cli.problems import InvalidDocument
from dalsegno.client.archive import Checked, ServerArchive
from dalsegno.errors import Finding


async def deploy_there(
    archive: ServerArchive, documents: Sequence[Document], *, alias: str | None = None
) -> list[Deployed]:
    """All are right, or none is stored."""
    checked = [(document, await _check(archive, document)) for document in documents]
    return [await _deploy(archive, document, found, alias) for document, found in checked]


async def _check(archive: ServerArchive, document: Document) -> Checked:
    found = await archive.validate(document.text, document.name, script=document.is_script)
    if not found.valid:
        raise InvalidDocument(document.file, findings_of(document, found, "error"))
    return found


def findings_of(document: Document, found: Checked, severity: str) -> list[dict[str, Any]]:
    """A script's findings name their lines; those of a graph are looked for in the text."""
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
    told = [Finding(each.pointer, each.rule or "invalid", each.message, severity) for each in found.findings]
    return located(told, document.text)


async def _deploy(archive: ServerArchive, document: Document, found: Checked, alias: str | None) -> Deployed:
    name = found.name or document.name
    before, known = await archive.definition(name), {each.version for each in await archive.versions(name)}
    stored = await archive.deploy(document.text, document.name, script=document.is_script)
    after = await archive.definition(stored.name, stored.version) or stored
    after = msgspec.structs.replace(after, triggers=stored.triggers)
    new = stored.version not in known
    deployed = told_of(document, before, after, new, findings_of(document, found, "warning"))
    if alias is None:
        return deployed
    meant = (await archive.aliases(stored.name)).get(alias)
    await archive.set_alias(stored.name, alias, stored.version)
    return replace(deployed, alias=alias, alias_before=meant)
