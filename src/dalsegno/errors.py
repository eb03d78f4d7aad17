"""Every error Dal Segno raises, grouped by who must act.

    DalSegnoError
    ├── UsageError                 the caller must change the request
    │   ├── InvalidDefinition      a graph document with problems (all of them, with JSON pointers)
    │   ├── InvalidInput           an invalid start payload, argument or command-line value
    │   ├── NotFound               no such definition, execution, node or task
    │   ├── NotJson                a value that JSON cannot represent (its path is named)
    │   ├── LimitExceeded          a configured limit was reached (the limit is named)
    │   ├── Conflict               the execution is not in a state that allows this
    │   │   ├── KeyReused          an idempotency key that was used for a different request
    │   │   └── LeaseLost          a remote worker answers for a task that it does not hold any more
    │   ├── RequestRejected        a workflow refused a request (raised by ``ask()``)
    │   ├── BadRequest             an HTTP request that cannot be parsed
    │   ├── TooLarge               an HTTP request that is larger than the server accepts
    │   ├── UnsupportedMedia       an HTTP request with a body of an unsupported media type
    │   ├── CredentialNotFound     no credential of that name
    │   └── ExecutionEnded         raised by ``result()``
    │       ├── WorkflowFailed
    │       └── WorkflowCancelled
    ├── AccessError                the caller lacks the permission
    │   ├── Unauthenticated        no key, or an invalid one
    │   ├── Forbidden              a key without the permission
    │   │   ├── WrongHost          a ``Host`` that is not this server's
    │   │   ├── ForeignOrigin      a web page of another origin
    │   │   ├── StoredQuotaExceeded  the key's quota of stored executions is used up
    │   │   ├── QueueRefused       a task of a queue, or of a worker, that does not belong to the key
    │   │   ├── ProtectedName      a name that a credential lists: only an admin deploys under it
    │   │   ├── SignatureRefused   a webhook's delivery without a valid signature
    │   │   └── StaleDelivery      a delivery that was signed too long ago
    │   ├── TooSlow                a request that did not arrive in time
    │   ├── CredentialRefused      a credential that may not be used by this workflow, or sent to this host
    │   │   └── DefinitionNotApproved  a definition of a listed workflow that no admin has approved
    │   └── TooManyRequests        try again later (``after`` seconds)
    │       └── QuotaExceeded      the key's quota per minute, or of concurrent use, is used up
    ├── OperatorError              the operator of the system must act
    │   ├── Unavailable            the store or broker cannot be reached or is busy
    │   │   └── Overloaded         too much work of this caller, or of all callers, is waiting
    │   ├── StoreFull              no space left
    │   ├── StoreReadOnly          the store cannot be written
    │   ├── StoreLost              the store's file was deleted or replaced while it was open
    │   ├── StoreCorrupt           the store's content is damaged or is no Dal Segno store
    │   ├── SchemaMismatch         the store was written by another version
    │   ├── NoSecretKey            credentials need a secret key, and none is configured
    │   ├── SecretUnreadable       a credential is sealed with another key, or was tampered with
    │   ├── NotDelivered           a failure alert that its receiver does not accept
    │   └── BadConfiguration       an invalid setting or URL
    └── InternalError              a bug in Dal Segno: please report it

Each class has a stable ``code`` (``DS-…``) under which the documentation explains cause and cure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

DEBUG_VARIABLE = "DALSEGNO_DEBUG"


def is_debugging() -> bool:
    """Whether ``DALSEGNO_DEBUG=1`` is set: commands print the tracebacks of their errors, and the tracebacks of
    tasks and nodes keep the frames of Dal Segno."""
    return os.environ.get(DEBUG_VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off")


class DalSegnoError(Exception):
    """Root of the tree: any other exception that escapes from a public call is a bug."""

    code: ClassVar[str] = "DS-000"


class DalSegnoWarning(UserWarning):
    """A warning about code that runs, but probably not as intended; silence it with Python's own ``warnings``
    filters."""


class UsageError(DalSegnoError):
    code = "DS-100"


class Finding:
    """One problem of a document: its place (JSON pointer), the violated rule, and a sentence."""

    __slots__ = ("message", "pointer", "rule", "severity")

    def __init__(self, pointer: str, rule: str, message: str, severity: str = "error") -> None:
        self.pointer = pointer
        self.rule = rule
        self.message = message
        self.severity = severity

    def as_dict(self) -> dict[str, str]:
        return {
            "pointer": self.pointer,
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
        }

    def __repr__(self) -> str:
        return f"Finding({self.severity} {self.rule} at {self.pointer or '/'}: {self.message})"


class InvalidDefinition(UsageError):
    """Contains every finding, so that all problems of a document can be fixed at once."""

    code = "DS-110"

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        errors = [finding for finding in self.findings if finding.severity == "error"]
        lines = [f"{finding.pointer or '/'}: {finding.message}" for finding in errors[:20]]
        more = f"\n… and {len(errors) - 20} more" if len(errors) > 20 else ""
        noun = "problem" if len(errors) == 1 else "problems"
        super().__init__(f"the definition has {len(errors)} {noun}:\n" + "\n".join(lines) + more)


class InvalidInput(UsageError):
    """``findings`` lists the invalid parts, each with its place in the value; empty if no place is known."""

    code = "DS-120"
    findings: tuple[Finding, ...] = ()

    @classmethod
    def at(cls, message: str, findings: Iterable[Finding]) -> Self:
        made = cls(message)
        made.findings = tuple(findings)
        return made


class NotFound(UsageError):
    code = "DS-130"


class NotJson(UsageError):
    code = "DS-140"


class LimitExceeded(UsageError):
    code = "DS-150"


class Conflict(UsageError):
    code = "DS-160"


class KeyReused(Conflict):
    code = "DS-161"


class LeaseLost(Conflict):
    code = "DS-350"


class RequestRejected(UsageError):
    """A workflow refused a request, with this message."""

    code = "DS-173"


class BadRequest(UsageError):
    code = "DS-190"


class TooLarge(UsageError):
    code = "DS-191"


class UnsupportedMedia(UsageError):
    code = "DS-192"


class CredentialNotFound(UsageError):
    code = "DS-340"


class ExecutionEnded(UsageError):
    """The execution ended without a result; ``error`` is its error object."""

    code = "DS-170"

    def __init__(self, execution: str, error: dict[str, Any] | None) -> None:
        self.execution = execution
        self.error = error or {}
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        message = self.error.get("message", "no reason recorded")
        kind = self.error.get("type")
        if kind not in (None, "Error", self.error.get("code")):
            message = f"{kind}: {message}"
        node = self.error.get("node")
        where = f" at node '{node}'" if node else ""
        return f"execution {self.execution} ended{where}: {message}{self._place()}"

    def _place(self) -> str:
        stack = "".join(f"\n  at {line}" for line in self.stack)
        if not self.traceback:
            return stack
        is_of_task = bool(self.error.get("traceback"))
        return f"{stack if is_of_task else ''}\n\n{self.traceback}"

    @property
    def stack(self) -> list[str]:
        """The place of the error in a script or Python workflow: the user's own files and lines, innermost first."""
        return [str(line) for line in self.error.get("stack") or ()]

    @property
    def traceback(self) -> str:
        """The traceback in the user's own files: of the task or node that raised the error, else of the Python
        workflow."""
        if found := self.error.get("traceback"):
            return str(found)
        details = self.error.get("details")
        return str(details.get("traceback") or "") if isinstance(details, dict) else ""


