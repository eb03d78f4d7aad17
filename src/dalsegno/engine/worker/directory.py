"""The directory of workers, built from heartbeats: who is alive, which queues are served, and who could continue an
execution.

- The name of a worker process shows, on the same machine, whether the process still lives. A dead process's leases
  can then be taken over at once instead of after their expiry.
- Each heartbeat writes a description of the worker, for people, into its row in the ledger.
- Until the leases of a dead worker end, executions it held tokens of report it as lost.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.diagnosis import Lost, Wait, command, needing
from dalsegno.engine.remote.declarations import LastClaim, RemoteDeclarations, read_claim, read_declaration
from dalsegno.model.inspection import Inspection
from dalsegno.model.suggestion import listed
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, Lease, TokenView, module_of
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import Ledger, WorkerView
from dalsegno.ports.records import Record
from dalsegno.ports.task_transport import OURS, ForeignWorker
from dalsegno.version import __version__


def worker_name() -> str:
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}:{uuid4().hex[:8]}"


def dead_among(workers: Sequence[str]) -> list[str]:
    """Return those that were processes of this machine and have ended. The others may be alive: only their leases
    show that.
    """
    return [worker for worker in workers if _is_dead(worker)]


def dead_workers(workers: Sequence[WorkerView], now: float) -> set[str]:
    """Return the workers whose leases have ended, and those that were processes of this machine and have ended."""
    gone = set(dead_among([view.id for view in workers]))
    return {view.id for view in workers if view.id in gone or view.expires_at <= now}


def _is_dead(worker: str) -> bool:
    parts = worker.rsplit(":", 3)
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdigit() or parts[2] == "?":
        return False
    return _started(int(parts[1])) != parts[2]


def _machine() -> str:
    """Return an id of host, boot and PID namespace: process ids mean nothing after a reboot or in another
    container.
    """
    boot_id = _read("/proc/sys/kernel/random/boot_id").strip()[:8]
    space = _read_link("/proc/self/ns/pid")
    return f"{socket.gethostname()}:{boot_id}:{space}"


def _started(process: int) -> str:
    """Return the start time of a process in clock ticks, "gone" if it has ended, "?" if the system does not report
    it.
    """
    if not Path("/proc/self/stat").exists():
        return "?"
    stat = _read(f"/proc/{process}/stat")
    # A zombie still has an entry, but will never commit again.
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return "gone"
    return fields[19]


def _read_link(path: str) -> str:
    try:
        return Path(path).readlink().name.strip("pid:[]")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


SHOWN = 20
"""Running steps that are listed; the others are only counted."""


class Running(Struct, frozen=True, omit_defaults=True):
    """A step in progress."""

    execution: str
    node: str
    kind: str
    queue: str
    attempt: int = 1


class WorkerInfo(Struct, frozen=True, omit_defaults=True):
    queues: tuple[str, ...] = ()
    concurrency: int = 0
    since: float = 0.0
    heard: float = 0.0
    """Time of writing: its last heartbeat."""
    host: str = ""
    process: int = 0
    running: tuple[Running, ...] = ()
    """Running steps at the last heartbeat, at most ``SHOWN``."""
    remote: str | None = None
    """Name of a remote worker, whose leases a server holds for it."""
    tasks: tuple[str, ...] = ()
    """Tasks that a remote worker holds."""
    offers: tuple[str, ...] = ()
    """Capabilities that not every worker has: see `capabilities`."""
    via: str = ""
    """The broker over which a worker of another program takes its tasks."""
    carries: str = ""
    """A queue whose tasks are leased under this name for a broker: it is no worker."""
    version: str = ""
    """Version of the process that wrote this: the worker itself, or the server of a remote worker. Empty if that
    version does not report it.
    """


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


class PresentWorker(Protocol):
    concurrency: int

    @property
    def name(self) -> str: ...

    @property
    def queues(self) -> tuple[str, ...]: ...


class ServingWorker(Protocol):
    """A worker of this process, as its description reads it."""

    concurrency: int
    running: dict[str, Lease]
    offers: Callable[[], tuple[str, ...]]

    @property
    def queues(self) -> tuple[str, ...]: ...


def present(worker: PresentWorker, clock: Clock) -> Callable[[], ForeignWorker]:
    """Return a function that describes the worker for other programs."""
    info = {OURS: __version__, "host": socket.gethostname(), "process": os.getpid()}
    return lambda: ForeignWorker(worker.name, worker.queues, worker.concurrency, clock.now(), info)


def describe(worker: ServingWorker, clock: Clock) -> Callable[[], bytes]:
    """Return a function that describes the worker. It is called from the heartbeat's thread, so it only copies."""
    since, host = clock.now(), socket.gethostname()

    def info() -> bytes:
        running = running_of(list(worker.running.values()))
        return write_info(
            WorkerInfo(
                worker.queues,
                worker.concurrency,
                since,
                clock.now(),
                host,
                os.getpid(),
                running,
                offers=worker.offers(),
            )
        )

    return info


