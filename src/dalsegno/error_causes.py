"""Cause and cure of each error code.

- DS-0 and DS-1: invalid calls and definitions.
- DS-2: problems for the operator: unusable stores, full disks, wrong configuration.
- DS-3: callers, keys and credentials.
- DS-9: bugs in Dal Segno.
- Codes of failed nodes and tasks.

The documentation's tests fail for a code without an entry here.
"""

from __future__ import annotations

__all__ = ["CAUSES", "NODE_CODES"]

NODE_CODES: dict[str, tuple[str, str]] = {
    "AGGREGATOR_TIMEOUT": (
        "The items of a split did not all end in time.",
        "Raise the aggregator's `timeout`.",
    ),
    "BAD_EXPRESSION": (
        "A condition or expression that a script gave to `Node.run` cannot be read.",
        "The message shows the place.",
    ),
    "BAD_TASK_INPUT": (
        "A task with several parameters was not given an object.",
        "Give `input` as an object.",
    ),
    "BAD_TASK_OUTPUT": (
        "A program answered a remote task with an output that does not fit the declared `returns`.",
        "The message names the place. Fix the program, or the declaration; then retry the execution.",
    ),
    "CANCELLED": (
        "The execution was cancelled.",
        "",
    ),
    "CHILD_FAILED": (
        "The execution a `workflow` or `script` node waited for failed without a code; else the node has its code.",
        "Look at that execution; the event `ChildStarted` names it.",
    ),
    "CancelledError": (
        "The execution a `workflow` or `script` node waited for was cancelled.",
        "",
    ),
    "CLEANUP_CUT_OFF": (
        "The clean-up of a cancelled or timed-out execution took longer than its `cancel_grace`.",
        "`dalsegno dead` lists it; retrying the letter continues the clean-up.",
    ),
    "EDIT_FAILED": (
        "An assignment does not fit what is edited, or its type.",
        "See the path in the message.",
    ),
    "HEARTBEAT_TIMEOUT": (
        "A task did not call `ctx.heartbeat()` in time.",
        "Call it, or raise `heartbeat`.",
    ),
    "HTTP_<status>": (
        "The status is named by `raise_on_status`.",
        "Details hold status, headers and body.",
    ),
    "HTTP_BAD_BODY": (
        "The body cannot be sent with that content type.",
        "",
    ),
    "HTTP_BAD_URL": (
        "The address cannot be used.",
        "",
    ),
    "HTTP_CONNECTION_FAILED": (
        "No connection.",
        "Retry.",
    ),
    "HTTP_CONNECTION_LOST": (
        "The connection broke before the response was complete.",
        "Retry.",
    ),
    "HTTP_CONNECTION_REFUSED": (
        "No server listens there.",
        "Retry.",
    ),
    "HTTP_DNS_BUSY": (
        "Eight earlier name lookups of the workflow still wait for a name server that does not answer.",
        "Retry, with a delay; check the host names and the name servers of the worker's machine.",
    ),
    "HTTP_DNS_ERROR": (
        "The name cannot be resolved.",
        "Retry.",
    ),
    "HTTP_EGRESS_BLOCKED": (
        "The egress policy does not allow the address.",
        "See [Egress](../how-to/egress.md).",
    ),
    "HTTP_LIMIT": (
        "`timeout` or `max_response_bytes` asks for more than the worker allows (`EngineLimits`).",
        "Lower it, or let the operator raise `http_timeout` or `http_response_bytes`.",
    ),
    "HTTP_PAGINATION": (
        "A page does not have the content that `pagination` expects.",
        "",
    ),
    "HTTP_PROTOCOL_ERROR": (
        "The response is not HTTP.",
        "",
    ),
    "HTTP_RESPONSE_TOO_LARGE": (
        "The body is larger than `max_response_bytes`.",
        "Raise it.",
    ),
    "HTTP_TIMEOUT": (
        "No complete response within `timeout`.",
        "Retry, or raise it.",
    ),
    "HTTP_TLS_ERROR": (
        "The certificate is invalid, or the handshake failed.",
        "`ignore_ssl` accepts any certificate.",
    ),
    "HTTP_TOO_MANY_REDIRECTS": (
        "More than ten redirects.",
        "",
    ),
    "INVALID_INPUT": (
        "A node started an execution with an input that the other workflow refuses.",
        "The message names the place; see the other workflow's `input_schema`.",
    ),
    "INVALID_PARAMETERS": (
        "Rendered parameters do not fit the node's model.",
        "The message names the parameter.",
    ),
    "INVALID_TIME": (
        "Not a point in time, or out of range.",
        "",
    ),
    "ITEM_FAILED": (
        "An item failed a split with `on_item_error: halt`.",
        "Details name the item.",
    ),
    "MERGE_TIMEOUT": (
        "Not all branches arrived in time.",
        "Raise the merge's `timeout`, or handle its error.",
    ),
    "NODE_FAILED": (
        "Anything else that a node raised; `type` is the class.",
        "",
    ),
    "NOT_A_LIST": (
        "A list was expected.",
        "",
    ),
    "NOT_AN_OBJECT": (
        "`mode: combine` merges objects only.",
        "Use `append`.",
    ),
    "NOT_FOUND": (
        "A workflow, a version of it, or a node type does not exist.",
        "",
    ),
    "LIMIT_EXCEEDED": (
        "A split has more items than the limit `split_items`.",
        "Split into fewer, larger items, or raise the limit; see [Limits](../limits.md).",
    ),
    "INTERNAL_ERROR": (
        "Dal Segno had an internal error while it handled this node.",
        "Please report it with the traceback from the worker's log. Retry once it is fixed.",
    ),
    "NOT_STORABLE": (
        "The store refuses a value that the step writes.",
        "See [Limits](../limits.md).",
    ),
    "OUTPUT_FAILED": (
        "The document's `output` expression failed.",
        "",
    ),
    "TASK_NOT_FOUND": (
        "No living worker of its queue has it, and `missing_tasks` is `fail` (test kit, `dalsegno run` on SQLite).",
        "Register it, or fix its name. Elsewhere such a step waits for a worker that has the task.",
    ),
    "TERMINATED": (
        "The execution was terminated: it ended at once, without a clean-up.",
        "For a script, `dalsegno dead` lists the unfinished clean-up; retrying the entry runs it.",
    ),
    "TIMEOUT": (
        "An attempt, or the whole execution, took longer than its `timeout`; or a signal or decision came too late.",
        "",
    ),
    "TRANSACTION_ABORTED": (
        "A statement of a task's `ctx.transaction()` failed, and the task caught the error. Nothing of it is stored.",
        (
            "Do not catch the error inside the transaction, or use a savepoint; see "
            "[Transactions](../how-to/transactions.md)."
        ),
    ),
    "TRANSACTION_ENDED": (
        "A task ended its `ctx.transaction()` by COMMIT or ROLLBACK. What it committed is stored without the step.",
        "Leave the commit to the step. Check what the task wrote before you retry.",
    ),
    "TRANSACTION_IDLE": (
        "A task left its `ctx.transaction()` without a statement for 60 s. Nothing of it is stored.",
        "Do long work before the block, and return soon after it.",
    ),
    "UNACCEPTABLE_SIGNAL": (
        "A signal that an `approval` waited for is not a decision, or does not fit its form. The node keeps waiting.",
        "Send decisions with `handle.decide`, which checks them.",
    ),
    "WORKER_LOST": (
        "The process died five times while it ran this node.",
        "See [What happens when X dies](../what-happens-when-x-dies.md#a-poison-node).",
    ),
    "WRONG_ARG_TYPE": (
        "A script passed a value of the wrong kind, or ran a node that cannot be used in a script.",
        "The message says what to use instead.",
    ),
    "WRONG_NODE_TYPE": (
        "A custom node type waits for an execution without declaring it, or names no signal or workflow.",
        "Declare it with `children=True`; the message says what is missing.",
    ),
}


