"""Dal Segno: durable workflows that resume where they were interrupted. Public names only.

Names are imported on first use, so that a part of the package (the command line's help, the errors) loads only what
it needs.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dalsegno.version import __version__

if TYPE_CHECKING:
    from dalsegno.app import App
    from dalsegno.client import Client
    from dalsegno.client.problems import NotThisServer, ServerUnreachable
    from dalsegno.engine.scripts.programs import InvalidScript
    from dalsegno.engine.settings import EngineLimits, EngineSettings
    from dalsegno.engine.tracing import ExecutionIds
    from dalsegno.errors import (
        AccessError,
        BadConfiguration,
        BadRequest,
        CodeMissing,
        Conflict,
        CredentialNotFound,
        CredentialRefused,
        DalSegnoError,
        DalSegnoWarning,
        DefinitionNotApproved,
        ExecutionEnded,
        Forbidden,
        ForeignOrigin,
        InternalError,
        InvalidDefinition,
        InvalidInput,
        KeyReused,
        LeaseLost,
        LimitExceeded,
        NoSecretKey,
        NotDelivered,
        NotFound,
        NotJson,
        OperatorError,
        Overloaded,
        ProtectedName,
        QueueRefused,
        QuotaExceeded,
        RequestRejected,
        SchemaMismatch,
        SecretUnreadable,
        SignatureRefused,
        SnapshotRefused,
        StaleDelivery,
        StoreCorrupt,
        StoredQuotaExceeded,
        StoreFull,
        StoreLost,
        StoreReadOnly,
        TooLarge,
        TooManyRequests,
        TooSlow,
        Unauthenticated,
        Unavailable,
        UnsupportedMedia,
        UsageError,
        WorkflowCancelled,
        WorkflowFailed,
        WrongHost,
    )
    from dalsegno.handle import Handle
    from dalsegno.lang.errors import ExpressionError, ExpressionFailed, FlowSyntaxError, SnapshotError
    from dalsegno.lang.python.api import (
        approval,
        cancel,
        checkpoint,
        first,
        gather,
        log,
        now,
        progress,
        publish,
        race,
        request,
        requests,
        run,
        set_tags,
        signal,
        sleep,
        start,
        stream,
        timeout,
    )
    from dalsegno.lang.python.errors import NotStorable, OutsideWorkflow, TaskError, UnsupportedPython
    from dalsegno.lang.python.requests import Request
    from dalsegno.lang.python.values.decisions import Decision
    from dalsegno.model.failure import RetryPolicy
    from dalsegno.nodes.http.egress import EgressPolicy
    from dalsegno.nodes.parameters import NodeParameters
    from dalsegno.ports.node import NodeContext, NodeError
    from dalsegno.ports.node import NodeContext as TaskContext
    from dalsegno.ports.transactions import TransactionLost

__all__ = [
    "AccessError",
    "App",
    "BadConfiguration",
    "BadRequest",
    "Client",
    "CodeMissing",
    "Conflict",
    "CredentialNotFound",
    "CredentialRefused",
    "DalSegnoError",
    "DalSegnoWarning",
    "Decision",
    "DefinitionNotApproved",
    "EgressPolicy",
    "EngineLimits",
    "EngineSettings",
    "ExecutionEnded",
    "ExecutionIds",
    "ExpressionError",
    "ExpressionFailed",
    "FlowSyntaxError",
    "Forbidden",
    "ForeignOrigin",
    "Handle",
    "InternalError",
    "InvalidDefinition",
    "InvalidInput",
    "InvalidScript",
    "KeyReused",
    "LeaseLost",
    "LimitExceeded",
    "NoSecretKey",
    "NodeContext",
    "NodeError",
    "NodeParameters",
    "NotDelivered",
    "NotFound",
    "NotJson",
    "NotStorable",
    "NotThisServer",
    "OperatorError",
    "OutsideWorkflow",
    "Overloaded",
    "ProtectedName",
    "QueueRefused",
    "QuotaExceeded",
    "Request",
    "RequestRejected",
    "RetryPolicy",
    "SchemaMismatch",
    "SecretUnreadable",
    "ServerUnreachable",
    "SignatureRefused",
    "SnapshotError",
    "SnapshotRefused",
    "StaleDelivery",
    "StoreCorrupt",
    "StoreFull",
    "StoreLost",
    "StoreReadOnly",
    "StoredQuotaExceeded",
    "TaskContext",
    "TaskError",
    "TooLarge",
    "TooManyRequests",
    "TooSlow",
    "TransactionLost",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedMedia",
    "UnsupportedPython",
    "UsageError",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WrongHost",
    "__version__",
    "approval",
    "cancel",
    "checkpoint",
    "first",
    "gather",
    "log",
    "now",
    "progress",
    "publish",
    "race",
    "request",
    "requests",
    "run",
    "set_tags",
    "signal",
    "sleep",
    "start",
    "stream",
    "timeout",
]

_HOMES = {
    "App": "dalsegno.app",
    "Client": "dalsegno.client",
    "EgressPolicy": "dalsegno.nodes.http.egress",
    "Decision": "dalsegno.lang.python.values.decisions",
    "EngineLimits": "dalsegno.engine.settings",
    "EngineSettings": "dalsegno.engine.settings",
    "ExecutionIds": "dalsegno.engine.tracing",
    "ExpressionError": "dalsegno.lang.errors",
    "ExpressionFailed": "dalsegno.lang.errors",
    "FlowSyntaxError": "dalsegno.lang.errors",
    "Handle": "dalsegno.handle",
    "InvalidScript": "dalsegno.engine.scripts.programs",
    "NodeContext": "dalsegno.ports.node",
    "NodeError": "dalsegno.ports.node",
    "NodeParameters": "dalsegno.nodes.parameters",
    "NotStorable": "dalsegno.lang.python.errors",
    "NotThisServer": "dalsegno.client.problems",
    "OutsideWorkflow": "dalsegno.lang.python.errors",
    "Request": "dalsegno.lang.python.requests",
    "RetryPolicy": "dalsegno.model.failure",
    "ServerUnreachable": "dalsegno.client.problems",
    "SnapshotError": "dalsegno.lang.errors",
    "TaskContext": "dalsegno.ports.node",
    "TaskError": "dalsegno.lang.python.errors",
    "TransactionLost": "dalsegno.ports.transactions",
    "UnsupportedPython": "dalsegno.lang.python.errors",
    "approval": "dalsegno.lang.python.api",
    "cancel": "dalsegno.lang.python.api",
    "checkpoint": "dalsegno.lang.python.api",
    "first": "dalsegno.lang.python.api",
    "gather": "dalsegno.lang.python.api",
    "log": "dalsegno.lang.python.api",
    "now": "dalsegno.lang.python.api",
    "progress": "dalsegno.lang.python.api",
    "publish": "dalsegno.lang.python.api",
    "race": "dalsegno.lang.python.api",
    "request": "dalsegno.lang.python.api",
    "requests": "dalsegno.lang.python.api",
    "run": "dalsegno.lang.python.api",
    "set_tags": "dalsegno.lang.python.api",
    "signal": "dalsegno.lang.python.api",
    "sleep": "dalsegno.lang.python.api",
    "start": "dalsegno.lang.python.api",
    "stream": "dalsegno.lang.python.api",
    "timeout": "dalsegno.lang.python.api",
}


if not TYPE_CHECKING:  # a type checker would take every name for one of this package

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(
                f"module 'dalsegno' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        home = import_module(_HOMES.get(name, "dalsegno.errors"))
        found = getattr(home, "NodeContext" if name == "TaskContext" else name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
