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
    from dalsegno.client.problems import NotThisServer, ServerUnreachable
    from dalsegno.engine.scripting.sources import InvalidScript
    from dalsegno.engine.settings import EngineLimits, EngineSettings
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
    from dalsegno.lang.errors import ExpressionError, ExpressionFailed, FlowSyntaxError
    from dalsegno.lang.python.approvals import Decision
    from dalsegno.lang.python.errors import NotStorable, OutsideWorkflow, TaskError, UnsupportedPython
    from dalsegno.lang.python.verbs import (
        approval,
        cancel,
        first,
        gather,
        log,
        now,
        race,
        run,
        set_tags,
        signal,
        sleep,
        start,
        timeout,
    )
    from dalsegno.lang.snapshots import SnapshotError
    from dalsegno.model.retry import RetryPolicy
    from dalsegno.nodes.egress import EgressPolicy
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
    "first",
    "gather",
    "log",
    "now",
    "race",
    "run",
    "set_tags",
    "signal",
    "sleep",
    "start",
    "timeout",
]

_HOMES = {
    "App": "dalsegno.app",
    "Client": "dalsegno.client",
    "EgressPolicy": "dalsegno.nodes.egress",
    "Decision": "dalsegno.lang.python.approvals",
    "EngineLimits": "dalsegno.engine.settings",
    "EngineSettings": "dalsegno.engine.settings",
    "ExpressionError": "dalsegno.lang.errors",
    "ExpressionFailed": "dalsegno.lang.errors",
    "FlowSyntaxError": "dalsegno.lang.errors",
    "Handle": "dalsegno.handle",
    "InvalidScript": "dalsegno.engine.scripting.sources",
    "NodeContext": "dalsegno.ports.node",
    "NodeError": "dalsegno.ports.node",
    "NodeParameters": "dalsegno.nodes.parameters",
    "NotStorable": "dalsegno.lang.python.errors",
    "NotThisServer": "dalsegno.client.problems",
    "OutsideWorkflow": "dalsegno.lang.python.errors",
    "RetryPolicy": "dalsegno.model.retry",
    "ServerUnreachable": "dalsegno.client.problems",
    "SnapshotError": "dalsegno.lang.snapshots",
    "TaskContext": "dalsegno.ports.node",
    "TaskError": "dalsegno.lang.python.errors",
    "TransactionLost": "dalsegno.ports.transactions",
    "UnsupportedPython": "dalsegno.lang.python.errors",
    "approval": "dalsegno.lang.python.verbs",
    "cancel": "dalsegno.lang.python.verbs",
    "first": "dalsegno.lang.python.verbs",
    "gather": "dalsegno.lang.python.verbs",
    "log": "dalsegno.lang.python.verbs",
    "now": "dalsegno.lang.python.verbs",
    "race": "dalsegno.lang.python.verbs",
    "run": "dalsegno.lang.python.verbs",
    "set_tags": "dalsegno.lang.python.verbs",
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
