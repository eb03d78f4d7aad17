"""Redis: a broker over the ledger of a store, and the keys of other programs."""

from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.stack import open_redis

__all__ = ["RedisConnection", "open_redis"]
