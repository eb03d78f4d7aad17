"""Definitions from a request to the store and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.engine.comparing import compare, source_text
from dalsegno.engine.definitions import Program
from dalsegno.engine.scripting.sources import check_script, compile_checked, examine
from dalsegno.errors import DalSegnoError, InvalidDefinition, InvalidInput, NotFound
from dalsegno.graph.build import Compiled
from dalsegno.lang import Finding, FlowProgram, FlowSyntaxError
from dalsegno.lang.script.validation import finding_of
from dalsegno.model.definition import Definition, no_such_version, read_version
from dalsegno.server.aside import aside
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
    try:
        found, program = examine(text, source.name)
    except FlowSyntaxError as error:
        return Checked(valid=False, kind="script", findings=_script_places([finding_of(error)]))
    except InvalidInput as error:
        place = Place(pointer="/name", message=str(error))
        return Checked(valid=False, kind="script", findings=[*_script_places(check_script(text)), place])
    places = _script_places(found)
    if any(each.severity == "error" for each in found):
        return Checked(valid=False, kind="script", findings=places)
    return Checked(valid=True, kind="script", name=program.name, findings=places)


def _script_places(findings: Sequence[Finding]) -> list[Place]:
    return [
        Place(pointer="", message=each.message, rule=each.rule, line=each.line, column=each.column)
        for each in findings
    ]


def _compile(office: Office, source: DefinitionSource) -> Compiled | FlowProgram:
    if is_script(source):
        return compile_checked(source.source or "", source.name)
    return office.client.definitions.load(_graph(source), source.name)


async def deploy_inline(office: Office, given: dict[str, Any] | str) -> Definition:
    """A document, or the text of a script or graph, that comes with a start: checked beside the loop, then stored."""
    source = DefinitionSource(source=given) if isinstance(given, str) else DefinitionSource(document=given)
    return await _store(office, await aside(_compile, office, source))


async def _store(office: Office, checked: Compiled | FlowProgram) -> Definition:
    if isinstance(checked, Compiled):
        return (await office.client.deploy(checked, task_queue=office.app.task_queue))[0]
    return await office.client.deploy_script(checked)


async def deploy_source(office: Office, source: DefinitionSource) -> DeployedDefinition:
    client = office.client
    archive = client.stack.archive
    checked = await aside(_compile, office, source)
    name = checked.plan.name if isinstance(checked, Compiled) else checked.name
    before = await archive.definition(name)
    known = {each.version for each in await archive.versions(name)}
    if isinstance(checked, Compiled):
        after, checked = await client.deploy(checked, task_queue=office.app.task_queue)
    else:
        after = await client.deploy_script(checked)
    if source.alias is not None:
        await archive.set_alias(after.name, source.alias, after.version)
    status = _status(before, after, known)
    return DeployedDefinition(
        **DefinitionInfo.of(after).model_dump(),
        status=status,
        previous=before.version if before is not None else None,
        warnings=[_graph_place(each) for each in checked.warnings] if isinstance(checked, Compiled) else [],
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
