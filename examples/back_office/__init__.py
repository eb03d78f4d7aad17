"""The back office of a course platform. README.md says how it is run."""

from back_office.classes import graduate, invite, nightly_report
from back_office.enrolment import enrol, enrol_group
from back_office.office import app
from back_office.payments import payment_notice

__all__ = ["app", "enrol", "enrol_group", "graduate", "invite", "nightly_report", "payment_notice"]
