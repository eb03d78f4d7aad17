-- Nodes that wait for a signal, open approvals among them, are found by an index of their own.

-- 'signal;' is the first text after all that begin with 'signal:'. Ordinary steps await nothing: they pay for no entry.
CREATE INDEX token_awaiting_signal ON token (execution)
WHERE state = 'parked' AND awaits >= 'signal:' AND awaits < 'signal;';
