"""Definitions: checks of what a request brings, permission to deploy, storage, replies, and removal of definitions no
longer needed. Only admins deploy under protected names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse

from dalsegno.admin.triggers import Change, triggers_of
from dalsegno.engine.definitions import Program, forget_texts, keep_text, text_of
from dalsegno.engine.schedules import ScheduleRecords
from dalsegno.engine.secrets.definition_approvals import ProtectedName
from dalsegno.engine.steps.budget import light_limits
from dalsegno.engine.subprocesses.examination import TypeSpec, examined, type_spec, value_of
from dalsegno.errors import Conflict, DalSegnoError, Forbidden, InvalidInput, NotFound
from dalsegno.errors import ProtectedName as ProtectedNameRefused
from dalsegno.job_process import EXAMINATIONS, JOBS, NAMELESS, Given, Prepared
from dalsegno.lang.runtime.limits import Heavy, Meter
from dalsegno.model.definition import (
    PART_KIND,
    Definition,
    Version,
    check_alias,
    no_such_version,
    parse_target,
    read_version,
)
from dalsegno.nodes.registry import builtin_registry
from dalsegno.ports.node import NodeTypes
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.http.problems import Place
from dalsegno.server.http.responses import streamed
from dalsegno.server.schemas.definitions import Checked as CheckedReply
from dalsegno.server.schemas.definitions import (
    DefinitionDetail,
    DefinitionInfo,
    DefinitionSource,
    DeployedDefinition,
    Difference,
    TriggerInfo,
)
from dalsegno.server.services import ServerServices
from dalsegno.server.webhooks import webhooks_of

SMALL_SCRIPT = 2_048
SMALL_GRAPH = 4_096
"""Bytes of a definition that is checked in a thread, which shares the interpreter with the event loop: dense
expressions take ten milliseconds a kilobyte. Larger definitions, and those with patterns that compile slowly, go
to a process."""
SMALL_STORED = 65_536
"""Bytes of a stored definition that is serialized in a thread."""


def is_script(source: DefinitionSource) -> bool:
    """Whether a source is a script. If it does not say so: a graph begins with a brace or has a ``nodes`` line, a
    script has a ``workflow``."""
    if source.document is not None or source.kind == "graph":
        return False
    if source.kind == "script":
        return True
    text = (source.source or "").lstrip()
    return not text.startswith("{") and "\nnodes:" not in f"\n{text}" and "\ndag:" not in f"\n{text}"


NAME_WANTED = (
    "the definition has no name: write 'name' into the graph or into the script's front matter, wrap the script in"
    " 'workflow NAME(inputs) { … }', or give 'name' next to the definition ('?name=…' if it is the whole body)"
)


# -- checks -----------------------------------------------------------------------------------------------------


async def check_source(services: ServerServices, source: DefinitionSource) -> CheckedReply:
    found = await _examined(services, "validate", _given(services, source, source.name or NAMELESS))
    return CheckedReply(**{**found, "findings": msgspec.Raw(found["findings"])})


async def prepare_source(services: ServerServices, source: DefinitionSource) -> Prepared:
    """Return the definition of a request in the form in which it would be stored."""
    return await _prepare(services, _given(services, source, source.name or NAMELESS))


async def _prepare(services: ServerServices, given: Given) -> Prepared:
    """Return the definition in the form in which it would be stored."""
    found = await _examined(services, "prepare", given)
    return found if isinstance(found, Prepared) else msgspec.convert(found, Prepared)


async def _examined(services: ServerServices, job: str, given: Given) -> Any:
    """Return the result of a job of `dalsegno.job_process`: run in a thread if the definition is small and its
    patterns are cheap, otherwise in a process."""
    offload, types = services.client.offload, services.client.definitions.types
    if _is_small(given):
        meter = Meter(light_limits(services.client.limits.expressions))
        try:
            return await offload.small(EXAMINATIONS[job], given, types, meter)
        except Heavy:
            pass
    portable = _portable(given)
    if not given.is_script and (own := _own_types(types)):
        return await examined(offload, types, own, job, portable)
    return value_of(await offload.large(job, portable))


def _given(
    services: ServerServices, source: DefinitionSource, name: str, *, names_itself: bool = False
) -> Given:
    limits = services.client.limits.document
    script = is_script(source)
    tasks = [] if script else list(services.app.tasks.names())
    queues = {task: queue for task in tasks if (queue := services.app.task_queue(task)) is not None}
    allowed = {task: dict(limit) for task in tasks if (limit := services.client.task_limit(task)) is not None}
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


def _is_small(given: Given) -> bool:
    if isinstance(given.content, dict):
        return _holds_few(given.content)
    return len(given.content) <= (SMALL_SCRIPT if given.is_script else SMALL_GRAPH)


def _own_types(types: NodeTypes) -> list[TypeSpec]:
    """Return the node types that only this application has and other processes do not know."""
    return [type_spec(types.get(name).spec) for name in types.types() if name not in _everywhere()]


@cache
def _everywhere() -> frozenset[str]:
    return frozenset(builtin_registry().types())


def _holds_few(document: dict[str, Any]) -> bool:
    """Whether the document's JSON is short; counts no further than needed."""
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
    """Return the source in a form that can be sent to another process."""
    if not isinstance(given.content, dict):
        return given
    return msgspec.structs.replace(given, content=msgspec.json.encode(given.content))


