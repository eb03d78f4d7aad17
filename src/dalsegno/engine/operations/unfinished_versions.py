"""Versions that executions in flight run, and what they need that the program lacks: names in the code of Python
workflows, and tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.secrets.vault import NODE_PREFIX
from dalsegno.engine.worker.capabilities import OwnWorkflows, task_offer
from dalsegno.engine.worker.directory import living_workers
from dalsegno.errors import BadConfiguration, InvalidDefinition, NotFound
from dalsegno.graph.checks.node_types import named_tasks
from dalsegno.lang import FlowProgram, FlowSyntaxError
from dalsegno.lang.flow.syntax.validation import task_calls
from dalsegno.model.execution import NOT_ENDED, SCRIPTED, ExecutionKind
from dalsegno.model.suggestion import listed
from dalsegno.ports.archive import ExecutionFilter

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

MOST_EXECUTIONS = 10_000
"""Executions that are read, newest first."""
MOST_INSPECTED = 500
"""Scripts and Python workflows among them that are inspected for requested tasks."""
AT_ONCE = 500
OVER_STATES = ("consumed", "cancelled")

Task: TypeAlias = tuple[str, str | None]
"""Name of a task, and the queue in which it runs, if known."""
IsOffered: TypeAlias = Callable[[Task], bool]


class LackingVersion(Struct, frozen=True):
    """A version that executions in flight run, and its needs that the program lacks."""

    workflow: str
    version: int
    names: tuple[str, ...]
    """Names that the code of a Python workflow uses."""
    tasks: tuple[str, ...]
    executions: int
    """Number of executions, among those that were read."""

    @property
    def sentence(self) -> str:
        count = "1 execution" if self.executions == 1 else f"{self.executions:,} executions"
        uses = [f"uses {listed(list(self.names))}"] if self.names else []
        uses += [f"needs the task {listed(list(self.tasks))}"] if self.tasks else []
        return (
            f"version {self.version} of '{self.workflow}' {' and '.join(uses)}, which this program does not"
            f" have; {count} in flight may wait for it: keep the old name until they have ended, or run a worker with"
            " the old program"
        )


class OwnProgram(Struct, frozen=True):
    workflows: OwnWorkflows
    tasks: Collection[str]
    queues: Collection[str]

    def lacks(self, task: Task) -> bool:
        """Return True for a task that this program lacks. Tasks of other queues belong to other programs."""
        name, queue = task
        return name not in self.tasks and (queue is None or queue in self.queues)


async def offered_by_others(client: Client) -> IsOffered:
    """Return a predicate for the tasks that living workers offer."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for info in await living_workers(client.stack.ledger):
        for offer in info.offers:
            found[offer].update(info.queues)

    def is_offered(task: Task) -> bool:
        name, queue = task
        queues = found.get(task_offer(name), ())
        return bool(queues) and (queue is None or queue in queues)

    return is_offered


class UnfinishedVersion(Struct):
    """A version with executions in flight."""

    hash: str
    workflow: str
    version: int
    kind: ExecutionKind
    executions: int = 0
    """Number of executions, among those that were read."""
    tasks: set[Task] = set()
    """Tasks that it names, or has requested and not yet received."""


async def lacking_versions(
    client: Client, own: OwnProgram, is_offered: IsOffered = lambda task: False
) -> list[LackingVersion]:
    """Return the versions that lack something. Python code of modules that this program has not imported belongs to
    other programs, and so do tasks that ``is_offered`` accepts.
    """
    return await lacking_of(await unfinished_versions(client), own, client.definitions.script, is_offered)


async def lacking_of(
    versions: Collection[UnfinishedVersion],
    own: OwnProgram,
    script: Callable[[str], Awaitable[ScriptProgram]],
    is_offered: IsOffered = lambda task: False,
) -> list[LackingVersion]:
    """Return the versions that lack something. ``script`` loads the stored code of a Python workflow, by content
    hash, with the modules of this process.
    """
    found: list[LackingVersion] = []
    for version in versions:
        names = await _lacking_names(script, own.workflows, version)
        tasks = {task[0] for task in version.tasks if own.lacks(task) and not is_offered(task)}
        if names or tasks:
            lacking = tuple(sorted(names)), tuple(sorted(tasks))
            found.append(LackingVersion(version.workflow, version.version, *lacking, version.executions))
    return sorted(found, key=lambda each: (each.workflow, each.version))


async def unfinished_versions(client: Client) -> list[UnfinishedVersion]:
    """Return the versions that executions in flight of a store run, with their needs."""
    where = ExecutionFilter(states=NOT_ENDED, kinds=("graph", "script", "python"))
    found: dict[str, UnfinishedVersion] = {}
    inspected: defaultdict[str, list[str]] = defaultdict(list)
    before, seen = None, 0
    while seen < MOST_EXECUTIONS and (page := await client.executions(where, before, AT_ONCE)):
        for view in page:
            known = UnfinishedVersion(view.definition, view.workflow, view.version, view.kind)
            version = found.setdefault(view.definition, known)
            version.executions += 1
            if view.kind in SCRIPTED and sum(map(len, inspected.values())) < MOST_INSPECTED:
                inspected[view.definition].append(view.id)
        before, seen = page[-1].id, seen + len(page)
    for version in found.values():
        asked = await _asked_tasks(client, inspected[version.hash])
        version.tasks = asked | await _named_tasks(client, version)
    return list(found.values())


async def _lacking_names(
    script: Callable[[str], Awaitable[ScriptProgram]], own: OwnWorkflows, version: UnfinishedVersion
) -> frozenset[str]:
    if version.kind != "python" or version.hash in own.versions:
        return frozenset()
    try:
        return (await script(version.hash)).lacking()
    except (BadConfiguration, NotFound):
        return frozenset()


async def _named_tasks(client: Client, version: UnfinishedVersion) -> set[Task]:
    """Return the tasks that a graph or script names literally."""
    try:
        if version.kind == "graph":
            program = await client.definitions.by_hash(version.hash)
            nodes, source = program.plan.nodes, program.definition.source
            return {(task, nodes[node].queue) for _, node, task in named_tasks(program.plan, source)}
        code = (await client.definitions.script(version.hash)).code
        return set(task_calls(code.source)) if isinstance(code, FlowProgram) else set()
    except (BadConfiguration, FlowSyntaxError, InvalidDefinition, NotFound):
        return set()  # its modules or node types belong to another program, or its grammar is an earlier one


async def _asked_tasks(client: Client, executions: Iterable[str]) -> set[Task]:
    """Return the requested tasks of unfinished scripts and Python workflows, regardless of the names their code
    uses now.
    """
    found: set[Task] = set()
    for execution in executions:
        inspection = await client.stack.ledger.inspect(execution)
        for token in inspection.tokens if inspection is not None else ():
            is_open = token.kind == "task" and token.state not in OVER_STATES
            if is_open and not token.node.startswith(NODE_PREFIX):
                found.add((token.node, token.queue))
    return found
