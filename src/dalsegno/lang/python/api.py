"""The verbs of workflows: sleep, wait for a signal, join promises, limit time, start children.

They create promises, and work only inside a running workflow.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.lang.python.compile.unsupported import no_promise, not_a_task
from dalsegno.lang.python.durable_calls import (
    Caller,
    CallKind,
    Durable,
    Promised,
    WorkflowFunction,
    current_machine,
)
from dalsegno.lang.python.errors import OutsideWorkflow
from dalsegno.lang.python.requests import IncomingRequests, Request
from dalsegno.lang.python.runtime.nested import NestedCall
from dalsegno.lang.python.timeouts import Timeout
from dalsegno.lang.python.values.decisions import Decision, schema_of
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.lang.runtime.effects import GroupKind, checked_checkpoint
from dalsegno.lang.runtime.promises import Group, Promise, leaves
from dalsegno.model.published import PROGRESS, check_key, check_stream, progress_value
from dalsegno.model.search import read_tag_changes

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
P = ParamSpec("P")
R = TypeVar("R")

EXCEPTIONS = "exceptions"
"""The shape of ``gather(…, return_exceptions=True)``."""

Delay = float | str | dt.timedelta | dt.datetime


def _machine(verb: str) -> Caller:
    machine = current_machine()
    if machine is None:
        raise OutsideWorkflow(
            f"{verb}() works only inside a running workflow; tasks and ordinary code use asyncio's or their own means"
        )
    return machine


def now() -> dt.datetime:
    """Return the current time in UTC, on the clock of durable timers.

    This is the store's time when the workflow resumed after its last await. It is never before a timer that has fired;
    a test that skips time moves it.
    """
    return dt.datetime.fromtimestamp(_machine("now").now, dt.UTC)


def sleep(delay: Delay) -> Promised[None]:
    """Wait on a durable timer: seconds, text such as ``"1h30m"``, a timedelta, or the moment to wake at.

    The timer starts with the call, not with the await.
    """
    machine = _machine("sleep")
    if isinstance(delay, dt.datetime):
        moment = delay if delay.tzinfo is not None else delay.replace(tzinfo=dt.UTC)
        return cast("Promised[None]", machine.timer(moment.timestamp()))
    return cast("Promised[None]", machine.timer(machine.now + _seconds(delay, "sleep")))


def _seconds(delay: object, verb: str) -> float:
    try:
        return parse_duration(delay.total_seconds() if isinstance(delay, dt.timedelta) else delay)
    except BadDuration as error:
        raise ValueError(f"{verb}(): {delay!r} {error}") from None


@overload
def signal(name: str, timeout: float | str | dt.timedelta | None = ..., *, type: type[A]) -> Promised[A]: ...
@overload
def signal(
    name: str, timeout: float | str | dt.timedelta | None = ..., *, type: UnionType | None = ...
) -> Promised[Any]: ...
def signal(name: str, timeout: float | str | dt.timedelta | None = None, *, type: Any = None) -> Any:
    """Wait for the next signal of that name; a signal that arrives earlier is kept.

    After ``timeout`` the await raises ``TimeoutError``. With ``type`` the await gives the payload as an instance of
    that type (a dataclass, a Pydantic model, ``list[int]`` …); one that does not fit raises ``InvalidInput``.
    """
    machine = _machine("signal")
    if not _is_name(name):
        raise TypeError(f"signal() takes the signal's name, not {name!r}")
    due = None if timeout is None else machine.now + _seconds(timeout, "signal")
    return machine.wait_for_signal(name, due, type)


@overload
def request(
    name: str, timeout: float | str | dt.timedelta | None = ..., *, type: type[A]
) -> Promised[Request[A]]: ...
@overload
def request(
    name: str, timeout: float | str | dt.timedelta | None = ..., *, type: UnionType | None = ...
) -> Promised[Request[Any]]: ...
def request(name: str, timeout: float | str | dt.timedelta | None = None, *, type: Any = None) -> Any:
    """Wait for the next request of that name; one that arrives earlier is kept. Answer it with its ``reply``.

    After ``timeout`` the await raises ``TimeoutError``. With ``type`` its payload is an instance of that type; a
    request whose payload does not fit is refused, and the workflow waits for the next one.
    """
    machine = _machine("request")
    text = _requested(machine, "request", name, type)
    due = None if timeout is None else machine.now + _seconds(timeout, "request")
    return machine.wait_for_request(name, due, text)


@overload
def requests(name: str, *, type: type[A]) -> IncomingRequests[A]: ...
@overload
def requests(name: str, *, type: UnionType | None = ...) -> IncomingRequests[Any]: ...
def requests(name: str, *, type: Any = None) -> Any:
    """Return the requests of that name, one after the other, for ``async for request in requests("quote"):``.

    The loop does not end by itself; each of its rounds begins as ``await request(name)`` does.
    """
    machine = _machine("requests")
    return IncomingRequests(name, _requested(machine, "requests", name, type))


def _requested(machine: Caller, verb: str, name: object, type: Any) -> str | None:
    if not _is_name(name):
        raise TypeError(f"{verb}() takes the request's name, not {name!r}")
    return None if type is None else machine.type_text(type, verb)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


@overload
def approval(
    message: str,
    *,
    form: type[A],
    approvers: Sequence[str] | str = ...,
    timeout: float | str | dt.timedelta | None = ...,
    signal: str | None = ...,
) -> Promised[Decision[A]]: ...
@overload
def approval(
    message: str,
    *,
    form: Mapping[str, Any] | None = ...,
    approvers: Sequence[str] | str = ...,
    timeout: float | str | dt.timedelta | None = ...,
    signal: str | None = ...,
) -> Promised[Decision[Any]]: ...
def approval(
    message: str,
    *,
    form: type[Any] | Mapping[str, Any] | None = None,
    approvers: Sequence[str] | str = (),
    timeout: float | str | dt.timedelta | None = None,
    signal: str | None = None,
) -> Any:
    """Ask people for a decision and return it as a `Decision`.

    The approval is listed and decided like an approval node of a graph. ``form`` says which data an approval needs: a
    dataclass, a Pydantic model, or a JSON Schema. After ``timeout`` the await raises ``TimeoutError``. ``signal`` names
    a signal that can also carry the decision.
    """
    machine = _machine("approval")
    if not isinstance(message, str):
        raise TypeError(f"approval() takes the question as text, not {type(message).__name__}")
    asked: dict[str, Any] = {"message": message}
    asked["approvers"] = [approvers] if isinstance(approvers, str) else list(approvers)
    if form is not None:
        asked["form"] = schema_of(form)
    if timeout is not None:
        asked["timeout"] = _seconds(timeout, "approval")
    if signal is not None:
        asked["signal"] = signal
    plain = to_plain(asked, "approval()")
    return cast(Any, machine.ask_people(plain, form if isinstance(form, type) else None))


def timeout(limit: float | str | dt.timedelta | None) -> Timeout:
    """Limit the time of a block: ``with timeout("30s"):``.

    Awaits inside raise ``TimeoutError`` when the time is over. None means no limit.
    """
    _machine("timeout")
    return Timeout(None if limit is None else _seconds(limit, "timeout"))


@overload
def gather(
    a: Awaitable[A], /, *, return_exceptions: Literal[False] = ..., limit: int | None = ...
) -> Promised[tuple[A]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], /, *, return_exceptions: Literal[False] = ..., limit: int | None = ...
) -> Promised[tuple[A, B]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    /,
    *,
    return_exceptions: Literal[False] = ...,
    limit: int | None = ...,
) -> Promised[tuple[A, B, C]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    /,
    *,
    return_exceptions: Literal[False] = ...,
    limit: int | None = ...,
) -> Promised[tuple[A, B, C, D]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    e: Awaitable[E],
    /,
    *,
    return_exceptions: Literal[False] = ...,
    limit: int | None = ...,
) -> Promised[tuple[A, B, C, D, E]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    e: Awaitable[E],
    f: Awaitable[F],
    /,
    *,
    return_exceptions: Literal[False] = ...,
    limit: int | None = ...,
) -> Promised[tuple[A, B, C, D, E, F]]: ...
@overload
def gather(
    *promises: Awaitable[A], return_exceptions: Literal[False] = ..., limit: int | None = ...
) -> Promised[list[A]]: ...
@overload
def gather(
    a: Awaitable[A], /, *, return_exceptions: Literal[True], limit: int | None = ...
) -> Promised[tuple[A | BaseException]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], /, *, return_exceptions: Literal[True], limit: int | None = ...
) -> Promised[tuple[A | BaseException, B | BaseException]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    /,
    *,
    return_exceptions: Literal[True],
    limit: int | None = ...,
) -> Promised[tuple[A | BaseException, B | BaseException, C | BaseException]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    /,
    *,
    return_exceptions: Literal[True],
    limit: int | None = ...,
) -> Promised[tuple[A | BaseException, B | BaseException, C | BaseException, D | BaseException]]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    e: Awaitable[E],
    /,
    *,
    return_exceptions: Literal[True],
    limit: int | None = ...,
) -> Promised[
    tuple[A | BaseException, B | BaseException, C | BaseException, D | BaseException, E | BaseException]
]: ...
@overload
def gather(
    a: Awaitable[A],
    b: Awaitable[B],
    c: Awaitable[C],
    d: Awaitable[D],
    e: Awaitable[E],
    f: Awaitable[F],
    /,
    *,
    return_exceptions: Literal[True],
    limit: int | None = ...,
) -> Promised[
    tuple[
        A | BaseException,
        B | BaseException,
        C | BaseException,
        D | BaseException,
        E | BaseException,
        F | BaseException,
    ]
]: ...
@overload
def gather(
    *promises: Awaitable[A], return_exceptions: Literal[True], limit: int | None = ...
) -> Promised[list[A | BaseException]]: ...
def gather(*promises: Any, return_exceptions: bool = False, limit: int | None = None) -> Any:
    """Wait for all promises and return their results as a list.

    The first failure is raised at once, unless ``return_exceptions`` asks for failures as values. At most ``limit`` of
    the calls run at a time; the others queue in the store.
    """
    shape: tuple[GroupKind, str] = ("all_settled", EXCEPTIONS) if return_exceptions else ("all", "")
    group = _group("gather", shape[0], promises, shape[1])
    if limit is not None:
        _limit_calls(group, limit)
    return group


def _limit_calls(group: Group, limit: object) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"gather(): the limit must be a whole number, at least 1, not {limit!r}")
    try:
        _machine("gather").share_limit(leaves(group), limit)
    except ValueError as error:
        raise ValueError(f"gather(): {error}") from None


@overload
def first(a: Awaitable[A], b: Awaitable[B], /) -> Promised[A | B]: ...
@overload
def first(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> Promised[A | B | C]: ...
@overload
def first(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> Promised[A | B | C | D]: ...
@overload
def first(*promises: Awaitable[A]) -> Promised[A]: ...
def first(*promises: Any) -> Any:
    """Wait for the first success, in the order in which the promises settle.

    If there is none, raise all failures together.
    """
    return _group("first", "any", _some("first", promises))


@overload
def race(a: Awaitable[A], b: Awaitable[B], /) -> Promised[A | B]: ...
@overload
def race(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> Promised[A | B | C]: ...
@overload
def race(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> Promised[A | B | C | D]: ...
@overload
def race(*promises: Awaitable[A]) -> Promised[A]: ...
@overload
def race(**named: Awaitable[Any]) -> Promised[tuple[str, Any]]: ...
def race(*promises: Any, **named: Any) -> Any:
    """Wait for the first promise that settles, with success or failure.

    ``race(paid=…, late=…)`` returns its name and its value.
    """
    if promises and named:
        raise TypeError("race(): name all promises or none of them")
    if named:
        return _group("race", "race", tuple(named.values()), keys=tuple(named))
    return _group("race", "race", _some("race", promises))


def cancel(*promises: Awaitable[Any]) -> None:
    """Cancel promises: tasks are interrupted, children are asked to end, timers are dropped.

    Awaiting a cancelled promise raises ``CancelledError``. A promise that is settled already is unchanged.
    """
    machine = _machine("cancel")
    for number, promise in enumerate(promises, 1):
        if not isinstance(promise, Promise | Group):
            _refuse("cancel", number, promise)
        for leaf in leaves(promise):
            machine.cancel(leaf)


def _some(verb: str, promises: tuple[Any, ...]) -> tuple[Any, ...]:
    if not promises:
        raise ValueError(f"{verb}() needs at least one promise: among none there is no {verb}")
    return promises


def _group(
    verb: str,
    kind: GroupKind,
    promises: tuple[Any, ...],
    shape: str = "",
    keys: tuple[str, ...] | None = None,
) -> Group:
    _machine(verb)
    for number, promise in enumerate(promises):
        if not isinstance(promise, Promise | Group):
            _refuse(verb, number + 1 if keys is None else f"'{keys[number]}'", promise)
    return Group(kind, promises, keys, shape)


def _refuse(verb: str, number: int | str, value: Any) -> NoReturn:
    place = f"{verb}(): argument {number}"
    if isinstance(value, list | tuple | set) and value:
        raise TypeError(f"{place} is a {type(value).__name__}; unpack it: {verb}(*promises)")
    if isinstance(value, NestedCall):
        raise TypeError(f"{place}: {no_promise(value.function.__name__)}")
    close = getattr(value, "close", None)
    if hasattr(value, "cr_code") and close is not None:
        close()
        raise TypeError(f"{place}: {not_a_task(value.__name__)}")
    raise TypeError(
        f"{place} is not a promise of a task, workflow, timer or signal, but {type(value).__name__}"
    )


@overload
def start(workflow: WorkflowFunction[P, Any], *args: P.args, **kwargs: P.kwargs) -> str: ...
@overload
def start(workflow: str, *args: Any, **kwargs: Any) -> str: ...
def start(workflow: Any, *args: Any, **kwargs: Any) -> str:
    """Start a workflow without waiting for it, and return its execution id at once."""
    machine = _machine("start")
    name, inputs, options = _target("start", workflow, args, kwargs)
    return machine.start_detached(name, inputs, options)


@overload
def run(workflow: Durable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> Promised[R]: ...
@overload
def run(workflow: str, *args: Any, **kwargs: Any) -> Promised[Any]: ...
def run(workflow: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a child workflow by its name (a graph, a script or Python) and return a promise of its result."""
    machine = _machine("run")
    if isinstance(workflow, Durable):
        return workflow(*args, **kwargs)
    name, inputs, options = _target("run", workflow, args, kwargs)
    kind: CallKind = "workflow"
    return machine.call_by_name(kind, name, inputs, options)


