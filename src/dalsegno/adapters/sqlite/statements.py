"""Every SQL statement of this adapter, by ``topic.name``, read once from ``statements/<topic>.sql``."""

from __future__ import annotations

from dalsegno.adapters.statements import load_statements

SQL = load_statements("dalsegno.adapters.sqlite")
