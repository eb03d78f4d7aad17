"""Constructs that a workflow may not contain, and names that are replaced. All problems are found in one pass.

Each problem says what to write instead. Only names with a certain meaning are judged; everything else is checked
when it is called. Coroutine functions and context managers outside of tasks are recognised before anything runs.
``asyncio.gather``, ``asyncio.sleep`` and ``asyncio.timeout`` in a workflow mean this package's verbs; other
functions of asyncio that wait are refused. The names are replaced in the syntax tree before compilation by names
that are invalid in source code, and the machine binds those to the verbs. asyncio is not imported: it is only
recognised where the workflow's module has it. Names of `itertools` mean this package's iterators, because Python
does not expose the position of its own. Python 3.14 hides the position of most of them, and all releases hide that
of ``batched``. They are replaced in the same way. Iterators that a called function creates stay Python's.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from dalsegno.lang.python.compile.scopes import FunctionNode, awaits_inside, has_await, names_of_function
from dalsegno.lang.python.compile.source import Source
from dalsegno.lang.python.errors import Problem
from dalsegno.lang.python.runtime import itertools_classes as own
from dalsegno.lang.python.timeouts import Timeout

ASYNCIO_NAMES = frozenset(("gather", "sleep", "timeout"))

INSTEAD = {
    "create_task": "calling a task starts it already: keep what the call returns and await it later",
    "ensure_future": "calling a task starts it already: keep what the call returns and await it later",
    "wait_for": "write 'async with timeout(seconds):' around the await",
    "wait": "use gather(), first() or race()",
    "as_completed": "use first() or race(), or gather() for all of them",
    "TaskGroup": "call the tasks and await gather() of what the calls return",
    "run": "await the task or workflow directly",
    "to_thread": "make the function a task: ordinary functions run in threads there",
    "shield": "await the promise directly: tasks run on whatever the workflow does",
    "Event": "use signal()",
    "Queue": "keep the items in a list, or use signal() for items from outside",
    "Lock": "there is one thread of control in a workflow, nothing to lock",
    "Semaphore": "give the task a queue with a limit",
}


def asyncio_alias(verb: str) -> str:
    """Return the name of a verb in a rewritten tree."""
    return f"@{verb}"


class AsyncioSpellings(ast.NodeTransformer):
    """Replaces names of asyncio.

    ``known`` returns the value of a global name; ``refuse`` records a problem.
    """

    def __init__(self, known: Callable[[str], Any], refuse: Callable[[ast.AST, str], None]) -> None:
        self._known = known
        self._refuse = refuse
        self._modules: set[str] = set()
        """Variables of the workflow that hold the module because of a local import."""

    def replace_in(self, function: ast.AsyncFunctionDef, local: set[str]) -> None:
        """Rewrite a function. ``local`` are the names that the workflow binds itself."""
        imports = [node for node in ast.walk(function) if isinstance(node, ast.Import)]
        aliases = [alias for node in imports for alias in node.names if alias.name == "asyncio"]
        self._modules = {alias.asname or alias.name for alias in aliases}
        self._local = local
        function.body = [self.visit(statement) for statement in function.body]

    def _is_asyncio(self, name: str) -> bool:
        if name in self._local:
            return name in self._modules
        value = self._known(name)
        return isinstance(value, ModuleType) and value.__name__ == "asyncio"

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if self._is_asyncio(name):
                return self._attribute(node, attribute)
            case ast.Name(id=name, ctx=ast.Load()) if name not in self._local:
                return self._name(node)
            case ast.ImportFrom(module="asyncio", level=0):
                return self._import(node)
        return self.generic_visit(node)

    def _attribute(self, node: ast.Attribute, attribute: str) -> ast.AST:
        if attribute in ASYNCIO_NAMES:
            return ast.copy_location(ast.Name(asyncio_alias(attribute), ast.Load()), node)
        self._advise(node, attribute)
        return node

    def _advise(self, node: ast.AST, attribute: str) -> None:
        if attribute in INSTEAD:
            self._refuse(node, f"'asyncio.{attribute}' cannot be used in a workflow: {INSTEAD[attribute]}")

    def _name(self, node: ast.Name) -> ast.AST:
        value = self._known(node.id)
        name = getattr(value, "__name__", "")
        if not str(getattr(value, "__module__", "")).startswith("asyncio.") or not callable(value):
            return node
        if name in ASYNCIO_NAMES:
            return ast.copy_location(ast.Name(asyncio_alias(name), ast.Load()), node)
        self._advise(node, name)
        return node

    def _import(self, node: ast.ImportFrom) -> ast.AST:
        """Convert ``from asyncio import sleep`` inside the workflow to an assignment."""
        ours = [alias for alias in node.names if alias.name in ASYNCIO_NAMES]
        for alias in node.names:
            if alias not in ours:
                self._advise(node, alias.name)
        if len(ours) != len(node.names):
            if ours:
                self._refuse(node, "import gather, sleep and timeout apart from the other names of asyncio")
            return node
        values = ast.Tuple([ast.Name(asyncio_alias(alias.name), ast.Load()) for alias in ours], ast.Load())
        targets = ast.Tuple(
            [ast.Name(alias.asname or alias.name, ast.Store()) for alias in ours], ast.Store()
        )
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([targets], values), node))


_API_MODULE = "dalsegno.lang.python.api"
_JOINING = frozenset((_API_MODULE, name) for name in ("gather", "first", "race", "cancel")) | {
    ("asyncio.tasks", "gather")
}


def not_a_task(name: str) -> str:
    return (
        f"'{name}' is a coroutine function but not a task, so its progress could not be stored. "
        "Make it a task (@app.task), or define it inside the workflow"
    )


def no_promise(name: str) -> str:
    return (
        f"'{name}' is a nested async function, which runs in the workflow's own thread of control, one at a time. "
        "Await it directly, or make it a task or a workflow of its own"
    )


def no_manager(shown: str) -> str:
    return f"'async with' in a workflow is for timeout() alone, not for {shown}: use it inside a task"


def module_and_name(function: Any) -> tuple[str, str]:
    return str(getattr(function, "__module__", "")), str(getattr(function, "__name__", ""))


def is_coroutine_function(value: Any) -> bool:
    """Return whether a value is a coroutine function.

    Those of asyncio are handled elsewhere: some have a counterpart here.
    """
    return inspect.iscoroutinefunction(value) and not _of_asyncio(value)


def joins_promises(value: Any) -> bool:
    return module_and_name(value) in _JOINING


def promises_in(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments of a call, and the items of a list or comprehension that it unpacks."""
    for argument in call.args:
        match argument:
            case ast.Starred(value=ast.List(elts=items) | ast.Tuple(elts=items)):
                yield from items
            case ast.Starred(value=ast.ListComp(elt=item) | ast.GeneratorExp(elt=item)):
                yield item
            case _:
                yield argument