def _target(
    verb: str, workflow: Durable[Any, Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Any, Mapping[str, Any]]:
    if isinstance(workflow, Durable):
        if workflow.kind != "workflow":
            raise TypeError(
                f"{verb}() takes a workflow; '{workflow.name}' is a task: call it, and do not await it"
            )
        return workflow.name, workflow.bind(*args, **kwargs), workflow.options
    if not _is_name(workflow):
        raise TypeError(f"{verb}() takes a workflow or its name, not {type(workflow).__name__}")
    if len(args) > 1 or (args and kwargs):
        raise TypeError(f"{verb}('{workflow}'): give the input as one value or as keywords")
    inputs = args[0] if args else (kwargs or None)
    return workflow, to_plain(inputs, f"workflow '{workflow}': input"), {}


def set_tags(tags: Mapping[str, str | None] | None = None, /, **named: str | None) -> None:
    """Change tags of this execution, by which lists are filtered: ``set_tags(stage="documents")``. None removes a tag.

    The tags change with the commit at the next await, or at the end of the workflow; without that commit they do not
    change.
    """
    machine = _machine("set_tags")
    given = {**(tags or {}), **named}
    try:
        machine.set_tags(read_tag_changes(given))
    except ValueError as error:
        raise ValueError(f"set_tags(): {error}") from None


def checkpoint(name: str) -> None:
    """Keep the state of this execution at the next await under a name: ``rerun`` can start from it, however many turns
    follow. The same name again replaces the earlier state. Nothing is kept with ``journal="off"``.
    """
    machine = _machine("checkpoint")
    try:
        machine.checkpoint(checked_checkpoint(name))
    except ValueError as error:
        raise ValueError(f"checkpoint(): {error}") from None


def publish(key: str, value: Any) -> None:
    """Publish a value under a key, for those who watch this execution; of each key the newest value is kept.

    The value is data such as a task takes, a dataclass or a Pydantic model for example. It is published with the
    commit at the next await, or at the end of the workflow, exactly once.
    """
    machine = _machine("publish")
    try:
        name = check_key(key)
    except ValueError as error:
        raise ValueError(f"publish(): {error}") from None
    machine.publish(name, to_plain(value, f"publish(): the value of '{name}'"))


def progress(done: float, total: float | None = None, text: str | None = None) -> None:
    """Publish how far this execution is: ``progress(3, 10, "loading pages")``. Terminals show it as a bar.

    It is published like a value, under the key ``progress``.
    """
    machine = _machine("progress")
    try:
        machine.publish(PROGRESS, progress_value(done, total, text))
    except ValueError as error:
        raise ValueError(f"progress(): {error}") from None


@dataclass(frozen=True)
class OutputStream:
    """A stream of this execution, to which chunks are appended: see `stream`."""

    name: str

    def write(self, chunk: Any) -> None:
        """Append a chunk: text, or other data. It is stored with the commit at the next await."""
        _machine("stream").write_stream(self.name, to_plain(chunk, f"stream('{self.name}').write()"))

    def close(self) -> None:
        """Mark the stream as complete: its readers end."""
        _machine("stream").close_stream(self.name)


def stream(name: str) -> OutputStream:
    """Return a stream of this execution by its name: ``stream("answer").write("Once upon")``.

    A stream keeps all its chunks, in order, for readers who follow it while it grows or later. It exists from its
    first chunk on.
    """
    _machine("stream")
    try:
        return OutputStream(check_stream(name))
    except ValueError as error:
        raise ValueError(f"stream(): {error}") from None


def log(message: object, level: str = "info") -> None:
    """Write a line to the execution's log. It is kept once, however often the code around it runs."""
    _machine("log").log(level, str(message))
