"""Wrong keys, counted by address: whoever tries too many is told to wait. Right keys are never asked to."""

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
        times = self._times.setdefault(_house(address), deque())
        self._times.move_to_end(_house(address))
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


def _house(address: str) -> str:
    """One subscriber has a whole /64 of IPv6 addresses."""
    try:
        read = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(read, IPv6Address) and read.ipv4_mapped is None:
        return read.exploded[:19]
    return str(getattr(read, "ipv4_mapped", None) or read)
