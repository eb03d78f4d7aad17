"""Callers, keys and credentials: DS-3; and mistakes of ours: DS-9."""

from __future__ import annotations

SERVING: dict[str, tuple[str, str]] = {
    "DS-300": (
        "The common class of the errors below: who asks may not have it.",
        "Look at the code of the error.",
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
            "The `Host` of a request is not a name of this server. A web page could have pointed a name of its own at "
            "this machine (DNS rebinding)."
        ),
        "Call it by its address or as `localhost`; if the name is yours, give it to the server: `--name`.",
    ),
    "DS-322": (
        "A web page of another origin tried to change something, or asked whether it may.",
        (
            "If the page is yours, give its origin to the server (`--origin https://ops.example.com`) and let it send "
            "a key with each call."
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
            "Let an admin deploy it, or deploy it under another name. `dalsegno credentials ls` shows which credential "
            "lists which names. See [Secrets](../secrets.md)."
        ),
    ),
    "DS-330": (
        "Too many requests, or too many failed attempts to sign in.",
        "Wait for as long as `Retry-After` says.",
    ),
    "DS-331": (
        "The body of a request did not arrive in time; nothing was done.",
        "Send it again, over a better line; the server's `body_seconds` is the time it has.",
    ),
    "DS-332": (
        (
            "A key has used one of its quotas: starts or bytes per minute, or event streams and waiting calls open at "
            "the same time. The message names the quota, what is used, and the limit. Nothing was done."
        ),
        (
            "Wait for as long as `Retry-After` says, or close streams. `GET /v1/session` shows a key what it uses; "
            "`dalsegno keys set NAME --starts-per-minute …` changes a quota."
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
        "`dalsegno credentials ls` lists those that are; `dalsegno credentials add NAME` adds one.",
    ),
    "DS-341": (
        (
            "A credential may not be used by this workflow, or may not be sent to this host: neither a request nor a "
            "redirect took it there."
        ),
        (
            "If it is meant to, add the workflow or host to the credential's list: `dalsegno credentials add NAME "
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
            "A credential was sealed with a key that this process does not have, or was changed in the store by "
            "somebody without the key."
        ),
        "Give the process that key too (several are separated by commas), or set the credential again.",
    ),
    "DS-344": (
        (
            "The stored state of a Python workflow, or the stored code of one of its earlier versions, carries no seal "
            "after the date until which such ones are accepted, a seal that does not fit, or one of a key that this "
            "process does not have. It was changed in the store, moved from another execution, or written by a process "
            "without the key. Nothing of it was run, and nothing was changed."
        ),
        (
            "Give every worker the same key. If you trust what is stored, run `dalsegno snapshots seal`, or extend the "
            "date with `dalsegno snapshots accept-until`; otherwise cancel the execution. "
            "See [Security](../security.md#snapshots)."
        ),
    ),
    "DS-345": (
        (
            "A credential lists this workflow by name, but no admin has approved this content of it: a key without the "
            "scope `admin` deployed it, or it is older than the approvals."
        ),
        (
            "Look at the definition, then let an admin run `dalsegno credentials approve WORKFLOW@VERSION` or deploy "
            "it again. `dalsegno credentials ls` lists what is not approved. See [Secrets](../secrets.md)."
        ),
    ),
    "DS-350": (
        (
            "A remote worker answers for a task that is not its own any more: it was silent for longer than its lease, "
            "the task took longer than its timeout, or the execution has ended. Another worker may have it by now."
        ),
        (
            "Drop the result and go on claiming. Send heartbeats while a task runs; see [Remote "
            "workers](../remote-workers.md)."
        ),
    ),
    "DS-360": (
        "A delivery to a webhook without the signature that its secret makes, or with another one.",
        (
            "Give sender and webhook the same secret, and the webhook the style of the sender. Nothing between them "
            "may change the body. See [Webhooks](../webhooks.md)."
        ),
    ),
    "DS-361": (
        "A delivery to a webhook that is signed, but says that it was sent too long ago, in the future, or at no time.",
        (
            "Set the clocks of both machines. A sender that tries again for longer than the tolerance must sign anew; "
            "else raise `tolerance`."
        ),
    ),
    "DS-362": (
        "A failure alert was not taken by its receiver, or could not be sent at all.",
        (
            "The message says why. It is tried again, less and less often. `dalsegno alerts test ID` tries it now; see "
            "[Failure alerts](../failure-alerts.md)."
        ),
    ),
    "DS-900": (
        "A bug in Dal Segno.",
        (
            "Please report it, with the output under `DALSEGNO_DEBUG=1`. The store is not harmed: a step "
            "that broke is handed back and tried again."
        ),
    ),
}
