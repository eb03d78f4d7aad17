"""The workflows on a clock that skips ahead: two weeks of reminders take milliseconds.

pytest back_office
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from back_office import app, enrol, enrol_group, graduate, nightly_report
from back_office.classes import Paper
from back_office.enrolment import Outcome, Wish
from dalsegno.testing import TestKit

ADA = Wish("e-1", "diving", "ada@example.com", card="4242", cents=48_000)


@pytest.fixture
def office(workflows: TestKit) -> TestKit:
    """The office without its database and the payment provider."""
    for task in ("mail", "confirm_seat", "release_seat"):
        workflows.mock(task)
    workflows.mock("refund", returns=0)
    for task in ("reserve_seat", "charge"):
        workflows.mock(task, returns=True)
    return workflows


def steps(office: TestKit) -> list[str]:
    return [call.task for call in office.calls]


def subjects(office: TestKit) -> list[str]:
    return [call.input["subject"] for call in office.calls if call.task == "mail"]


def test_seat_is_reserved_paid_and_confirmed(office: TestKit) -> None:
    enrolment = office.start(enrol, ADA)
    office.signal(enrolment, "payment", "paid")
    assert enrolment.result() == Outcome("ada@example.com", enrolled=True, remark="morning")
    assert steps(office) == ["reserve_seat", "charge", "confirm_seat", "mail"]


def test_student_is_reminded_every_three_days_and_given_up_after_two_weeks(office: TestKit) -> None:
    began = office.now
    outcome = office.run(enrol, replace(ADA, needs_documents=True))
    assert outcome.remark == "the documents did not come"
    assert office.now - began == dt.timedelta(days=14)
    assert subjects(office) == [
        *(f"Reminder {number}: your documents for diving" for number in (1, 2, 3, 4)),
        "No seat in diving: the documents did not come",
    ]


def test_documents_that_come_between_two_reminders_are_enough(office: TestKit) -> None:
    enrolment = office.start(enrol, replace(ADA, needs_documents=True))
    office.advance("7d")
    office.signal(enrolment, "documents", {"passport": "passport.pdf"})
    office.signal(enrolment, "payment", "paid")
    assert enrolment.result().enrolled
    assert len(subjects(office)) == 3  # two reminders, and the welcome


def test_approver_chooses_the_group(office: TestKit) -> None:
    enrolment = office.start(enrol, replace(ADA, approver="grace@example.com"))
    [asked] = office.approvals(enrolment)
    assert asked.approvers == ("grace@example.com",)
    office.decide(enrolment, "approved", {"group": "evening"}, by="grace")
    office.signal(enrolment, "payment", "paid")
    assert enrolment.result().remark == "evening"


def test_rejected_student_pays_nothing(office: TestKit) -> None:
    enrolment = office.start(enrol, replace(ADA, approver="grace@example.com"))
    office.decide(enrolment, "rejected", by="grace")
    assert enrolment.result().remark == "grace said no"
    assert "charge" not in steps(office)


@pytest.mark.parametrize(
    ("task", "answer", "why"),
    [
        ("reserve_seat", {"returns": False}, "no seat is free"),
        ("charge", {"returns": False}, "the card was declined"),
        ("charge", {"raises": OSError("nobody answers")}, "nobody answers"),
    ],
)
def test_whatever_fails_is_undone(office: TestKit, task: str, answer: dict[str, Any], why: str) -> None:
    office.mock(task, **answer)
    enrolment = office.start(enrol, ADA)
    office.signal(enrolment, "payment", "paid")
    assert enrolment.result() == Outcome("ada@example.com", enrolled=False, remark=why)
    assert steps(office)[-3:] == ["refund", "release_seat", "mail"]


def test_charge_that_the_bank_does_not_pay_is_undone(office: TestKit) -> None:
    enrolment = office.start(enrol, ADA)
    office.signal(enrolment, "payment", "failed")
    assert enrolment.result().remark == "the bank did not pay"
    assert steps(office) == ["reserve_seat", "charge", "refund", "release_seat", "mail"]


def test_student_who_withdraws_gets_the_money_back(office: TestKit) -> None:
    enrolment = office.start(enrol, ADA)
    office.idle()
    enrolment.cancel("moved to Rome")
    assert enrolment.wait().state == "CANCELLED"
    assert steps(office) == ["reserve_seat", "charge", "refund", "release_seat", "mail"]


def test_enrolment_survives_a_crash_anywhere(office: TestKit) -> None:
    office.assert_resumable(enrol, ADA, signals={"payment": "paid"})
    office.assert_resumable(enrol, ADA, signals={"payment": "failed"})


def test_organiser_hears_how_many_of_a_group_are_enrolled(office: TestKit) -> None:
    outcomes = [
        Outcome("ada", enrolled=True, remark="morning"),
        Outcome("bob", enrolled=False, remark="full"),
    ]
    office.mock_workflow(enrol, side_effect=outcomes)
    office.run(enrol_group, "boss@example.com", [ADA, replace(ADA, id="e-2")])
    assert subjects(office) == ["1 of 2 students are enrolled"]


def test_every_student_gets_a_certificate(office: TestKit) -> None:
    office.mock("students_of", returns=["ada@example.com", "bob@example.com"])
    office.mock("certificate", side_effect=[Paper("1", "1.txt"), Paper("2", "2.txt")])
    office.run(graduate, "diving")
    assert subjects(office) == ["Your certificate 1: diving", "Your certificate 2: diving"]


def test_report_is_sent_every_night(office: TestKit) -> None:
    office.mock("count_enrolments", returns={"enrolled": 3, "refused": 1})
    app.schedules.add("nightly-report", "0 2 * * *", nightly_report, timezone="Europe/Berlin")
    office.advance("3d")
    assert [subject.partition(": ")[2] for subject in subjects(office)] == ["3 enrolled, 1 refused"] * 3
