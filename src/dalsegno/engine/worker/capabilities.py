"""Code that this process lacks and a living worker has: a step that needs it is left to that worker and does not fail.

Two programs on one store, or two versions of one program during a deployment, know different tasks and functions.
Each worker reports in its heartbeats what it can run.

A token that needs a task of no living worker sleeps for growing times, and a worker that has the task wakes it at
once. The process that puts a token to sleep records what the token needs. Workers read these records when they start,
and at intervals.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from zlib import crc32

from msgspec import Struct

from dalsegno.core.scripts.token_bodies import decode_task
from dalsegno.engine.operations.troubles import KIND, StuckReason, decode
from dalsegno.engine.remote.declarations import RemoteDeclarations
from dalsegno.engine.steps.contexts import RunContext
from dalsegno.engine.steps.run_node import PassesThrough
from dalsegno.engine.worker.directory import LiveWorkers
from dalsegno.errors import BadConfiguration, OperatorError
from dalsegno.model.definition import Definition
from dalsegno.model.effect import HurryToken
from dalsegno.model.suggestion import did_you_mean, listed
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.node import NodeContext
from dalsegno.ports.records import Record, Records

VERSIONS_NAMED = 1000
_TASK = "task:"
_NODE = "node:"
_VERSION = "version:"
_KEY = "key:"


def task_offer(name: str) -> str:
    return _TASK + name


def node_offer(name: str) -> str:
    """Return the offer of a node type that is not built in."""
    return _NODE + name


def version_offer(hash: str) -> str:
    """Return the offer of a version of a Python workflow: the worker's own program has exactly this version."""
    return _VERSION + hash


def key_offer(id: str) -> str:
    """Return the offer of a secret key: the worker can verify seals made with it."""
    return _KEY + id


class NotRunnableHere(PassesThrough):
    """A living worker that serves the token's queue has, or may have, what this process lacks."""


class TaskMissing(NotRunnableHere):
    """No living worker that serves the token's queue has it."""

    def __init__(self, message: str, offer: str, missing_for: float) -> None:
        """``missing_for``: seconds for which this process has known that no worker has it."""
        super().__init__(message)
        self.offer = offer
        self.missing_for = missing_for


class RunsInProgram(NotRunnableHere):
    """A remote task: programs that claim its queue run it, not workers of the application."""

    def __init__(self, task: str, queue: str) -> None:
        super().__init__(f"task '{task}' is remote: it runs in a program that claims the queue '{queue}'")
        self.task = task
        self.queue = queue


class OwnWorkflows(Protocol):
    """The Python workflows of this process's program."""

    @property
    def versions(self) -> Container[str]:
        """Content hashes of their versions."""

    def is_newer(self, definition: Definition) -> bool:
        """Return True if it is a later version of one of them."""


