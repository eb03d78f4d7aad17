"""Retry policies of documents: a node's own ``retry``, and the shorthand among the parameters of ``http``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dalsegno.graph.documents.findings import Report, kind_of, pointer_to, quoted
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.failure import NO_RETRY, RetryPolicy

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
