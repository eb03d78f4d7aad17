"""Definitions from a request to the store and back."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno import lang
from dalsegno.engine.comparing import compare, source_text
from dalsegno.engine.definitions import Program
from dalsegno.engine.scripting.sources import InvalidScript, compile_checked
from dalsegno.errors import DalSegnoError, InvalidDefinition, InvalidInput, NotFound
from dalsegno.lang import FlowSyntaxError
from dalsegno.model.definition import Definition, no_such_version, read_version
from dalsegno.server.office import Office
from dalsegno.server.problems import Place
from dalsegno.server.schemas.definitions import (
    Checked,
    DefinitionDetail,
    DefinitionInfo,
    DefinitionSource,
    DeployedDefinition,
    Difference,
)


def is_script(source: DefinitionSource) -> bool:
    """Where it does not say so: a graph begins with a brace or has a ``nodes`` line, a script has a ``workflow``."""
    if source.document is not None or source.kind == "graph":
        return False
    if source.kind == "script":
        return True
    text = (source.source or "").lstrip()
    return not text.startswith("{") and "\nnodes:" not in f"\n{text}" and "\ndag:" not in f"\n{text}"


def check_source(office: Office, source: DefinitionSource) -> Checked:
    if is_script(source):
        return _check_script(source)
    try:
        compiled = office.client.definitions.load(_graph(source), source.name)
    except InvalidDefinition as error:
        return Checked(valid=False, kind="graph", findings=[_graph_place(each) for each in error.findings])
    warnings = [_graph_place(each) for each in compiled.warnings]
    return Checked(valid=True, kind="graph", name=compiled.plan.name, findings=warnings)


def _graph(source: DefinitionSource) -> Any:
    return source.document if source.document is not None else source.source


def _graph_place(finding: Any) -> Place:
    return Place(pointer=finding.pointer, message=finding.message, rule=finding.rule)


def _check_script(source: DefinitionSource) -> Checked:
    text = source.source or ""
    findings = [
        Place(pointer="", message=each.message, rule=each.rule, line=each.line, column=each.column)
        for each in lang.validate(text)
    ]
    try:
        program = compile_checked(text, source.name)
    except (FlowSyntaxError, InvalidScript):
        return Checked(valid=False, kind="script", findings=findings)
    except InvalidInput as error:
        return Checked(
            valid=False, kind="script", findings=[*findings, Place(pointer="/name", message=str(error))]
        )
    return Checked(valid=True, kind="script", name=program.name, findings=findings)


async def deploy_source(office: Office, source: DefinitionSource) -> DeployedDefinition:
    client = office.client
    archive = client.stack.archive
    script = compile_checked(source.source or "", source.name) if is_script(source) else None
    checked = None if script is not None else client.definitions.load(_graph(source), source.name)
    name = script.name if script is not None else checked.plan.name if checked is not None else ""
    before = await archive.definition(name)
    known = {each.version for each in await archive.versions(name)}
    if script is not None:
        after = await client.deploy_script(script)
    else:
        after, checked = await client.deploy(_graph(source), source.name, office.app.task_queue)
    if source.alias is not None:
        await archive.set_alias(after.name, source.alias, after.version)
    status = _status(before, after, known)
    return DeployedDefinition(
        **DefinitionInfo.of(after).model_dump(),
        status=status,
        previous=before.version if before is not None else None,
        warnings=[_graph_place(each) for each in checked.warnings] if checked is not None else [],
    )


def _status(before: Definition | None, after: Definition, known: set[int]) -> Any:
    if before is not None and before.version == after.version:
        return "unchanged"
    return "current again" if after.version in known else "new"


async def version_of(office: Office, name: str, version: str | None) -> Definition:
    archive = office.client.stack.archive
    wanted = read_version(version)
    found = await archive.definition(name, wanted)
    if found is None:
        if wanted is None or await archive.definition(name) is None:
            raise NotFound(f"there is no workflow '{name}' in this store")
        raise NotFound(no_such_version(name, wanted))
    return found


async def detail_of(office: Office, name: str, version: str | None) -> DefinitionDetail:
    found = await version_of(office, name, version)
    return DefinitionDetail(
        **DefinitionInfo.of(found).model_dump(),
        aliases=await office.client.stack.archive.aliases(name),
        source=source_text(found),
        document=msgspec.json.decode(found.source) if found.kind == "graph" else None,
        input_schema=await _input_schema(office, found),
    )


async def _input_schema(office: Office, definition: Definition) -> dict[str, Any] | None:
    try:
        program = await office.client.definitions.any_by_hash(definition.hash)
    except DalSegnoError:
        return None  # a Python workflow whose module this process does not have
    schema = program.plan.input_schema if isinstance(program, Program) else program.input_schema
    return dict(schema) if schema is not None else None


async def difference_of(office: Office, name: str, before: str, after: str) -> Difference:
    old, new = await version_of(office, name, before), await version_of(office, name, after)
    changes = compare(old, new)
    return Difference(
        name=name, before=old.version, after=new.version, changed=bool(changes), changes=changes.as_object()
    )
