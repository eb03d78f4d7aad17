"""The back office keeps its promises while its processes are killed and its payment provider fails."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from dalsegno import App, Client
from dalsegno.model.execution import ExecutionView
from dalsegno.testing.stored_histories import stored_problems
from tests.docs.pages import fits
from tests.examples.back_office import Office, Part, commands
from tests.examples.customers import Customers, Promises, customers, emails
from tests.waiting import come_about

SEATS = {"pottery": 100, "diving": 100, "aerobatics": 100, "origami": 100, "chess": 2}

SET_UP, TRY = commands()[:1], commands()[1:]
"""Of the README."""
PATIENCE = 20.0


@pytest.fixture
def open_office(tmp_path: Path) -> Iterator[Any]:
    offices: list[Office] = []

    def open_office(store: str) -> Office:
        office = Office(tmp_path, store)
        offices.append(office)
        with ThreadPoolExecutor() as pool:
            list(pool.map(Part.start, office.parts))
        follow(office, SET_UP)
        return office

    yield open_office
    for office in offices:
        for part in office.parts:
            part.kill()


def test_office_keeps_its_promises_on_postgresql(open_office: Any, postgres_url: str) -> None:
    asyncio.run(a_day(open_office(postgres_url), postgres_url, each=2, seconds=8))


def test_office_keeps_its_promises_on_sqlite(open_office: Any, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/office.db"
    office = open_office(store)
    asyncio.run(a_day(office, store, each=1, seconds=5))
    office.take_its_time()
    office.server.stop()
    office.server.start()
    office.printer.start()
    follow(office, TRY)


async def a_day(office: Office, store: str, each: int, seconds: float) -> None:
    async with customers(office, seed=7) as people, Client(office.server.url) as client:
        await client.schedules.aadd("report-often", "every 2s", "nightly_report")
        await asyncio.gather(
            kill_all_parts(office, people),
            have_trouble(office, people),
            people.come(each, seconds),
        )
        await ended(client, "enrol", "enrol_group", "invite", "graduate")
        await client.schedules.aremove("report-often")
        ledger = await ledger_of(office, people)
        charges = [entry for entry in ledger if entry["kind"] == "charge"]
        await ended(client, "payment_notice", "nightly_report", notices=len(charges))
        histories = await histories_of(client)
    assert await inexact(store) == []
    office.printer.stop()
    assert "stopped, nothing is left over" in office.printer.log_text()
    tables = tables_of(store)
    check(people.promises, tables, ledger, office.certificates)
    counted = check_histories(histories, people.promises)
    assert counted["payment_notice"] == len(charges)
    reports = [row for row in tables["mails"] if row["recipient"] == "office@example.com"]
    assert len(reports) == counted["nightly_report"] >= 2


async def kill_all_parts(office: Office, people: Customers) -> None:
    """The printer when some certificates are printed and others begun: what it had is printed after ten seconds. It
    would take a minute if the server, which knows what the printer has, were killed as well meanwhile."""

    async def kill_printer() -> None:
        await people.graduate(8)
        await come_about(lambda: any(office.certificates.glob("*.txt")), "the first certificate")
        await kill([office.printer])

    await kill([office.server])
    await asyncio.gather(kill([office.api, *office.workers]), kill_printer())


async def kill(parts: list[Part]) -> None:
    """One after another; the next one when the one before is there again."""
    for part in parts:
        await asyncio.to_thread(part.kill)
        await asyncio.to_thread(part.start)


async def have_trouble(office: Office, people: Customers) -> None:
    """As soon as the first card is charged."""
    await come_about(lambda: ledger_of(office, people), "a charge")
    await people.ask("POST", f"{office.provider.url}/trouble/3")


async def ledger_of(office: Office, people: Customers) -> list[Any]:
    found: list[Any] = (await people.ask("GET", f"{office.provider.url}/ledger")).json()
    return found


async def ended(client: Client, *workflows: str, notices: int = 0) -> None:
    """All executions of these workflows; at least so many notifications have been passed on."""
    deadline = time.monotonic() + 60
    while True:
        found = [one async for one in client.aexecutions(kinds=("python",)) if one.workflow in workflows]
        left = [one for one in found if one.ended_at is None]
        passed_on = sum(one.workflow == "payment_notice" for one in found)
        if passed_on >= notices and not left:
            return
        assert time.monotonic() < deadline, [await _standing(client, one) for one in left] or passed_on
        await asyncio.sleep(0.3)  # it lists hundreds


async def _standing(client: Client, execution: ExecutionView) -> tuple[Any, ...]:
    handle = client.handle(execution.id)
    waits = [wait.sentence for wait in await handle.awhy()]
    return (
        execution.workflow,
        execution.id,
        waits,
        [(event.kind, event.node, event.at) for event in await handle.aevents()],
    )


def follow(office: Office, told: list[tuple[str, str]]) -> None:
    """Every command prints what the README shows; it is given again where the office was not so quick."""
    for command, expected in told:
        deadline = time.monotonic() + PATIENCE
        while not _fits(expected, *(result := office.type(command))):
            assert time.monotonic() < deadline, (command, expected, result)
            time.sleep(0.2)


def _fits(expected: str, code: int, printed: str) -> bool:
    return code == 0 and (not expected or fits(expected, printed))


# -- what is left at the end ------------------------------------------------------------------------------------


def tables_of(store: str) -> dict[str, list[Any]]:
    engine = create_engine(store.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as db:
        found = {
            name: list(db.execute(text(f"SELECT * FROM {name}")).mappings())
            for name in ("courses", "enrolments", "mails")
        }
    engine.dispose()
    return found


def check(promises: Promises, tables: dict[str, list[Any]], ledger: list[Any], certificates: Path) -> None:
    states = {row["id"]: row["state"] for row in tables["enrolments"]}
    assert states.keys() == promises.asked
    enrolled = {key for key, state in states.items() if state == "enrolled"}
    refused = {key for key, state in states.items() if state == "refused"}
    assert enrolled | refused == promises.asked
    assert promises.must_enrol <= enrolled
    assert promises.must_refuse <= refused

    taken = Counter(row["course"] for row in tables["enrolments"] if row["id"] in enrolled)
    assert taken["chess"] == 2
    assert {row["id"]: row["free"] + taken[row["id"]] for row in tables["courses"]} == SEATS

    check_money(enrolled, promises.asked, ledger)
    check_mails(
        promises, enrolled, refused, Counter((row["recipient"], row["subject"]) for row in tables["mails"])
    )
    papers = Counter(path.read_text() for path in certificates.glob("*.txt"))
    assert papers == dict.fromkeys(
        (f"{who} has completed origami.\n" for who in emails(promises.graduates)), 1
    )


def check_money(enrolled: set[str], asked: set[str], ledger: list[Any]) -> None:
    """A charge is kept with an enrolment, or refunded once."""
    assert len({entry["key"] for entry in ledger}) == len(ledger)
    charges = Counter(entry["reference"] for entry in ledger if entry["kind"] == "charge")
    refunds = Counter(entry["reference"] for entry in ledger if entry["kind"] == "refund")
    assert set(charges.values()) == {1}
    assert charges.keys() <= asked
    assert refunds == {reference: 1 for reference in charges if reference not in enrolled}
    assert refunds, "nobody was refunded, so nothing was tried"


def check_mails(
    promises: Promises, enrolled: set[str], refused: set[str], mails: Counter[tuple[str, str]]
) -> None:
    def about(*words: str) -> Counter[str]:
        return Counter(to for to, subject in mails.elements() if subject.startswith(words))

    welcomed = about("Welcome")
    assert dict.fromkeys(emails(enrolled - promises.withdrawn), 1).items() <= welcomed.items()
    assert set(welcomed.values()) == {1}
    assert welcomed.keys() <= emails(enrolled)
    told = about("No seat")
    assert dict.fromkeys(emails(refused - promises.withdrawn), 1).items() <= told.items()
    assert set(told.values()) == {1}
    assert told.keys() <= emails(refused)
    assert about("Your certificate") == dict.fromkeys(emails(promises.graduates), 1)
    assert about("Join us") == dict.fromkeys(promises.invited, 1)
    for organiser, size in promises.organisers.items():
        assert mails[(organiser, f"{size} of {size} students are enrolled")] == 1
    for who in emails(promises.reminded):
        numbers = sorted(subject for to, subject in mails.elements() if to == who and "Reminder" in subject)
        assert numbers == [f"Reminder {n}: your documents for diving" for n in range(1, len(numbers) + 1)]
        assert 1 <= len(numbers) <= 3
    assert about("Reminder").keys() <= emails(promises.reminded | promises.must_enrol)


async def inexact(store: str) -> list[str]:
    """What is wrong in any history."""
    app = App(store)
    async with app.running(worker=False, scheduler=False):
        return await stored_problems(app.engine.client)


async def histories_of(client: Client) -> list[tuple[Any, list[str]]]:
    """Every execution, and the kinds of its events."""
    return [
        (view, [event.kind for event in await client.handle(view.id).aevents()])
        async for view in client.aexecutions(kinds=("python",))
    ]


def check_histories(histories: list[tuple[Any, list[str]]], promises: Promises) -> Counter[str]:
    """How many there are of each workflow."""
    states = Counter((view.workflow, view.state) for view, _ in histories)
    counted = Counter(view.workflow for view, _ in histories)
    assert any("TaskRetrying" in kinds for _, kinds in histories), "the provider was in no trouble"
    assert counted["enrol"] == len(promises.asked)
    assert states["enrol", "CANCELLED"] <= len(promises.withdrawn)
    assert not [key for key in states if key[1] == "FAILED"], states
    assert counted["invite"] == counted["graduate"] == counted["enrol_group"] == 1
    return counted
