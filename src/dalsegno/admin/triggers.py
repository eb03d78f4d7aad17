"""Triggers of deployed graphs: schedules and webhooks that ``schedule`` and ``webhook`` nodes define.

- Triggers are named after the workflow and the node, so that deploying the same document again finds them. They
  start the current version.
- A record lists the triggers of each workflow; those of removed nodes are removed with the next version.
- Triggers always belong to the current version, also after concurrent deploys: a deploy stores its version first,
  and then adjusts the triggers to the version that is current at that time. A lock per workflow admits one process
  at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dalsegno.admin.webhook_signatures import PRESETS, new_secret
from dalsegno.admin.webhooks import ID, METHODS, Webhook, WebhookRecords
from dalsegno.engine.engine import Engine
from dalsegno.engine.schedules import NewSchedule, ScheduleRecords
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.subprocesses.job_pool import payload_problems
from dalsegno.errors import Conflict, Finding, InvalidInput, NotFound
from dalsegno.graph.documents.document import LIGHT_SCHEMA_STEPS, SCHEMA_STEPS
from dalsegno.graph.json_schema.shape import found_within
from dalsegno.graph.plan import Plan
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.definition import Definition, DeployedTrigger, TriggerStatus, is_part
from dalsegno.model.execution import ENDED
from dalsegno.ports.node import NodeTypes

KIND = "deployed-triggers"
LOCKS = "deployed-triggers-lock"
LOCKED_FOR = 60.0
"""Seconds after which a lock expires, if its process died."""
LOOK_AGAIN = 0.05
"""Seconds between two attempts to acquire the lock."""
LONGEST_SCHEDULE = 200
KINDS = ("schedule", "webhook")


class _Node(Struct):
    id: str
    type: str = ""
    handler: str = ""
    parameters: dict[str, Any] | None = None
    config: dict[str, Any] | None = None


class _Nodes(Struct):
    nodes: list[_Node] = []


class _Document(Struct):
    """The fields of a graph that are read here; the rest is skipped."""

    nodes: list[_Node] = []
    dag: _Nodes | None = None
    input_schema: dict[str, Any] | None = None


class Made(Struct, frozen=True):
    """The triggers of a workflow's nodes: names of schedules, ids of webhooks."""

    schedules: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()

    def names(self, kind: str) -> tuple[str, ...]:
        return self.schedules if kind == "schedule" else self.webhooks


class Change(Struct, frozen=True):
    """The effect of a deploy on one schedule or webhook."""

    kind: Literal["schedule", "webhook"]
    name: str
    status: TriggerStatus
    about: str
    node: str | None = None
    schedule: NewSchedule | None = None
    webhook: Webhook | None = None
    makes_secret: bool = False

    def as_deployed(self, secret: str | None = None) -> DeployedTrigger:
        return DeployedTrigger(self.kind, self.name, self.status, self.about, self.node, secret)


