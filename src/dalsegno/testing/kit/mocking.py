"""Mocked tasks, nodes and child workflows: their answers and their recorded calls.

``pytest.fail``, ``skip`` and ``exit`` inside a task apply to the test, regardless of how the workflow handles the
failed task.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dalsegno.engine.steps.tasks import Task, Tasks, fitting_output, make_task
from dalsegno.errors import InvalidInput
from dalsegno.graph.catalog import NodeSpec
from dalsegno.lang.python import DurableRemoteTask, DurableTask
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.ports.node import NodeContext, NodeError, NodeType, NodeTypes


class Verdicts:
    """Passes test outcomes raised in tasks to the system that the test waits for."""

    def __init__(self) -> None:
        self.callback: Callable[[BaseException], None] = _ignore

    @contextmanager
    def capture_verdicts(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if _is_verdict(error):
                self.callback(error)
            raise


def _ignore(_: BaseException) -> None:
    """Used while no system is open."""


def _is_verdict(error: BaseException) -> bool:
    """Return True for an exception of pytest.

    The kit does not import pytest; without it there are no such exceptions.
    """
    outcomes = sys.modules.get("_pytest.outcomes")
    return outcomes is not None and isinstance(error, outcomes.OutcomeException | outcomes.Exit)


Failure = BaseException | type[BaseException]
SideEffect = Callable[..., Any] | Iterable[Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt of a task. ``input`` is the workflow's input to it, as JSON; ``key`` is the idempotency key."""

    task: str
    input: Any
    key: str
    attempt: int
    execution: str

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        return f"{self.task}({shown(self.input)}{again})"


