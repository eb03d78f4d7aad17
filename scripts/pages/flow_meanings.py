"""What each function of the script language does, in a few words: the text of ``flow-library.md``."""

from __future__ import annotations

_OPTIONS = (
    "options: `queue`, `priority`, `retries` (a number) or `retry` (`max_attempts`, `initial_delay`, `factor`, "
    "`max_delay`, `jitter`, `on`), `timeout` per attempt, `key` (idempotency key), `delay` before the first attempt, "
    "`concurrency`"
)

PROMISES = {
    "Task.run": "`(name, input)`: promise of what the task returns",
    "Task.with": f"`(options)`: `Task.with({{…}}).run(name, input)`; {_OPTIONS}",
    "Node.run": "`(type, parameters)`: promise of the output of a [node](nodes.md) of the library",
    "Node.with": "`(options)`: as `Task.with`, for `Node.run`",
    "Workflow.run": "`(name, input)`: a child execution; promise of its result",
    "Workflow.start": "`(name, input)`: starts an execution without waiting for it; returns its id at once, as text",
    "Workflow.with": "`(options)`: for `run` and `start`; options: `version`, `tags`, `priority`",
    "Timer.delay": "`(duration)`: promise of null after a delay in seconds or as text (`\"1h30m\"`), "
    "counted from the call",
    "Timer.until": "`(time)`: the same, at an ISO 8601 time (UTC without a zone) or a number of milliseconds",
    "Task.delay": "another name for `Timer.delay`",
    "Signal.next": "`(name)`: promise of the payload of the next signal of that name; early ones are kept",
    "Signal.when": "`(name, {timeout})`: the same; `TimeoutError` if none comes in time",
    "wait_for_signal": "another name for `Signal.when`",
    "approval": "`(message, {form, approvers, timeout, signal})` or `({message, …})`: asks people; promise of "
    "`{approved, decision, data, by, comment}`; `TimeoutError` without a decision in time",
    "Promise.all": "all results in the shape given; the first failure throws at once; `{limit: 2}`: two at a time",
    "Promise.allSettled": "`{status: \"fulfilled\", value}` or `{status: \"rejected\", reason}` of each; never throws",
    "Promise.any": "the first success in time order; `AggregateError` if there is none",
    "Promise.race": "the first settled promise; throws if it failed",
    "Promise.any_kv": "as `Promise.any`, as `{key, value}`; the key is the index in a list",
    "Promise.race_kv": "as `Promise.race`, as `{key, value}`",
    "Task.all": "another name for `Promise.all`",
    "Task.any": "as `Promise.any`, as `{item_id, result}`; an `item_id` equals the promise it names",
    "Task.race": "as `Promise.race`, as `{item_id, status, result}` or `{item_id, status, error}`; does not throw",
    "set_tags": "`({stage: \"documents\"})`: changes tags of the execution; null removes one",
    "log": "`(value, …)` or `(level, value, …)` with `debug`, `info`, `warning` or `error`: a line in the log; null",
}  # fmt: skip

LIBRARY = {
    "Math.abs": "without its sign",
    "Math.sign": "-1, 0 or 1",
    "Math.round": "to the nearest integer, halves toward +∞",
    "Math.floor": "the next integer below",
    "Math.ceil": "the next integer above",
    "Math.trunc": "without its fraction",
    "Math.max": "the largest of its arguments, or of one list",
    "Math.min": "the smallest of its arguments, or of one list",
    "Math.pow": "`(a, b)`: `a ** b`",
    "Math.sqrt": "square root; NaN of a negative number",
    "Math.cbrt": "cube root",
    "Math.hypot": "root of the sum of squares, of its arguments or of one list",
    "Math.exp": "e to this power",
    "Math.log": "natural logarithm",
    "Math.log2": "logarithm to base 2",
    "Math.log10": "logarithm to base 10",
    "Math.sin": "sine",
    "Math.cos": "cosine",
    "Math.tan": "tangent",
    "Math.asin": "inverse sine",
    "Math.acos": "inverse cosine",
    "Math.atan": "inverse tangent",
    "Math.atan2": "`(y, x)`: angle of a point",
    "Math.random": "a number from 0 up to, not including, 1",
    "random": "another name for `Math.random`",
    "uuid": "a random UUID as text",
    "hash": "`(value, algorithm)`: hexadecimal digest of text, or of any other value's JSON with sorted keys; `sha256` "
    "(default), `sha512`, `sha1`, `md5`",
    "Number": "a number from text, a boolean or null; NaN if it spells none",
    "Number.isNaN": "whether it is NaN",
    "Number.isInteger": "whether it is a number without a fraction",
    "Number.isFinite": "whether it is a number other than NaN and ±Infinity",
    "isNaN": "another name for `Number.isNaN`",
    "parseInt": "the integer that a text begins with, else NaN",
    "parseFloat": "the number that a text begins with, else NaN",
    "String": "the value as text, as `+` and templates write it",
    "Boolean": "whether the value is truthy",
    "JSON.parse": "the value that JSON text spells",
    "JSON.stringify": "`(value, null, indent)`: compact JSON, or indented by so many spaces",
    "Object.keys": "the keys of an object, in insertion order",
    "Object.values": "the values of an object",
    "Object.entries": "`[key, value]` pairs of an object",
    "Object.fromEntries": "an object from such pairs",
    "Object.assign": "a new object with the keys of all arguments, later ones win; null is skipped",
    "Object.has": "`(object, key)`: whether it has the key",
    "Array.isArray": "whether it is a list",
    "Date.now": "Unix time in milliseconds, on the clock that timers run on",
    "now": "the same as `Date.now()`",
    "Date.parse": "milliseconds of an ISO 8601 text",
    "Date.format": "`(time, format, zone)`: strftime directives, an IANA zone; without a format ISO 8601; null is now",
    "add": "`a + b`",
    "sub": "`a - b`",
    "mul": "`a * b`",
    "div": "`a / b`",
    "eq": "`a == b`",
    "ne": "`a != b`",
    "lt": "`a < b`",
    "lte": "`a <= b`",
    "gt": "`a > b`",
    "gte": "`a >= b`",
    "not": "`!a`",
    "and": "the first falsy argument, else the last",
    "or": "the first truthy argument, else the last",
}