async def prepare_inline(services: ServerServices, given: msgspec.Raw | str) -> Prepared:
    """Check a document, or the text of a script or graph, that comes with a start. A definition without a name is
    named after its content."""
    return await _prepare(services, _given(services, _inline_source(given), NAMELESS, names_itself=True))


def _inline_source(given: msgspec.Raw | str) -> DefinitionSource:
    if isinstance(given, str):
        return DefinitionSource(source=given)
    return DefinitionSource.unread(bytes(given))


# -- the store --------------------------------------------------------------------------------------------------


async def store(services: ServerServices, caller: Caller, checked: Prepared, text: str | None) -> Definition:
    """Store a definition. ``text``: the source it was compiled from, if it was text. Parts are stored first, so
    that no stored graph lacks one. Raises ProtectedName."""
    client = services.client
    await check_may_deploy(services, caller, checked.name, checked.hash, [part[0] for part in checked.parts])
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


async def deploy_source(
    services: ServerServices, caller: Caller, source: DefinitionSource
) -> DeployedDefinition:
    """Deploy a source; everything is checked before anything is stored. Raises InvalidInput for a definition
    without a name: unrelated definitions must not become versions of each other."""
    archive = services.client.stack.archive
    if source.alias is not None:
        check_alias(source.alias)
    checked = await prepare_source(services, source)
    name = checked.name
    if name == NAMELESS:
        raise InvalidInput(NAME_WANTED)
    if source.alias is not None:
        await check_may_change(services, caller, name)
    before = await archive.version_of(name)
    is_known = await archive.version_of(name, checked.hash) is not None
    changes = await triggers_of(services.engine).changes(name, checked.kind, checked.source)
    check_may_trigger(caller, changes)
    after = await store(services, caller, checked, source.source)
    triggers = await triggers_of(services.engine).settle(name)
    if source.alias is not None:
        await archive.set_alias(after.name, source.alias, after.version)
    return DeployedDefinition(
        **DefinitionInfo.of(after).model_dump(),
        status=_status(before, after, is_known=is_known),
        previous=before,
        warnings=[Place(**each) for each in checked.warnings],
        triggers=[TriggerInfo.of(each) for each in triggers],
    )


def _status(before: int | None, after: Definition, *, is_known: bool) -> Any:
    if before == after.version:
        return "unchanged"
    return "current again" if is_known else "new"


async def version_of(services: ServerServices, name: str, version: str | None) -> Definition:
    archive = services.client.stack.archive
    wanted = read_version(version)
    found = await archive.definition(name, wanted)
    if found is None:
        if wanted is None or await archive.definition(name) is None:
            raise NotFound(f"there is no workflow '{name}' in this store")
        raise NotFound(no_such_version(name, wanted))
    return found


