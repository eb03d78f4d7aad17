"""Starts of executions: new ones, delayed ones, reruns, idempotency keys."""
