-- Names for versions of a definition, such as `stable`. `latest` is never stored: definition_current has it.

CREATE TABLE definition_alias (
    name    TEXT NOT NULL,
    alias   TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (name, alias)
) WITHOUT ROWID;