OPERATING: dict[str, tuple[str, str]] = {
    "DS-200": (
        "The base class of the errors below: the operator of the system must act.",
        "Workers retry automatically; calls from outside raise it at once.",
    ),
    "DS-211": (
        (
            "Checks of definitions, schemas and payloads run outside the server's event loop, in a queue that callers"
            " share fairly. Too many jobs of this caller wait in it, or the job did not begin in time."
        ),
        (
            "Send fewer at a time, and repeat the request after the seconds that `Retry-After` gives: nothing was "
            "done. If legitimate callers see it, raise `check_processes` or `check_queue` of the server; see "
            "[Limits](../limits.md)."
        ),
    ),
    "DS-210": (
        (
            "The store cannot be reached, or was locked by another process (a SQLite file for ten seconds, rows of "
            "PostgreSQL for five), or reading and writing failed. On PostgreSQL also internal problems of the server:"
            " it is starting or stopping, has no connection or memory left, or cannot read its files."
        ),
        (
            "SQLite: end the process that holds a write transaction on the file (a manual backup, a `sqlite3` shell),"
            " and check the disk. PostgreSQL: the message quotes its error and `SQLSTATE`; check the server, its log,"
            " the network, and `max_connections`. If none of several servers accepts writes, promote one. Workers "
            "retry automatically, with pauses of up to five seconds. If a server says that the outcome of a call is "
            "unknown, send the call again with its `Idempotency-Key`, or check first whether it took effect."
        ),
    ),
    "DS-220": (
        "No space left on the disk of the store, or on that of PostgreSQL. Nothing of the commit was applied.",
        (
            "Free some space. Workers keep finished steps and commit them then; nothing is lost. If it takes longer "
            "than a lease, a step may run again."
        ),
    ),
    "DS-230": (
        (
            "The store cannot be written. SQLite: the file or its directory, where SQLite also writes `-wal` and "
            "`-shm`. PostgreSQL: the server is a standby or has become one, its sessions are read-only by default, or"
            " the user lacks rights."
        ),
        (
            "SQLite: follow the message: fix the permissions (`chmod`, `chown`), remove the attribute (`chattr -i`), "
            "or mount the file system for writing. PostgreSQL: name all servers in the URL, with "
            "`target_session_attrs=read-write` (see [Failover](../postgresql.md#failover)), and promote one; set "
            "`default_transaction_read_only` off; or grant the user the schema `dalsegno`, its tables and sequences "
            "(see [Rights of the user](../postgresql.md#rights-of-the-user)). Running processes then continue without"
            " a restart."
        ),
    ),
    "DS-231": (
        (
            "The file of a SQLite store, or its `-wal` or `-shm`, was deleted, moved or replaced while the process "
            "had it open. SQLite would keep writing to a file without a name; so every commit and every read is "
            "refused from then on, and a commit in flight is not confirmed. The process logs it once and ends with "
            "exit code 4; a server answers 503 until it has."
        ),
        (
            "Stop all processes that use the store. Put the file back with its `-wal` and `-shm`, or restore a backup"
            " (see [Backup](../operations.md#backup)), then start them again. A process that is started without the "
            "file creates an empty store; therefore the units for systemd do not restart it. If only `-wal` was "
            "deleted, starting again is enough: SQLite writes the committed changes into the file when the last "
            "process ends."
        ),
    ),
    "DS-240": (
        (
            "The file is damaged, not a SQLite database, or the database of another application. PostgreSQL: it "
            "reports damaged data or a damaged index."
        ),
        (
            "SQLite: use another path; or stop all processes, keep a copy, and restore a backup. `sqlite3 FILE "
            ".recover` rescues readable data. PostgreSQL: `REINDEX` repairs an index; for anything else stop all "
            "processes and restore a backup, on another disk."
        ),
    ),
    "DS-250": (
        (
            "The store was written by a newer version, or was opened for reading only by a newer one that would have "
            "to bring it up to date first. PostgreSQL: a table, column or function is missing that this program "
            "needs, as when `dalsegno migrate --finish` ran while it was running."
        ),
        (
            "Upgrade this program; stores are migrated when they are opened for writing, never back. If this program "
            "is the newer one, run `dalsegno migrate`. Stop outdated workers: their steps continue on other workers "
            "when their leases expire."
        ),
    ),
    "DS-260": (
        "A setting or URL is wrong, a directory does not exist, or a node plugin cannot be loaded.",
        "The message names the setting and its format.",
    ),
    "DS-270": (
        (
            "The stored state of a script or Python workflow, or its stored program, cannot be read: it is damaged, "
            "belongs to another program, or was written by a later version."
        ),
        (
            "Run workers of the version that wrote it, or a later one. If the store is damaged, restore it from a "
            "backup; `dalsegno retry EXECUTION` starts the execution over."
        ),
    ),
}


