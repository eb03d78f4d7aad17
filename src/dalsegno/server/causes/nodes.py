"""Codes that a failed node or task carries."""

from __future__ import annotations

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
        "`dalsegno dead` lists it; retrying the letter goes on with the clean-up.",
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
        "The connection broke before the answer was complete.",
        "Retry.",
    ),
    "HTTP_CONNECTION_REFUSED": (
        "Nobody listens there.",
        "Retry.",
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
        "A page does not hold what `pagination` says.",
        "",
    ),
    "HTTP_PROTOCOL_ERROR": (
        "The answer is no HTTP.",
        "",
    ),
    "HTTP_RESPONSE_TOO_LARGE": (
        "The body is larger than `max_response_bytes`.",
        "Raise it.",
    ),
    "HTTP_TIMEOUT": (
        "No complete answer within `timeout`.",
        "Retry, or raise it.",
    ),
    "HTTP_TLS_ERROR": (
        "The certificate or the handshake is bad.",
        "`ignore_ssl` accepts any certificate.",
    ),
    "HTTP_TOO_MANY_REDIRECTS": (
        "More than ten redirects.",
        "",
    ),
    "INVALID_INPUT": (
        "The execution a node wants to start does not take that input.",
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
        "`mode: combine` unites objects only.",
        "Use `append`.",
    ),
    "NOT_FOUND": (
        "Something the node needs is not there: a workflow or a version of it, a node type.",
        "",
    ),
    "LIMIT_EXCEEDED": (
        "A split has more items than the limit `split_items`.",
        "Split into fewer, larger items, or raise the limit; see [Limits](../limits.md).",
    ),
    "INTERNAL_ERROR": (
        "Dal Segno itself broke while it handled this node.",
        "Please report it with the traceback from the worker's log. Retry once it is mended.",
    ),
    "NOT_STORABLE": (
        "The store refuses what the step wants to write.",
        "See [Limits](../limits.md).",
    ),
    "OUTPUT_FAILED": (
        "The document's `output` expression failed.",
        "",
    ),
    "TASK_NOT_FOUND": (
        "No living worker of this queue offers a task of that name; on PostgreSQL, none has for 15 minutes.",
        "Register it, or give the task a queue that only workers with it serve.",
    ),
    "TERMINATED": (
        "Somebody terminated the execution: it ended at once, without a clean-up.",
        "Of a script, `dalsegno dead` lists what was left; retrying the letter runs the clean-up.",
    ),
    "TIMEOUT": (
        "An attempt, or the whole execution, took longer than its `timeout`; or a signal or decision came too late.",
        "",
    ),
    "TRANSACTION_ABORTED": (
        "A statement of a task's `ctx.transaction()` failed, and the task caught the error. Nothing of it is stored.",
        "Let the error out, or use a savepoint; see [Transactions](../how-to/transactions.md).",
    ),
    "TRANSACTION_ENDED": (
        "A task ended its `ctx.transaction()` by COMMIT or ROLLBACK. What it committed is stored without the step.",
        "Leave the commit to the step. Look at what the task wrote before you retry.",
    ),
    "TRANSACTION_IDLE": (
        "A task left its `ctx.transaction()` without a statement for 60 s. Nothing of it is stored.",
        "Do what takes long before the block, and return soon after it.",
    ),
    "UNACCEPTABLE_SIGNAL": (
        "A signal that an `approval` waited for is no decision, or does not fit its form. The node waits on.",
        "Send decisions with `handle.decide`, which refuses such ones.",
    ),
    "WORKER_LOST": (
        "The process died five times while it ran this node.",
        "See [What happens when X dies](../what-happens-when-x-dies.md#a-poison-node).",
    ),
    "WRONG_ARG_TYPE": (
        "A script gave something of the wrong kind, or ran a node that has no meaning in a script.",
        "The message says what to use instead.",
    ),
    "WRONG_NODE_TYPE": (
        "A node type of yours waits for an execution without being declared for it, or names no signal or workflow.",
        "Declare it with `children=True`; the message says what is missing.",
    ),
}
