"""Which paths are treated in a way of their own. Whatever is not named here needs a key and takes JSON only."""

from __future__ import annotations

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that promise to change nothing."""
DEFINITIONS = "/v1/definitions"
VALIDATE = DEFINITIONS + "/validate"
"""Stores nothing."""
ENDINGS = "/v1/executions/endings"
"""Waits for executions whose ids do not fit into a query."""
HOOKS = "/v1/hooks/"
"""Webhooks come from other systems, which prove themselves by a signature."""
APPROVAL_PAGES = "/v1/approvals/links/"
"""Single-use pages: the token in the path is the permission, and a form decides."""
STYLE_SHEET = "approval.css"
SESSION = "/v1/session"
WORKER_PROTOCOL = "/v1/tasks/"

NAMED_BELOW = (DEFINITIONS + "/", "/v1/schedules/", "/v1/limits/", "/v1/dead/", "/v1/protected-names/")
"""Names in these paths may hold slashes; see `names`."""

PUBLIC = frozenset(("/", "/docs", "/v1/openapi.json", "/v1/errors", "/v1/health/live", "/v1/health/ready"))
PUBLIC_BELOW = (HOOKS, APPROVAL_PAGES, "/docs/", "/v1/errors/")
NOT_AUDITED = (
    VALIDATE,
    ENDINGS,
    WORKER_PROTOCOL,  # every claim and heartbeat; what workers did is in the history of executions
)
SECRET_BELOW = (APPROVAL_PAGES,)
SMALL_BODY = 256 * 1024
"""Enough for a form, sent by somebody of whom nothing is known yet."""
SIGN_IN_BODY = 4 * 1024
"""Enough for a key."""
LONGEST_SHOWN = 500


def is_public(method: str, path: str) -> bool:
    """Routes that everybody may call; each checks for itself what it must."""
    if path == SESSION:
        return method == "POST"
    return path in PUBLIC or path.startswith(PUBLIC_BELOW)


def is_hook(path: str) -> bool:
    return path.startswith(HOOKS)


def largest_body(method: str, path: str, most: int) -> int:
    """Webhooks are public, too, but each has a limit of its own."""
    if path == SESSION:
        return min(most, SIGN_IN_BODY)
    return min(most, SMALL_BODY) if is_public(method, path) and not is_hook(path) else most


def may_change(method: str, path: str) -> bool:
    """Whether the call may have done something when it was not answered."""
    return is_hook(path) or (method not in SAFE and path not in (VALIDATE, ENDINGS))


def takes_definitions(path: str) -> bool:
    return path in (DEFINITIONS, VALIDATE)


def takes_forms(path: str) -> bool:
    return path.startswith(APPROVAL_PAGES)


def is_rationed(method: str, path: str) -> bool:
    """Public routes that ask the store about what a caller claims: each address has a rate there."""
    return (path == SESSION and method == "POST") or (
        path.startswith(APPROVAL_PAGES) and path != APPROVAL_PAGES + STYLE_SHEET
    )


def is_audited(path: str) -> bool:
    return not path.startswith(NOT_AUDITED)


def without_secrets(path: str) -> str:
    """The path as logs, audit entries and refusals may show it: without tokens, and not longer than a line."""
    below = next((each for each in SECRET_BELOW if path.startswith(each)), None)
    return path[:LONGEST_SHOWN] if below is None else below + "…"
