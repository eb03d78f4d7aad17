"""Names of lease owners that are remote workers: worker, incarnation and API key in one string."""

from __future__ import annotations

PREFIX = "remote:"
"""Prefix of the names under which remote workers hold leases."""


KEY_SIGN = "@"
"""Separator between such a name and the id of the worker's key."""


def owner_of(worker: str, incarnation: str, key: str) -> str:
    """Return the name of a lease owner. It includes the key, so that every server of the store knows who may answer
    for a lease.
    """
    return f"{PREFIX}{worker}:{incarnation}" + (f"{KEY_SIGN}{key}" if key else "")


def remote_key_of(owner: str | None) -> str:
    """Return the API key of a remote worker's lease; empty if it was taken without one."""
    if owner is None or not owner.startswith(PREFIX):
        return ""
    return owner.rpartition(":")[2].partition(KEY_SIGN)[2]


def remote_worker_of(owner: str | None) -> str | None:
    """Return the remote worker of a lease owner; None if it is no remote worker."""
    if owner is None or not owner.startswith(PREFIX):
        return None
    return owner[len(PREFIX) :].rpartition(":")[0]
