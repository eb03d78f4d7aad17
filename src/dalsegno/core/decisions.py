"""Decisions on approvals: what one looks like, and whether it fits the form that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dalsegno.errors import Finding, InvalidInput
from dalsegno.graph.document import SCHEMA_STEPS

APPROVED, REJECTED = "approved", "rejected"
DECISIONS = (APPROVED, REJECTED)
_FIELDS = ("decision", "data", "by", "comment")
_SHAPE = 'a decision is an object such as {"decision": "approved", "data": {…}, "by": "ann"}'
_LONGEST_NAME = 500
LONGEST_COMMENT = 10_000


def check_decision(form: Mapping[str, Any] | None, payload: Any, steps: int = SCHEMA_STEPS) -> dict[str, Any]:
    """The decision as a node puts it out: see `read_decision`. Raises InvalidInput that says what is wrong.

    What comes with an approval must fit the form. A rejection needs no data, and those that it has are not checked.
    """
    decision = read_decision(payload)
    if form and needs_form(decision):
        from dalsegno.graph.input_schema import check_input  # noqa: PLC0415 - only approvals with a form need it

        found = check_input(form, decision["data"], steps)
        refuse_misfits([(each.pointer, each.message) for each in found])
    return decision


def read_decision(payload: Any) -> dict[str, Any]:
    """``{decision, data, by}``, and ``comment`` where there is one, without a look at the form."""
    if not isinstance(payload, dict):
        raise InvalidInput(f"this is no decision: {_SHAPE}")
    unknown = sorted(set(payload) - set(_FIELDS))
    if unknown:
        raise InvalidInput(f"a decision has no field '{unknown[0][:100]}': {_SHAPE}")
    decision, data, by, comment = (payload.get(name) for name in _FIELDS)
    if decision not in DECISIONS:
        raise InvalidInput(f"'decision' must be 'approved' or 'rejected', not {_shown(decision)}")
    if by is not None and (not isinstance(by, str) or len(by) > _LONGEST_NAME):
        raise InvalidInput(f"'by' must be a text of at most {_LONGEST_NAME} characters: who decided")
    if comment is not None and (not isinstance(comment, str) or len(comment) > LONGEST_COMMENT):
        raise InvalidInput(f"'comment' must be a text of at most {LONGEST_COMMENT:,} characters")
    found = {"decision": decision, "data": data, "by": by}
    return found if comment is None else {**found, "comment": comment}


def for_program(decision: Mapping[str, Any]) -> dict[str, Any]:
    """As scripts and Python workflows see it: with every field, and whether it is a yes."""
    return {"approved": decision["decision"] == APPROVED, "comment": None, **decision}


def needs_form(decision: Mapping[str, Any]) -> bool:
    """Whoever says no need not fill in what is asked for a yes."""
    return bool(decision["decision"] == APPROVED)


def refuse_misfits(problems: Sequence[tuple[str, str]]) -> None:
    if problems:
        findings = [Finding(f"/data{pointer}", "form", message) for pointer, message in problems]
        lines = [f"{each.pointer}: {each.message}" for each in findings]
        raise InvalidInput.at("the decision's data do not fit the form:\n" + "\n".join(lines), findings)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