def running_of(leases: Iterable[Lease]) -> tuple[Running, ...]:
    """Return the first of the running steps, as they are shown."""
    return tuple(
        Running(lease.execution, lease.node, lease.kind, lease.queue, lease.attempt)
        for lease in islice(leases, SHOWN)
    )


def write_info(info: WorkerInfo) -> bytes:
    return _encode(replace(info, version=info.version or __version__))


def read_info(info: bytes) -> WorkerInfo:
    """Read a description written by any version; empty if it cannot be read."""
    try:
        return _decode(info) if info else WorkerInfo()
    except msgspec.DecodeError:
        return WorkerInfo()


class WorkerSource(Protocol):
    """The calls of a ledger that read its workers."""

    def now(self) -> float: ...

    async def workers(self) -> Sequence[WorkerView]: ...


def lost_workers(workers: Sequence[WorkerView], inspection: Inspection, now: float) -> Mapping[str, Lost]:
    """Return the lost workers of an execution by the name under which they hold leases: those whose leases have
    ended, and those that were processes of this machine. A worker of another machine whose row is gone is omitted:
    its leases are being released now.
    """
    owners = {token.owner for token in inspection.tokens if token.state == "leased" and token.owner}
    if not owners:
        return {}
    gone = set(dead_among(sorted(owners)))
    holding = [view for view in workers if view.id in owners]
    dead = dead_workers(holding, now)
    found = {view.id: _lost(view, now) for view in holding if view.id in dead}
    forgotten = {name: Lost(f"its worker {name} is dead") for name in gone - found.keys()}
    return found | forgotten


def _lost(view: WorkerView, now: float) -> Lost:
    heard = read_info(view.info).heard
    since = f" (last heard of at {_clock(heard)})" if heard else ""
    remote = remote_worker_of(view.id)
    name = remote or view.id
    if view.expires_at > now:
        then = f"its lease ends at {_clock(view.expires_at)}, then another worker takes it"
    else:
        then = f"its lease expired at {_clock(view.expires_at)}: a scheduler releases it"
    return Lost(f"its worker {name} is dead{since}; {then}", view.expires_at, heard or None, bool(remote))


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class WorkerSeen(Struct, frozen=True):
    """A worker process, or a remote worker."""

    id: str
    kind: Literal["local", "remote"]
    state: Literal["alive", "dead"]
    expires_at: float
    """Without another heartbeat the worker counts as dead from this time."""
    leases: int
    """Tokens it holds, also between two heartbeats."""
    host: str | None = None
    process: int | None = None
    since: float | None = None
    heard_at: float | None = None
    queues: tuple[str, ...] = ()
    concurrency: int | None = None
    running: tuple[Running, ...] = ()
    """Running steps at its last heartbeat, at most ``SHOWN``."""
    version: str | None = None
    """Version of Dal Segno of the process; of a remote worker, that of its server."""
    via: str | None = None
    """The broker over which a worker of another program takes its tasks; None if it asks a server."""

    @property
    def name(self) -> str:
        """The display name: that of a remote worker, or host and process id."""
        by_place = f"{self.host}:{self.process}" if self.host and self.process else self.id
        return remote_worker_of(self.id) or by_place