def makes_foreign_manager(value: Any, *, called: bool) -> bool:
    """Return whether ``async with`` on this value, or on its result if ``called``, is certainly not a ``timeout``."""
    if _of_asyncio(value):
        name = module_and_name(value)[1]
        return (
            name not in ASYNCIO_NAMES and name not in INSTEAD
        )  # the names in INSTEAD have advice of their own
    if not called:
        return hasattr(value, "__aenter__") and not isinstance(value, Timeout)
    if isinstance(value, type):
        return not issubclass(value, Timeout)
    return isinstance(value, FunctionType) and inspect.isasyncgenfunction(inspect.unwrap(value))


def _of_asyncio(value: Any) -> bool:
    return module_and_name(value)[0].startswith("asyncio.")


_NO_FRAME = "name the variables you need: the workflow's variables are not in one frame"
_NO_TEXT = "code from text cannot see the workflow's variables: put it into a task or a module-level function"
_SCOPE_BUILTINS = {
    "locals": _NO_FRAME,
    "vars": _NO_FRAME,
    "dir": _NO_FRAME,
    "eval": _NO_TEXT,
    "exec": _NO_TEXT,
}
_REFUSED_WITH_ARGUMENTS = frozenset(("eval", "exec"))

_ASYNC_FOR = (
    "let a task collect the items and return them as a list, then use an ordinary 'for'. It is for requests "
    "only: 'async for request in requests(…)'"
)