class Triggers:
    def __init__(
        self,
        schedules: ScheduleRecords,
        webhooks: WebhookRecords,
        types: NodeTypes,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        self.schedules = schedules
        self.webhooks = webhooks
        self.types = types
        self.stack = schedules.stack

    # -- deploys --------------------------------------------------------------------------------------------------

    async def changes(self, workflow: str, kind: str, source: bytes) -> list[Change]:
        """Return the changes that deploying this definition makes. Raises InvalidInput, Conflict, or the reason why
        a secret cannot be stored: then the definition must not be stored."""
        found = await self.would_change(workflow, kind, source)
        if any(each.makes_secret for each in found):
            await self.webhooks.vault.require_key()
        return found

    async def would_change(self, workflow: str, kind: str, source: bytes) -> list[Change]:
        """Return the same changes for a dry run, without creating a secret key."""
        made = await self.made(workflow)
        document = _document_of(kind, source)
        found = [await self._change(workflow, made, *each) for each in self._wanted(document)]
        _refuse_same_paths(found)
        if any(each.kind == "schedule" for each in found):
            await self._check_input(workflow, document)
        return [*found, *await self._obsolete(made, found)]

    async def settle(self, workflow: str) -> tuple[DeployedTrigger, ...]:
        """Create the schedules and webhooks of a workflow's current version, and remove those of earlier ones. Must
        be called after a version is stored: the last of several deploys sees the final version."""
        if not await self._has_any(workflow):
            return ()
        applied: dict[tuple[str, str], DeployedTrigger] = {}
        async with self._alone(workflow):
            settled, current = 0, await self._current(workflow)
            while current is not None and current.version != settled:
                settled = current.version
                changes = await self.would_change(workflow, current.kind, current.source)
                for each in await self._apply_all(workflow, changes):
                    if each.status != "unchanged" or (each.kind, each.name) not in applied:
                        applied[each.kind, each.name] = each
                current = await self._current(workflow)
            if current is None:
                await self._forget_all(workflow)
        return tuple(applied.values())

    async def _has_any(self, workflow: str) -> bool:
        """Whether a version has created triggers, or the current one defines any."""
        if await self._made_any(workflow):
            return True
        current = await self._current(workflow)
        return current is not None and bool(self._wanted(_document_of(current.kind, current.source)))

    async def _current(self, workflow: str) -> Definition | None:
        found = await self.stack.archive.definition(workflow)
        return found if found is not None and not is_part(found) else None

    @asynccontextmanager
    async def _alone(self, workflow: str) -> AsyncIterator[None]:
        """Hold the lock of the workflow's triggers against other processes."""
        while (version := await self._lock(workflow)) is None:  # noqa: ASYNC110 - another process has it
            await asyncio.sleep(LOOK_AGAIN)
        try:
            yield
        finally:
            await self.stack.records.remove(LOCKS, workflow, version)

    async def _lock(self, workflow: str) -> int | None:
        """Return the version of the lock's record; None if another process holds the lock."""
        records, now = self.stack.records, self.stack.ledger.now()
        held = await records.get(LOCKS, workflow)
        if held is not None and msgspec.json.decode(held.data, type=float) > now:
            return None
        until = msgspec.json.encode(now + LOCKED_FOR)
        taken = await records.put(LOCKS, workflow, until, held.version if held is not None else 0)
        return taken.version if taken is not None else None

    async def _apply_all(self, workflow: str, changes: Iterable[Change]) -> tuple[DeployedTrigger, ...]:
        """Apply the changes. They are recorded first, so that a later deploy can continue after a crash."""
        listed = list(changes)
        if not listed:
            return ()
        before = await self.made(workflow)
        wanted = [(each.kind, each.name) for each in listed if each.status != "removed"]
        await self._record(
            workflow, [*wanted, *((kind, name) for kind in KINDS for name in before.names(kind))]
        )
        applied = [await self._apply(each) for each in listed]
        await self._record(workflow, wanted)
        return tuple(applied)

    async def deploy(
        self, workflow: str, kind: str, source: bytes, store: Callable[[], Awaitable[Definition]]
    ) -> Definition:
        """Store a definition and its triggers. Return the definition with the list of its triggers."""
        await self.changes(workflow, kind, source)
        definition = await store()
        return msgspec.structs.replace(definition, triggers=await self.settle(workflow))

    async def remove_all(self, workflow: str) -> None:
        """Remove all triggers after the workflow itself was removed."""
        if await self._made_any(workflow):
            async with self._alone(workflow):
                await self._forget_all(workflow)

    async def _forget_all(self, workflow: str) -> None:
        for change in await self._obsolete(await self.made(workflow), ()):
            await self._apply(change)
        await self.stack.records.remove(KIND, workflow)

    async def made(self, workflow: str) -> Made:
        found = await self.stack.records.get(KIND, workflow)
        return msgspec.json.decode(found.data, type=Made) if found is not None else Made()

    async def _made_any(self, workflow: str) -> bool:
        return await self.made(workflow) != Made()

    async def _is_foreign(self, workflow: str, kind: str, name: str, made: Made) -> bool:
        """Whether a trigger with this name was not created by a deploy; reads the record again, because another
        deploy may have just created it."""
        return name not in made.names(kind) and name not in (await self.made(workflow)).names(kind)

    # -- lookups --------------------------------------------------------------------------------------------------

    def _wanted(self, document: _Document) -> list[tuple[str, str, Any]]:
        """Return node, kind and parameters of every node that defines a schedule or webhook."""
        nodes = document.dag.nodes if document.dag is not None else document.nodes
        found = []
        for node in nodes:
            spec = self.types.find(node.type or node.handler)
            if spec is not None and spec.type in KINDS and spec.control == "trigger":
                parameters = self.types.get(spec.type).parse(dict(node.parameters or node.config or {}))
                found.append((node.id, spec.type, parameters))
        return found

    async def _change(self, workflow: str, made: Made, node: str, kind: str, parameters: Any) -> Change:
        try:
            if kind == "schedule":
                return await self._schedule(workflow, made, node, parameters)
            return await self._webhook(workflow, made, node, parameters)
        except InvalidInput as error:
            raise InvalidInput(f"node '{node}': {error}") from None

    async def _schedule(self, workflow: str, made: Made, node: str, parameters: Any) -> Change:
        name = _short(f"{workflow}/{node}", LONGEST_SCHEDULE)
        new = NewSchedule(name, parameters.cron, workflow, timezone=parameters.timezone)
        spec = new.spec(self.stack.ledger.now())
        about = f"{spec.timing} ({spec.timezone})"
        try:
            known = await self.schedules.describe(name, 1)
        except NotFound:
            known = None
        if known is None or known.state in ENDED:
            return Change("schedule", name, "added", about, node, schedule=new)
        if await self._is_foreign(workflow, "schedule", name, made):
            raise Conflict(
                f"node '{node}' makes the schedule '{name}', and there is one already that was not made by a deploy; "
                "remove it, or rename the node"
            )
        now = known.spec
        is_same = (now.workflow, now.version, now.timing, now.timezone) == (
            spec.workflow,
            spec.version,
            spec.timing,
            spec.timezone,
        )
        return Change("schedule", name, "unchanged" if is_same else "changed", about, node, schedule=new)

    async def _webhook(self, workflow: str, made: Made, node: str, parameters: Any) -> Change:
        method, path = parameters.method, parameters.path.strip("/")
        if method not in METHODS:
            raise InvalidInput(_unfit_method(method))
        name = _webhook_id(workflow, node)
        before = await self.webhooks.find(name)
        if before is not None and await self._is_foreign(workflow, "webhook", name, made):
            raise Conflict(
                f"node '{node}' makes the webhook '{name}', and there is one already that was not made by a deploy; "
                "remove it, or rename the node"
            )
        wanted = before or Webhook(name, path, workflow, PRESETS["github"], created_at=self.stack.clock.now())
        credential = parameters.secret or ""
        wanted = msgspec.structs.replace(
            wanted, path=path, workflow=workflow, methods=(method,), credential=credential
        )
        wanted.check()
        await self.webhooks.check_path(wanted)
        if credential:
            await self.webhooks.secret(wanted)
        makes_secret = not credential and (before is None or bool(before.credential))
        status: TriggerStatus = "added" if before is None else "unchanged" if before == wanted else "changed"
        about = f"{method} /v1/hooks/{path}"
        return Change("webhook", name, status, about, node, webhook=wanted, makes_secret=makes_secret)

    async def _obsolete(self, made: Made, wanted: Iterable[Change]) -> list[Change]:
        """Return the removal of triggers that no node defines any more and that still exist."""
        kept = {(each.kind, each.name) for each in wanted}
        schedules = [
            Change("schedule", name, "removed", "")
            for name in made.schedules
            if ("schedule", name) not in kept and await self.schedules.is_active(name)
        ]
        webhooks = [
            Change("webhook", name, "removed", f"/v1/hooks/{webhook.path}")
            for name in made.webhooks
            if ("webhook", name) not in kept and (webhook := await self.webhooks.find(name)) is not None
        ]
        return [*schedules, *webhooks]

    async def _check_input(self, workflow: str, document: _Document) -> None:
        if not document.input_schema:
            return
        offload = self.schedules.definitions.offload
        problems = await payload_problems(document.input_schema, b"{}", self.limits, offload)
        if problems:
            lines = [f"{pointer or '/'}: {message}" for pointer, message in problems]
            raise InvalidInput(_unfit_input(workflow, lines))

    # -- changes --------------------------------------------------------------------------------------------------

    async def _apply(self, change: Change) -> DeployedTrigger:
        secret: str | None = None
        match change.status:
            case "removed" if change.kind == "schedule":
                await self.schedules.remove(change.name)
            case "removed":
                await self.webhooks.remove(change.name)
            case "added" | "changed" if change.schedule is not None:
                await self.schedules.add(change.schedule, replace=True)
            case "added" | "changed" if change.webhook is not None:
                style = change.webhook.signature.style
                secret = new_secret(style) if change.makes_secret else None
                await self.webhooks.put(change.webhook, secret)
        return change.as_deployed(secret)

    async def _record(self, workflow: str, names: Iterable[tuple[str, str]]) -> None:
        named = sorted(set(names))
        if not named:
            await self.stack.records.remove(KIND, workflow)
            return
        made = Made(*(tuple(name for kind, name in named if kind == each) for each in KINDS))
        await self.stack.records.put(KIND, workflow, msgspec.json.encode(made))


def triggers_of(engine: Engine) -> Triggers:
    """Return the triggers of the engine's open store."""
    schedules = ScheduleRecords(engine.stack, engine.client.committer, engine.definitions)
    webhooks = WebhookRecords(engine.stack.records, engine.vault)
    return Triggers(schedules, webhooks, engine.definitions.types, engine.settings.limits)


def settle_when_deployed(engine: Engine) -> None:
    """Register a hook on deploys: a Python workflow that replaces a graph removes the graph's schedules and
    webhooks."""

    async def settle(workflow: str) -> None:
        await triggers_of(engine).settle(workflow)

    engine.client.settle_triggers = settle


def refused_by_deploy(plan: Plan, *, is_light: bool = False) -> list[Finding]:
    """Return what a deploy refuses of the trigger nodes, whatever the store contains. Raises Heavy if a light check
    is not enough."""
    nodes = [node for node in map(plan.nodes.__getitem__, plan.triggers) if node.type in KINDS]
    found: list[Finding] = []
    if plan.input_schema and any(node.type == "schedule" for node in nodes):
        problems = found_within(
            plan.input_schema, {}, LIGHT_SCHEMA_STEPS if is_light else SCHEMA_STEPS, is_light=is_light
        )
        if problems is None and is_light:
            raise Heavy
        lines = [f"{each.pointer or '/'}: {each.message}" for each in problems or ()]
        if lines:
            found.append(Finding("/input_schema", "schedule-input", _unfit_input(plan.name, lines)))
    paths: dict[str, str] = {}
    for node in nodes:
        if node.type != "webhook":
            continue
        method, path = (
            str(node.parameters.raw.get("method", METHODS[0])).upper(),
            _path_of(node.parameters.raw),
        )
        if method not in METHODS:
            found.append(Finding("/nodes", "webhook-method", f"node '{node.id}': {_unfit_method(method)}"))
        if path in paths:
            found.append(Finding("/nodes", "webhook-path", _same_path(paths[path], node.id, path)))
        paths[path] = node.id
    return found


def _path_of(parameters: Mapping[str, Any]) -> str:
    return str(parameters.get("path", "")).strip("/")


def _unfit_input(workflow: str, lines: Iterable[str]) -> str:
    said = "\n".join(lines)
    return (
        f"a schedule node starts '{workflow}' with the input {{}}, which does not fit its input_schema; allow "
        f"that, or add a schedule with an input instead of the node:\n{said}"
    )


def _unfit_method(method: str) -> str:
    return f"a webhook takes {', '.join(METHODS)}, not {method}: everything that opens an address uses GET"


def _same_path(one: str | None, other: str | None, path: str) -> str:
    return f"the webhook nodes '{one}' and '{other}' have the same path '{path}': it belongs to one of them"


def _document_of(kind: str, source: bytes) -> _Document:
    """Return the nodes of a graph. Scripts and Python workflows have no trigger nodes."""
    return msgspec.json.decode(source, type=_Document) if kind == "graph" else _Document()


def _refuse_same_paths(changes: Iterable[Change]) -> None:
    nodes: dict[str, str | None] = {}
    for each in changes:
        if each.webhook is None:
            continue
        if each.webhook.path in nodes:
            raise InvalidInput(_same_path(nodes[each.webhook.path], each.node, each.webhook.path))
        nodes[each.webhook.path] = each.node


def _webhook_id(workflow: str, node: str) -> str:
    plain = f"{workflow}.{node}"
    if re.fullmatch(ID, plain) is not None:
        return plain
    slug = re.sub("[^A-Za-z0-9_.-]+", "-", plain).lstrip("_.-")[:60] or "webhook"
    return f"{slug}.{_digest(plain)}"


def _short(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[: longest - 9]}.{_digest(name)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
