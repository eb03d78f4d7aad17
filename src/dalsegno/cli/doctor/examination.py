"""All checks in their order, and those that need no store: interpreter, libraries, clock, event loop, limits.

The content is read through the ports, so it works on every store.
"""

from __future__ import annotations

import asyncio
import platform
import resource
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dalsegno.admin.keys import KeyRecords
from dalsegno.app import App
from dalsegno.cli.doctor.check import Check, broken, examined_soon, judge
from dalsegno.cli.doctor.database import examine_file, examine_history, examine_rights, examine_server
from dalsegno.cli.output import iso
from dalsegno.cli.target.stores import NO_SCHEMA, store_exists, way_to_install
from dalsegno.cli.target.target import opened
from dalsegno.cli.views.credentials import sentence, survey
from dalsegno.core.diagnosis import waits
from dalsegno.engine.client import Client
from dalsegno.engine.operations.dead_letters import DeadLetters
from dalsegno.engine.worker.directory import list_workers, living_workers, remote_queue, served_queues
from dalsegno.errors import BadConfiguration, DalSegnoError
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.stack import Server
from dalsegno.version import __version__
from dalsegno.wiring import choose_servers, is_postgres, sqlite_path

OLDEST_SQLITE = (3, 35, 0)
"""The first version with RETURNING."""
FEW_FILES = 256
SLOW_LOOP = 0.05
BUILT = 1_735_689_600
"""2025-01-01: a clock before the release of this program is wrong."""


async def examine_machine() -> list[Check]:
    return [_python(), _sqlite(), _clock(), _zones(), await _event_loop(), _open_files()]


def _python() -> Check:
    version = platform.python_version()
    detail = f"Python {version}, dalsegno {__version__}, {platform.system()} {platform.machine()}"
    return judge("python", detail, fail=sys.version_info < (3, 11), cure="Use Python 3.11 or newer.")


def _sqlite() -> Check:
    old = sqlite3.sqlite_version_info < OLDEST_SQLITE
    cure = "Use a Python that was built with a newer SQLite."
    return judge("sqlite", f"SQLite {sqlite3.sqlite_version}", fail=old, cure=cure)


def _clock() -> Check:
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    cure = "Set the system's clock: timers and leases go by it."
    return judge("clock", now, fail=time.time() < BUILT, cure=cure)


def _zones() -> Check:
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        return judge("time zones", "no data", fail=True, cure="Install the package tzdata.")
    return judge("time zones", "IANA data found")


async def _event_loop() -> Check:
    """Check how late a timer of ten milliseconds fires."""
    late = 0.0
    for _ in range(10):
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        late = max(late, time.perf_counter() - began - 0.01)
    cure = "The machine is busy: timers and heartbeats come late."
    return judge("event loop", f"timers at most {late * 1000:.1f} ms late", warn=late > SLOW_LOOP, cure=cure)


def _open_files() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < FEW_FILES
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    return judge("open files", shown, warn=few, cure="Raise the limit: ulimit -n 4096.")


LOOKED_AT = 500
"""Unfinished executions that are checked one by one."""
AHEAD = 5.0
SHOWN_DEAD = 100
SHOWN_UNAPPROVED = 10
SHOWN_KEYS = 5
UNREADABLE = ("content", "database")
"""Checks that must pass before the store's content can be read."""
CURE = "Fix what failed above, then check again."
STORE_CURE = "Give another --store, or fix this one."
BROKER_CURE = "Correct --broker, --redis, their variables or the settings file."


async def examine(app: App) -> list[Check]:
    """Run every check that can be run, regardless of the results of others."""
    checks = await examine_machine()
    try:
        choose_servers(app.url, app.broker, app.redis)
    except DalSegnoError as error:
        return [*checks, judge("broker", str(error), fail=True, cure=BROKER_CURE)]
    if app.url.startswith("sqlite:"):
        try:
            path = sqlite_path(app.url)
        except DalSegnoError as error:
            return [*checks, judge("store", str(error), fail=True, cure="Give another --store.")]
        checks += examine_file(path)
        if not path.is_file():
            return checks + await _examine_brokers(app)
    if is_postgres(app.url):
        checks += await examine_server(app.url)
    unreadable = any(check.status == "fail" and check.name in UNREADABLE for check in checks)
    return checks if unreadable else checks + await _examine_store(app)


