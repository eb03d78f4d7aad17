"""Definitions from a request to the store and back."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse

from dalsegno.engine.definitions import Program
from dalsegno.engine.written import keep_text, text_of
from dalsegno.errors import Conflict, DalSegnoError, InvalidInput, NotFound
from dalsegno.job_process import JOBS, NAMELESS, Given, Prepared, prepared, validation, value_of
from dalsegno.model.definition import PART_KIND, Definition, check_alias, no_such_version, read_version
from dalsegno.nodes.registry import builtin_registry
from dalsegno.server.access import Caller
from dalsegno.server.deploy_permission import (
    approver,
    check_may_change,
    check_may_deploy,
    check_may_trigger,
)
from dalsegno.server.office import Office
from dalsegno.server.problems import Place
from dalsegno.server.replies import streamed
from dalsegno.server.schemas.definitions import Checked as CheckedReply
from dalsegno.server.schemas.definitions import (
    DefinitionDetail,
    DefinitionInfo,
    DefinitionSource,
    DeployedDefinition,
    Difference,
    TriggerInfo,
)

SMALL_SCRIPT = 2_048
SMALL_GRAPH = 4_096
"""Bytes of what is checked in a thread, which shares the interpreter with the loop: dense expressions take ten
milliseconds a kilobyte. The rest goes to a process."""
SMALL_STORED = 65_536
"""Bytes of a stored definition that is written out in a thread."""


def is_script(source: DefinitionSource) -> bool:
    """Where it does not say so: a graph begins with a brace or has a ``nodes`` line, a script has a ``workflow``."""
    if source.document is not None or source.kind == "graph":
        return False
    if source.kind == "script":
        return True
    text = (source.source or "").lstrip()
    return not text.startswith("{") and "\nnodes:" not in f"\n{text}" and "\ndag:" not in f"\n{text}"


NAME_WANTED = (
    "the definition has no name: write 'name' into the graph or into the script's front matter, wrap the script in"
    " 'workflow NAME(inputs) { … }', or give 'name' beside the definition ('?name=…' where it is the whole body)"
)


# -- checks -----------------------------------------------------------------------------------------------------


async def check_source(office: Office, source: DefinitionSource) -> CheckedReply:
    given = _given(office, source, source.name or NAMELESS)
    if _is_small(office, given):
        found = await office.client.offload.small(validation, given, office.client.definitions.types)
    else:
        found = value_of(await office.client.offload.large("validate", _portable(given)))
    return CheckedReply(**{**found, "findings": msgspec.Raw(found["findings"])})


async def _prepare(office: Office, given: Given) -> Prepared:
    """As it would be stored."""
    if _is_small(office, given):
        return await office.client.offload.small(prepared, given, office.client.definitions.types)
    reply = await office.client.offload.large("prepare", _portable(given))
    return msgspec.convert(value_of(reply), Prepared)


def _given(office: Office, source: DefinitionSource, name: str, *, names_itself: bool = False) -> Given:
    limits = office.client.limits.document
    script = is_script(source)
    tasks = [] if script else list(office.app.tasks.names())
    queues = {task: queue for task in tasks if (queue := office.app.task_queue(task)) is not None}
    allowed = {task: dict(limit) for task in tasks if (limit := office.client.task_limit(task)) is not None}
    content = source.raw if source.raw is not None else source.document
    return Given(
        script,
        content if content is not None else source.source or "",
        name,
        limits.max_bytes,
        limits.max_depth,
        queues,
        allowed,
        names_itself,
    )


def _is_small(office: Office, given: Given) -> bool:
    """Node types that only this application has are not known in other processes."""
    if isinstance(given.content, dict):
        return _holds_few(given.content) or _mentions_own_types(office, msgspec.json.encode(given.content))
    if len(given.content) <= (SMALL_SCRIPT if given.is_script else SMALL_GRAPH):
        return True
    return not given.is_script and _mentions_own_types(office, given.content)


def _mentions_own_types(office: Office, content: str | bytes) -> bool:
    """Whether a graph may have nodes of them."""
    own = set(office.client.definitions.types.types()) - _everywhere()
    text = content if isinstance(content, bytes) else content.encode(errors="replace")
    return any(each.encode() in text for each in own)


@cache
def _everywhere() -> frozenset[str]:
    return frozenset(builtin_registry().types())


def _holds_few(document: dict[str, Any]) -> bool:
    """Whether its JSON is short: counted no further than that takes."""
    left, stack = SMALL_GRAPH, [document]
    while stack and left > 0:
        value: Any = stack.pop()
        left -= len(value) + 4 if isinstance(value, str) else 4
        if isinstance(value, dict):
            stack.extend(value.values())
            left -= sum(map(len, value))
        elif isinstance(value, list):
            stack.extend(value)
    return left > 0


def _portable(given: Given) -> Given:
    """For another process."""
    if not isinstance(given.content, dict):
        return given
    return msgspec.structs.replace(given, content=msgspec.json.encode(given.content))


async def prepare_inline(office: Office, given: msgspec.Raw | str) -> Prepared:
    """A document, or the text of a script or graph, that comes with a start. One without a name is named after its
    content."""
    return await _prepare(office, _given(office, _inline_source(given), NAMELESS, names_itself=True))


def _inline_source(given: msgspec.Raw | str) -> DefinitionSource:
    if isinstance(given, str):
        return DefinitionSource(source=given)
    return DefinitionSource.unread(bytes(given))


# -- the store --------------------------------------------------------------------------------------------------


async def store(office: Office, caller: Caller, checked: Prepared, text: str | None) -> Definition:
    """``text``: what it was compiled from, unless that was data. Parts first: no stored graph lacks one. Raises
    ProtectedName."""
    client = office.client
    await check_may_deploy(office, caller, checked.name, checked.hash, [part[0] for part in checked.parts])
    archive = client.stack.archive
    for name, node, _, _ in checked.parts:
        current = await archive.definition(name)
        if current is not None and current.kind != PART_KIND:
            raise Conflict(
                f"the script of node '{node}' is stored under the name '{name}', which is taken by a workflow; "
                "rename the node"
            )
    for name, _, content, program in checked.parts:
        await archive.put_definition(name, content, PART_KIND, program)
    definition = await archive.put_definition(checked.name, checked.hash, checked.kind, checked.source)
    approved_by = approver(caller)
    if approved_by is not None:
        parts = [content for _, _, content, _ in checked.parts]
        await client.definition_approvals.approve(definition, parts, approved_by)
    if text is not None and checked.kind == "graph":
        await keep_text(client.stack.records, definition, text)
    client.definitions.forget(definition.name)
    return definition


async def deploy_source(office: Office, caller: Caller, source: DefinitionSource) -> DeployedDefinition:
    """Everything is checked before anything is stored. Raises InvalidInput for one without a name: unrelated ones must
    not become versions of each other."""
    archive = office.client.stack.archive
    if source.alias is not None:
        check_alias(source.alias)
    checked = await _prepare(office, _given(office, source, source.name or NAMELESS))
    name = checked.name
    if name == NAMELESS:
        raise InvalidInput(NAME_WANTED)
    if source.alias is not None:
        await check_may_change(office, caller, name)
    before = await archive.definition(name)
    known = {each.version for each in await archive.versions(name)}
    changes = await office.engine.triggers.changes(name, checked.kind, checked.source)
    check_may_trigger(caller, changes)
    after = await store(office, caller, checked, source.source)
    triggers = await office.engine.triggers.apply(name, changes)
    if source.alias is not None:
        await archive.set_alias(after.name, source.alias, after.version)
    status = _status(before, after, known)
    return DeployedDefinition(
        **DefinitionInfo.of(after).model_dump(),
        status=status,
        previous=before.version if before is not None else None,
        warnings=[Place(**each) for each in checked.warnings],
        triggers=[TriggerInfo.of(each) for each in triggers],
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


# -- replies ----------------------------------------------------------------------------------------------------


async def detail_of(office: Office, name: str, version: str | None) -> DefinitionDetail | StreamingResponse:
    found = await version_of(office, name, version)
    aliases = await office.client.stack.archive.aliases(name)
    written = await text_of(office.client.stack.records, found)
    size = len(found.source) + len(written or "")
    text = (
        msgspec.json.encode(written)
        if written is not None
        else await _job(office, size, "text", _fields(found))
    )
    info = DefinitionInfo.of(found).model_dump(mode="json")
    if size > SMALL_STORED:
        return _streamed({**info, "aliases": aliases}, await _large_parts(office, found, text))
    return DefinitionDetail(
        **info,
        aliases=aliases,
        source=msgspec.json.decode(text),
        document=msgspec.json.decode(found.source) if found.kind == "graph" else None,
        input_schema=await _input_schema(office, found),
    )


async def _large_parts(office: Office, found: Definition, text: bytes) -> dict[str, bytes]:
    """Fields of a reply as JSON that is not read again."""
    schema = msgspec.json.encode(await _input_schema(office, found))
    return {
        "source": text,
        "document": found.source if found.kind == "graph" else b"null",
        "input_schema": schema,
    }


def _streamed(small: dict[str, Any], large: dict[str, bytes]) -> StreamingResponse:
    """One JSON object of small fields and of JSON that is not read again."""
    parts = [msgspec.json.encode(small)[:-1]]
    for name, raw in large.items():
        parts += [b',"%b":' % name.encode(), raw]
    return streamed([*parts, b"}"])


def _fields(definition: Definition) -> dict[str, Any]:
    return msgspec.structs.asdict(definition)


async def _job(office: Office, size: int, name: str, *arguments: Any) -> Any:
    if size <= SMALL_STORED:
        return await office.client.offload.small(JOBS[name], *arguments)
    return value_of(await office.client.offload.large(name, *arguments))


class _Header(msgspec.Struct):
    """All that is read of a graph here; the rest is skipped."""

    input_schema: dict[str, Any] | None = None


async def _input_schema(office: Office, definition: Definition) -> dict[str, Any] | None:
    if definition.kind == "graph":
        return msgspec.json.decode(definition.source, type=_Header).input_schema or None
    try:
        program = await office.client.definitions.any_by_hash(definition.hash)
    except DalSegnoError:
        return None  # a Python workflow whose module this process does not have
    schema = program.plan.input_schema if isinstance(program, Program) else program.input_schema
    return dict(schema) if schema is not None else None


async def difference_of(office: Office, name: str, before: str, after: str) -> Difference | StreamingResponse:
    old, new = await version_of(office, name, before), await version_of(office, name, after)
    size = len(old.source) + len(new.source)
    changed, changes = await _job(office, size, "compare", _fields(old), _fields(new))
    small = {"name": name, "before": old.version, "after": new.version, "changed": changed}
    if len(changes) > SMALL_STORED:
        return _streamed(small, {"changes": changes})
    return Difference(**small, changes=msgspec.json.decode(changes))
