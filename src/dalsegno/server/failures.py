"""Limits by address: on wrong keys, which right keys are never subject to, and on calls of public routes."""

from __future__ import annotations

from collections import OrderedDict, deque
from ipaddress import IPv6Address, ip_address

ADDRESSES = 10_000
"""How many are remembered; the ones that were quiet for longest are forgotten first."""
WINDOW = 60.0


class Failures:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, address: str, now: float) -> float:
        """Counts one; how long this address has to wait now, 0 where it need not."""
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
    """A token bucket for each address: it holds the calls of a minute, and refills evenly."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, address: str, now: float) -> float:
        """Take one call from the bucket; the seconds to wait where it is empty, else 0."""
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
    """What counts as one address: one subscriber has a whole /64 of IPv6 addresses."""
    try:
        read = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(read, IPv6Address) and read.ipv4_mapped is None:
        return read.exploded[:19]
    return str(getattr(read, "ipv4_mapped", None) or read)