def shown(value: Any) -> str:
    """Format a value for a message, with limited length."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 300 else text[:300] + "…"


class Mock:
    """Replaces a task. Retries, queue and timeout are those of the replaced task, if there is one."""

    def __init__(
        self,
        name: str,
        replaced: Task | None,
        *,
        returns: Any = None,
        raises: Failure | None = None,
        side_effect: SideEffect | None = None,
    ) -> None:
        given = [each for each in (returns, raises, side_effect) if each is not None]
        if len(given) > 1:
            raise InvalidInput(f"mock of task '{name}': give one of returns, raises and side_effect")
        self.name = name
        self.calls: list[Call] = []
        self._replaced = replaced
        self._returns = returns
        self._raises = raises
        self._side_effect = side_effect if callable(side_effect) or side_effect is None else list(side_effect)
        self._left: Iterator[Any] = iter(() if callable(self._side_effect) else self._side_effect or ())

    def __repr__(self) -> str:
        return f"<mock of task '{self.name}', called {len(self.calls)} times>"

    @property
    def called(self) -> bool:
        return bool(self.calls)

    @property
    def call_count(self) -> int:
        """The number of attempts: a retried call counts again."""
        return len(self.calls)

    @property
    def inputs(self) -> list[Any]:
        return [call.input for call in self.calls]

    def fresh(self) -> Mock:
        """Return the same mock without calls, for a run separate from the test's own."""
        given = {"returns": self._returns, "raises": self._raises, "side_effect": self._side_effect}
        return Mock(self.name, self._replaced, **given)

    # -- asserting ------------------------------------------------------------------------------------------------

    def assert_called(self) -> None:
        __tracebackhide__ = True
        if not self.calls:
            raise AssertionError(f"task '{self.name}' was expected to be called, but was not")

    def assert_not_called(self) -> None:
        __tracebackhide__ = True
        if self.calls:
            raise AssertionError(
                f"task '{self.name}' was not expected to be called, but was:{self._listed()}"
            )

    def assert_called_once(self) -> None:
        __tracebackhide__ = True
        self.assert_called_times(1)

    def assert_called_times(self, count: int) -> None:
        __tracebackhide__ = True
        if len(self.calls) != count:
            raise AssertionError(self._count_is_wrong(count))

    def assert_called_once_with(self, *args: Any, **kwargs: Any) -> None:
        """Arguments in the spelling of the workflow: those of the function, or one input, or its fields by name."""
        __tracebackhide__ = True
        self.assert_called_once()
        self.assert_called_with(*args, **kwargs)

    def assert_called_with(self, *args: Any, **kwargs: Any) -> None:
        """Check the last call."""
        __tracebackhide__ = True
        self.assert_called()
        wanted = self._bound(args, kwargs)
        found = self.calls[-1].input
        if not self._alike(found, wanted):
            raise AssertionError(
                f"task '{self.name}' was called with other arguments\n"
                f"  expected: {shown(wanted)}\n  called:   {shown(found)}"
            )

    def assert_any_call(self, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        wanted = self._bound(args, kwargs)
        if not any(self._alike(call.input, wanted) for call in self.calls):
            raise AssertionError(
                f"task '{self.name}' was never called with {shown(wanted)}; its calls:{self._listed()}"
            )

    def _count_is_wrong(self, count: int) -> str:
        times = "once" if count == 1 else f"{count} times"
        seen = len(self.calls)
        return f"task '{self.name}' was expected to be called {times}, but was called {seen} times:{self._listed()}"

    def _listed(self) -> str:
        lines = "".join(f"\n  {call}" for call in self.calls[:20])
        return (lines or " never") + (
            f"\n  … and {len(self.calls) - 20} more" if len(self.calls) > 20 else ""
        )

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        task = self._replaced
        if task is not None:
            return _callable_of(task).bind(*args, **kwargs)
        if len(args) + bool(kwargs) > 1:
            raise InvalidInput(
                f"task '{self.name}' is not registered, so its input is one value: give that, or its fields by name"
            )
        return to_plain(kwargs or (args[0] if args else None), f"the input of task '{self.name}'")

    def _alike(self, found: Any, wanted: Any) -> bool:
        replaced = self._replaced
        takes_nothing = replaced is not None and not replaced.is_remote and not replaced.parameters
        return found == wanted or (takes_nothing and not found and not wanted)

    # -- answering ------------------------------------------------------------------------------------------------

    @property
    def function(self) -> Task | None:
        """The side effect as a task, if it is a function: it is called like any task."""
        function = self._side_effect
        if not callable(function):
            return None
        like = self._replaced or Task(self.name, function)
        task = make_task(_plainly_called(function), name=self.name)
        return replace(task, retry=like.retry, timeout=like.timeout, heartbeat=like.heartbeat)

    def answer(self, call: Call, ctx: NodeContext) -> Any:
        self.calls.append(call)
        use_retry = getattr(ctx, "use_retry", None)
        if self._replaced is not None and use_retry is not None:
            use_retry(self._replaced.retry)
        answer = self._raises if self._raises is not None else self._returns
        if self._side_effect is not None:
            answer = self._next()
        if isinstance(answer, BaseException) or (
            inspect.isclass(answer) and issubclass(answer, BaseException)
        ):
            raise answer
        return answer

    def _next(self) -> Any:
        for answer in self._left:
            return answer
        raise NodeError(
            f"the mock of task '{self.name}' has no answer left in its side_effect: this is call {self.call_count}",
            code="MOCK_EXHAUSTED",
            retryable=False,
        )


def _callable_of(task: Task) -> DurableTask[..., Any]:
    if task.is_remote:
        return DurableRemoteTask(task.name, task.returns, queue=task.queue or "")
    return DurableTask(task.function, task.name, context_parameter=task.context_parameter)


def _takes_any(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except TypeError:  # of an AsyncMock in Python before 3.11.4
        return True
    return any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)


def _plainly_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the input as one argument to a function that takes any arguments (a ``unittest.mock.Mock`` does)."""
    if not _takes_any(function):
        return function
    if inspect.iscoroutinefunction(function):

        async def wait_for(payload: Any) -> Any:
            return await function(payload)

        return wait_for

    def call(payload: Any) -> Any:
        return function(payload)

    return call


def _sent(task: Task, output: Any) -> Any:
    """Convert to JSON, as a remote worker's answer would be."""
    return to_plain(output, f"the output of remote task '{task.name}'")


class KitTasks(Tasks):
    """The tasks of an application, overridden by mocks, with a record of every call."""

    def __init__(self, real: Tasks) -> None:
        super().__init__()
        self._real = real
        self.mocks: dict[str, Mock] = {}
        self.calls: list[Call] = []
        self.verdicts = Verdicts()

    def mock(self, mock: Mock) -> None:
        self.mocks[mock.name] = mock
        self._tasks.pop(mock.name, None)
        function = mock.function
        if function is not None:
            self._tasks[mock.name] = function

    def unmock(self, name: str) -> None:
        self.mocks.pop(name, None)
        self._tasks.pop(name, None)

    def beside(self) -> KitTasks:
        """Return the same tasks and mocks without recorded calls, for a run separate from the test's own."""
        other = KitTasks(self._real)
        for mock in self.mocks.values():
            other.mock(mock.fresh())
        return other

    def find(self, name: str) -> Task | None:
        return self._tasks.get(name) or self._real.find(name)

    def names(self) -> list[str]:
        return sorted({*self._real.names(), *self.mocks})

    def runs(self, name: str) -> bool:
        return True  # each call is recorded with its input

    async def run(self, name: str, payload: Any, ctx: NodeContext) -> Any:
        call = Call(name, payload, ctx.idempotency_key, ctx.attempt, ctx.execution_id)
        self.calls.append(call)
        mock = self.mocks.get(name)
        with self.verdicts.capture_verdicts():
            task = self._real.find(name)
            if mock is None:
                if task is not None and task.is_remote:
                    raise self._unanswered(task)
                return await self._real.run(name, payload, ctx)
            if name in self._tasks:
                mock.calls.append(call)
                output = await super().run(name, payload, ctx)
            else:
                output = mock.answer(call, ctx)
            return output if task is None or not task.is_remote else fitting_output(task, _sent(task, output))

    def _unanswered(self, task: Task) -> NodeError:
        """Fail the task, and the test as well, regardless of how the workflow handles the failure."""
        message = (
            f"remote task '{task.name}' runs in a program that claims the queue '{task.queue}', and the test has none; "
            f"answer for it: workflows.mock({task.name!r}, returns=…)"
        )
        self.verdicts.callback(InvalidInput(message))
        return NodeError(message, code="NOT_MOCKED", retryable=False)

    async def close(self) -> None:
        await super().close()
        await self._real.close()


WORKFLOW = "workflow:"
"""Prefix of the task that answers for a mocked workflow."""


class KitTypes:
    """The node types of an application, overridden by mocks. Implements NodeTypes."""

    def __init__(self, real: NodeTypes) -> None:
        self._real = real
        self._mocks: dict[str, NodeType] = {}

    def find(self, type_name: str) -> NodeSpec | None:
        return self._real.find(type_name)

    def added(self) -> Sequence[str]:
        return self._real.added()

    def types(self) -> Sequence[str]:
        return self._real.types()

    def get(self, type_name: str) -> NodeType:
        real = self._real.get(type_name)
        return self._mocks.get(real.spec.type, real)

    def mock(self, type_name: str, mock: Mock, tasks: KitTasks) -> None:
        """Let the mock answer instead of the type's function. Parameters are still checked."""
        real = self._real.get(type_name)
        functions = Tasks(threads=1)
        function = mock.function
        if function is not None:
            functions.register(function)

        async def execute(ctx: NodeContext, parameters: Any) -> Any:
            payload = to_plain(parameters, f"the parameters of node '{ctx.node_id}'")
            call = Call(mock.name, payload, ctx.idempotency_key, ctx.attempt, ctx.execution_id)
            tasks.calls.append(call)
            with tasks.verdicts.capture_verdicts():
                if function is None:
                    return mock.answer(call, ctx)
                mock.calls.append(call)
                return await functions.run(mock.name, payload, ctx)

        self._mocks[real.spec.type] = dataclasses.replace(real, execute=execute)


def fake_script(workflow: str) -> str:
    """Return a script that replaces a workflow and passes its input to the mock."""
    name = json.dumps(WORKFLOW + workflow)
    front_matter = f"```\nname: {json.dumps(workflow)}\n```\n"
    return f"{front_matter}workflow(ctx, inputs) {{ return await Task.run({name}, inputs) }}\n"
