"""Who may deploy under which name: protected names are the admins'."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.engine.secrets.definition_approvals import ProtectedName
from dalsegno.engine.triggers import Change
from dalsegno.errors import Forbidden
from dalsegno.errors import ProtectedName as ProtectedNameRefused
from dalsegno.server.access import Caller
from dalsegno.server.office import Office


def approver(caller: Caller) -> str | None:
    """The name under which a caller's deploy counts as approved; None for one without the scope ``admin``."""
    return caller.name if "admin" in caller.scopes else None


async def check_may_deploy(
    office: Office, caller: Caller, name: str, content: str, parts: Sequence[str] = ()
) -> None:
    """Raises ProtectedName, unless the same content is the current version already: then nothing changes. ``parts``:
    names of the scripts inside a graph."""
    if approver(caller) is not None:
        return
    for each in (name, *parts):
        protected = await office.engine.vault.protected_names.protecting(each)
        if protected is not None:
            current = await office.client.stack.archive.definition(name)
            if current is None or current.hash != content:
                raise _refusal(caller, each, protected)


def check_may_trigger(caller: Caller, changes: Sequence[Change]) -> None:
    """Deploying gives no rights that `/v1/webhooks` does not give: those who add, change and remove webhooks have the
    scope ``admin``. Schedules need what a deploy needs. Raises Forbidden."""
    webhook = next((each for each in changes if each.kind == "webhook" and each.status != "unchanged"), None)
    if webhook is None or approver(caller) is not None:
        return
    verb = {"added": "add", "changed": "change", "removed": "remove"}[webhook.status]
    raise Forbidden(
        f"deploying this would {verb} the webhook '{webhook.name}', which needs the scope 'admin'; '{caller.name}' has "
        f"{', '.join(sorted(caller.scopes))}"
    )


async def check_may_change(office: Office, caller: Caller, name: str) -> None:
    """Whether this caller may change which version a name or its aliases mean; raises ProtectedName."""
    if approver(caller) is None:
        protected = await office.engine.vault.protected_names.protecting(name)
        if protected is not None:
            raise _refusal(caller, name, protected)


def _refusal(caller: Caller, name: str, protected: ProtectedName) -> ProtectedNameRefused:
    by = f"the credential '{protected.credential}' lists" if protected.credential else "an admin protects"
    return ProtectedNameRefused(
        f"the name '{name[:200]}' is protected: {by} '{protected.name}'. A key with the scope 'admin' can deploy it, "
        f"or change its aliases; '{caller.name}' has {', '.join(sorted(caller.scopes))}. Without one, choose another "
        "name"
    )
