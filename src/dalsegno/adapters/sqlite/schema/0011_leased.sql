-- Leases by owner: read by every process's reconciler, by health, metrics and pages, at a cost independent of the
-- number of waiting tokens. Costs a chain about 2 % of its steps.
CREATE INDEX token_leased ON token (owner, queue) WHERE state = 'leased';
