"""Permission to deploy: only admins deploy under protected names."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.admin.triggers import Change
from dalsegno.engine.secrets.definition_approvals import ProtectedName
from dalsegno.errors import Forbidden
from dalsegno.errors import ProtectedName as ProtectedNameRefused
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.services import ServerServices


def approver(caller: Caller) -> str | None:
    """Return the name under which a caller's deploy counts as approved; None for a caller without the scope
    ``admin``."""
    return caller.name if "admin" in caller.scopes else None


async def check_may_deploy(
    services: ServerServices, caller: Caller, name: str, content: str, parts: Sequence[str] = ()
) -> None:
    """Check that a caller may deploy under a name. Raises ProtectedName, unless the same content is already the
    current version, in which case nothing changes. ``parts``: names of the scripts inside a graph."""
    if approver(caller) is not None:
        return
    for each in (name, *parts):
        protected = await services.engine.vault.protected_names.protecting(each)
        if protected is not None:
            current = await services.client.stack.archive.definition(name)
            if current is None or current.hash != content:
                raise _refusal(caller, each, protected)


def check_may_trigger(caller: Caller, changes: Sequence[Change]) -> None:
    """Check that a caller may change these triggers. A deploy grants no rights that `/v1/webhooks` does not:
    adding, changing and removing webhooks needs the scope ``admin``. Schedules need the scope of a deploy.
    Raises Forbidden."""
    webhook = next((each for each in changes if each.kind == "webhook" and each.status != "unchanged"), None)
    if webhook is None or approver(caller) is not None:
        return
    verb = {"added": "add", "changed": "change", "removed": "remove"}[webhook.status]
    raise Forbidden(
        f"deploying this would {verb} the webhook '{webhook.name}', which needs the scope 'admin'; '{caller.name}' has "
        f"{', '.join(sorted(caller.scopes))}"
    )


async def check_may_change(services: ServerServices, caller: Caller, name: str) -> None:
    """Check that a caller may change the version that a name or its aliases refer to. Raises ProtectedName."""
    if approver(caller) is None:
        protected = await services.engine.vault.protected_names.protecting(name)
        if protected is not None:
            raise _refusal(caller, name, protected)


def _refusal(caller: Caller, name: str, protected: ProtectedName) -> ProtectedNameRefused:
    by = f"the credential '{protected.credential}' lists" if protected.credential else "an admin protects"
    return ProtectedNameRefused(
        f"the name '{name[:200]}' is protected: {by} '{protected.name}'. A key with the scope 'admin' can deploy it, "
        f"or change its aliases; '{caller.name}' has {', '.join(sorted(caller.scopes))}. Without one, choose another "
        "name"
    )
