"""What every part of the office uses: the application, the tables, and the mail."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Connection, Engine, create_engine, text

from dalsegno import App, NodeContext, RetryPolicy

app = App()  # the store: DALSEGNO_STORE, or a SQLite file in this directory

PATIENT = RetryPolicy(max_attempts=1000, initial_delay=0.5, max_delay=60)
"""For what must be done in the end, however long another system is down."""

TABLES = """
CREATE TABLE IF NOT EXISTS courses (
    id TEXT PRIMARY KEY,
    cents INTEGER NOT NULL,
    free INTEGER NOT NULL CHECK (free >= 0),     -- seats that are not taken
    needs_documents BOOLEAN NOT NULL,
    approver TEXT                                -- who must agree to every enrolment
);
CREATE TABLE IF NOT EXISTS enrolments (
    id TEXT PRIMARY KEY,
    course TEXT NOT NULL REFERENCES courses,
    student TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'asked',         -- asked, reserved, enrolled, refused
    remark TEXT,
    execution TEXT                               -- the workflow that takes care of it
);
CREATE TABLE IF NOT EXISTS mails (
    key TEXT PRIMARY KEY,
    recipient TEXT NOT NULL,
    subject TEXT NOT NULL
);
INSERT INTO courses VALUES ('pottery', 12000, 100, FALSE, NULL) ON CONFLICT DO NOTHING;
INSERT INTO courses VALUES ('diving', 48000, 100, TRUE, NULL) ON CONFLICT DO NOTHING;
INSERT INTO courses VALUES ('aerobatics', 90000, 100, FALSE, 'grace@example.com') ON CONFLICT DO NOTHING;
INSERT INTO courses VALUES ('origami', 4000, 100, FALSE, NULL) ON CONFLICT DO NOTHING;
INSERT INTO courses VALUES ('chess', 3000, 2, FALSE, NULL) ON CONFLICT DO NOTHING;
"""


@cache
def database() -> Engine:
    """The tables lie in the store's own database, so that a row and the start of its workflow are one transaction."""
    return create_engine(app.url.replace("postgresql://", "postgresql+psycopg://"))


def create_tables() -> None:
    with database().begin() as db:
        for statement in TABLES.strip().removesuffix(";").split(";\n"):
            db.execute(text(statement))


def move(db: Connection, enrolment: str, *, before: str, after: str, remark: str = "") -> bool:
    """Moves an enrolment to its next state; false if it is not in the state before. So a task that runs a second time,
    or too late, changes nothing."""
    moved = db.execute(
        text("UPDATE enrolments SET state = :after, remark = :remark WHERE id = :id AND state = :before"),
        {"id": enrolment, "before": before, "after": after, "remark": remark},
    )
    return moved.rowcount == 1


def state_of(db: Connection, enrolment: str) -> str:
    return str(
        db.execute(text("SELECT state FROM enrolments WHERE id = :id"), {"id": enrolment}).scalar_one()
    )


@app.task(retries=PATIENT)
def mail(ctx: NodeContext, to: str, subject: str) -> None:
    """Stands for a mail service that takes an idempotency key: a second attempt finds that it was sent."""
    with database().begin() as db:
        db.execute(
            text("INSERT INTO mails VALUES (:key, :to, :subject) ON CONFLICT DO NOTHING"),
            {"key": ctx.idempotency_key, "to": to, "subject": subject},
        )
