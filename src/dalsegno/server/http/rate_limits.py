"""Rate limits by address: on wrong keys, without affecting valid ones, on calls of public routes, and on deliveries.

One server limits the deliveries of each webhook, and the forged deliveries from each address.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from ipaddress import IPv6Address, ip_address

from dalsegno.admin.webhooks import Webhook
from dalsegno.errors import TooManyRequests

ADDRESSES = 10_000
"""Addresses that are remembered; the least recently active ones are dropped first."""
WINDOW = 60.0


class Failures:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, address: str, now: float) -> float:
        """Count one call. Return the seconds that this address has to wait; 0 if none."""
        times = self._times.setdefault(subscriber(address), deque())
        self._times.move_to_end(subscriber(address))
        while times and times[0] <= now - WINDOW:
            times.popleft()
        if len(times) >= self.limit:
            return times[0] + WINDOW - now
        times.append(now)
        while len(self._times) > ADDRESSES:
            self._times.popitem(last=False)
        return 0.0

    def __len__(self) -> int:
        return len(self._times)


class AddressRate:
    """A token bucket for each address: it holds the calls of a minute and refills evenly."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, address: str, now: float) -> float:
        """Take one call from the bucket. Return the seconds to wait if it is empty, else 0."""
        name, full = subscriber(address), float(self.per_minute)
        left, at = self._buckets.get(name, (full, now))
        left = min(full, left + (now - at) * full / 60)
        if left < 1:
            return (1 - left) * 60 / full
        self._buckets[name] = (left - 1, now)
        self._buckets.move_to_end(name)
        while len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0


def subscriber(address: str) -> str:
    """Return the key that counts as one address: an IPv6 subscriber has a whole /64."""
    try:
        read = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(read, IPv6Address) and read.ipv4_mapped is None:
        return read.exploded[:19]
    return str(getattr(read, "ipv4_mapped", None) or read)


FORGERIES = 60
"""Forged deliveries from one address within a minute; beyond that the address has to wait."""
REMEMBERED = 10_000


class DeliveryLimits:
    def __init__(self) -> None:
        self.forgeries = Failures(FORGERIES)
        self.unchecked: dict[str, str] = {}
        """Webhooks whose last delivery could not be checked on this server, and the reason."""
        self._budgets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, webhook: Webhook, now: float) -> None:
        """Take one delivery from the bucket, which holds the deliveries of a minute and refills evenly."""
        left, at = self._budgets.get(webhook.id, (float(webhook.rate), now))
        left = min(float(webhook.rate), left + (now - at) * webhook.rate / 60)
        if left < 1:
            wait = (1 - left) * 60 / webhook.rate
            raise TooManyRequests(f"more than {webhook.rate} deliveries a minute to '{webhook.path}'", wait)
        self._budgets[webhook.id] = (left - 1, now)
        self._budgets.move_to_end(webhook.id)
        while len(self._budgets) > REMEMBERED:
            self._budgets.popitem(last=False)

    def forged(self, address: str, now: float) -> None:
        wait = self.forgeries.note(address, now)
        if wait > 0:
            raise TooManyRequests("too many deliveries with a wrong signature", wait)
