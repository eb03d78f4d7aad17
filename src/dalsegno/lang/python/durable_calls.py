"""Durable callables, and how they recognise a call from a workflow.

While a machine runs, it is the *current machine* of its context. A task called then does not run: the call returns a
promise, and the machine requests the task by an effect. Elsewhere a task is an ordinary function, and a workflow is
started by its application.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, cast

from dalsegno.lang.python.errors import OutsideWorkflow
from dalsegno.lang.python.values.annotations import hints_of
from dalsegno.lang.python.values.typed_values import from_plain, to_plain
from dalsegno.lang.runtime.promises import Promise

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

CallKind = Literal["task", "workflow"]


class Caller(Protocol):
    """The interface of the running machine that durable callables and verbs use."""

    @property
    def now(self) -> float: ...

    def call(self, target: Durable[Any, Any], inputs: Any) -> Promise: ...

    def call_by_name(self, kind: CallKind, name: str, inputs: Any, options: Mapping[str, Any]) -> Promise: ...

    def start_detached(self, name: str, inputs: Any, options: Mapping[str, Any]) -> str: ...

    def timer(self, due: float) -> Promise: ...

    def wait_for_signal(self, name: str, due: float | None, type: Any = None) -> Promise: ...

    def wait_for_request(self, name: str, due: float | None, type: str | None = None) -> Promise: ...

    def type_text(self, type: Any, verb: str) -> str: ...

    def reply(self, id: str, name: str, value: Any) -> None: ...

    def reject(self, id: str, name: str, message: str) -> None: ...

    def share_limit(self, promises: Sequence[Promise], most: int) -> None: ...

    def ask_people(self, asked: Any, form: type[Any] | None) -> Promise: ...

    def cancel(self, promise: Promise) -> None: ...

    def set_tags(self, tags: Mapping[str, str | None]) -> None: ...

    def checkpoint(self, name: str) -> None: ...
    def publish(self, key: str, value: Any) -> None: ...

    def write_stream(self, stream: str, chunk: Any) -> None: ...

    def close_stream(self, stream: str) -> None: ...

    def log(self, level: str, message: str) -> None: ...


_current: ContextVar[Caller | None] = ContextVar("dalsegno_current_machine", default=None)


def current_machine() -> Caller | None:
    """Return the machine whose workflow is calling, or None outside of workflows."""
    return _current.get()


def enter_machine(machine: Caller) -> Token[Caller | None]:
    return _current.set(machine)


def leave_machine(token: Token[Caller | None]) -> None:
    _current.reset(token)


class Promised(Awaitable[R_co], Protocol[R_co]):
    """A promise as type checkers see it; awaited, it gives an ``R_co``."""

    def named(self, label: str) -> Promised[R_co]:
        """Label the await, so that it is found again in another version of the program."""
        ...


class Durable(Generic[P, R_co]):
    """A Python function that the engine knows by name. ``R_co`` is what a call in a workflow gives: a promise."""

    kind: ClassVar[CallKind] = "task"

    def __init__(
        self,
        function: Callable[P, R_co],
        name: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        context_parameter: str | None = None,
        raises: tuple[type[BaseException], ...] = (),
    ) -> None:
        """``context_parameter`` is filled by the engine, not by callers.

        ``raises`` lists exception classes that a workflow receives unchanged even if its own module does not name
        them.
        """
        functools.update_wrapper(self, function)
        self.function: Callable[..., Any] = function  # it may take a context, which ``P`` is without
        self.name = name or function.__name__
        self.options: Mapping[str, Any] = dict(options or {})
        self.raises = raises
        self._context_parameter = context_parameter

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        machine = current_machine()
        if machine is None:
            return cast(R_co, self.function(*args, **kwargs))
        return cast(R_co, machine.call(self, self.bind(*args, **kwargs)))

    def __repr__(self) -> str:
        return f"<{self.kind} '{self.name}'>"

    def with_options(self, **options: Any) -> Self:
        """Return the same callable with other options for its next calls: queue, priority, retries, timeout, key …"""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.options = {**self.options, **options}
        return other

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature without the parameter that the engine fills."""
        whole = inspect.signature(self.function)
        return whole.replace(
            parameters=[each for name, each in whole.parameters.items() if name != self._context_parameter]
        )

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        return hints_of(self.function, _closure_names(self.function))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return the arguments of a call as the input of a task or workflow.

        The value of a single parameter is the input itself; several parameters are an object by name. ``*rest``
        becomes a list; the items of ``**named`` become further fields.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.kind} '{self.name}': {error}") from None
        given: dict[str, Any] = {}
        parameters = self.signature.parameters
        for name, value in bound.arguments.items():
            match parameters[name].kind:
                case inspect.Parameter.VAR_KEYWORD:
                    self._check_further(value, name)
                    given.update(value)
                case inspect.Parameter.VAR_POSITIONAL:
                    given[name] = list(value)
                case _:
                    given[name] = value
        plain = {name: to_plain(value, f"{self.kind} '{self.name}': {name}") for name, value in given.items()}
        takes_whole = [each for each in parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        if len(parameters) == 1 and takes_whole and plain:
            return next(iter(plain.values()))
        return plain or None

    def _check_further(self, further: Mapping[str, Any], name: str) -> None:
        """Refuse a field name that two parameters would use."""
        for key in further:
            if key in self.signature.parameters and key != name:
                raise TypeError(
                    f"{self.kind} '{self.name}': '{key}' in '**{name}' is the name of another parameter"
                )

    def decode_result(self, value: Any) -> Any:
        """Convert a result as the function's return annotation says."""
        return from_plain(value, self.hints.get("return", Any), f"the result of {self.kind} '{self.name}'")


class WorkflowFunction(Durable[P, Promised[R_co]]):
    """A workflow as its callers see it; ``R_co`` is its result."""

    kind: ClassVar[CallKind] = "workflow"


class DurableTask(Durable[P, R_co]):
    """A task: in a workflow a call returns a promise; elsewhere it is an ordinary call."""

    def decode_result(self, value: Any) -> Any:
        """Convert a result. None stays None, whatever the annotation says: a person may have skipped the task."""
        return None if value is None else super().decode_result(value)


class DurableRemoteTask(DurableTask[P, R_co]):
    """A task that another program runs. It takes one value, or fields by name, and has no local function to call."""

    def __init__(
        self,
        name: str,
        returns: Any = Any,
        *,
        queue: str,
        docs: str = "",
        raises: tuple[type[BaseException], ...] = (),
    ) -> None:
        super().__init__(cast("Callable[P, R_co]", _remote_function(name, queue, docs)), name, raises=raises)
        self.returns = returns

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return the single value as it is, or the fields as an object."""
        if len(args) > 1 or (args and kwargs):
            raise TypeError(
                f"remote task '{self.name}' takes one value, or fields by name: {self.name}(order) or "
                f"{self.name}(order=…, pages=…)"
            )
        return to_plain(args[0] if args else kwargs or None, f"task '{self.name}': the input")

    def decode_result(self, value: Any) -> Any:
        if value is None:
            return None
        return from_plain(value, self.returns, f"the result of remote task '{self.name}'")


def _remote_function(name: str, queue: str, docs: str) -> Callable[..., Any]:
    """Return the placeholder function of a remote task."""

    def unavailable(*_: Any, **__: Any) -> Any:
        raise OutsideWorkflow(
            f"remote task '{name}' runs in a program that claims the queue '{queue}'; only a workflow can call it. "
            f"Start it alone with app.start({name}, …); in a test of a workflow, give it an answer with "
            f"workflows.mock({name}, returns=…)"
        )

    unavailable.__name__ = unavailable.__qualname__ = name
    unavailable.__doc__ = docs or None
    return unavailable


def _closure_names(function: Any) -> dict[str, Any]:
    """Return the variables around a function that was defined in another one: its annotations may mention them."""
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except (TypeError, ValueError):
        return {}
