"""The orchestration functions of scripts, which create promises.

They request tasks, children, timers and signals, or join promises. None of them waits: ``await`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.lang.errors import ScriptThrow, limit_exceeded, wrong_argument
from dalsegno.lang.runtime.effects import APPROVAL, GroupKind, checked_checkpoint
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT
from dalsegno.lang.runtime.pending_effects import LONGEST_REFUSAL, Requests
from dalsegno.lang.runtime.promises import AnyPromise, Group, Promise, Settled, leaves
from dalsegno.lang.stdlib.arguments import Arguments, read_option
from dalsegno.lang.stdlib.dates import moment
from dalsegno.lang.stdlib.orchestration_names import AFTER_WITH, OPTIONS, ORCHESTRATION, unknown_option
from dalsegno.lang.values.kinds import Builtin, Configured, Host, Value, is_number, kind_of
from dalsegno.lang.values.to_text import plain, to_text
from dalsegno.model.published import PROGRESS, check_key, check_stream, progress_value
from dalsegno.model.search import read_tag_changes

MAX_GROUP = 100_000
"""Maximum number of promises that one group may join, those of nested groups included."""

MAX_GROUP_DEPTH = 50
"""Maximum nesting of groups."""

_REQUEST = 4
"""The cost of a request, in units of work and in small values."""
_REQUEST_BYTES = _REQUEST * BYTES_PER_OBJECT

APPROVAL_FIELDS = ("message", "form", "approvers", "timeout", "signal")
"""The options of ``approval()``: the parameters of an approval node."""

LEVELS = ("debug", "info", "warning", "error")

Given: TypeAlias = list[Value]
Options: TypeAlias = dict[str, Value]


def requests_of(host: Host) -> Requests:
    """Return the requests of the running script; expressions of graphs cannot name these functions."""
    host.meter.charge(_REQUEST, _REQUEST_BYTES, "a request")
    return host.requests  # type: ignore[return-value]  # a call of `cast` for every request


# tasks, nodes, children


def _name(function: str, given: Given) -> str:
    """Return the name that is the first argument of a call of ``function``."""
    name = given[0]
    if type(name) is str and name:
        return name
    arguments = Arguments(function, given)
    name = arguments.text(0)
    if not name:
        raise arguments.wrong(0, "a name that is not empty")
    return name


def _task(host: Host, given: Given, options: Options) -> Value:
    name = _name("Task.run", given)
    return requests_of(host).task(name, plain(host, given[1], f"the input of task '{name}'"), options)


def _node(host: Host, given: Given, options: Options) -> Value:
    name = _name("Node.run", given)
    parameters = Arguments("Node.run", given).object(1)
    return requests_of(host).task(
        f"node:{name}", plain(host, parameters, f"the parameters of node '{name}'"), options
    )


def _workflow(host: Host, given: Given, options: Options) -> Value:
    name = _name("Workflow.run", given)
    return requests_of(host).workflow(name, plain(host, given[1], f"the input of workflow '{name}'"), options)


def _start(host: Host, given: Given, options: Options) -> Value:
    name = _name("Workflow.start", given)
    inputs = plain(host, given[1], f"the input of workflow '{name}'")
    return requests_of(host).detached_workflow(name, inputs, options)


CONFIGURABLE: dict[str, Callable[[Host, Given, Options], Value]] = {
    "Task.run": _task,
    "Node.run": _node,
    "Workflow.run": _workflow,
    "Workflow.start": _start,
}
"""Functions that take options from ``with``."""


def _configure(namespace: str, known: Options) -> Callable[[Host, Given], Value]:
    def call(host: Host, given: Given) -> Value:
        options = plain(host, Arguments(f"{namespace}.with", given).object(0), f"{namespace}.with()")
        _refuse_unknown(namespace, options)
        _refuse_bad(namespace, options)
        return Configured(namespace, {**known, **options})

    return call


def _refuse_unknown(namespace: str, options: Options) -> None:
    for name in options:
        if name not in OPTIONS[namespace]:
            raise wrong_argument(unknown_option(namespace, name))


def _refuse_bad(namespace: str, options: Options) -> None:
    for name, value in options.items():
        try:
            read_option(name, value)
        except ValueError as problem:
            raise wrong_argument(f"{namespace}.with(): {problem}") from None


def configured_function(receiver: Configured, name: str) -> Builtin:
    """Return ``run`` or another function of ``Task.with({…})`` and its siblings."""
    full = f"{receiver.namespace}.{name}"
    if name == "with":
        return Builtin(full, _configure(receiver.namespace, receiver.options), 1, 1)
    function = CONFIGURABLE.get(full)
    if function is None:
        known = "() and ".join(AFTER_WITH[receiver.namespace])
        message = f"{receiver.namespace}.with(…) has no method {name}(); it has {known}()"
        raise ScriptThrow("NOT_A_FUNCTION", message)
    return Builtin(full, lambda host, given: function(host, given, receiver.options), *ORCHESTRATION[full])


# timers and signals


def _seconds(host: Host, name: str, value: Value) -> float:
    if not is_number(value) and not isinstance(value, str):
        raise wrong_argument(f"{name}() needs seconds or a duration such as '1h30m', not {kind_of(value)}")
    if isinstance(value, str):
        host.meter.convert(value)
    try:
        return parse_duration(value)
    except BadDuration as problem:
        shown = to_text_of_number(value)
        raise wrong_argument(f"{name}(): {shown} {problem}") from None


def to_text_of_number(value: int | float | str) -> str:
    return f"'{value[:100]}'" if isinstance(value, str) else str(value)


def _delay(name: str) -> Callable[[Host, Given], Value]:
    return lambda host, given: requests_of(host).timer(host.now + _seconds(host, name, given[0]))


def _until(host: Host, given: Given) -> Value:
    if is_number(given[0]) and not math.isfinite(given[0]):
        raise wrong_argument("Timer.until() needs a time that is finite")
    return requests_of(host).timer(moment(given[0], "Timer.until").timestamp())


def _next_signal(host: Host, given: Given) -> Value:
    return requests_of(host).signal(_name("Signal.next", given), None)


def _signal_when(name: str) -> Callable[[Host, Given], Value]:
    return lambda host, given: requests_of(host).signal(*_awaited(host, name, given))


def _awaited(host: Host, name: str, given: Given) -> tuple[str, float | None]:
    """Return the name of the signal or request to wait for, and until when."""
    arguments = Arguments(name, given)
    options = arguments.object(1) if arguments.get(1) is not None else {}
    unknown = [key for key in options if key != "timeout"]
    if unknown:
        raise wrong_argument(f"{name}() knows the option timeout, not '{unknown[0]}'")
    timeout = options.get("timeout")
    due = None if timeout is None else host.now + _seconds(host, name, timeout)
    return _name(name, given), due


# requests


def _next_request(host: Host, given: Given) -> Value:
    return requests_of(host).request(_name("Request.next", given), None)


def _request_when(host: Host, given: Given) -> Value:
    return requests_of(host).request(*_awaited(host, "Request.when", given))


def _received(name: str, arguments: Arguments) -> tuple[str, str]:
    """Return id and name of the request that is answered."""
    request = arguments.object(0)
    own, named = request.get("id"), request.get("name")
    if not isinstance(own, str) or not isinstance(named, str):
        raise wrong_argument(f"{name}() needs a request as argument 1, as Request.next() gives it")
    return own, named


def _reply(host: Host, given: Given) -> Value:
    arguments = Arguments("Request.reply", given)
    own, name = _received("Request.reply", arguments)
    value = plain(host, arguments.get(1), f"the answer to request '{name}'")
    try:
        requests_of(host).reply(own, name, value)
    except ValueError as problem:
        raise wrong_argument(f"Request.reply(): {problem}") from None
    return None


def _reject(host: Host, given: Given) -> Value:
    arguments = Arguments("Request.reject", given)
    own, name = _received("Request.reject", arguments)
    message = arguments.text(1)
    if not message:
        raise arguments.wrong(1, "a reason that is not empty")
    message = message[:LONGEST_REFUSAL]
    host.meter.keep(len(message), "Request.reject()")
    requests_of(host).reject(own, name, message)
    return None


def _approval(host: Host, given: Given) -> Value:
    """Handle ``approval({message, form, …})``, or ``approval(message, {form, …})``."""
    arguments = Arguments("approval", given)
    asked: Options = {"message": given[0]} if isinstance(given[0], str) else arguments.object(0)
    options = arguments.object(1) if arguments.get(1) is not None else {}
    unknown = next((key for fields in (asked, options) for key in fields if key not in APPROVAL_FIELDS), None)
    if unknown is not None:
        known = ", ".join(APPROVAL_FIELDS)
        raise wrong_argument(f"approval() has no field '{unknown[:100]}'; known are {known}")
    asked = {**asked, **options}
    if asked.get("timeout") is not None:
        asked["timeout"] = _seconds(host, "approval", asked["timeout"])
    return requests_of(host).task(APPROVAL, plain(host, asked, "approval()"), {})


# groups


def _join_options(arguments: Arguments, kind: GroupKind) -> tuple[bool, int | None]:
    """Read the second argument of the joining functions.

    It is ``{cancel: true}`` and, for those that wait for all promises, ``{limit: 2}``.
    """
    options = arguments.get(1)
    if options is None:
        return False, None
    known = ("cancel", "limit") if kind in ("all", "all_settled") else ("cancel",)
    expected = " or ".join({"cancel": "{cancel: true}", "limit": "{limit: 2}"}[name] for name in known)
    if not isinstance(options, dict) or not options or any(key not in known for key in options):
        raise arguments.wrong(1, expected)
    cancel, limit = options.get("cancel", False), options.get("limit")
    if not isinstance(cancel, bool):
        raise arguments.wrong(1, expected)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise wrong_argument(f"{arguments.name}(): the limit must be a whole number, at least 1")
    return cancel, limit


def _join(name: str, kind: GroupKind, shape: str = "") -> Callable[[Host, Given], Value]:
    def call(host: Host, given: Given) -> Value:
        arguments = Arguments(name, given)
        subject = given[0]
        if not isinstance(subject, (list, dict)):
            raise arguments.wrong(0, "a list or an object of promises")
        host.meter.fields(len(subject), f"{name}()")
        keys = tuple(subject) if isinstance(subject, dict) else None
        values = list(subject.values()) if isinstance(subject, dict) else subject
        if kind == "race" and not values:
            raise wrong_argument(f"{name}() of nothing would never end")
        cancel, limit = _join_options(arguments, kind)
        group = Group(kind, tuple([_item(value) for value in values]), keys, shape, cancel)
        if group.size > MAX_GROUP:
            raise limit_exceeded(f"{name}() would join more than {MAX_GROUP:,} promises")
        if group.depth > MAX_GROUP_DEPTH:
            raise limit_exceeded(f"{name}(): groups of promises nested deeper than {MAX_GROUP_DEPTH} levels")
        if limit is not None:
            _share_limit(host, name, group, limit)
        return group

    return call


def _share_limit(host: Host, name: str, group: Group, limit: int) -> None:
    host.meter.items(group.size, f"{name}()")
    try:
        requests_of(host).share_limit(leaves(group), limit)
    except ValueError as problem:
        raise wrong_argument(f"{name}(): {problem}") from None


def _item(value: Value) -> AnyPromise:
    return value if type(value) is Promise or type(value) is Group else Settled(value)


# tags and log


def _set_tags(host: Host, given: Given) -> Value:
    tags = plain(host, Arguments("set_tags", given).object(0), "set_tags()")
    try:
        changes = read_tag_changes(tags)
    except ValueError as problem:
        raise wrong_argument(f"set_tags(): {problem}") from None
    requests_of(host).set_tags(changes)
    return None


def _checkpoint(host: Host, given: Given) -> Value:
    try:
        name = checked_checkpoint(given[0])
    except ValueError as problem:
        raise wrong_argument(f"checkpoint(): {problem}") from None
    requests_of(host).checkpoint(name)
    return None


def _publish(host: Host, given: Given) -> Value:
    try:
        key = check_key(given[0])
    except ValueError as problem:
        raise wrong_argument(f"publish(): {problem}") from None
    requests_of(host).publish(key, plain(host, given[1], f"publish(): the value of '{key}'"))
    return None


def _progress(host: Host, given: Given) -> Value:
    arguments = Arguments("progress", given)
    try:
        value = progress_value(given[0], arguments.get(1), arguments.get(2))
    except ValueError as problem:
        raise wrong_argument(f"progress(): {problem}") from None
    requests_of(host).publish(PROGRESS, value)
    return None


def _stream_name(function: str, value: Value) -> str:
    try:
        return check_stream(value)
    except ValueError as problem:
        raise wrong_argument(f"{function}(): {problem}") from None


def _write_stream(host: Host, given: Given) -> Value:
    name = _stream_name("Stream.write", given[0])
    requests_of(host).write_stream(name, plain(host, given[1], f"Stream.write(): the chunk for '{name}'"))
    return None


def _close_stream(host: Host, given: Given) -> Value:
    requests_of(host).close_stream(_stream_name("Stream.close", given[0]))
    return None


def _log(host: Host, given: Given) -> Value:
    """Handle ``log(value, …)``, or ``log(level, value, …)`` with one of `LEVELS`."""
    if host.requests is None:
        return None  # expressions of graphs have no log
    level = "info"
    if len(given) > 1 and given[0] in LEVELS:
        level, given = given[0], given[1:]
    texts = [to_text(value, host) for value in given]
    host.meter.allocate(sum(map(len, texts)) + len(texts) + BYTES_PER_OBJECT, "log()")
    host.requests.log(level, host.meter.made(" ".join(texts), "log()"))
    return None


_PLAIN_CALLS: dict[str, Callable[[Host, Given], Value]] = {
    "Task.with": _configure("Task", {}),
    "Node.with": _configure("Node", {}),
    "Workflow.with": _configure("Workflow", {}),
    "Task.delay": _delay("Task.delay"),
    "Timer.delay": _delay("Timer.delay"),
    "Timer.until": _until,
    "Signal.next": _next_signal,
    "Signal.when": _signal_when("Signal.when"),
    "wait_for_signal": _signal_when("wait_for_signal"),
    "Request.next": _next_request,
    "Request.when": _request_when,
    "Request.reply": _reply,
    "Request.reject": _reject,
    "approval": _approval,
    "Promise.all": _join("Promise.all", "all"),
    "Promise.any": _join("Promise.any", "any"),
    "Promise.race": _join("Promise.race", "race"),
    "Promise.allSettled": _join("Promise.allSettled", "all_settled"),
    "Promise.any_kv": _join("Promise.any_kv", "any", "kv"),
    "Promise.race_kv": _join("Promise.race_kv", "race", "kv"),
    "Task.all": _join("Task.all", "all"),
    "Task.any": _join("Task.any", "any", "item"),
    "Task.race": _join("Task.race", "race", "item"),
    "set_tags": _set_tags,
    "publish": _publish,
    "progress": _progress,
    "Stream.write": _write_stream,
    "Stream.close": _close_stream,
    "log": _log,
    "checkpoint": _checkpoint,
}


def _without_options(function: Callable[[Host, Given, Options], Value]) -> Callable[[Host, Given], Value]:
    return lambda host, given: function(host, given, {})


_CALLS = _PLAIN_CALLS | {name: _without_options(function) for name, function in CONFIGURABLE.items()}

FUNCTIONS = [Builtin(name, _CALLS[name], *counts) for name, counts in ORCHESTRATION.items()]
