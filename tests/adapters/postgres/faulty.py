"""A database that refuses what it is to store, with the error code that a test wants."""

from __future__ import annotations

from tests.servers.postgres import PostgresServer

FAULT = """
CREATE FUNCTION public.fault() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_ARGV[1] = '' OR NEW.kind = ANY (string_to_array(TG_ARGV[1], ',')) THEN
        RAISE EXCEPTION 'as the server says it' USING ERRCODE = TG_ARGV[0];
    END IF;
    RETURN NEW;
END $$
"""


class FaultyHistory:
    """No event can be stored, or none of some kinds, until it is mended."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._database = url.rpartition("/")[2]

    def refuse(self, state: str, *kinds: str) -> None:
        self._run(FAULT)
        self._run(
            "CREATE TRIGGER fault BEFORE INSERT ON dalsegno.event FOR EACH ROW "
            f"EXECUTE FUNCTION public.fault('{state}', '{','.join(kinds)}')"
        )

    def mend(self) -> None:
        self._run("DROP FUNCTION public.fault() CASCADE")

    def _run(self, statement: str) -> None:
        self._server.psql(statement, self._database)