class WorkflowFailed(ExecutionEnded):
    code = "DS-171"


class WorkflowCancelled(ExecutionEnded):
    code = "DS-172"


class OperatorError(DalSegnoError):
    code = "DS-200"


class Unavailable(OperatorError):
    code = "DS-210"


class Overloaded(Unavailable):
    code = "DS-211"


class StoreFull(OperatorError):
    code = "DS-220"


class StoreReadOnly(OperatorError):
    code = "DS-230"


class StoreLost(OperatorError):
    """Permanent: waiting does not help, so all work on that store ends."""

    code = "DS-231"


class StoreCorrupt(OperatorError):
    code = "DS-240"


class SchemaMismatch(OperatorError):
    code = "DS-250"


class BadConfiguration(OperatorError):
    code = "DS-260"


class CodeMissing(BadConfiguration):
    """This process has not imported the module of a Python workflow."""

    def __init__(self, message: str, module: str) -> None:
        super().__init__(message)
        self.module = module


class NoSecretKey(OperatorError):
    code = "DS-342"


class SecretUnreadable(OperatorError):
    code = "DS-343"


class SnapshotRefused(BadConfiguration):
    """A stored state, or stored code, that this process does not trust: it is neither run nor changed."""

    code = "DS-344"


class NotDelivered(OperatorError):
    code = "DS-362"


class AccessError(DalSegnoError):
    code = "DS-300"


class Unauthenticated(AccessError):
    code = "DS-310"


class Forbidden(AccessError):
    code = "DS-320"


class WrongHost(Forbidden):
    code = "DS-321"


class ForeignOrigin(Forbidden):
    code = "DS-322"


class QueueRefused(Forbidden):
    code = "DS-323"


class StoredQuotaExceeded(Forbidden):
    code = "DS-333"


class ProtectedName(Forbidden):
    code = "DS-324"


class SignatureRefused(Forbidden):
    code = "DS-360"


class StaleDelivery(Forbidden):
    code = "DS-361"


class TooSlow(AccessError):
    code = "DS-331"


class CredentialRefused(AccessError):
    code = "DS-341"


class DefinitionNotApproved(CredentialRefused):
    code = "DS-345"


class TooManyRequests(AccessError):
    """``after``: seconds after which a retry is worthwhile."""

    code = "DS-330"

    def __init__(self, message: str, after: float = 1.0) -> None:
        self.after = after
        super().__init__(message)


class QuotaExceeded(TooManyRequests):
    code = "DS-332"


class InternalError(DalSegnoError):
    code = "DS-900"
