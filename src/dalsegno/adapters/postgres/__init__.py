"""One PostgreSQL database: the store for several machines. So far the ledger's commits, claims, timers and reading."""

from dalsegno.adapters.postgres.ledger import PostgresLedger
from dalsegno.adapters.postgres.store import PostgresStore

__all__ = ["PostgresLedger", "PostgresStore"]
