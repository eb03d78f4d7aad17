"""``wire.md``: the messages, queues and keys that other programs see, from the schemas and the topology."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from dalsegno.adapters.rabbitmq.tasks import MARKER
from dalsegno.adapters.rabbitmq.topology import DEAD, DEAD_LETTER_EXCHANGE, EXCHANGE, Queue, fixed_queues
from scripts.pages.markdown import NOTICE, code, table

MESSAGES = ("node-execution", "node-status", "completion", "task", "result")

INTRODUCTION = """
What travels between Dal Segno and other programs over RabbitMQ and Redis. Which stack has which: [Choose a
stack](../choose-a-stack.md). Over HTTP, the [server](../server.md) offers the same without a broker.

All messages are JSON in UTF-8. The schemas are in the package (`dalsegno/core/wire/schemas/`), in JSON Schema
2020-12. Fields that are not listed are ignored.

"""

RABBITMQ = f"""
## RabbitMQ

One durable topic exchange, `{EXCHANGE}`. Every queue is bound to it under its own name, so the routing key is the
name of the queue. All queues are classic; every process of Dal Segno declares them when it connects, and is ready
only then. A queue that exists with other arguments is left alone, and `dalsegno doctor` names each argument that
differs.

"""

RABBITMQ_RULES = f"""
`{DEAD_LETTER_EXCHANGE}` is a durable fanout exchange bound to `{DEAD}`. Work of a queue of yours, `gpu`, travels
through `workflow.execution.q.gpu`, with the arguments of `workflow.execution`. Tasks of a queue travel through
`tasks.<queue>`, and results return to `workflow.results`; both are durable. `{MARKER}` is durable too and
stays empty: where it is missing, RabbitMQ has lost what it held, and tasks that were handed out are handed out again.

