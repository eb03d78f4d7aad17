"""Whether a role may give the tables of history partitions: only their owner may, whatever others are granted."""

from __future__ import annotations

from msgspec import Struct


class Tenure(Struct, frozen=True):
    """In the order of the columns of ``removal.tenure``. Names are quoted as SQL needs it."""

    role: str
    owner: str
    owner_is_superuser: bool
    owns: bool
    """Also as a member of the role that owns the tables."""
    creates: bool
    """Whether it may make tables in the schema at all."""
    writes: bool

    @property
    def suffices(self) -> bool:
        return self.owns and self.creates

    def complaint(self) -> str:
        if not self.owns:
            return f"the role {self.role} does not own the tables of history ({self.owner} does)"
        return f"the role {self.role} may not create tables in the schema `dalsegno`"

    def cure(self) -> str:
        if self.owns:
            return f"Let the owner of the schema or a superuser run: {self._statements()}"
        if self.owner_is_superuser:
            return f"Let a superuser run: {self._statements()}"
        return f"Run it as {self.owner}, or let a superuser run: {self._statements()}"

    def _statements(self) -> str:
        if self.owns:
            return f"GRANT CREATE ON SCHEMA dalsegno TO {self.role};"
        if not self.owner_is_superuser:
            return f"GRANT {self.owner} TO {self.role};"
        # A member of a superuser's role can become that. Whoever owns the schema drops the old partitions, too.
        return (
            f"ALTER SCHEMA dalsegno OWNER TO {self.role};"
            f" ALTER TABLE dalsegno.event OWNER TO {self.role};"
            f" ALTER TABLE dalsegno.output OWNER TO {self.role};"
        )
