"""Options of ``Task.with({…})``, ``Node.with({…})`` and ``Workflow.with({…})``: checked where they are given, kept
in the token or the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from dalsegno.errors import InvalidInput
from dalsegno.graph.checks.settings import read_retry
from dalsegno.graph.documents.findings import Report
from dalsegno.lang.stdlib.arguments import read_option
from dalsegno.lang.stdlib.orchestration_names import OPTIONS
from dalsegno.model.definition import Version
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.limits import Allowance, Concurrency

KNOWN = OPTIONS["Task"]
CHILD_OPTION_NAMES = (*OPTIONS["Workflow"], "concurrency")
"""The last one is set by a gather that limits how many run at a time."""


class TaskOptions(Struct, frozen=True, gc=False):
    """Options of a task call. None: as the task was registered."""

    queue: str | None = None
    priority: int = 0
    retry: RetryPolicy | None = None
    timeout: float | None = None
    key: str | None = None
    """The idempotency key that attempts see, instead of one derived from the token."""
    delay: float = 0.0
    """Seconds before the first attempt."""
    concurrency: Concurrency | None = None
    """Tasks that share its key share its limit."""

    def limit_key(self, task: str) -> str | None:
        if self.concurrency is None:
            return None
        return self.concurrency.key or f"task:{task}"

    @property
    def allows(self) -> Allowance | None:
        return self.concurrency.allows if self.concurrency is not None else None


class ChildOptions(Struct, frozen=True, gc=False):
    version: Version = None
    tags: Mapping[str, str] = {}
    priority: int = 0
    concurrency: Concurrency | None = None


NO_OPTIONS = TaskOptions()
NO_CHILD_OPTIONS = ChildOptions()


def task_options(given: Mapping[str, Any] | None) -> TaskOptions:
    """Return checked task options; raises InvalidInput that names the option."""
    if not given:
        return NO_OPTIONS
    _refuse_unknown(given, KNOWN)
    return TaskOptions(
        _read(given, "queue"),
        _read(given, "priority") or 0,
        _retry(given),
        _read(given, "timeout"),
        _read(given, "key"),
        _read(given, "delay") or 0.0,
        _read(given, "concurrency"),
    )


def child_options(given: Mapping[str, Any] | None) -> ChildOptions:
    """Return checked child options; raises InvalidInput that names the option."""
    if not given:
        return NO_CHILD_OPTIONS
    _refuse_unknown(given, CHILD_OPTION_NAMES)
    return ChildOptions(
        _read(given, "version"),
        _read(given, "tags") or {},
        _read(given, "priority") or 0,
        _read(given, "concurrency"),
    )


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        close = get_close_matches(unknown[0][:100], known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        raise InvalidInput(f"there is no option '{unknown[0]}'; {hint}")


def _read(given: Mapping[str, Any], name: str) -> Any:
    try:
        return read_option(name, given.get(name))
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def _retry(given: Mapping[str, Any]) -> RetryPolicy | None:
    value = _read(given, "retry" if "retry" in given else "retries")
    if isinstance(value, int):
        return RetryPolicy(max_attempts=value + 1)
    return _policy(value) if value is not None else None


def _policy(value: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy, written as a node's ``retry`` in a document."""
    report = Report()
    policy = read_retry(dict(value), "", report)
    if report.failed:
        problems = " ".join(finding.message for finding in report.findings)
        raise InvalidInput(f"the option 'retry' is not valid: {problems}")
    return policy