async def _examine_store(app: App) -> list[Check]:
    checks: list[Check] = []
    try:
        if is_postgres(app.url) and (refused := await examine_rights(app.url)):
            return refused
        if not await store_exists(app.url):  # a server; a file has been checked already
            missing = judge("schema", NO_SCHEMA, warn=True, cure=way_to_install(app.url))
            return [missing, *await _examine_brokers(app)]
        async with opened(app) as client:
            checks.append(judge("schema", "fits this version"))
            for name, look in _looks(app, client):
                checks += await examined_soon(name, look, CURE)
    except BadConfiguration as error:
        if not (app.broker or app.redis):
            return [*checks, broken("schema", error, STORE_CURE)]
        app.broker = app.redis = None  # the store has been examined before: one of these refuses
        return [judge("broker", str(error), fail=True, cure=BROKER_CURE), *await _examine_store(app)]
    except Exception as error:  # noqa: BLE001 - whatever keeps the store from being opened or closed is the finding
        checks.append(broken("schema", error, STORE_CURE))
    return checks


async def _examine_brokers(app: App) -> list[Check]:
    """Check the brokers of a store that does not exist yet, with a temporary one in its place."""
    if not (app.broker or app.redis):
        return []
    checks: list[Check] = []
    with TemporaryDirectory() as folder:
        instead = App(f"sqlite:///{folder}/store.db", broker=app.broker, redis=app.redis)
        try:
            async with opened(instead, create=True) as client:
                for server in client.stack.servers:
                    checks += await examined_soon(server.name, _server(server), CURE)
        except BadConfiguration as error:
            checks.append(judge("broker", str(error), fail=True, cure=BROKER_CURE))
    return checks


def _looks(app: App, client: Client) -> Iterator[tuple[str, Awaitable[Check | Sequence[Check]]]]:
    """Yield the checks one after the other; each begins when it is consumed."""
    if is_postgres(app.url):
        yield "history", examine_history(app.url)
    for server in client.stack.servers:
        yield server.name, _server(server)
    yield "time", _time_of(client)
    yield "workers", _workers(client)
    yield "executions", _executions(app)
    yield "dead letters", _dead(app)
    yield "credentials", _credentials(client)
    yield "keys", _keys(client)
    yield "snapshots", _examine_snapshots(app)


async def _server(server: Server) -> list[Check]:
    """Check a server besides the store's: workflows run without it, so nothing here fails."""
    if not server.connected():
        cure = "Check the URL, the network and the server's log. Until then work is found in the store."
        return [judge(server.name, server.problem(), warn=True, cure=cure)]
    found = await server.examine()
    connected = judge(server.name, f"connected to {server.url}")
    return [connected, *(judge(server.name, sentence, warn=True) for sentence in found)]


async def _time_of(client: Client) -> Check:
    newest = await client.executions(ExecutionFilter(), limit=1)
    ahead = newest[0].touched_at - client.stack.clock.now() if newest else 0.0
    detail = "the history is not ahead of the clock"
    if ahead > AHEAD:
        detail = f"the history is {ahead:.0f} s ahead of this machine's clock"
    return judge("time", detail, warn=ahead > AHEAD, cure="Set the clocks of all machines by NTP.")


async def _workers(client: Client) -> list[Check]:
    workers = await list_workers(client.stack.ledger)
    dead = [worker for worker in workers if worker.state == "dead"]
    held = sum(worker.leases for worker in dead)
    detail = f"{len(workers) - len(dead)} alive, {len(dead)} dead"
    if held:
        detail += f", and the dead ones still hold {held} leases"
    cure = "They are taken over as soon as a worker or `dalsegno resume` starts."
    return [judge("workers", detail, warn=held > 0, cure=cure)]


async def _dead(app: App) -> Check:
    found = len(await DeadLetters(app.engine).all(SHOWN_DEAD))
    several = f"at least {found}" if found == SHOWN_DEAD else str(found)
    detail = f"{several} do not continue by themselves" if found else "none"
    return judge("dead letters", detail, warn=found > 0, cure="dalsegno dead ls")


async def _keys(client: Client) -> list[Check]:
    """Check for keys of remote workers that predate queues in keys: they take tasks of every queue."""
    now = client.stack.clock.now()
    found = await KeyRecords(client.stack.records, client.stack.clock).all()
    valid = [key for key in found if key.why_not(now) is None]
    wide = [key.name for key in valid if key.serves_all]
    if not wide:
        return [judge("keys", f"{len(valid)} valid")] if found else []
    named = ", ".join(f"'{name}'" for name in wide[:SHOWN_KEYS])
    more = f" and {len(wide) - SHOWN_KEYS} more" if len(wide) > SHOWN_KEYS else ""
    return [
        judge(
            "keys",
            f"{named}{more} may take tasks of all queues: made before keys named queues",
            warn=True,
            cure=f"dalsegno keys set {wide[0]!r} --queue QUEUE, or --queue '*' if that is meant",
        )
    ]


