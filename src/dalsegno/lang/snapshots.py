"""The one error for stored machine states that cannot be read, whichever machine wrote them."""

from __future__ import annotations

from dalsegno.errors import OperatorError


class SnapshotError(OperatorError):
    """A snapshot or a stored program is damaged, of another program, or of a format this version does not know."""

    code = "DS-270"


class NameMissing(SnapshotError):
    """A snapshot names something that the running program does not have, or that its code does not reach."""
