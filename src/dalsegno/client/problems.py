"""Problem documents of a server as the exceptions that the same mistake raises without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno import errors, lang
from dalsegno.engine.scripting.sources import InvalidScript
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
"""For codes that this version does not know."""


class Place(Struct):
    """One thing that is wrong, and where."""

    pointer: str = ""
    message: str = ""
    rule: str | None = None
    line: int | None = None
    column: int | None = None


class Problem(Struct):
    """RFC 9457, with our additions."""

    status: int
    detail: str
    code: str
    findings: list[Place] = []
    errors: list[Place] = []
    """The same list under its earlier name, which is all that an older server sends."""

    @property
    def places(self) -> list[Place]:
        return self.findings or self.errors


class ServerUnreachable(Unavailable):
    """Nobody answers, or whoever answers cannot serve now."""

    hint = "`dalsegno dev` starts a server on this machine; --server or DALSEGNO_SERVER says where another one is."


class NotThisServer(BadConfiguration):
    """Something answers that this client does not understand: no Dal Segno server, or one of another version."""

    hint = "Look at the URL, and at `dalsegno --version` here and there."


class RouteMissing(NotThisServer):
    """The server is older than the route."""


_decode = msgspec.json.Decoder(Problem).decode


def read_problem(content: bytes) -> Problem | None:
    """None where the body is no problem document of ours."""
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def error_of(problem: Problem, after: float | None = None) -> DalSegnoError:
    """The exception that a problem stands for."""
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
    made.args = (problem.detail,)  # its own words name the script
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
    """The classes of the tree of errors that are made of a sentence."""
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            if each.__init__ is Exception.__init__:
                yield each
            yield from _plain(each)


_CLASSES: dict[str, type[DalSegnoError]] = {each.code: each for each in _plain(DalSegnoError)}