CONSTANT_VALUES = {"Math.PI": "3.14159…", "Math.E": "2.71828…"}

TEXTS = {
    "at": "`(position)`: one character; negative counts from the end; null outside",
    "charAt": "`(position)`: one character; empty outside",
    "codePointAt": "`(position)`: its Unicode number; null outside",
    "concat": "joined with the arguments as text",
    "includes": "whether it contains a text",
    "indexOf": "where a text first occurs, else -1",
    "lastIndexOf": "where a text last occurs, else -1",
    "startsWith": "whether it begins with a text",
    "endsWith": "whether it ends with a text",
    "slice": "`(start, end)`: a part; negative counts from the end",
    "substring": "`(start, end)`: a part; negative is 0, and the two may come in any order",
    "split": "`(separator, limit)`: a list of parts; `\"\"` gives the characters",
    "trim": "without white space at both ends",
    "trimStart": "without white space at its start",
    "trimEnd": "without white space at its end",
    "toUpperCase": "in capitals",
    "toLowerCase": "in small letters",
    "padStart": "`(length, filler)`: filled up at its start",
    "padEnd": "`(length, filler)`: filled up at its end",
    "repeat": "so many times",
    "replace": "`(old, new)`: the first occurrence of a text replaced",
    "replaceAll": "`(old, new)`: every occurrence of a text replaced",
    "matches": "whether an RE2 pattern is found in it",
    "match": "the first match of an RE2 pattern and its groups as a list, or null",
    "replaceMatches": "`(pattern, new)`: every match replaced; `\\1` is the first group",
    "toString": "itself",
}  # fmt: skip

NUMBERS = {
    "toFixed": "text with so many digits (0 to 100) after the point, halves toward +∞",
    "toString": "as text, without a trailing `.0`",
}

LISTS = {
    "at": "`(index)`: an item; negative counts from the end; null outside",
    "concat": "a new list with the arguments appended; lists among them are flattened",
    "includes": "whether an equal item is in it",
    "indexOf": "index of the first equal item, else -1",
    "lastIndexOf": "index of the last equal item, else -1",
    "slice": "`(start, end)`: a part; negative counts from the end",
    "join": "`(separator)`: the items as text in a row; the separator is `,` if none is given, null is empty",
    "flat": "`(depth)`: inner lists flattened, one level by default",
    "unique": "the first of each group of equal items",
    "toString": "compact JSON",
}

CHANGES = {
    "push": "appends the arguments; the new length",
    "pop": "removes the last item; that item, or null",
    "shift": "removes the first item; that item, or null",
    "unshift": "puts the arguments in front; the new length",
    "splice": "`(start, count, …items)`: replaces `count` items; the removed ones",
    "reverse": "reverses the order; the list",
    "sort": "numbers among numbers or text among text, null last; the list",
    "fill": "`(value, start, end)`: puts the value everywhere; the list",
}

CALLBACKS = {
    "map": "a list of the results",
    "flatMap": "a list of the results, lists among them flattened",
    "filter": "the items for which the result is truthy",
    "find": "the first item for which the result is truthy, or null",
    "findIndex": "its index, or -1",
    "some": "whether any result is truthy",
    "every": "whether all results are truthy",
    "forEach": "null",
    "reduce": "`(function, initial)`: the last result; `initial` defaults to the first item",
    "sort": "in the order of the function's results, which are numbers: below 0 first before second; stable",
}