class Capabilities:
    def __init__(
        self,
        live_workers: LiveWorkers,
        own: OwnWorkflows,
        archive: Archive,
        declarations: RemoteDeclarations | None = None,
        missing: MissingTasks | None = None,
        tasks: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``missing``: None if a task that no worker has is not waited for. ``tasks``: those of this process."""
        self.live_workers = live_workers
        self._own = own
        self._declarations = declarations
        self._archive = archive
        self._missing = missing
        self._tasks = tasks
        self._versions: OrderedDict[str, str] = OrderedDict()

    def has_version(self, hash: str) -> bool:
        """Return True for a version of this process's own program."""
        return hash in self._own.versions

    def stop_waiting(self) -> None:
        """Fail steps at once from now on whose task or node type no worker has."""
        self._missing = None

    async def look_for_task(self, name: str, run: NodeContext) -> None:
        """Raise NotRunnableHere if a living worker has the task, and TaskMissing if none has it and it is waited
        for.
        """
        if isinstance(run, RunContext):
            await self._look_for_declaration(name)
        await self._look_for(task_offer(name), f"task '{name}'", run, did_you_mean(name, self._tasks()))

    async def look_for_node_type(self, name: str, run: NodeContext) -> None:
        """Do the same for a node that a script runs."""
        await self._look_for(node_offer(name), f"node type '{name}'", run)

    async def _look_for(self, offer: str, what: str, run: NodeContext, hint: str = "") -> None:
        if not isinstance(run, RunContext):
            return
        lease, missing = run.lease, self._missing
        missing_for = missing.known_for(offer, lease.queue) if missing is not None else None
        if missing_for is None:
            if await self._has(offer, lease.queue):
                if missing is not None:
                    missing.found(offer, lease.queue)
                raise NotRunnableHere(f"{what} is not registered in this process; another worker has it")
            if missing is None:
                return
            missing_for = missing.note(offer, lease.queue)
        raise TaskMissing(
            f"{what} is missing in every running worker; start or deploy a program that has it"
            f" ({await self._place(lease)}, queue '{lease.queue}'){hint}",
            offer,
            missing_for,
        )

    async def _place(self, lease: Lease) -> str:
        version = self._versions.get(lease.definition) or await self._version(lease.definition)
        if lease.kind != "task":
            return f"node '{lease.node}' of {version}"
        line = decode_task(lease.data).line
        return f"line {line} of {version}" if line and version else version or "a task on its own"

    async def _version(self, hash: str) -> str:
        """Return a description of the version, empty if no definition has this hash. Cached: it is read once for many
        waiting tokens.
        """
        with _asking(version_offer(hash)):
            found = await self._archive.definition_by_hash(hash) if hash else None
        named = f"version {found.version} of '{found.name}'" if found is not None else ""
        self._versions[hash] = named
        if len(self._versions) > VERSIONS_NAMED:
            self._versions.popitem(last=False)
        return named

    async def _look_for_declaration(self, name: str) -> None:
        if self._declarations is None:
            return
        with _asking(task_offer(name)):
            declared = await self._declarations.of(name)
        if declared is not None:
            raise RunsInProgram(name, declared.queue)

    async def look_for_version(self, definition: Definition, lacking: frozenset[str], queue: str) -> None:
        """Check whether another process should run a turn of a version that is not this program's own, and that uses
        names this program lacks.

        - A living worker has the version: raises NotRunnableHere.
        - The version is newer, and no worker has it: raises BadConfiguration, so that the turn waits for one.
        - The version is older: the turn runs here, and may not need what was removed.
        """
        uses = listed(sorted(lacking))
        if await self._has(version_offer(definition.hash), queue):
            raise NotRunnableHere(
                f"this version of the workflow uses {uses}, which the program of this process does not have; another"
                " worker has the version"
            )
        if self._own.is_newer(definition):
            raise BadConfiguration(
                f"version {definition.version} of '{definition.name}' uses {uses}, which the older program of this"
                " process does not have; start a worker with the newer one"
            )

    async def look_for_key(self, id: str, queue: str) -> None:
        """Raise NotRunnableHere if a living worker has the key. An empty ``id`` means any key."""
        wanted = key_offer(id)

        def has_it(offers: Iterable[str]) -> bool:
            return any(offer.startswith(wanted) if not id else offer == wanted for offer in offers)

        with _asking(wanted):
            found = await self.live_workers.any(lambda info: has_it(info.offers) and queue in info.queues)
        if found:
            raise NotRunnableHere(
                "the snapshot needs a secret key that this process does not have; another worker has it"
            )

    async def _has(self, offer: str, queue: str) -> bool:
        with _asking(offer):
            return await self.live_workers.any(lambda info: offer in info.offers and queue in info.queues)


@contextmanager
def _asking(offer: str) -> Iterator[None]:
    """Raise NotRunnableHere during an outage: a step must not fail because other workers could not be determined."""
    try:
        yield
    except OperatorError as error:
        raise NotRunnableHere(f"cannot check whether another worker has {offer}: {error}") from error


FRESH = 1.0
"""Seconds for which the absence of a task is cached, so that not every token that needs it queries the store."""
FIRST_PAUSE = 2.0
LONGEST_PAUSE = 300.0
LASTING = 5.0
"""Seconds after which a missing task is reported. Before, its only worker may be restarting."""
REMEMBERED = 10_000
"""Missing tasks of which this process remembers since when."""
LOOKS = (1.0, 4.0, 15.0)
"""Pauses between the first checks of a worker: another process may just have put a token to sleep."""
LOOK_EVERY = 60.0
AT_ONCE = 500


class _Absence(Struct):
    since: float
    asked: float


class MissingTasks:
    """Capabilities that no worker had at the last check of this process, by offer and queue."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._missing: OrderedDict[tuple[str, str], _Absence] = OrderedDict()

    def known_for(self, offer: str, queue: str) -> float | None:
        """Return the seconds for which it has been missing; None if that was not checked recently."""
        found = self._missing.get((offer, queue))
        now = self._now()
        return None if found is None or now >= found.asked + FRESH else now - found.since

    def note(self, offer: str, queue: str) -> float:
        """Note that no worker has it. Return the seconds for which it has been missing, 0 if that is new."""
        now = self._now()
        found = self._missing.setdefault((offer, queue), _Absence(now, now))
        found.asked = now
        self._missing.move_to_end((offer, queue))
        if len(self._missing) > REMEMBERED:
            self._missing.popitem(last=False)
        return now - found.since

    def found(self, offer: str, queue: str) -> None:
        self._missing.pop((offer, queue), None)


def pause_before_next_try(missing_for: float, token: str) -> float:
    """Return half the time for which the task has been missing, with jitter by token so that tokens do not return all
    at once.
    """
    pause = min(max(missing_for / 2, FIRST_PAUSE), LONGEST_PAUSE)
    return pause * (0.75 + crc32(token.encode()) % 1000 / 2000)


class LackingTokensWaker:
    """The role that wakes tokens which sleep because no worker had their task, if this worker has it."""

    def __init__(
        self,
        records: Records,
        commit: Callable[[Transition], Awaitable[Outcome]],
        offers: Callable[[], Collection[str]],
        is_ours: Callable[[StuckReason], bool],
    ) -> None:
        """``is_ours``: return True if this process serves the token's queue, or its execution."""
        self._records = records
        self._commit = commit
        self._offers = offers
        self._is_ours = is_ours

    async def run(self) -> None:
        await self.look()
        for pause in LOOKS:
            await asyncio.sleep(pause)
            await self.look()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        offers, after = frozenset(self._offers()), ""
        while page := await self._records.page(KIND, after, AT_ONCE):
            found = [(record, decode(record.data).trouble) for record in page]
            await asyncio.gather(*(self._wake(*each) for each in found if self._can_run(each[1], offers)))
            after = page[-1].id

    def _can_run(self, trouble: StuckReason, offers: Container[str]) -> bool:
        return bool(trouble.needs) and trouble.needs in offers and self._is_ours(trouble)

    async def _wake(self, record: Record, trouble: StuckReason) -> None:
        """Remove the record, then wake the token: if it is put to sleep again, a new record is written."""
        await self._records.remove(KIND, record.id)
        await self._commit(hurry_transition(trouble))


def hurry_transition(trouble: StuckReason) -> Transition:
    """Return the transition that runs the token at once, unless it has run meanwhile."""
    return Transition(trouble.execution, (HurryToken(trouble.id, trouble.attempt or 1),))
