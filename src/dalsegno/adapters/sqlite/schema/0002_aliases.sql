-- Names for versions of a definition: `stable` and whatever else its users agree on. `latest` is never stored: it is
-- what definition_current says.

CREATE TABLE definition_alias (
    name    TEXT NOT NULL,
    alias   TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (name, alias)
) WITHOUT ROWID;
