"""Options of ``Task.with({…})``, ``Node.with({…})`` and ``Workflow.with({…})``: checked where they are given, kept in
the token or the order."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from dalsegno.errors import InvalidInput
from dalsegno.graph.findings import Report
from dalsegno.graph.retry import read_retry
from dalsegno.lang.durations import parse_duration
from dalsegno.lang.stdlib.orchestration_names import OPTIONS
from dalsegno.model.definition import Version
from dalsegno.model.limits import Allowance, Concurrency, read_concurrency
from dalsegno.model.retry import RetryPolicy

KNOWN = OPTIONS["Task"]
KNOWN_OF_CHILDREN = OPTIONS["Workflow"]
HIGHEST_PRIORITY = 999_999
"""Resumes of scripts go before everything else."""
MOST_RETRIES = 1_000_000


class TaskOptions(Struct, frozen=True, gc=False):
    """None: as the task itself was registered."""

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


NO_OPTIONS = TaskOptions()
NO_CHILD_OPTIONS = ChildOptions()


def task_options(given: Mapping[str, Any] | None) -> TaskOptions:
    """Raises InvalidInput that names the option."""
    if not given:
        return NO_OPTIONS
    _refuse_unknown(given, KNOWN)
    return TaskOptions(
        _text(given, "queue"),
        _priority(given),
        _retry(given),
        _duration(given, "timeout"),
        _text(given, "key"),
        _duration(given, "delay") or 0.0,
        _concurrency(given),
    )


def child_options(given: Mapping[str, Any] | None) -> ChildOptions:
    """Raises InvalidInput that names the option."""
    if not given:
        return NO_CHILD_OPTIONS
    _refuse_unknown(given, KNOWN_OF_CHILDREN)
    return ChildOptions(_version(given), _tags(given), _priority(given))


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        close = get_close_matches(unknown[0][:100], known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        raise InvalidInput(f"there is no option '{unknown[0]}'; {hint}")


def _version(given: Mapping[str, Any]) -> Version:
    value = given.get("version")
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    raise InvalidInput("the option 'version' must be a version's number or an alias")


def _tags(given: Mapping[str, Any]) -> Mapping[str, str]:
    value = given.get("tags")
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(tag, str) for tag in value.values()):
        return value
    raise InvalidInput("the option 'tags' must be an object of texts")


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(f"the option '{name}' must be a text")
    return value


def _concurrency(given: Mapping[str, Any]) -> Concurrency | None:
    value = given.get("concurrency")
    if value is None:
        return None
    try:
        return read_concurrency(value)
    except ValueError as error:
        raise InvalidInput(f"the option 'concurrency' makes no sense: {error}") from None


def _priority(given: Mapping[str, Any]) -> int:
    value = given.get("priority")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > HIGHEST_PRIORITY:
        limit = f"{HIGHEST_PRIORITY:,}"
        raise InvalidInput(f"the option 'priority' must be a whole number from -{limit} to {limit}")
    return value


def _duration(given: Mapping[str, Any], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    try:
        return parse_duration(value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"the option '{name}' {error}") from None


def _retry(given: Mapping[str, Any]) -> RetryPolicy | None:
    value = given.get("retry", given.get("retries"))
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES:
        return RetryPolicy(max_attempts=value + 1)
    if isinstance(value, Mapping):
        return _policy(value)
    raise InvalidInput(
        "the option 'retries' must be a whole number, or an object with max_attempts and delays"
    )


def _policy(value: Mapping[str, Any]) -> RetryPolicy:
    """As a node's ``retry`` in a document."""
    report = Report()
    policy = read_retry(dict(value), "", report)
    if report.failed:
        problems = " ".join(finding.message for finding in report.findings)
        raise InvalidInput(f"the option 'retry' makes no sense: {problems}")
    return policy