SERVING: dict[str, tuple[str, str]] = {
    "DS-300": (
        "The base class of the errors below: the caller is not allowed to do this.",
        "See the code of the error.",
    ),
    "DS-310": (
        "No API key, or one that does not exist, was revoked or has expired.",
        "Send `Authorization: Bearer …`; `dalsegno keys add NAME` makes a key and shows it once.",
    ),
    "DS-320": (
        "A key without the scope that this call needs.",
        "Use a key with that scope; `dalsegno keys ls` shows which key has which.",
    ),
    "DS-321": (
        (
            "The `Host` of a request is not a name of this server. A web page could have pointed its own name at this"
            " machine (DNS rebinding)."
        ),
        "Call it by its address or as `localhost`; if the name is yours, give it to the server: `--name`.",
    ),
    "DS-322": (
        "A web page of another origin tried to change something, or sent a preflight request for it.",
        (
            "If the page is yours, give its origin to the server (`--origin https://ops.example.com`) and let it send"
            " a key with each call."
        ),
    ),
    "DS-323": (
        "A remote worker's key is not for the queue of a task, or the task was claimed with another key.",
        (
            "Give the key the queue: `dalsegno keys set NAME --queue QUEUE`, which replaces its list; `dalsegno keys "
            "ls` shows the queues of each key. An answer must come with the key that claimed the task."
        ),
    ),
    "DS-324": (
        (
            "A key without the scope `admin` tried to deploy under a name, or below it with `/`, that a credential "
            "lists, or to change an alias of it. The definition would use the credential."
        ),
        (
            "Let an admin deploy it, or deploy it under another name. `dalsegno credentials ls` shows which "
            "credential lists which names. See [Secrets](../secrets.md)."
        ),
    ),
    "DS-330": (
        "Too many requests, or too many failed attempts to sign in.",
        "Wait for the time in `Retry-After`.",
    ),
    "DS-331": (
        "The body of a request did not arrive in time; nothing was done.",
        "Send it again, over a faster connection; the server's `body_seconds` is the time limit.",
    ),
    "DS-332": (
        (
            "A key has used one of its quotas: starts or bytes per minute, or event streams and waiting calls open at"
            " the same time. The message names the quota, what is used, and the limit. Nothing was done."
        ),
        (
            "Wait for the time in `Retry-After`, or close streams. `GET /v1/session` shows a key its use; `dalsegno "
            "keys set NAME --starts-per-minute …` changes a quota."
        ),
    ),
    "DS-333": (
        "As many executions that a key started are stored as its quota allows, ended ones included.",
        (
            "Delete ended executions, let retention remove them sooner, or raise the quota: `dalsegno keys set NAME "
            "--stored-executions …`. Waiting alone does not help."
        ),
    ),
    "DS-340": (
        "A node, a task or a call names a credential that is not in this store.",
        "`dalsegno credentials ls` lists existing ones; `dalsegno credentials add NAME` adds one.",
    ),
    "DS-341": (
        (
            "A credential may not be used by this workflow, or may not be sent to this host. It was not sent, neither"
            " by a request nor by a redirect."
        ),
        (
            "If this is intended, add the workflow or host to the credential's list: `dalsegno credentials add NAME "
            "--keep …`. See [Secrets](../secrets.md)."
        ),
    ),
    "DS-342": (
        "Credentials are sealed with a key, and this process has none.",
        (
            "`dalsegno credentials new-key` makes one; give it to every server and worker as `DALSEGNO_SECRET_KEY`. "
            "See [Secrets](../secrets.md)."
        ),
    ),
    "DS-343": (
        (
            "A credential was sealed with a key that this process does not have, or was changed in the store without "
            "the key."
        ),
        "Give the process that key too (several are separated by commas), or set the credential again.",
    ),
    "DS-344": (
        (
            "The stored state of a Python workflow, or the stored code of one of its earlier versions, has no seal "
            "although the grace period for unsealed ones has ended, a seal that does not match, or a seal of a key "
            "that this process does not have. It was changed in the store, moved from another execution, or written "
            "by a process without the key. Nothing of it was run, and nothing was changed."
        ),
        (
            "Give every worker the same key. If you trust what is stored, run `dalsegno snapshots seal`, or extend "
            "the date with `dalsegno snapshots accept-until`; otherwise cancel the execution. See "
            "[Security](../security.md#snapshots)."
        ),
    ),
    "DS-345": (
        (
            "A credential lists this workflow by name, but no admin has approved this content of it: a key without "
            "the scope `admin` deployed it, or it is older than the approvals."
        ),
        (
            "Review the definition, then let an admin run `dalsegno credentials approve WORKFLOW@VERSION` or deploy "
            "it again. `dalsegno credentials ls` lists definitions that are not approved. See "
            "[Secrets](../secrets.md)."
        ),
    ),
    "DS-350": (
        (
            "A remote worker answers for a task that is no longer its own: it was silent for longer than its lease, "
            "the task took longer than its timeout, or the execution has ended. Another worker may have it by now."
        ),
        (
            "Drop the result and continue claiming. Send heartbeats while a task runs; see [Remote "
            "workers](../remote-workers.md)."
        ),
    ),
    "DS-360": (
        "A delivery to a webhook without a signature, or with one that does not match the webhook's secret.",
        (
            "Configure the same secret for sender and webhook, and the sender's style for the webhook. No proxy "
            "between them may change the body. See [Webhooks](../webhooks.md)."
        ),
    ),
    "DS-361": (
        "A signed delivery to a webhook whose timestamp is too old, in the future, or missing.",
        (
            "Synchronise the clocks of both machines. A sender that retries for longer than the tolerance must sign "
            "each retry; else raise `tolerance`."
        ),
    ),
    "DS-362": (
        "A failure alert was not accepted by its receiver, or could not be sent at all.",
        (
            "The message says why. It is retried with growing pauses. `dalsegno alerts test ID` retries now; see "
            "[Failure alerts](../failure-alerts.md)."
        ),
    ),
    "DS-900": (
        "A bug in Dal Segno.",
        (
            "Please report it, with the output under `DALSEGNO_DEBUG=1`. The store is not damaged: the lease of the "
            "failed step is released, and the step is tried again."
        ),
    ),
}