async def list_workers(ledger: WorkerSource) -> list[WorkerSeen]:
    """Return all workers. A dead one is listed until its leases are taken back."""
    return seen_among(await ledger.workers(), ledger.now())


def seen_among(found: Sequence[WorkerView], now: float) -> list[WorkerSeen]:
    """Return the workers. What a broker holds is listed only while no orchestrator looks after it."""
    dead = dead_workers(found, now)
    return [
        _seen(view, info, view.id in dead)
        for view, info in ((view, read_info(view.info)) for view in found)
        if not info.carries or (view.id in dead and view.leases)
    ]


def _seen(view: WorkerView, info: WorkerInfo, dead: bool) -> WorkerSeen:
    leases = len(info.tasks) if info.via and not info.carries else view.leases
    return WorkerSeen(
        id=view.id,
        kind="remote" if info.remote is not None else "local",
        state="dead" if dead else "alive",
        expires_at=view.expires_at,
        leases=leases,
        host=info.host or None,
        process=info.process or None,
        since=info.since or None,
        heard_at=info.heard or None,
        queues=info.queues,
        concurrency=info.concurrency or None,
        running=info.running if leases else (),  # otherwise these steps ended after its last heartbeat
        version=info.version or None,
        via=info.via or None,
    )


FRESH = 1.0
"""Seconds for which living workers are cached."""


async def living_workers(ledger: Ledger) -> list[WorkerInfo]:
    return _live(await ledger.workers(), ledger.now())


def _live(views: Sequence[WorkerView], now: float) -> list[WorkerInfo]:
    dead = dead_workers(views, now)
    return [read_info(view.info) for view in views if view.id not in dead]


async def served_queues(ledger: Ledger) -> set[str]:
    return queues_of(await living_workers(ledger))


def queues_of(workers: Sequence[WorkerInfo]) -> set[str]:
    """Return the queues that these workers serve."""
    served: set[str] = set()
    for info in workers:
        served.update(info.queues)
        if info.remote is None:
            served.add(SYSTEM_QUEUE)
    return served