# -- replies ----------------------------------------------------------------------------------------------------


async def detail_of(
    services: ServerServices, name: str, version: str | None
) -> DefinitionDetail | StreamingResponse:
    found = await version_of(services, name, version)
    aliases = await services.client.stack.archive.aliases(name)
    written = await text_of(services.client.stack.records, found)
    size = len(found.source) + len(written or "")
    text = (
        msgspec.json.encode(written)
        if written is not None
        else await _job(services, size, "text", _fields(found))
    )
    info = DefinitionInfo.of(found).model_dump(mode="json")
    info["first_line"] = (
        await _job(services, size, "first_line", _fields(found)) if found.kind == "python" else 1
    )
    if size > SMALL_STORED:
        return _streamed({**info, "aliases": aliases}, await _large_parts(services, found, text))
    return DefinitionDetail(
        **info,
        aliases=aliases,
        source=msgspec.json.decode(text),
        document=msgspec.json.decode(found.source) if found.kind == "graph" else None,
        input_schema=await _input_schema(services, found),
    )


async def _large_parts(services: ServerServices, found: Definition, text: bytes) -> dict[str, bytes]:
    """Return large fields of a reply as encoded JSON, which is not parsed again."""
    schema = msgspec.json.encode(await _input_schema(services, found))
    return {
        "source": text,
        "document": found.source if found.kind == "graph" else b"null",
        "input_schema": schema,
    }


def _streamed(small: dict[str, Any], large: dict[str, bytes]) -> StreamingResponse:
    """Stream one JSON object made of small fields and of encoded JSON."""
    parts = [msgspec.json.encode(small)[:-1]]
    for name, raw in large.items():
        parts += [b',"%b":' % name.encode(), raw]
    return streamed([*parts, b"}"])


def _fields(definition: Definition) -> dict[str, Any]:
    return msgspec.structs.asdict(definition)


async def _job(services: ServerServices, size: int, name: str, *arguments: Any) -> Any:
    if size <= SMALL_STORED:
        return await services.client.offload.small(JOBS[name], *arguments)
    return value_of(await services.client.offload.large(name, *arguments))


class _Header(msgspec.Struct):
    """The fields of a graph that are read here; the rest is skipped."""

    input_schema: dict[str, Any] | None = None


async def _input_schema(services: ServerServices, definition: Definition) -> dict[str, Any] | None:
    if definition.kind == "graph":
        return msgspec.json.decode(definition.source, type=_Header).input_schema or None
    try:
        program = await services.client.definitions.any_by_hash(definition.hash)
    except DalSegnoError:
        return None  # a Python workflow whose module this process does not have
    schema = program.plan.input_schema if isinstance(program, Program) else program.input_schema
    return dict(schema) if schema is not None else None


async def difference_of(
    services: ServerServices, name: str, before: str, after: str
) -> Difference | StreamingResponse:
    old, new = await version_of(services, name, before), await version_of(services, name, after)
    size = len(old.source) + len(new.source)
    changed, changes = await _job(services, size, "compare", _fields(old), _fields(new))
    small = {"name": name, "before": old.version, "after": new.version, "changed": changed}
    if len(changes) > SMALL_STORED:
        return _streamed(small, {"changes": changes})
    return Difference(**small, changes=msgspec.json.decode(changes))


MOST_NAMED = 10
AT_ONCE = 200


async def remove_definition(services: ServerServices, name: str, version: int | None = None) -> None:
    """Remove a workflow or one version. Schedules and webhooks are checked first; the store checks executions and
    aliases in the transaction of the removal. Triggers that a deploy of the workflow created are removed with it."""
    what = f"'{name}'" if version is None else f"version {version} of '{name}'"
    made = await triggers_of(services.engine).made(name)
    for kind, found in (
        ("schedule", await _schedules(services, name, version)),
        ("webhook", await _webhooks(services, name, version)),
    ):
        needing = [each for each in found if each not in made.names(kind)]
        if needing:
            named = ", ".join(f"'{each}'" for each in needing[:MOST_NAMED])
            raise Conflict(f"{what} is started by the {kind} {named}; remove or change the {kind} first")
    stack = services.client.stack
    gone = [each for each in await stack.archive.versions(name) if version in (None, each.version)]
    await stack.archive.remove_definition(name, version)
    await forget_texts(stack.records, gone)
    for each in gone:
        await services.client.definition_approvals.withdraw(each.hash)
    services.client.definitions.forget(name)
    if version is None:
        await triggers_of(services.engine).remove_all(name)