USAGE: dict[str, tuple[str, str]] = {
    "DS-000": (
        (
            "The base class of all errors. It is never raised itself; catch it to catch everything that Dal Segno "
            "raises."
        ),
        "See the class and the code of the error you caught.",
    ),
    "DS-100": (
        (
            "An invalid call: a blocking call on the engine's own event loop, an input given both as a value and as "
            "keywords, a call of a closed application, a combination of options that a command does not support."
        ),
        "The message names what to change. In async code, await the twin with the prefix `a`.",
    ),
    "DS-110": (
        (
            "A graph document has problems. The error carries all of them in `findings`, each with a JSON pointer, a "
            "rule and a sentence."
        ),
        "Fix the document; `dalsegno validate FILE` shows line and column. Nothing was stored.",
    ),
    "DS-120": (
        (
            "A start payload that does not fit the workflow's `input_schema`, an argument, a name that is taken, or a"
            " value that the store cannot hold."
        ),
        "Change the value; the message and the `findings` say where it does not fit. Nothing was started.",
    ),
    "DS-130": (
        "No definition, execution, node type or blob of that name in this store.",
        (
            "Check the spelling and the store: `--store`, `DALSEGNO_STORE` and the URL of the `App` must name the "
            "same one. An execution may have been removed by retention."
        ),
    ),
    "DS-140": (
        (
            "A value that JSON cannot carry: a type without a JSON form, NaN or an infinity, text that is not valid "
            "Unicode, nesting deeper than 200. The message names the path inside the value."
        ),
        (
            "Return plain data, a dataclass or a Pydantic model. For the output of a node this is a node failure and "
            "not retried."
        ),
    ),
    "DS-150": (
        "A configured limit was reached; the message names it.",
        "See [Limits](../limits.md) for what each limit protects and how to raise it.",
    ),
    "DS-160": (
        (
            "The execution is not in a state that allows this: cancelling one that has ended, rerunning one that has "
            "not, retrying one in which nothing failed."
        ),
        "Check its state first: `handle.status().state` or `dalsegno show EXECUTION`.",
    ),
    "DS-161": (
        (
            "An idempotency key was used a second time for a different request: another input, definition, version or"
            " delay of a start, another name or payload of a signal, other nodes or another context of a rerun. "
            "Nothing was done."
        ),
        (
            "Send the same request again to get the execution that the key belongs to (the message names it), or "
            "choose another key for another request. In Python, `with_options(idempotency_key=…)` of an `App` does "
            "not compare: there the second start is the first one."
        ),
    ),
    "DS-170": (
        "The common class of the two errors below, raised by `result()`.",
        "Catch it if the reason for the missing result does not matter.",
    ),
    "DS-171": (
        "The execution ended FAILED. `error` is the error object: message, code, type, details, node.",
        (
            "Fix the cause, then `handle.retry()` or `dalsegno retry EXECUTION`: see [Rerun after a bug "
            "fix](../how-to/rerun.md). The codes of nodes are listed below."
        ),
    ),
    "DS-172": (
        "The execution was cancelled.",
        (
            "Nothing, if that was intended. `retry` creates a new execution that begins with the work that was "
            "running or waiting."
        ),
    ),
    "DS-173": (
        "The workflow refused a request (`ask`); the message is its reason.",
        "Send a request that it accepts. With the same `id` the answer stays the same.",
    ),
    "DS-180": (
        (
            "An expression cannot be compiled: a syntax error, an unknown name, nesting beyond the limit. In a "
            "document it is one of the findings of DS-110."
        ),
        "The error has line, column and an excerpt. See [Expressions](expressions.md).",
    ),
    "DS-181": (
        "Several strings of a parameter hold expressions that cannot be compiled.",
        "As for DS-180; each comes with its JSON pointer.",
    ),
    "DS-182": (
        "The source of a script cannot be parsed: a syntax error, invalid front matter, or nesting beyond the limit.",
        (
            "The error has line, column, an excerpt and a suggestion. `dalsegno validate FILE` shows all other "
            "findings, too."
        ),
    ),
    "DS-183": (
        (
            "A script can be parsed, but is invalid: an undefined variable, a constant assigned again, a `break` "
            "outside of a loop, a library function with the wrong number of arguments. All of them are listed, with "
            "line and column."
        ),
        (
            "Fix the places named; `dalsegno validate FILE` shows them with their lines, and warnings too. Nothing "
            "was stored."
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
        (
            "A function for workflows (`sleep`, `signal`, `gather` …), or a workflow itself, was called outside a "
            "workflow."
        ),
        (
            "Call it inside a workflow; tasks and ordinary code use the functions of asyncio instead. Start a "
            "workflow with `app.start(order, …)`, or await it where its application runs: inside `async with "
            "app.running()`."
        ),
    ),
    "DS-187": (
        (
            "A variable of a Python workflow that is needed after an `await` cannot be stored: a file, a lock, a "
            "generator …"
        ),
        (
            "The message names the variable and the line. Use it before the await or inside a task; see [Python "
            "workflows](python-workflows.md#what-lives-across-an-await)."
        ),
    ),
    "DS-190": (
        "An HTTP request that cannot be read: a body that is not JSON, a method that a route does not support.",
        "Send JSON with `Content-Type: application/json`; the reference at `/docs` shows every route.",
    ),
    "DS-191": (
        "A request body larger than the server takes.",
        "Keep large data elsewhere and pass a reference, or raise the server's `body_bytes`.",
    ),
    "DS-192": (
        (
            "A body of a type that this route does not take. Plain text and forms are never taken: any web page could"
            " send them."
        ),
        (
            "Send `application/json`; definitions may also come as `application/yaml` or "
            "`application/vnd.dalsegno.flow`."
        ),
    ),
}


CAUSES: dict[str, tuple[str, str]] = {**USAGE, **OPERATING, **SERVING}