class LiveWorkers:
    """The living workers, cached for frequent queries."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: list[WorkerInfo] = []
        self._until = -math.inf

    async def any(self, wanted: Callable[[WorkerInfo], bool]) -> bool:
        """Return True if a living worker matches. A positive answer may come from the cache, a negative one may
        not.
        """
        if self._ledger.now() < self._until and any(map(wanted, self._known)):
            return True
        self._known = await living_workers(self._ledger)
        self._until = self._ledger.now() + FRESH
        return any(map(wanted, self._known))


class RemoteQueue(Struct, frozen=True):
    """A queue that remote programs serve."""

    queue: str
    tasks: tuple[str, ...]
    claims: tuple[str, ...]
    last: LastClaim | None


async def remote_queue(
    declarations: RemoteDeclarations, live: Sequence[WorkerInfo], queue: str
) -> RemoteQueue | None:
    """Return the remote queue; None if workers of the application serve it, or would."""
    if not may_be_remote(queue):
        return None
    tasks = tuple(each.task for each in await declarations.of_queue(queue))
    return _remote_queue(queue, tasks, await declarations.last_claim(queue), live)


def may_be_remote(queue: str) -> bool:
    """Return True if remote programs may serve a queue of this name."""
    return queue not in (DEFAULT_QUEUE, SYSTEM_QUEUE) and module_of(queue) is None


def _remote_queue(
    queue: str, tasks: tuple[str, ...], last: LastClaim | None, live: Sequence[WorkerInfo]
) -> RemoteQueue | None:
    """Build the remote queue. A queue without declared tasks is remote if a program has claimed from it and no
    worker of the application serves it.
    """
    serving = [info for info in live if queue in info.queues]
    is_ours = any(info.remote is None for info in serving)
    if not tasks and (is_ours or last is None):
        return None
    claims = sorted({info.remote for info in serving if info.remote is not None})
    return RemoteQueue(queue, tasks, tuple(claims), last)


# -- who could continue an execution -----------------------------------------------------------------------------


class Directory(Struct, frozen=True):
    """The workers of a store at one moment, and the queues that remote programs serve."""

    views: tuple[WorkerView, ...]
    now: float
    live: tuple[WorkerInfo, ...]
    queues: frozenset[str]
    """Queues that living workers serve; empty if none lives."""
    records: tuple[Record, ...] = ()
    """Declarations of remote tasks, and last claims of queues."""

    def with_remote_queues(self, records: Sequence[Record]) -> Directory:
        return replace(self, records=tuple(records))

    def remote(self, queue: str) -> RemoteQueue | None:
        if not may_be_remote(queue):
            return None
        declared = [each for each in map(read_declaration, self.records) if each is not None]
        tasks = tuple(each.task for each in declared if each.queue == queue)
        claims = (read_claim(record) for record in self.records if record.id == queue)
        return _remote_queue(queue, tasks, next((claim for claim in claims if claim), None), self.live)


def directory(views: Sequence[WorkerView], now: float) -> Directory:
    live = _live(views, now)
    return Directory(tuple(views), now, tuple(live), frozenset(queues_of(live)))


def with_help(wait: Wait, execution: str, workers: Directory) -> Wait:
    """Return the wait with what people can do about it. A token in a queue without workers does not move before a
    worker is started, or a program if remote programs serve the queue.
    """
    resume = command("resume", execution)
    if wait.lost and not wait.is_remote:  # the program that ran it starts again, or another one does
        hint = f"its process has ended; continue with `{resume}` or start a worker"
        return replace(wait, hint=hint, commands=(resume,))
    if wait.queue is not None and wait.served is None:
        return _queued(wait, wait.queue, execution, workers)
    overdue = wait.kind in ("timer", "retry") and wait.due is not None and wait.due <= workers.now
    if overdue and not workers.queues:
        return _no_worker(wait, "it is due, but ", execution)
    return wait


def with_broker(wait: Wait, tokens: Sequence[TokenView], workers: Directory) -> Wait:
    """Return the wait of a task that is handed out over a broker: with that, and the worker that runs it."""
    handed_out = (
        token
        for token in tokens
        if token.state == "leased" and (token.node, token.scope) == (wait.node, wait.scope)
    )
    token = next((token for token in handed_out if carrier_of(token.owner or "")), None)
    if wait.kind != "running" or wait.lost or token is None:
        return wait
    living = [info for info in workers.live if info.via and not info.carries]
    runner = next((info for info in living if token.id in info.tasks), None)
    claims = sorted({info.remote or "" for info in living if token.queue in info.queues})
    if runner is not None:
        who = f"worker {runner.remote} of another program runs it"
    elif claims:
        who = f"no worker is known to have begun it; {listed(claims)} serves the queue"
    else:
        who = "no living worker serves the queue"
    broker = next((info.via for info in workers.live if info.carries == token.queue), "a broker")
    sentence = f"{wait.subject or 'task'} '{wait.node}' is handed out over {broker} in queue '{token.queue}'"
    return replace(
        wait,
        sentence=f"{sentence} (attempt {token.attempt}); {who}",
        queue=token.queue,
        is_remote=True,
        claims=tuple(claims),
        served=bool(claims),
    )


def _queued(wait: Wait, queue: str, execution: str, workers: Directory) -> Wait:
    remote = workers.remote(queue)
    if remote is not None:
        return _for_program(wait, remote, execution)
    if queue in workers.queues:
        return replace(wait, served=True)
    module = module_of(queue)
    lacking = f"serves queue '{queue}' now" if module is None else f"that has imported '{module}' is alive"
    wait = replace(wait, sentence=f"{wait.sentence}; no worker {lacking}", served=False)
    app = f"{module}:app" if module is not None else None
    if not workers.queues:
        return _no_worker(wait, "it is ready to run, but ", execution, app, queue)
    start = _worker_command(app, queue)
    return replace(wait, hint=f"start one with `{start}`", commands=(start,))


def _no_worker(wait: Wait, so_far: str, execution: str, app: str | None = None, queue: str = "") -> Wait:
    """Return the wait with hints for a store without workers. ``app``: the application that the command line needs to
    continue it.
    """
    start = _worker_command(app, queue)
    resume = command("resume", execution, *(("--app", app) if app is not None else ()))
    hint = f"{so_far}no live worker runs on this store: continue here with `{resume}`, or start `{start}`"
    return replace(wait, hint=hint, commands=(resume, start))


def _worker_command(app: str | None, queue: str) -> str:
    if app is not None:
        return command("worker", "--app", app)
    return command("worker", "--queues", queue) if queue and may_be_remote(queue) else command("worker")


def without_code(execution: str, resume: TokenView, app: str, workers: Directory) -> Wait:
    """Return the wait of a program that every worker so far has postponed. ``app`` is the application with its
    code.
    """
    sentence = "no worker that took it has the code of this version; it is tried again"
    served = resume.queue in workers.queues
    wait = Wait("queued", "", "", sentence, resume.due, resume.queue, subject="program", served=served)
    if not workers.queues:
        return _no_worker(wait, "", execution, app)
    start = _worker_command(app, resume.queue)
    hint = f"start a worker that has it, with `{start}`"
    return replace(wait, hint=hint, commands=(start,))


def _for_program(wait: Wait, remote: RemoteQueue, execution: str) -> Wait:
    """Return the wait for a remote program; no worker of the application can run the task."""
    last = remote.last
    is_declared = wait.subject == "task" and wait.node in remote.tasks
    who = f"remote {needing(wait)}" if is_declared else needing(wait)
    sentence = f"{who} waits for a program that claims queue '{remote.queue}'"
    settle = command("task", "ls", execution)
    by_hand = f"or settle it by hand: `{settle}`" if not remote.claims else ""
    return replace(
        wait,
        sentence=f"{sentence}; {_who_claims(remote)}",
        is_remote=True,
        tasks=remote.tasks,
        claims=remote.claims,
        claimed_by=last.worker if last is not None else None,
        claimed_at=last.at if last is not None else None,
        served=bool(remote.claims),
        hint=by_hand,
        commands=(settle,) if by_hand else (),
    )


def _who_claims(remote: RemoteQueue) -> str:
    if remote.claims:
        return f"{listed(remote.claims)} claims it now"
    if remote.last is not None:
        at = datetime.fromtimestamp(remote.last.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"no program claims it now; '{remote.last.worker}' did last, at {at}: start it again"
    return f"no program has claimed it so far: start the one that runs {_declared(remote.tasks)}"


def _declared(tasks: Sequence[str]) -> str:
    return f"remote task{'s' if len(tasks) > 1 else ''} {listed(tasks)}"


# -- names of lease owners that are remote workers: worker, incarnation and API key ------------------------------

PREFIX = "remote:"
"""Prefix of the names under which remote workers hold leases."""
KEY_SIGN = "@"
"""Separator between such a name and the id of the worker's key."""


CARRIED = "tasks."
"""Prefix of the worker in the names under which a broker's tasks are leased."""


def carrier_of(owner: str) -> str:
    """Return the broker whose tasks are leased under this name; empty if they are a worker's."""
    return owner.rpartition(":")[2] if owner.startswith(PREFIX + CARRIED) else ""


def owner_of(worker: str, incarnation: str, key: str) -> str:
    """Return the name of a lease owner. It includes the key, so that every server of the store knows who may answer
    for a lease.
    """
    return f"{PREFIX}{worker}:{incarnation}" + (f"{KEY_SIGN}{key}" if key else "")


def remote_key_of(owner: str | None) -> str:
    """Return the API key of a remote worker's lease; empty if it was taken without one."""
    if owner is None or not owner.startswith(PREFIX):
        return ""
    return owner.rpartition(":")[2].partition(KEY_SIGN)[2]


def remote_worker_of(owner: str | None) -> str | None:
    """Return the remote worker of a lease owner; None if it is no remote worker."""
    if owner is None or not owner.startswith(PREFIX):
        return None
    return owner[len(PREFIX) :].rpartition(":")[0]
