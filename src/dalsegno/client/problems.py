"""Conversion of a server's problem documents to the exceptions that the same error raises locally."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno import errors, lang
from dalsegno.engine.scripts.programs import InvalidScript
from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    Finding,
    InternalError,
    InvalidDefinition,
    InvalidInput,
    TooManyRequests,
    Unavailable,
)
from dalsegno.lang import FlowSyntaxError

BY_STATUS: dict[int, type[DalSegnoError]] = {
    400: errors.BadRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: Unavailable,
    409: errors.Conflict,
    413: errors.TooLarge,
    415: errors.UnsupportedMedia,
    422: errors.InvalidInput,
    429: TooManyRequests,
    503: Unavailable,
    507: errors.StoreFull,
}
"""Fallback classes by status, for codes that this version does not know."""


class Place(Struct):
    """One problem and its place."""

    pointer: str = ""
    message: str = ""
    rule: str | None = None
    line: int | None = None
    column: int | None = None


class Problem(Struct):
    """A problem document (RFC 9457) with the server's extensions."""

    status: int
    detail: str
    code: str
    findings: list[Place] = []
    errors: list[Place] = []
    """The same list under its earlier name, which older servers send."""

    @property
    def places(self) -> list[Place]:
        return self.findings or self.errors


class ServerUnreachable(Unavailable):
    """The server does not answer, or answers that it cannot serve now."""

    hint = "`dalsegno dev` starts a server on this machine; --server or DALSEGNO_SERVER says where another one is."


class NotThisServer(BadConfiguration):
    """The answer is not one that this client understands: another server, or another version of Dal Segno."""

    hint = "Check the URL, and `dalsegno --version` on both machines."


class RouteMissing(NotThisServer):
    """The server is older than the route."""


_decode = msgspec.json.Decoder(Problem).decode


def read_problem(content: bytes) -> Problem | None:
    """Return the problem document; None if the body is not one of Dal Segno."""
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def error_of(problem: Problem, after: float | None = None) -> DalSegnoError:
    """Return the exception of a problem."""
    build = _BUILDERS.get(problem.code)
    if build is not None:
        return build(problem, after)
    known = _CLASSES.get(problem.code)
    made = (known or _by_status(problem.status))(problem.detail)
    if known is None:
        made.code = problem.code  # type: ignore[misc]  # newer than this version: its page is found under it
    return made


def _by_status(status: int) -> type[DalSegnoError]:
    return BY_STATUS.get(status, InternalError if status >= 500 else errors.UsageError)


def _too_many(problem: Problem, after: float | None) -> DalSegnoError:
    return TooManyRequests(problem.detail, after if after is not None else 1.0)


def _definition(problem: Problem, _: float | None) -> DalSegnoError:
    return InvalidDefinition(
        [Finding(each.pointer, each.rule or "invalid", each.message) for each in problem.places]
    )


def _syntax(problem: Problem, _: float | None) -> DalSegnoError:
    first = problem.places[0] if problem.places else Place(message=problem.detail)
    return FlowSyntaxError(first.message, first.line or 1, first.column or 1)


def _script(problem: Problem, _: float | None) -> DalSegnoError:
    findings = [
        lang.Finding(each.rule or "invalid", "error", each.message, each.line or 1, each.column or 1)
        for each in problem.places
    ]
    made = InvalidScript("", findings)
    made.args = (problem.detail,)  # the detail already names the script
    return made


def _input(problem: Problem, _: float | None) -> DalSegnoError:
    found = [Finding(each.pointer, each.rule or "invalid", each.message) for each in problem.places]
    return InvalidInput.at(problem.detail, found)


_BUILDERS: dict[str, Callable[[Problem, float | None], DalSegnoError]] = {
    TooManyRequests.code: _too_many,
    InvalidDefinition.code: _definition,
    InvalidInput.code: _input,
    FlowSyntaxError.code: _syntax,
    InvalidScript.code: _script,
}


def _plain(kind: type[Any]) -> Iterator[type[DalSegnoError]]:
    """Yield the error classes that are constructed from one sentence."""
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            if each.__init__ is Exception.__init__:
                yield each
            yield from _plain(each)


_CLASSES: dict[str, type[DalSegnoError]] = {each.code: each for each in _plain(DalSegnoError)}