What Dal Segno publishes is persistent, mandatory and confirmed, and carries a `traceparent`. A message that comes in
is acknowledged after the commit that took it in. Only workers of Dal Segno read `workflow.execution`: another program
takes [tasks](#tasks).

### Start an execution

Publish a `NodeExecutionMessage` to `workflows` with the routing key `workflow.execution`, or to the default exchange.
The message starts the execution that it names, or joins it:

- At a trigger, or at a node behind a trigger, it starts everything behind that trigger, once.
- With `from_node` it arrives at `current_node` as if it came from that node. At a merge that is an arrival in that
  node's slot: the same sender twice is one arrival.
- Inside a split, `lineage_stack` names the item, outermost split first.
- Without `from_node`, at a node with one input, it arrives there; at a node with several inputs it is refused.

A message is known by its AMQP `message_id`, else by the SHA-256 of its body: sent again, it changes nothing, until 48
hours after the execution has ended. `DALSEGNO_ADOPT` says which definitions are taken in: `any`, `known` (deployed
ones only) or `off`. A definition that a message carries is kept apart: it never becomes a version of a deployed
workflow. It may use only credentials that are marked `adoptable`. A store takes 10,000 of them
(`EngineLimits(adopted_definitions=…)`); a message with a further one is a dead letter.

### Follow it

For every execution of a graph, however it was started, each step of each node run is a `NodeStatusMessage` in
`workflow.node.status`, and the end is one `CompletionMessage` in `workflow.completion`. They leave in the order of
the history; the completion leaves after every status is confirmed. A message may come twice, with the same
`message_id`, and never otherwise. Per node run: any number of `waiting`, `running` once per attempt, then one of
`success`, `failed`, `cancelled`; or `skipped`, once.

### Dead letters

A message that cannot be taken in goes to `workflow.execution.dead`, byte for byte, with its properties and headers,
and three headers more: `x-dalsegno-reason` (a sentence, with JSON pointers where the definition is at fault),
`x-dalsegno-code` and `x-dalsegno-at`. Faults of the system are tried again after 5, 25 and 125 seconds first.
`dalsegno dead ls`, `show` and `requeue` show and send them back.

"""

REDIS = """
## Redis

Redis 6.2 or newer, alone or behind Sentinel. A Cluster is refused. Every other key of Dal Segno begins with `wf:` and
may change.

"""

KEYS = (
    ("`scheduler:timers`", "ZSET", "timer ids by the time at which they come due, in epoch milliseconds"),
    (
        "`scheduler:payloads`",
        "HASH",
        "timer id to a `NodeExecutionMessage`; removed when it has been taken in",
    ),
    ("`scheduler:processing`", "ZSET", "timers that a scheduler has claimed, by the time of the claim"),
    (
        "`tasks:<queue>`, `…:high`, `…:low`",
        "STREAM, group `workers`",
        "tasks, in the field `task`; priorities above 0 are in `:high`, below 0 in `:low`",
    ),
    ("`wf:stream:results`", "STREAM, group `orchestrators`", "results of tasks, a field each"),
    (
        "`wf:stream:dead`",
        "STREAM",
        "dead letters: `source`, `body`, `reason`, `code`, `at`; about 10,000 are kept",
    ),
    (
        "`worker:<id>`",
        "HASH",
        "a worker's `queues`, `concurrency`, `at` and `info`; written every 5 s with an expiry of 15 s",
    ),
)

REDIS_RULES = """
### Plant a timer

Write the payload first, then the time: `HSET scheduler:payloads ID MESSAGE`, `ZADD scheduler:timers DUE ID`. At that
time a scheduler takes the message in, as if it came over RabbitMQ; its identity is the timer's id. If `current_node`
is a wait node, the wait counts as over: it is `running` and `success`, and its successors run. Any other node runs
itself.

## Tasks

A queue is handed out to other programs when a living `worker:<id>` names it, or `DALSEGNO_REMOTE` does; no worker of
Dal Segno may serve it. A worker reads a task, works, sends a result, and acknowledges the task after that. At most
twice the `concurrency` of its living workers is handed out at a time.

The first result for a `fence` counts. A later one is acknowledged and dropped; one that names nothing becomes a dead
letter. A task whose worker has died is handed out again with the next fence, and fails with `WORKER_LOST` after five
losses. So a task may run twice: use its `idempotency_key`. See [Remote workers](../remote-workers.md) for two
complete workers.

"""


def page() -> str:
    queues = table(("queue", "durable", "arguments"), [_queue(each) for each in fixed_queues()])
    keys = table(("key", "type", "what"), KEYS)
    messages = "\n".join(_message(json.loads(_schema(name))) for name in MESSAGES)
    return (
        f"# The wire\n\n{NOTICE}\n{INTRODUCTION.lstrip()}{RABBITMQ.lstrip()}{queues}{RABBITMQ_RULES}"
        f"{REDIS.lstrip()}{keys}{REDIS_RULES.rstrip()}\n\n## Messages\n\n{messages}"
    )


def _schema(name: str) -> str:
    return (files("dalsegno.core.wire") / "schemas" / f"{name}.json").read_text(encoding="utf-8")


def _queue(queue: Queue) -> tuple[str, str, str]:
    arguments = ", ".join(code(f"{name}: {json.dumps(value)}") for name, value in queue.arguments.items())
    return code(queue.name), "yes" if queue.durable else "no", arguments


def _message(schema: Mapping[str, Any]) -> str:
    rows = [
        (
            code(name),
            _type(field),
            "yes" if name in schema["required"] else "",
            escape(field.get("description", ""), quote=False),
        )
        for name, field in schema["properties"].items()
    ]
    fields = table(("field", "type", "required", "what"), rows)
    return f"### {schema['title']}\n\n{escape(schema['description'], quote=False)}\n\n{fields}"


def _type(field: Mapping[str, Any]) -> str:
    return " or ".join(_types(field)) or "any"


def _types(field: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in field:
        yield ", ".join(code(value) for value in field["enum"])
    kinds = field.get("type", [])
    yield from [kinds] if isinstance(kinds, str) else kinds
    for each in field.get("anyOf", []):
        yield from _types(each)
