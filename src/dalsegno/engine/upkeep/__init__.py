"""Background services: timers, the outbox, the reconciler and retention."""
