"""Definitions from a request to the store and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.engine.comparing import compare, source_text
from dalsegno.engine.definitions import Program
from dalsegno.engine.scripting.sources import check_script, compile_checked, examine
from dalsegno.engine.written import text_of
from dalsegno.errors import DalSegnoError, InvalidDefinition, InvalidInput, NotFound
from dalsegno.graph.build import Compiled
from dalsegno.lang import Finding, FlowProgram, FlowSyntaxError
from dalsegno.model.definition import Definition, check_alias, no_such_version, read_version
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


NAMELESS = "(unnamed)"
"""Stands where a name would, while a definition that has none is compiled; nothing is stored under it."""
NAME_WANTED = (
    "the definition has no name: write 'name' into the graph or into the script's front matter, wrap the script in"
    " 'workflow NAME(inputs) { … }', or give 'name' beside the definition ('?name=…' where it is the whole body)"
)
SHOWN_OF_HASH = 16


def check_source(office: Office, source: DefinitionSource) -> Checked:
    if is_script(source):
        return _check_script(source)
    try:
        compiled = office.client.definitions.load(_graph(source), source.name or NAMELESS)
    except InvalidDefinition as error:
        return Checked(valid=False, kind="graph", findings=[_graph_place(each) for each in error.findings])
    warnings = [_graph_place(each) for each in compiled.warnings]
    return Checked(valid=True, kind="graph", name=_shown(compiled.plan.name), findings=warnings)


def _shown(name: str) -> str | None:
    return name if name != NAMELESS else None


def _graph(source: DefinitionSource) -> Any:
    return source.document if source.document is not None else source.source


def _graph_place(finding: Any) -> Place:
    return Place(pointer=finding.pointer, message=finding.message, rule=finding.rule)


def _check_script(source: DefinitionSource) -> Checked:
    text = source.source or ""
    try:
        found, program = examine(text, source.name or NAMELESS)
    except FlowSyntaxError:
        return Checked(valid=False, kind="script", findings=_script_places(check_script(text)))
    except InvalidInput as error:
        place = Place(pointer="/name", message=str(error))
        return Checked(valid=False, kind="script", findings=[*_script_places(check_script(text)), place])
    places = _script_places(found)
    if any(each.severity == "error" for each in found):
        return Checked(valid=False, kind="script", findings=places)
    return Checked(valid=True, kind="script", name=_shown(program.name), findings=places)


def _script_places(findings: Sequence[Finding]) -> list[Place]:
    return [
        Place(pointer="", message=each.message, rule=each.rule, line=each.line, column=each.column)
        for each in findings
    ]


def compile_named(office: Office, source: DefinitionSource) -> Compiled | FlowProgram:
    """Raises InvalidInput for one without a name: unrelated ones must not become versions of each other."""
    checked = _compile(office, source, source.name or NAMELESS)
    if name_of(checked) == NAMELESS:
        raise InvalidInput(NAME_WANTED)
    return checked


def compile_inline(office: Office, given: dict[str, Any] | str) -> Compiled | FlowProgram:
    """A document, or the text of a script or graph, that comes with a start. One without a name is named after its
    content."""
    source = DefinitionSource(source=given) if isinstance(given, str) else DefinitionSource(document=given)
    checked = _compile(office, source, NAMELESS)
    if name_of(checked) != NAMELESS:
        return checked
    kind = "graph" if isinstance(checked, Compiled) else "script"
    return _compile(office, source, f"{kind}-{checked.hash[:SHOWN_OF_HASH]}")


def _compile(office: Office, source: DefinitionSource, name: str) -> Compiled | FlowProgram:
    """As it would be stored."""
    if is_script(source):
        return compile_checked(source.source or "", name)
    compiled = office.client.definitions.load(_graph(source), name)
    return office.client.with_queues(compiled, office.app.task_queue)


def name_of(checked: Compiled | FlowProgram) -> str:
    return checked.plan.name if isinstance(checked, Compiled) else checked.name


async def store(office: Office, checked: Compiled | FlowProgram, text: str | None) -> Definition:
    """``text``: what it was compiled from, unless that was data."""
    if isinstance(checked, Compiled):
        return (await office.client.deploy(checked, text=text))[0]
    return await office.client.deploy_script(checked)


async def deploy_source(office: Office, source: DefinitionSource) -> DeployedDefinition:
    """Everything is checked before anything is stored."""
    archive = office.client.stack.archive
    if source.alias is not None:
        check_alias(source.alias)
    checked = await aside(compile_named, office, source)
    name = name_of(checked)
    before = await archive.definition(name)
    known = {each.version for each in await archive.versions(name)}
    after = await store(office, checked, source.source)
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
        source=await text_of(office.client.stack.records, found) or source_text(found),
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
