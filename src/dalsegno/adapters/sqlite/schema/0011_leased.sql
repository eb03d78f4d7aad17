-- Who holds what: asked by every process's reconciler, by health, metrics and pages, and must not depend on how many
-- tokens wait. Costs a chain about 2 % of its steps.
CREATE INDEX token_leased ON token (owner, queue) WHERE state = 'leased';
