"""Settings of a node: retry, timeout, queue, error strategy, the deadline of a merge or aggregator.

Retry policies of documents: a node's own ``retry``, and the shorthand among the parameters of ``http``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args

from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report, kind_of, pointer_to, quoted
from dalsegno.graph.plan import ErrorStrategy
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.model.limits import Concurrency, read_concurrency

MERGE_TIMEOUT = 300.0
_STRATEGIES: tuple[ErrorStrategy, ...] = get_args(ErrorStrategy)
_QUEUE = re.compile(r"[\w][\w.:-]{0,99}")
CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ALL = ("wait_for_all", "all")
_ANY = ("wait_for_any", "any")


def read_settings(draft: Draft, report: Report) -> None:
    for node in draft.nodes:
        fields = node.fields
        if fields.get("credentials"):
            node.credential = _credential(fields["credentials"], f"{node.pointer}/credentials", report)
        if fields.get("timeout") is not None:
            node.timeout = positive_duration(fields["timeout"], f"{node.pointer}/timeout", report)
        if fields.get("queue") is not None:
            node.queue = _queue(fields["queue"], f"{node.pointer}/queue", report)
        if fields.get("concurrency") is not None:
            node.concurrency = _concurrency(fields["concurrency"], f"{node.pointer}/concurrency", report)
        if fields.get("error"):
            _read_error(node, report)
        _read_retry(node, report)
        if node.control == "merge":
            _read_merge(node, report)
        elif node.control == "aggregator":
            node.join = "all"
            node.merge_timeout = _deadline(node, None, report)


def positive_duration(value: Any, pointer: str, report: Report) -> float | None:
    try:
        seconds = parse_duration(value)
    except BadDuration as error:
        report.error(pointer, "bad-duration", f"{quoted(value)} {error}.")
        return None
    if seconds == 0:
        report.error(
            pointer, "bad-duration", "A time limit of zero would never let anything finish; leave it out."
        )
        return None
    return seconds


def _credential(value: Any, pointer: str, report: Report) -> str | None:
    """Read ``{"ref": "crm-key"}`` or the name alone. A value is refused: documents are stored and shown unredacted."""
    named = value
    if isinstance(value, dict):
        named, unknown = value.get("ref"), [key for key in value if key != "ref"]
        if unknown:
            message = (
                f"{quoted(unknown[0])} has no place here: 'credentials' only names a credential of the store, as "
                '{"ref": "name"}; set its values with `dalsegno credentials add`.'
            )
            report.error(pointer_to(pointer, unknown[0]), "bad-credentials", message)
            return None
        pointer = f"{pointer}/ref"
    if isinstance(named, str) and CREDENTIAL.fullmatch(named):
        return named
    shown = quoted(named) if isinstance(named, str) else kind_of(named)
    message = f"{shown} cannot be a credential's name: write it out, with up to 100 letters, digits, '_', '-' and '.'."
    report.error(pointer, "bad-credentials", message)
    return None


def _queue(value: Any, pointer: str, report: Report) -> str:
    if isinstance(value, str) and _QUEUE.fullmatch(value):
        return value
    message = f"{quoted(value)} cannot be a queue: use up to 100 letters, digits, '_', '-', '.' or ':'."
    report.error(pointer, "bad-queue", message)
    return "default"


def _concurrency(value: Any, pointer: str, report: Report) -> Concurrency | None:
    try:
        return read_concurrency(value)
    except ValueError as error:
        report.error(pointer, "bad-concurrency", f"'concurrency' is not valid: {error}.")
        return None


def _read_error(node: DraftNode, report: Report) -> None:
    """Read the error strategy. ``error_edge`` is checked when the edges are known."""
    error, pointer = node.fields["error"], f"{node.pointer}/error"
    if isinstance(error, str):
        error = {"type": error}
        where = pointer
    else:
        where = f"{pointer}/type"
    if not isinstance(error, dict):
        report.error(pointer, "wrong-type", f"'error' must be an object with 'type', not {kind_of(error)}.")
        return
    kind = error.get("type") or ("branch" if error.get("error_edge") else "halt")
    if kind in _STRATEGIES:
        node.strategy = cast("ErrorStrategy", kind)
    else:
        hint = report.suggest(kind, _STRATEGIES) if isinstance(kind, str) else ""
        message = (
            f"{quoted(kind)} is not an error strategy; use 'halt', 'ignore' or 'branch'{hint.rstrip('?')}."
        )
        report.error(where, "bad-error-strategy", message)


def _read_retry(node: DraftNode, report: Report) -> None:
    value = node.fields.get("retry")
    if value:
        node.retry = read_retry(value, f"{node.pointer}/retry", report)
    if node.type == "http":
        shorthand = read_retry_parameters(node.parameters, node.parameters_pointer, report)
        if value and shorthand is not None:
            message = "The node's own 'retry' wins over the parameters 'retry' and 'retry_delay'; keep one."
            report.warn(f"{node.parameters_pointer}/retry", "retry-twice", message)
        elif shorthand is not None:
            node.retry = shorthand


def _read_merge(node: DraftNode, report: Report) -> None:
    wait_mode = _choice(node, "wait_mode", (*_ALL, *_ANY), report)
    node.join = "any" if wait_mode in _ANY else "all"
    node.cancels_losers = _choice(node, "losers", ("keep", "cancel"), report) == "cancel"
    deadline = _deadline(node, MERGE_TIMEOUT, report)
    if node.join == "all":
        node.merge_timeout = deadline
        return
    if node.parameters.get("timeout") is not None:
        message = "The timeout of a merge that waits for any has no effect: the first arrival completes it. Remove it."
        report.warn(f"{node.parameters_pointer}/timeout", "no-effect", message)


def _choice(node: DraftNode, name: str, allowed: tuple[str, ...], report: Report) -> str:
    value = node.parameters.get(name)
    if value is None:
        return allowed[0]
    if isinstance(value, str) and value in allowed:
        return value
    listed = ", ".join(f"'{choice}'" for choice in allowed)
    message = (
        f"{quoted(value)} is not a '{name}'; use one of {listed} (as plain text: it is needed before a run)."
    )
    report.error(pointer_to(node.parameters_pointer, name), "bad-parameter", message)
    return allowed[0]


def _deadline(node: DraftNode, default: float | None, report: Report) -> float | None:
    value = node.parameters.get("timeout")
    if value is None:
        return default
    return positive_duration(value, f"{node.parameters_pointer}/timeout", report)


# -- settings ------------------------------------------------------------------------------------------------


_Default = TypeVar("_Default")

DEFAULT_ATTEMPTS = 3
"""Attempts of a ``retry`` that does not name a number."""
MAX_ATTEMPTS = 1000
FIELDS = ("max_attempts", "initial_delay", "factor", "max_delay", "jitter", "on")


def read_retry(value: Any, pointer: str, report: Report) -> RetryPolicy:
    if not isinstance(value, dict):
        message = f"'retry' must be an object such as {{\"max_attempts\": 3}}, not {kind_of(value)}."
        report.error(pointer, "bad-retry", message)
        return NO_RETRY
    for key in value.keys() - FIELDS:
        hint = report.suggest(key, FIELDS) or f"; use {', '.join(FIELDS)}."
        report.error(pointer_to(pointer, key), "bad-retry", f"'retry' has no field {quoted(key)}{hint}")
    reader = _Reader(value, pointer, report)
    return RetryPolicy(
        max_attempts=reader.count("max_attempts", DEFAULT_ATTEMPTS, lowest=1),
        initial_delay=reader.seconds("initial_delay", NO_RETRY.initial_delay),
        factor=reader.number("factor", NO_RETRY.factor, 1, 100),
        max_delay=reader.seconds("max_delay", NO_RETRY.max_delay),
        jitter=reader.number("jitter", NO_RETRY.jitter, 0, 1),
        on=reader.codes("on"),
    )


def read_retry_parameters(parameters: Mapping[str, Any], pointer: str, report: Report) -> RetryPolicy | None:
    """Read the shorthand. Its ``retry`` counts repetitions, so the policy has one attempt more."""
    reader = _Reader(parameters, pointer, report)
    if parameters.get("retry") is None:
        return None
    return RetryPolicy(
        max_attempts=reader.count("retry", 0, lowest=0) + 1,
        initial_delay=reader.seconds("retry_delay", NO_RETRY.initial_delay),
    )


class _Reader:
    """Reads the fields of one object. Invalid fields are reported and replaced by their defaults."""

    def __init__(self, fields: Mapping[str, Any], pointer: str, report: Report) -> None:
        self._fields = fields
        self._pointer = pointer
        self._report = report

    def count(self, key: str, default: int, *, lowest: int) -> int:
        value = self._fields.get(key)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= MAX_ATTEMPTS:
            return value
        return self._refuse(key, f"must be a whole number from {lowest} to {MAX_ATTEMPTS:,}", default)

    def number(self, key: str, default: float, lowest: float, highest: float) -> float:
        value = self._fields.get(key)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and lowest <= value <= highest:
            return float(value)
        return self._refuse(key, f"must be a number from {lowest:g} to {highest:g}", default)

    def seconds(self, key: str, default: float) -> float:
        value = self._fields.get(key)
        if value is None:
            return default
        try:
            return parse_duration(value)
        except BadDuration as error:
            message = f"{quoted(value)} {error}."
            self._report.error(pointer_to(self._pointer, key), "bad-duration", message)
            return default

    def codes(self, key: str) -> tuple[str, ...]:
        value = self._fields.get(key)
        listed = [value] if isinstance(value, str) else value
        if listed is None:
            return ()
        if isinstance(listed, list) and all(isinstance(code, str) and code for code in listed):
            return tuple(listed)
        return self._refuse(key, 'must be a list of error codes or types, such as ["TimeoutError"]', ())

    def _refuse(self, key: str, what: str, default: _Default) -> _Default:
        value = self._fields[key]
        self._report.error(
            pointer_to(self._pointer, key), "bad-retry", f"'{key}' {what}, not {quoted(value)}."
        )
        return default
