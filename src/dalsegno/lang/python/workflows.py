"""A workflow as a callable: compiled when it is defined, called as a child by other workflows."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from dalsegno.errors import InvalidInput
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.lang.python.compile.compiler import compile_workflow
from dalsegno.lang.python.durable_calls import Promised, WorkflowFunction, current_machine
from dalsegno.lang.python.errors import OutsideWorkflow
from dalsegno.lang.python.program import Migration
from dalsegno.model.machine import read_journal

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
M = TypeVar("M", bound=Migration)

RunOutside = Callable[["DurableWorkflow[..., Any]", tuple[Any, ...], Mapping[str, Any]], Any]


class DurableWorkflow(WorkflowFunction[P, R_co]):
    """A durable workflow function.

    In a workflow, a call returns a promise of the child's result. Elsewhere, its application starts an execution, if it
    runs in this process. ``function`` is the plain coroutine function, which runs without durability.
    """

    function: Callable[P, Coroutine[Any, Any, R_co]]
    run_outside: RunOutside | None = None
    """Runs a call made outside of workflows; set by its application."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R_co]],
        name: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        front_matter: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise `UnsupportedPython` if the function cannot be a workflow, `InvalidInput` for an invalid duration."""
        self.program = compile_workflow(function, name, front_matter)
        for option in ("timeout", "cancel_grace"):
            _check_duration(self.program.name, option, self.program.front_matter.get(option))
        _check_journal(self.program.name, self.program.front_matter.get("journal"))
        super().__init__(cast("Callable[P, Promised[R_co]]", function), name, options=options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Promised[R_co]:
        if current_machine() is not None:
            return super().__call__(*args, **kwargs)
        if self.run_outside is None:
            raise OutsideWorkflow(
                f"workflow '{self.name}' belongs to no application: call it in another workflow"
            )
        return cast("Promised[R_co]", self.run_outside(self, args, kwargs))

    def migrate(self, *, from_version: int | None = None) -> Callable[[M], M]:
        """Register a function that gives variables of the function that waits other values, when an execution of an
        earlier version goes on with this one: ``@order.migrate(from_version=3)``. It takes a dict of the variables that
        the earlier version had, and returns a dict of those to set.

        ``from_version``: the number of that version. None: of any without a migration of its own.
        """

        def register(migration: M) -> M:
            self.program.migrations[from_version] = migration
            return migration

        return register


def _check_journal(name: str, given: object) -> None:
    try:
        read_journal(given)
    except ValueError as problem:
        raise InvalidInput(f"workflow '{name}': {problem}") from None


def _check_duration(name: str, option: str, given: Any) -> None:
    """Check a duration at definition, before any execution starts."""
    if given is None:
        return
    try:
        parse_duration(given)
    except BadDuration as problem:
        raise InvalidInput(f"workflow '{name}': the {option} {given!r} {problem}") from None