async def _schedules(services: ServerServices, name: str, version: int | None) -> list[str]:
    client = services.client
    schedules = ScheduleRecords(client.stack, client.committer, client.definitions)
    specs = [view.spec for view in await schedules.list() if view.state != "FAILED"]
    return [spec.name for spec in specs if _needs(spec.workflow, spec.version, name, version)]


async def _webhooks(services: ServerServices, name: str, version: int | None) -> list[str]:
    """Return the webhooks that use the definition, including disabled ones: enabling does not check the definition
    again."""
    webhooks = webhooks_of(services)
    needing: list[str] = []
    after = ""
    while page := await webhooks.page(after, AT_ONCE):
        needing += [each.id for each in page if _needs(*parse_target(each.workflow), name, version)]
        after = page[-1].id
    return needing


def _needs(workflow: str, wanted: Version, name: str, version: int | None) -> bool:
    """Whether a trigger needs this version. One without a version follows the current version, and one with an
    alias the alias; those are protected themselves."""
    return workflow == name and (version is None or read_version(wanted) == version)


# -- permission to deploy: only admins deploy under protected names ------------------------------------------


def approver(caller: Caller) -> str | None:
    """Return the name under which a caller's deploy counts as approved; None for a caller without the scope
    ``admin``."""
    return caller.name if "admin" in caller.scopes else None


async def check_may_deploy(
    services: ServerServices, caller: Caller, name: str, content: str, parts: Sequence[str] = ()
) -> None:
    """Check that a caller may deploy under a name. Raises ProtectedName, unless the same content is already the
    current version, in which case nothing changes. ``parts``: names of the scripts inside a graph."""
    if approver(caller) is not None:
        return
    for each in (name, *parts):
        protected = await services.engine.vault.protected_names.protecting(each)
        if protected is not None:
            current = await services.client.stack.archive.definition(name)
            if current is None or current.hash != content:
                raise _refusal(caller, each, protected)


def check_may_trigger(caller: Caller, changes: Sequence[Change]) -> None:
    """Check that a caller may change these triggers. A deploy grants no rights that `/v1/webhooks` does not:
    adding, changing and removing webhooks needs the scope ``admin``. Schedules need the scope of a deploy.
    Raises Forbidden."""
    webhook = next((each for each in changes if each.kind == "webhook" and each.status != "unchanged"), None)
    if webhook is None or approver(caller) is not None:
        return
    verb = {"added": "add", "changed": "change", "removed": "remove"}[webhook.status]
    raise Forbidden(
        f"deploying this would {verb} the webhook '{webhook.name}', which needs the scope 'admin'; '{caller.name}' has "
        f"{', '.join(sorted(caller.scopes))}"
    )


async def check_may_change(services: ServerServices, caller: Caller, name: str) -> None:
    """Check that a caller may change the version that a name or its aliases refer to. Raises ProtectedName."""
    if approver(caller) is None:
        protected = await services.engine.vault.protected_names.protecting(name)
        if protected is not None:
            raise _refusal(caller, name, protected)


def _refusal(caller: Caller, name: str, protected: ProtectedName) -> ProtectedNameRefused:
    by = f"the credential '{protected.credential}' lists" if protected.credential else "an admin protects"
    return ProtectedNameRefused(
        f"the name '{name[:200]}' is protected: {by} '{protected.name}'. A key with the scope 'admin' can deploy it, "
        f"or change its aliases; '{caller.name}' has {', '.join(sorted(caller.scopes))}. Without one, choose another "
        "name"
    )
