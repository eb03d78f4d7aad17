"""``asyncio.gather``, ``asyncio.sleep`` and ``asyncio.timeout`` in a workflow mean ours; what else waits is refused.

The names are replaced in the syntax tree, before anything is compiled, by names that no source can spell; the machine
binds those to the verbs. Nothing here imports asyncio: it only recognises it where the workflow's module has it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType
from typing import Any

OURS = frozenset(("gather", "sleep", "timeout"))

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


def special(verb: str) -> str:
    """The name under which a verb stands in a rewritten tree."""
    return f"@{verb}"


class AsyncioSpellings(ast.NodeTransformer):
    """``known`` gives the value of a global name; ``refuse`` notes a problem."""

    def __init__(self, known: Callable[[str], Any], refuse: Callable[[ast.AST, str], None]) -> None:
        self._known = known
        self._refuse = refuse
        self._modules: set[str] = set()
        """Variables of the workflow that hold the module because of a local import."""

    def replace_in(self, function: ast.AsyncFunctionDef, local: set[str]) -> None:
        """``local``: names that the workflow binds itself."""
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
        if attribute in OURS:
            return ast.copy_location(ast.Name(special(attribute), ast.Load()), node)
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
        if name in OURS:
            return ast.copy_location(ast.Name(special(name), ast.Load()), node)
        self._advise(node, name)
        return node

    def _import(self, node: ast.ImportFrom) -> ast.AST:
        """``from asyncio import sleep`` inside the workflow becomes an assignment."""
        ours = [alias for alias in node.names if alias.name in OURS]
        for alias in node.names:
            if alias not in ours:
                self._advise(node, alias.name)
        if len(ours) != len(node.names):
            if ours:
                self._refuse(node, "import gather, sleep and timeout apart from the other names of asyncio")
            return node
        values = ast.Tuple([ast.Name(special(alias.name), ast.Load()) for alias in ours], ast.Load())
        targets = ast.Tuple(
            [ast.Name(alias.asname or alias.name, ast.Store()) for alias in ours], ast.Store()
        )
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([targets], values), node))
