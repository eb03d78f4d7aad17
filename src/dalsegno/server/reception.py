"""How much of webhooks one server takes: deliveries of each, and forged ones of each address."""

from __future__ import annotations

from collections import OrderedDict

from dalsegno.engine.webhooks import Webhook
from dalsegno.errors import TooManyRequests
from dalsegno.server.failures import Failures

FORGERIES = 60
"""From one address within a minute; after that it is told to wait."""
REMEMBERED = 10_000


class Reception:
    def __init__(self) -> None:
        self.forgeries = Failures(FORGERIES)
        self.unchecked: dict[str, str] = {}
        """Webhooks whose last delivery could not be checked here, and why."""
        self._budgets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, webhook: Webhook, now: float) -> None:
        """A bucket that holds the deliveries of a minute, and fills evenly."""
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
