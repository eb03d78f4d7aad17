"""``--retention``: how long ended executions are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from dalsegno.app import App
from dalsegno.cli.problems import Refusal
from dalsegno.engine.retention import Retention
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.execution import ENDED, EndState

_HINT = "Write --retention 30d for all, or --retention COMPLETED=7d --retention FAILED=90d."


def with_retention(app: App, written: Sequence[str] | None) -> App:
    """The application's own setting, unless the options say something."""
    if written:
        app.settings = replace(app.settings, retention=read_retention_options(written))
    return app


def read_retention_options(written: Sequence[str]) -> Retention:
    """Seconds for all states, or by state."""
    if len(written) == 1 and "=" not in written[0]:
        return _seconds(written[0])
    by_state: dict[EndState, float] = {}
    for entry in written:
        name, sign, duration = entry.partition("=")
        state = name.strip().upper()
        if not sign or state not in ENDED:
            known = ", ".join(sorted(ENDED))
            raise Refusal(f"--retention {entry!r} names no state in which executions end: {known}", _HINT)
        if state in by_state:
            raise Refusal(f"--retention names {state} twice", _HINT)
        by_state[cast("EndState", state)] = _seconds(duration)
    return by_state


def _seconds(written: str) -> float:
    try:
        return parse_duration(written.strip())
    except BadDuration as error:
        raise Refusal(f"--retention {written!r}: it {error}", _HINT) from None
