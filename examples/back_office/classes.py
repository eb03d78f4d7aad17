"""Whole classes: invitations, certificates, and the nightly report."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from back_office.office import PATIENT, app, database, mail
from dalsegno import gather, now


@dataclass(frozen=True)
class Paper:
    """A certificate that the worker in Node.js has made."""

    number: str
    file: str


certificate = app.remote_task(
    "certificate",
    queue="certificates",
    returns=Paper,
    retries=PATIENT,
    timeout="5m",
    docs="Runs in worker.mjs.",
)


@app.task(retries=PATIENT)
def students_of(course: str) -> list[str]:
    found = "SELECT student FROM enrolments WHERE course = :course AND state = 'enrolled' ORDER BY student"
    with database().connect() as db:
        return list(db.scalars(text(found), {"course": course}))


@app.task(retries=PATIENT)
def count_enrolments() -> dict[str, int]:
    """By state."""
    with database().connect() as db:
        rows = db.execute(
            text("SELECT state, count(*) AS number FROM enrolments GROUP BY state ORDER BY state")
        )
        return {row.state: row.number for row in rows}


@app.workflow
async def invite(course: str, students: list[str]) -> int:
    """Invites everybody, twenty at a time: the mail service likes no more."""
    await gather(*[mail(student, f"Join us: {course}") for student in students], limit=20)
    return len(students)


@app.workflow
async def graduate(course: str) -> list[Paper]:
    """A certificate for every student of a course; the printer takes four at a time."""
    students = await students_of(course)
    papers = await gather(*[certificate(student=student, course=course) for student in students], limit=4)
    pairs = zip(students, papers, strict=True)
    await gather(*[mail(student, f"Your certificate {paper.number}: {course}") for student, paper in pairs])
    return papers


@app.workflow
async def nightly_report() -> str:
    """On a schedule, see api.py."""
    counted = await count_enrolments()
    report = ", ".join(f"{number} {state}" for state, number in counted.items()) or "no enrolments"
    await mail("office@example.com", f"{now():%Y-%m-%d}: {report}")
    return report
