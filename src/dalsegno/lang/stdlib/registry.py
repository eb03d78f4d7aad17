"""Lookup of library functions by name, and of methods by the value's kind.

The library of scripts: that of expressions, and the functions that create promises.
"""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.runtime.frames import CallbackFrame
from dalsegno.lang.runtime.promises import Group, Promise
from dalsegno.lang.stdlib import arrays, conversions, dates, mathematics, objects, strings
from dalsegno.lang.stdlib.arguments import Arguments, Method
from dalsegno.lang.stdlib.callbacks import CALLBACK_METHODS, start_callback
from dalsegno.lang.stdlib.orchestration import FUNCTIONS as _ORCHESTRATION
from dalsegno.lang.stdlib.orchestration_names import LOWER_CASE, ORCHESTRATION_NAMESPACES
from dalsegno.lang.values.kinds import Builtin, Host, Value, is_number, kind_of

FUNCTIONS: dict[str, Builtin] = {
    builtin.name: builtin
    for topic in (mathematics, objects, arrays, dates, conversions)
    for builtin in topic.FUNCTIONS
}
CONSTANTS: dict[str, float] = mathematics.CONSTANTS
NAMESPACES = frozenset(name.partition(".")[0] for name in (*FUNCTIONS, *CONSTANTS) if "." in name)
_LOWER_CASE = {name.lower(): name for name in (*NAMESPACES, "Number", "String", "Boolean")}


def library_name(name: str) -> str:
    """Return the library's own spelling: ``math`` is ``Math``."""
    return name if name in FUNCTIONS or name in NAMESPACES else _LOWER_CASE.get(name, name)


def call_method(
    host: Host, receiver: Value, name: str, given: list[Value], deliver: Callable[[Value], None]
) -> CallbackFrame | None:
    """Call a method of a string, number or list: deliver the result, or return the frame that computes it."""
    if isinstance(receiver, list):
        if name in CALLBACK_METHODS and (given or name not in arrays.MUTATORS):
            return start_callback(host, receiver, name, given)
        deliver(_list_method(host, receiver, name, given))
        return None
    methods = (
        strings.METHODS
        if isinstance(receiver, str)
        else strings.NUMBER_METHODS
        if is_number(receiver)
        else {}
    )
    if receiver is None or isinstance(receiver, bool):
        raise ScriptThrow("TYPE_ERROR", f"cannot call {name}() on {kind_of(receiver)}")
    if isinstance(receiver, (Promise, Group)):
        if name != "named":
            raise ScriptThrow("NOT_A_FUNCTION", f"a promise has no method {name}(); await it first")
        Arguments("named", given).text(0)
        deliver(receiver)
        return None
    deliver(_checked(methods.get(name), host, receiver, name, given))
    return None


def _list_method(host: Host, items: list[Value], name: str, given: list[Value]) -> Value:
    if name not in arrays.MUTATORS:
        return _checked(arrays.METHODS.get(name), host, items, name, given)
    host.meter.items(len(items), f"{name}()")
    return change_list(host, list(items), name, given)


def change_list(host: Host, items: list[Value], name: str, given: list[Value]) -> Value:
    """Call a mutator on a list that only the caller refers to."""
    return _checked(arrays.MUTATORS[name], host, items, name, given)


def _checked(method: Method | None, host: Host, receiver: Value, name: str, given: list[Value]) -> Value:
    if method is None:
        raise ScriptThrow("NOT_A_FUNCTION", f"a {kind_of(receiver)} has no method {name}()")
    if not method.least <= len(given) <= method.most:
        wanted = str(method.least) if method.least == method.most else f"{method.least} to {method.most}"
        message = f"{name}() takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(given)}"
        raise ScriptThrow("WRONG_ARG_COUNT", message)
    return method.call(host, receiver, given)


# -- the library of scripts ----------------------------------------------------------------------------------


SCRIPT_FUNCTIONS: dict[str, Builtin] = FUNCTIONS | {builtin.name: builtin for builtin in _ORCHESTRATION}
SCRIPT_CONSTANTS = CONSTANTS
SCRIPT_NAMESPACES = NAMESPACES | ORCHESTRATION_NAMESPACES


def script_name(name: str) -> str:
    """Return the library's own spelling: ``task`` is ``Task``."""
    if name in SCRIPT_FUNCTIONS or name in SCRIPT_NAMESPACES:
        return name
    return LOWER_CASE.get(name) or library_name(name)


def is_library_name(name: str) -> bool:
    full = script_name(name)
    return full in SCRIPT_FUNCTIONS or full in SCRIPT_NAMESPACES
