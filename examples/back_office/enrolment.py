"""Enrolments: documents, approval, seat and payment; a whole group at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from sqlalchemy import text

from back_office.office import PATIENT, app, database, mail, move, state_of
from back_office.payments import charge, refund
from dalsegno import approval, gather, race, set_tags, signal, sleep, timeout

REMIND_EVERY = os.environ.get("REMIND_EVERY", "3d")
GIVE_UP_AFTER = os.environ.get("GIVE_UP_AFTER", "14d")


@dataclass(frozen=True)
class Wish:
    """A student applies for a course."""

    id: str
    course: str
    student: str
    card: str
    cents: int
    needs_documents: bool = False
    approver: str | None = None


@dataclass(frozen=True)
class Placement:
    """What an approver fills in."""

    group: Literal["morning", "evening"] = "morning"


@dataclass(frozen=True)
class Outcome:
    student: str
    enrolled: bool
    remark: str


class Refused(Exception):
    """Why the student cannot take part."""


@app.task(retries=PATIENT)
def reserve_seat(wish: Wish) -> bool:
    """False if the course is full, or the student has withdrawn before."""
    with database().begin() as db:
        if not move(db, wish.id, before="asked", after="reserved"):
            return state_of(db, wish.id) == "reserved"  # an earlier attempt has done it
        free = text("UPDATE courses SET free = free - 1 WHERE id = :id AND free > 0")
        if db.execute(free, {"id": wish.course}).rowcount == 0:
            db.rollback()
            return False
    return True


@app.task(retries=PATIENT)
def confirm_seat(wish: Wish, group: str) -> None:
    with database().begin() as db:
        move(db, wish.id, before="reserved", after="enrolled", remark=f"{group} group")


@app.task(retries=PATIENT)
def release_seat(wish: Wish, why: str) -> None:
    """Ends the enrolment. The seat is free again, if there was one."""
    with database().begin() as db:
        move(db, wish.id, before="asked", after="refused", remark=why)
        for held in ("reserved", "enrolled"):
            if move(db, wish.id, before=held, after="refused", remark=why):
                db.execute(text("UPDATE courses SET free = free + 1 WHERE id = :id"), {"id": wish.course})


@app.workflow
async def enrol(wish: Wish) -> Outcome:  # noqa: C901 - a story in one piece
    """From the wish to a seat that is paid for. However it ends before that, no seat is taken and no money kept."""

    async def documents() -> None:
        """Reminds the student until they are there."""
        arrived = signal("documents")
        try:
            with timeout(GIVE_UP_AFTER):
                for number in count(1):
                    came, _ = await race(documents=arrived, reminder=sleep(REMIND_EVERY))
                    if came == "documents":
                        return
                    await mail(wish.student, f"Reminder {number}: your documents for {wish.course}")
        except TimeoutError:
            raise Refused("the documents did not come") from None

    async def placement(approver: str) -> Placement:
        """Asks the person who is responsible for the course."""
        question = f"Enrol {wish.student} in {wish.course}?"
        try:
            decision = await approval(question, form=Placement, approvers=[approver], timeout=GIVE_UP_AFTER)
        except TimeoutError:
            raise Refused("there was no decision in time") from None
        if not decision.approved:
            raise Refused(f"{decision.by} said no")
        return decision.data

    async def payment() -> None:
        if not await charge(wish.id, wish.cents, wish.card):
            raise Refused("the card was declined")
        if await signal("payment", timeout="1h") != "paid":
            raise Refused("the bank did not pay")

    async def settle(call: Awaitable[Any]) -> None:
        """Waits for a call to the end, even if the enrolment is cancelled meanwhile: the error is raised only once."""
        try:
            await call
        except asyncio.CancelledError:
            await call

    try:
        if wish.needs_documents:
            set_tags(stage="documents")
            await documents()
        place = Placement()
        if wish.approver:
            set_tags(stage="approval")
            place = await placement(wish.approver)
        set_tags(stage="payment")
        if not await reserve_seat(wish):
            raise Refused("no seat is free")
        await payment()
        await confirm_seat(wish, place.group)
    except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - whatever it was
        # However far it has come: both steps look at what there is to undo.
        why = str(problem) or type(problem).__name__
        set_tags(stage="refused")
        await settle(refund(wish.id))
        await settle(release_seat(wish, why))
        await settle(mail(wish.student, f"No seat in {wish.course}: {why}"))
        return Outcome(wish.student, enrolled=False, remark=why)

    set_tags(stage="enrolled")
    await mail(wish.student, f"Welcome to {wish.course}, {place.group} group")
    return Outcome(wish.student, enrolled=True, remark=place.group)


@app.workflow
async def enrol_group(organiser: str, wishes: list[Wish]) -> list[Outcome]:
    """One enrolment for each student, five at a time; who is refused does not stop the others."""
    outcomes = await gather(*[enrol(wish) for wish in wishes], limit=5)
    enrolled = sum(outcome.enrolled for outcome in outcomes)
    await mail(organiser, f"{enrolled} of {len(wishes)} students are enrolled")
    return outcomes
