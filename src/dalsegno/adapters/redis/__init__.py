"""One Redis: the ledger in Lua. So far the ledger's commits, claims, timers and reading."""

from dalsegno.adapters.redis.ledger import RedisLedger
from dalsegno.adapters.redis.store import RedisStore

__all__ = ["RedisLedger", "RedisStore"]
