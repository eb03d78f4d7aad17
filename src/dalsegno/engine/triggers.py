"""What ``schedule`` and ``webhook`` nodes of a deployed graph make: schedules and webhooks that start it.

They are named after the workflow and the node, so that deploying the same document again finds them. A record says
which a workflow has made: those of nodes that are gone go with the next version. They start the current version.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dalsegno.engine.payload_schema import payload_problems
from dalsegno.engine.schedule_request import NewSchedule
from dalsegno.engine.schedules import ScheduleBook
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.webhook_signatures import PRESETS, new_secret
from dalsegno.engine.webhooks import ID, METHODS, Webhook, WebhookBook
from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.model.definition import Definition, DeployedTrigger, TriggerStatus
from dalsegno.model.execution import ENDED
from dalsegno.ports.node import NodeTypes

KIND = "deployed-triggers"
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
    """All that is read of a graph here; the rest is skipped."""

    nodes: list[_Node] = []
    dag: _Nodes | None = None
    input_schema: dict[str, Any] | None = None


class Made(Struct, frozen=True):
    """What a workflow's nodes have made: names of schedules, ids of webhooks."""

    schedules: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()

    def names(self, kind: str) -> tuple[str, ...]:
        return self.schedules if kind == "schedule" else self.webhooks


class Change(Struct, frozen=True):
    """What deploying does to one schedule or webhook."""

    kind: Literal["schedule", "webhook"]
    name: str
    status: TriggerStatus
    about: str
    node: str | None = None
    schedule: NewSchedule | None = None
    webhook: Webhook | None = None
    makes_secret: bool = False

    def told(self, secret: str | None = None) -> DeployedTrigger:
        return DeployedTrigger(self.kind, self.name, self.status, self.about, self.node, secret)


class Triggers:
    def __init__(
        self,
        schedules: ScheduleBook,
        webhooks: WebhookBook,
        types: NodeTypes,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        self.schedules = schedules
        self.webhooks = webhooks
        self.types = types
        self.stack = schedules.stack

    # -- what a deploy does ---------------------------------------------------------------------------------------

    async def changes(self, workflow: str, kind: str, source: bytes) -> list[Change]:
        """What deploying this definition changes. Raises InvalidInput, Conflict, or why a secret cannot be kept: then
        nothing is to be stored."""
        made = await self.made(workflow)
        document = _read(source) if kind == "graph" else _Document()
        found = [await self._change(workflow, made, *each) for each in self._wanted(document)]
        _refuse_same_paths(found)
        if any(each.kind == "schedule" for each in found):
            await self._check_input(workflow, document)
        if any(each.makes_secret for each in found):
            await self.webhooks.vault.require_key()
        return [*found, *await self._obsolete(made, found)]

    async def apply(self, workflow: str, changes: Iterable[Change]) -> tuple[DeployedTrigger, ...]:
        """After the definition is stored. What was begun is on record first: a later deploy goes on from there."""
        listed = list(changes)
        if not listed:
            return ()
        before = await self.made(workflow)
        wanted = [(each.kind, each.name) for each in listed if each.status != "removed"]
        await self._record(
            workflow, [*wanted, *((kind, name) for kind in KINDS for name in before.names(kind))]
        )
        told = [await self._apply(each) for each in listed]
        await self._record(workflow, wanted)
        return tuple(told)

    async def deploy(
        self, workflow: str, kind: str, source: bytes, store: Callable[[], Awaitable[Definition]]
    ) -> Definition:
        """Stores a definition with what its nodes stand for; the definition says what that is."""
        changes = await self.changes(workflow, kind, source)
        definition = await store()
        return msgspec.structs.replace(definition, triggers=await self.apply(workflow, changes))

    async def remove_all(self, workflow: str) -> None:
        """The workflow itself was removed."""
        for change in await self._obsolete(await self.made(workflow), ()):
            await self._apply(change)
        await self.stack.records.remove(KIND, workflow)

    async def made(self, workflow: str) -> Made:
        found = await self.stack.records.get(KIND, workflow)
        return msgspec.json.decode(found.data, type=Made) if found is not None else Made()

    # -- looking --------------------------------------------------------------------------------------------------

    def _wanted(self, document: _Document) -> list[tuple[str, str, Any]]:
        """Node, kind and parameters of every trigger that starts something by itself."""
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
        if name not in made.schedules:
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
            raise InvalidInput(
                f"a webhook takes {', '.join(METHODS)}, not {method}: whatever looks at an address calls it with GET"
            )
        name = _webhook_id(workflow, node)
        before = await self.webhooks.find(name)
        if before is not None and name not in made.webhooks:
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
        """What the workflow made and no node asks for any more, as far as it still exists."""
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
            lines = "\n".join(f"{pointer or '/'}: {message}" for pointer, message in problems)
            raise InvalidInput(
                f"a schedule node starts '{workflow}' with the input {{}}, which does not fit its input_schema; allow "
                f"that, or add a schedule with an input instead of the node:\n{lines}"
            )

    # -- changing -------------------------------------------------------------------------------------------------

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
        return change.told(secret)

    async def _record(self, workflow: str, names: Iterable[tuple[str, str]]) -> None:
        named = sorted(set(names))
        if not named:
            await self.stack.records.remove(KIND, workflow)
            return
        made = Made(*(tuple(name for kind, name in named if kind == each) for each in KINDS))
        await self.stack.records.put(KIND, workflow, msgspec.json.encode(made))


def _read(source: bytes) -> _Document:
    return msgspec.json.decode(source, type=_Document)


def _refuse_same_paths(changes: Iterable[Change]) -> None:
    nodes: dict[str, str | None] = {}
    for each in changes:
        if each.webhook is None:
            continue
        if each.webhook.path in nodes:
            raise InvalidInput(
                f"the webhook nodes '{nodes[each.webhook.path]}' and '{each.node}' have the same path "
                f"'{each.webhook.path}': it belongs to one of them"
            )
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