_STATEMENTS: dict[type[ast.AST], str] = {
    ast.ClassDef: "a class cannot be defined inside a workflow: define it at the top of the module",
    ast.Global: "'global' is not supported: a module's state does not survive the process. "
    "Keep the value in a variable of the workflow, or in a store that a task writes",
    ast.AsyncFor: f"'async for' is not supported: {_ASYNC_FOR}",
    ast.TryStar: "'except*' is not supported: use 'except'; gather() raises the first failure by itself, "
    "gather(…, return_exceptions=True) gives all of them",
}


_VERBS = "dalsegno.lang.python.api"
_FORGOTTEN = {
    (_VERBS, "sleep"): "nothing waits for this 'sleep()': write 'await sleep(…)'",
    ("asyncio.tasks", "sleep"): "nothing waits for this 'sleep()': write 'await asyncio.sleep(…)'",
    (_VERBS, "signal"): "nothing waits for this 'signal()': write 'await signal(…)'",
    (_VERBS, "request"): "nothing waits for this 'request()': write 'await request(…)'",
    (_VERBS, "requests"): "nothing waits for these 'requests()': write 'async for request in requests(…)'",
    (_VERBS, "approval"): "nothing waits for this 'approval()': write 'await approval(…)'",
    (_VERBS, "timeout"): "'timeout()' limits the awaits of a block: write 'with timeout(…):' around them",
}
"""Calls that have no effect as statements of their own, by the module and name of the function."""


