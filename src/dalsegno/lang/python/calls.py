"""Durable callables, and how they know that they are called by a workflow.

While a machine runs, it is the *current machine* of its context. A task called then does not run: the call becomes a
promise, and the machine asks for the task by effect. Called anywhere else, a task is the ordinary function it was, and
a workflow is for its application to run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, TypeVar, cast

from dalsegno.lang.promises import Promise
from dalsegno.lang.python.annotations import hints_of
from dalsegno.lang.python.typed import from_plain, to_plain

P = ParamSpec("P")
R = TypeVar("R")

CallKind = Literal["task", "workflow"]


class Caller(Protocol):
    """What durable callables and verbs need of the machine that is running."""

    @property
    def now(self) -> float: ...

    def call(self, target: Durable[Any, Any], inputs: Any) -> Promise: ...

    def call_by_name(self, kind: CallKind, name: str, inputs: Any, options: Mapping[str, Any]) -> Promise: ...

    def start_detached(self, name: str, inputs: Any, options: Mapping[str, Any]) -> str: ...

    def timer(self, due: float) -> Promise: ...

    def wait_for_signal(self, name: str, due: float | None) -> Promise: ...

    def share_limit(self, promises: Sequence[Promise], most: int) -> None: ...

    def ask_people(self, asked: Any, form: type[Any] | None) -> Promise: ...

    def cancel(self, promise: Promise) -> None: ...

    def set_tags(self, tags: Mapping[str, str | None]) -> None: ...

    def log(self, level: str, message: str) -> None: ...


_current: ContextVar[Caller | None] = ContextVar("dalsegno_current_machine", default=None)


def current_machine() -> Caller | None:
    """The machine whose workflow is calling, or None outside of workflows."""
    return _current.get()


def enter_machine(machine: Caller) -> Token[Caller | None]:
    return _current.set(machine)


def leave_machine(token: Token[Caller | None]) -> None:
    _current.reset(token)


class Durable(Generic[P, R]):
    """A Python function that the engine knows by name."""

    kind: ClassVar[CallKind] = "task"

    def __init__(
        self,
        function: Callable[P, R],
        name: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        context_parameter: str | None = None,
        raises: tuple[type[BaseException], ...] = (),
    ) -> None:
        """``context_parameter`` is given by the engine, not by callers; ``raises``: classes of exceptions that a
        workflow gets back as they were even if its own module does not name them."""
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self.options: Mapping[str, Any] = dict(options or {})
        self.raises = raises
        self._context_parameter = context_parameter

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        machine = current_machine()
        if machine is None:
            return self.function(*args, **kwargs)
        return cast(R, machine.call(self, self.bind(*args, **kwargs)))

    def __repr__(self) -> str:
        return f"<{self.kind} '{self.name}'>"

    def with_options(self, **options: Any) -> Durable[P, R]:
        """The same callable with other options for its next calls: queue, priority, retries, timeout, key …"""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.options = {**self.options, **options}
        return other

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Without the parameter that the engine fills."""
        whole = inspect.signature(self.function)
        return whole.replace(
            parameters=[each for name, each in whole.parameters.items() if name != self._context_parameter]
        )

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        return hints_of(self.function, _closure_names(self.function))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """The arguments of a call as the input: one parameter's value as it is, several as an object by name.

        ``*rest`` is a list, and what ``**named`` takes are fields beside the others.
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
        """The input has one field of each name."""
        for key in further:
            if key in self.signature.parameters and key != name:
                raise TypeError(
                    f"{self.kind} '{self.name}': '{key}' in '**{name}' is the name of another parameter"
                )

    def decode_result(self, value: Any) -> Any:
        """A result as the function's return annotation says."""
        return from_plain(value, self.hints.get("return", Any), f"the result of {self.kind} '{self.name}'")


class DurableTask(Durable[P, R]):
    """A task: in a workflow a call gives a promise; outside it is an ordinary call."""


def _closure_names(function: Any) -> dict[str, Any]:
    """Variables around a function that was defined in another one: its annotations may mention them."""
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except (TypeError, ValueError):
        return {}
