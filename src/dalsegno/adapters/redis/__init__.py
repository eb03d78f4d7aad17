"""Redis: a broker over the ledger of a store, and the keys of other programs."""

from dalsegno.adapters.redis.broker import RedisBroker, RedisChannel
from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.stack import open_redis

__all__ = ["RedisBroker", "RedisChannel", "RedisConnection", "open_redis"]
