"""The platform's own API: it writes a row and starts the workflow in one transaction, and passes on what people do.

    uvicorn back_office.api:api --port 8000

A call that got no answer may be made again: it changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import Connection, text

from back_office import app, enrol, enrol_group, graduate, invite, nightly_report
from back_office.enrolment import Wish
from back_office.office import create_tables, database, move
from dalsegno import Conflict


class Student(BaseModel):
    course: str
    student: str
    card: str


class Group(BaseModel):
    organiser: str
    course: str
    card: str
    students: list[str]


class Class(BaseModel):
    students: list[str]


def prepare() -> None:
    every_night = "0 2 * * *"
    app.schedules.add("nightly-report", every_night, nightly_report, timezone="Europe/Berlin", replace=True)
    create_tables()


@asynccontextmanager
async def prepared(_: FastAPI) -> AsyncIterator[None]:
    await run_in_threadpool(prepare)
    yield
    await run_in_threadpool(app.close)


api = FastAPI(title="Back office", lifespan=prepared)


@api.exception_handler(Conflict)
async def too_late(_: Request, error: Exception) -> JSONResponse:
    """Its workflow has ended: there is nothing to withdraw from, and nothing waits for documents."""
    return JSONResponse({"detail": str(error)}, status_code=409)


@api.put("/enrolments/{id}", status_code=202)
def ask_for_enrolment(id: str, asked: Student) -> dict[str, Any]:
    with database().begin() as db:
        wish = write_down(db, id, asked.course, asked.student, asked.card)
        if wish is not None:
            within = app.with_options(connection=db, tags={"course": wish.course})
            enrolment = within.start(enrol, wish)
            note = "UPDATE enrolments SET execution = :execution WHERE id = :id"
            db.execute(text(note), {"id": id, "execution": enrolment.id})
    return look_at_enrolment(id)


@api.get("/enrolments/{id}")
def look_at_enrolment(id: str) -> dict[str, Any]:
    with database().connect() as db:
        found = db.execute(text("SELECT * FROM enrolments WHERE id = :id"), {"id": id}).mappings().first()
    if found is None:
        raise HTTPException(404, f"there is no enrolment {id}")
    return dict(found)


@api.post("/enrolments/{id}/documents", status_code=202)
def bring_documents(id: str, documents: dict[str, str]) -> None:
    app.handle(look_at_enrolment(id)["execution"]).signal("documents", documents, id=f"documents of {id}")


@api.delete("/enrolments/{id}", status_code=202)
def withdraw(id: str) -> None:
    """The workflow gives the money back and frees the seat, however long that takes. One that has not begun ends and
    runs nothing at all: where nothing has been done yet, the row is closed here."""
    with database().begin() as db:
        move(db, id, before="asked", after="refused", remark="the student has withdrawn")
    app.handle(look_at_enrolment(id)["execution"]).cancel("the student has withdrawn")


@api.put("/groups/{id}", status_code=202)
def book_group(id: str, booking: Group) -> None:
    with database().begin() as db:
        numbered = enumerate(booking.students)
        wishes = [write_down(db, f"{id}-{n}", booking.course, who, booking.card) for n, who in numbered]
        new = [wish for wish in wishes if wish is not None]
        if new:
            within = app.with_options(connection=db, idempotency_key=f"group {id}")
            within.start(enrol_group, booking.organiser, new)


@api.put("/courses/{course}/invitations/{id}", status_code=202)
def invite_class(course: str, id: str, invited: Class) -> None:
    once = app.with_options(idempotency_key=f"invitation {id}")
    once.start(invite, course, invited.students)


@api.put("/courses/{course}/graduation", status_code=202)
def end_course(course: str) -> dict[str, str]:
    once = app.with_options(idempotency_key=f"graduation of {course}")
    return {"execution": once.start(graduate, course).id}


def write_down(db: Connection, id: str, course: str, student: str, card: str) -> Wish | None:
    """The enrolment's row, and what its workflow has to know; None if it is there already."""
    known = db.execute(text("SELECT * FROM courses WHERE id = :id"), {"id": course}).mappings().first()
    if known is None:
        raise HTTPException(422, f"there is no course {course}")
    row = "INSERT INTO enrolments (id, course, student) VALUES (:id, :course, :who) ON CONFLICT DO NOTHING"
    if db.execute(text(row), {"id": id, "course": course, "who": student}).rowcount == 0:
        return None
    needs_documents = bool(known["needs_documents"])
    return Wish(id, course, student, card, known["cents"], needs_documents, known["approver"])
