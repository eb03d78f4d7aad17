"""Dal Segno: durable workflows that go on from where they stood. Public names only.

They are imported on first use, so that a part of the package (the command line's help, the errors) costs no more than
it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dalsegno.version import __version__

if TYPE_CHECKING:
    from dalsegno.app import App
    from dalsegno.client import Client
    from dalsegno.engine.settings import EngineLimits, EngineSettings
    from dalsegno.errors import (
        DalSegnoError,
        InvalidDefinition,
        InvalidInput,
        NotFound,
        OperatorError,
        UsageError,
        WorkflowCancelled,
        WorkflowFailed,
    )
    from dalsegno.handle import Handle
    from dalsegno.lang.python.approvals import Decision
    from dalsegno.lang.python.errors import TaskError
    from dalsegno.lang.python.verbs import (
        approval,
        cancel,
        first,
        gather,
        log,
        race,
        run,
        signal,
        sleep,
        start,
        timeout,
    )
    from dalsegno.model.retry import RetryPolicy
    from dalsegno.ports.node import NodeContext, NodeError
    from dalsegno.ports.node import NodeContext as TaskContext

__all__ = [
    "App",
    "Client",
    "DalSegnoError",
    "Decision",
    "EngineLimits",
    "EngineSettings",
    "Handle",
    "InvalidDefinition",
    "InvalidInput",
    "NodeContext",
    "NodeError",
    "NotFound",
    "OperatorError",
    "RetryPolicy",
    "TaskContext",
    "TaskError",
    "UsageError",
    "WorkflowCancelled",
    "WorkflowFailed",
    "__version__",
    "approval",
    "cancel",
    "first",
    "gather",
    "log",
    "race",
    "run",
    "signal",
    "sleep",
    "start",
    "timeout",
]

_HOMES = {
    "App": "dalsegno.app",
    "Client": "dalsegno.client",
    "Decision": "dalsegno.lang.python.approvals",
    "EngineLimits": "dalsegno.engine.settings",
    "EngineSettings": "dalsegno.engine.settings",
    "Handle": "dalsegno.handle",
    "NodeContext": "dalsegno.ports.node",
    "NodeError": "dalsegno.ports.node",
    "RetryPolicy": "dalsegno.model.retry",
    "TaskContext": "dalsegno.ports.node",
    "TaskError": "dalsegno.lang.python.errors",
    "approval": "dalsegno.lang.python.verbs",
    "cancel": "dalsegno.lang.python.verbs",
    "first": "dalsegno.lang.python.verbs",
    "gather": "dalsegno.lang.python.verbs",
    "log": "dalsegno.lang.python.verbs",
    "race": "dalsegno.lang.python.verbs",
    "run": "dalsegno.lang.python.verbs",
    "signal": "dalsegno.lang.python.verbs",
    "sleep": "dalsegno.lang.python.verbs",
    "start": "dalsegno.lang.python.verbs",
    "timeout": "dalsegno.lang.python.verbs",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dalsegno' has no attribute {name!r}")
    home = import_module(_HOMES.get(name, "dalsegno.errors"))
    found = getattr(home, "NodeContext" if name == "TaskContext" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
