"""Durable Python functions: public names only."""

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
from dalsegno.lang.python.compile.compiler import compile_workflow
from dalsegno.lang.python.durable_calls import (
    Durable,
    DurableRemoteTask,
    DurableTask,
    Promised,
    current_machine,
)
from dalsegno.lang.python.errors import (
    CancelledError,
    NotStorable,
    OutsideWorkflow,
    Problem,
    TaskError,
    UnsupportedPython,
)
from dalsegno.lang.python.exceptions import error_value
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.requests import IncomingRequests, Request
from dalsegno.lang.python.runtime.machine import PythonMachine
from dalsegno.lang.python.snapshot.registry import register_type
from dalsegno.lang.python.values.decisions import Decision
from dalsegno.lang.python.values.inputs import arguments_for
from dalsegno.lang.python.values.typed_values import from_plain, to_plain
from dalsegno.lang.python.workflows import DurableWorkflow

__all__ = [
    "CancelledError",
    "Decision",
    "Durable",
    "DurableRemoteTask",
    "DurableTask",
    "DurableWorkflow",
    "IncomingRequests",
    "NotStorable",
    "OutsideWorkflow",
    "Problem",
    "Promised",
    "PythonMachine",
    "PythonProgram",
    "Request",
    "TaskError",
    "UnsupportedPython",
    "approval",
    "arguments_for",
    "cancel",
    "checkpoint",
    "compile_workflow",
    "current_machine",
    "error_value",
    "first",
    "from_plain",
    "gather",
    "log",
    "now",
    "progress",
    "publish",
    "race",
    "register_type",
    "request",
    "requests",
    "run",
    "set_tags",
    "signal",
    "sleep",
    "start",
    "stream",
    "timeout",
    "to_plain",
]