class Refusals:
    """Checks a workflow's definition.

    ``known`` returns the value of a global name, or None while the module lacks it.
    """

    def __init__(self, source: Source, known: Callable[[str], Any]) -> None:
        self._source = source
        self._known = known
        self._functions: list[FunctionNode] = []
        self._scopes: list[set[str]] = []
        self._async_names: list[set[str]] = []
        self.problems: list[Problem] = []

    def check(self, workflow: ast.AsyncFunctionDef) -> None:
        self._body(workflow)

    def refuse(self, node: ast.AST, message: str) -> None:
        self.problems.append(self._source.problem(message, node))

    def look(self, node: ast.AST) -> None:
        message = _STATEMENTS.get(type(node))
        if message is not None:
            self.refuse(node, message)
        special = _SPECIAL.get(type(node))
        if special is not None:
            special(self, node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            for child in ast.iter_child_nodes(node):
                self.look(child)

    def is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    # -- nodes with their own rules ---------------------------------------------------------------------------

    def function(self, node: FunctionNode) -> None:
        if isinstance(node, ast.AsyncFunctionDef) and not self._in_async:
            self.refuse(
                node,
                f"the async function '{node.name}' is inside a plain function: define it directly in the workflow, "
                "or make it a task",
            )
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        if isinstance(node, ast.AsyncFunctionDef) and decorators:
            self.refuse(
                decorators[0],
                f"the decorator of the async function '{node.name}' is not supported: its body is run by the workflow "
                "itself, and what a decorator gives back could not be. Decorate a plain 'def', or write what the "
                "decorator does into the function",
            )
        for decorator in decorators:
            self.look(decorator)
        self.look(node.args)
        self._body(node)

    def _body(self, node: FunctionNode) -> None:
        self._functions.append(node)
        self._scopes.append(names_of_function(node).own)
        nested = {each.name for each in ast.walk(node) if isinstance(each, ast.AsyncFunctionDef)}
        self._async_names.append(nested - {getattr(node, "name", "")})
        for child in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.look(child)
        self._scopes.pop()
        self._async_names.pop()
        self._functions.pop()

    @property
    def _in_async(self) -> bool:
        return isinstance(self._functions[-1], ast.AsyncFunctionDef)

    def nonlocal_(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            if not any(name in scope for scope in self._scopes[:-1]):
                self.refuse(
                    node,
                    f"'nonlocal {name}' would change a variable outside the workflow, which is not stored with it. "
                    "Keep the value in a variable of the workflow",
                )

    def yield_(self, node: ast.Yield | ast.YieldFrom) -> None:
        if self._in_async:
            self.refuse(node, "'yield' is not supported: collect the items in a list and return it")

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        if any(generator.is_async for generator in node.generators):
            self.refuse(node, f"'async for' in a comprehension is not supported: {_ASYNC_FOR}")
        elif isinstance(node, ast.GeneratorExp) and awaits_inside(node):
            self.refuse(
                node,
                "'await' inside a generator expression is not supported: write a list comprehension instead",
            )

    def handler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None and has_await(node.type):
            self.refuse(node.type, "'await' in an 'except' clause is not supported: await before the 'try'")

    def call(self, node: ast.Call) -> None:
        if joins_promises(self._resolved(node.func)):
            for promise in promises_in(node):
                self._joined(promise)
        if not isinstance(node.func, ast.Name) or self.is_local(node.func.id):
            return
        name = node.func.id
        if name == "super":
            self.refuse(node, "'super()' is not supported: a workflow is not a method")
        elif name in _SCOPE_BUILTINS and (name in _REFUSED_WITH_ARGUMENTS or not node.args):
            self.refuse(node, f"'{name}()' is not supported in a workflow: {_SCOPE_BUILTINS[name]}")

    def _joined(self, node: ast.expr) -> None:
        """Check an expression where ``gather`` and similar verbs need a promise."""
        match node:
            case ast.Call(func=ast.Name(id=name)) if self._is_nested(name):
                self.refuse(node, no_promise(name))
            case ast.Call(func=function) if is_coroutine_function(self._resolved(function)):
                self.refuse(node, not_a_task(ast.unparse(function)))

    def _is_nested(self, name: str) -> bool:
        return any(name in names for names in self._async_names)

    def discarded(self, node: ast.Expr) -> None:
        """Refuse discarded calls without effect.

        A nested async function that is called and not awaited never runs; a timer that is not awaited has no
        effect. (A task that is not awaited runs all the same.)
        """
        match node.value:
            case ast.Call(func=ast.Name(id=name)) if self._is_nested(name):
                self.refuse(
                    node, f"'{name}' is an async function: nothing of it runs unless you 'await {name}(…)'"
                )
            case ast.Call(func=function) if is_coroutine_function(self._resolved(function)):
                self.refuse(node, not_a_task(ast.unparse(function)))
            case ast.Call(func=function):
                instead = _FORGOTTEN.get(module_and_name(self._resolved(function)))
                if instead is not None:
                    self.refuse(node, instead)

    def _resolved(self, function: ast.expr) -> Any:
        """Return the object behind a global name, or behind an attribute of a module."""
        match function:
            case ast.Name(id=name) if not self.is_local(name):
                return self._known(name)
            case ast.Attribute(value=ast.Name(id=home), attr=name) if not self.is_local(home):
                module = self._known(home)
                return getattr(module, name, None) if inspect.ismodule(module) else None
        return None

    def await_(self, node: ast.Await) -> None:
        match node.value:
            case ast.Call(func=function) if is_coroutine_function(self._resolved(function)):
                self.refuse(node, not_a_task(ast.unparse(function)))

    def async_with(self, node: ast.AsyncWith) -> None:
        for item in node.items:
            manager = item.context_expr
            called = isinstance(manager, ast.Call)
            resolved = self._resolved(manager.func if isinstance(manager, ast.Call) else manager)
            if makes_foreign_manager(resolved, called=called):
                self.refuse(manager, no_manager(ast.unparse(manager)))


_SPECIAL: dict[type[ast.AST], Callable[[Refusals, Any], None]] = {
    ast.FunctionDef: Refusals.function,
    ast.AsyncFunctionDef: Refusals.function,
    ast.Lambda: Refusals.function,
    ast.Nonlocal: Refusals.nonlocal_,
    ast.Yield: Refusals.yield_,
    ast.YieldFrom: Refusals.yield_,
    ast.ListComp: Refusals.comprehension,
    ast.SetComp: Refusals.comprehension,
    ast.DictComp: Refusals.comprehension,
    ast.GeneratorExp: Refusals.comprehension,
    ast.ExceptHandler: Refusals.handler,
    ast.Call: Refusals.call,
    ast.Await: Refusals.await_,
    ast.AsyncWith: Refusals.async_with,
    ast.Expr: Refusals.discarded,
}


ITERTOOLS_CLASSES: Mapping[str, Any] = {
    "accumulate": own.Accumulate,
    "batched": own.Batched,
    "chain": own.Chain,
    "combinations": own.Combinations,
    "combinations_with_replacement": own.CombinationsWithReplacement,
    "compress": own.Compress,
    "count": own.Count,
    "cycle": own.Cycle,
    "dropwhile": own.DropWhile,
    "filterfalse": own.FilterFalse,
    "groupby": own.GroupBy,
    "islice": own.Islice,
    "pairwise": own.Pairwise,
    "permutations": own.Permutations,
    "product": own.Product,
    "repeat": own.Repeat,
    "starmap": own.StarMap,
    "takewhile": own.TakeWhile,
    "tee": own.tee,
    "zip_longest": own.ZipLongest,
}
_VISIBLE = frozenset(("accumulate", "groupby", "pairwise"))
"""The garbage collector gives the position of these in every release."""


def _hides_its_place(name: str) -> bool:
    found = vars(itertools).get(name)
    kind: Any = type(itertools.tee(())[0]) if name == "tee" else found
    return found is not None and name not in _VISIBLE and "__reduce__" not in vars(kind)


HIDDEN = frozenset(name for name in ITERTOOLS_CLASSES if _hides_its_place(name))


def itertools_alias(name: str) -> str:
    """Return the name of an iterator in a rewritten tree."""
    return f"@itertools.{name}"


class ItertoolsSpellings(ast.NodeTransformer):
    """Replaces names of itertools.

    ``known`` returns the value of a global name; ``hidden`` are the names to replace.
    """

    def __init__(self, known: Callable[[str], Any], hidden: frozenset[str] = HIDDEN) -> None:
        self._known = known
        self._hidden = hidden
        self._local: set[str] = set()

    def replace_in(self, function: ast.AsyncFunctionDef, local: set[str]) -> None:
        """Rewrite a function. ``local`` are the names that the workflow binds itself."""
        imports = [node for node in ast.walk(function) if isinstance(node, ast.Import)]
        aliases = [alias for node in imports for alias in node.names if alias.name == "itertools"]
        self._modules = {alias.asname or alias.name for alias in aliases}
        self._local = local
        if self._hidden:
            function.body = [self.visit(statement) for statement in function.body]

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if self._is_itertools(module):
                return self._replaced(node, name)
            case ast.Name(id=name, ctx=ast.Load()) if name not in self._local:
                value = self._known(name)
                found = next((own for own in self._hidden if vars(itertools).get(own) is value), "")
                return self._replaced(node, found)
        return self.generic_visit(node)

    def _is_itertools(self, name: str) -> bool:
        if name in self._local:
            return name in self._modules
        value = self._known(name)
        return isinstance(value, ModuleType) and value is itertools

    def _replaced(self, node: ast.AST, name: str) -> ast.AST:
        if name not in self._hidden:
            return node
        return ast.copy_location(ast.Name(itertools_alias(name), ast.Load()), node)
