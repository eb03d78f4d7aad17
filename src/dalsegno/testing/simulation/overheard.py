"""What the engine says in its log while it is simulated: silent for the user, kept for the verdict."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from dalsegno.errors import OperatorError

logger = logging.getLogger("dalsegno")


class Overheard(logging.Handler):
    """Takes over the engine's log for the length of a ``with`` block. ``errors`` holds every exception that was
    logged and was not the store's fault: a step or role that broke by itself is a finding."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info is not None else None
        if error is not None and not isinstance(error, OperatorError):
            self.errors.append(f"{record.getMessage()}: {error!r} {_place(error)}")

    def __enter__(self) -> Self:
        self._before = (logger.propagate, logger.level)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logger.removeHandler(self)
        logger.propagate, level = self._before
        logger.setLevel(level)


def _place(error: BaseException) -> str:
    """The innermost line the error came from."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    return f"at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