async def _credentials(client: Client) -> Check:
    """Check for definitions that a credential lists and no admin has approved."""
    grace = await client.definition_approvals.grace()
    listed = await client.definition_approvals.listed()
    missing = [f"{each.workflow}@{each.version}" for each in listed if each.approval is None]
    detail = f"{len(listed)} listed definitions, all approved" if listed else "none lists workflows"
    if missing:
        more = f" and {len(missing) - SHOWN_UNAPPROVED} more" if len(missing) > SHOWN_UNAPPROVED else ""
        detail = f"listed, but not approved by an admin: {', '.join(missing[:SHOWN_UNAPPROVED])}{more}"
        if grace is not None and grace.until > client.stack.clock.now():
            detail += f"; definitions from before approvals work without one until {iso(grace.until)}"
    cure = "Review each, then: dalsegno credentials approve WORKFLOW@VERSION"
    return judge("credentials", detail, warn=bool(missing), cure=cure)


async def _executions(app: App) -> list[Check]:
    """Check for stuck executions, and for those that wait for a worker that does not exist."""
    ledger = app.client.stack.ledger
    served = await served_queues(ledger)
    names, more = await ledger.untouched(ledger.now() + AHEAD, "", LOOKED_AT)
    stuck: dict[str, str] = {}
    unserved: Counter[str] = Counter()
    for name in names:
        inspection = await ledger.inspect(name)
        if inspection is None:
            continue
        reason = await app.engine.reconciler.why_stuck(inspection)
        if reason is not None:
            stuck[name] = reason
        queues = {wait.queue for wait in waits(inspection) if wait.kind == "queued" and wait.queue}
        unserved.update(queues - served)
    return [*_stuck(stuck, len(names), bool(more)), *await _unserved(app, unserved)]


def _stuck(stuck: dict[str, str], unfinished: int, more: bool) -> list[Check]:
    if not stuck:
        several = f"at least {unfinished}" if more else str(unfinished)
        return [judge("executions", f"{several} unfinished, none stuck")]
    return [
        judge("executions", f"{name} cannot move: {reason}", fail=True, cure=f"dalsegno cancel {name}")
        for name, reason in list(stuck.items())[:10]
    ]


async def _unserved(app: App, unserved: Counter[str]) -> list[Check]:
    living = await living_workers(app.client.stack.ledger)
    checks = []
    for queue, count in unserved.items():
        remote = await remote_queue(app.client.declarations, living, queue)
        who = "served by no living worker" if remote is None else "claimed by no remote program"
        last = remote.last.worker if remote is not None and remote.last is not None else None
        named = f"'{last}', which did last" if last is not None else f"which claims queue '{queue}'"
        cure = f"dalsegno worker --queues {queue}" if remote is None else f"Start the program {named}."
        what = f"queue '{queue}', in which {count} unfinished executions have work, is {who}"
        checks.append(judge("queues", what, warn=True, cure=cure))
    return checks


# -- seals of snapshots ----------------------------------------------------------------------------------------

GONE = "there are seals, but the record of when the sealing began is missing: it may have been deleted from the store"
GONE_CURE = (
    "Find out who wrote to the store. A worker with the key writes the date back, or refuses unsealed snapshots; "
    "`dalsegno snapshots accept-until` sets a date."
)


async def _examine_snapshots(app: App) -> list[Check]:
    """Check the seals of snapshots. Empty if no process seals and no Python workflow waits."""
    client, seals = app.client, app.engine.seals
    found = await survey(client, seals, LOOKED_AT)
    now = client.stack.clock.now()
    if found.sealing is None:
        if found.sealed or await seals.has_seals():
            return [judge("snapshots", GONE, fail=True, cure=GONE_CURE)]
        if not found.unsealed:
            return []
        return [judge("snapshots", sentence(found, now))]
    is_late = now >= found.sealing.accept_until
    lacks_key = not seals.keys.is_configured
    detail = sentence(found, now)
    if lacks_key:
        detail += "; this process has no key, and cannot run sealed ones"
    return [
        judge(
            "snapshots",
            detail,
            fail=is_late and bool(found.unsealed),
            warn=lacks_key or bool(found.unsealed),
            cure=(
                "Give every worker the same secret key."
                if lacks_key
                else "They are sealed with their next turn; `dalsegno snapshots seal` seals them as they are."
            ),
        )
    ]
