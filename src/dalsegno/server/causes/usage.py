"""Calls and definitions that make no sense as they are: DS-0 and DS-1."""

from __future__ import annotations

USAGE: dict[str, tuple[str, str]] = {
    "DS-000": (
        ("The root of the tree. It is never raised itself; catch it to catch everything Dal Segno raises."),
        "Look at the class and the code of the error you caught.",
    ),
    "DS-100": (
        (
            "A call that makes no sense as it was made: a blocking call on the engine's own event loop, "
            "an input given both as a value and as keywords, an application that was closed, a command "
            "that cannot do what was asked."
        ),
        "The message names what to change. In async code, await the twin with the prefix `a`.",
    ),
    "DS-110": (
        (
            "A graph document has problems. The error carries all of them in `findings`, each with a JSON"
            " pointer, a rule and a sentence."
        ),
        "Mend the document; `dalsegno validate FILE` shows line and column. Nothing was stored.",
    ),
    "DS-120": (
        (
            "A start payload that does not fit the workflow's `input_schema`, an argument, a name that is"
            " taken, or a value that the store cannot hold."
        ),
        "Change the value; the message and the `findings` say where it does not fit. Nothing was started.",
    ),
    "DS-130": (
        "No definition, execution, node type or blob of that name in this store.",
        (
            "Check the spelling and the store: `--store`, `DALSEGNO_STORE` and the URL of the `App` must "
            "name the same one. An execution may have been removed by retention."
        ),
    ),
    "DS-140": (
        (
            "A value that JSON cannot carry: a type without a JSON form, NaN or an infinity, text that is"
            " no valid Unicode, nesting deeper than 200. The message names the path inside the value."
        ),
        (
            "Return plain data, a dataclass or a Pydantic model. For the output of a node this is a node "
            "failure and not retried."
        ),
    ),
    "DS-150": (
        "A configured limit was reached; the message names it.",
        "See [Limits](../limits.md) for what each limit protects and how to raise it.",
    ),
    "DS-160": (
        (
            "The execution is not in a state that allows this: cancelling one that has ended, rerunning "
            "one that has not, retrying one in which nothing failed."
        ),
        "Look at its state first, `handle.status().state` or `dalsegno show EXECUTION`.",
    ),
    "DS-161": (
        (
            "An idempotency key came a second time, and what was asked for is not what it was used for: another input,"
            " definition, version or delay of a start, another name or payload of a signal, other nodes or another"
            " context of a rerun. Nothing was done."
        ),
        (
            "Send the same request again to get the execution that the key belongs to (the message names it), or choose"
            " another key for another request. In Python, `with_options(idempotency_key=…)` of an `App` does not"
            " compare: there the second start is the first one."
        ),
    ),
    "DS-170": (
        "The common class of the two errors below, raised by `result()`.",
        "Catch it if you do not care how an execution ended without a result.",
    ),
    "DS-171": (
        "The execution ended FAILED. `error` is the error object: message, code, type, details, node.",
        (
            "Mend the cause, then `handle.retry()` or `dalsegno retry EXECUTION`: see [Rerun after a bug "
            "fix](../how-to/rerun.md). The codes of nodes are listed below."
        ),
    ),
    "DS-172": (
        "The execution was cancelled.",
        ("Nothing, if somebody meant it. `retry` makes a new execution from what was running or waiting."),
    ),
    "DS-180": (
        (
            "An expression cannot be compiled: a syntax error, an unknown name, nesting beyond the limit."
            " In a document it is one of the findings of DS-110."
        ),
        "The error has line, column and an excerpt. See [Expressions](expressions.md).",
    ),
    "DS-181": (
        "Several strings of a parameter hold expressions that cannot be compiled.",
        "As for DS-180; each comes with its JSON pointer.",
    ),
    "DS-182": (
        "The source of a script is no program: a syntax error, a wrong front matter, or nesting beyond the limit.",
        (
            "The error has line, column and an excerpt, and says what to write. `dalsegno validate FILE` shows "
            "everything else that is wrong, too."
        ),
    ),
    "DS-183": (
        (
            "A script parses, but cannot mean what it says: an undefined variable, a constant assigned again, a"
            " `break` outside of a loop, a library function with the wrong number of arguments. All of them are"
            " listed, with line and column."
        ),
        (
            "Mend the places named; `dalsegno validate FILE` shows them with their lines, and warnings too."
            " Nothing was stored."
        ),
    ),
    "DS-185": (
        (
            "A function under `@app.workflow` contains Python that cannot be made durable. The error lists all "
            "problems, each with file, line and an excerpt."
        ),
        (
            "Each problem says what to write instead; so does [Python "
            "workflows](python-workflows.md#refused-when-the-module-is-imported)."
        ),
    ),
    "DS-186": (
        "A verb of workflows (`sleep`, `signal`, `gather` …), or a workflow itself, was called where no workflow runs.",
        (
            "Call it inside a workflow; tasks and ordinary code use asyncio's or their own means. Start a workflow "
            "with `app.start(order, …)`, or await it where its application runs: inside `async with app.running()`."
        ),
    ),
    "DS-187": (
        "Something that is alive at an `await` of a Python workflow cannot be stored: a file, a lock, a generator …",
        (
            "The message names the variable and the line. Use it before the await or inside a task; see [Python "
            "workflows](python-workflows.md#what-lives-across-an-await)."
        ),
    ),
    "DS-190": (
        "An HTTP request that cannot be read: a body that is no JSON, a method that a route does not have.",
        "Send JSON with `Content-Type: application/json`; the reference at `/docs` shows every route.",
    ),
    "DS-191": (
        "A request body larger than the server takes.",
        "Keep large data elsewhere and pass a reference, or raise the server's `body_bytes`.",
    ),
    "DS-192": (
        (
            "A body of a type that this route does not take. Plain text and forms are never taken: any web page could "
            "send them."
        ),
        "Send `application/json`; definitions may also come as `application/yaml` or `application/vnd.dalsegno.flow`.",
    ),
}
