"""The async shell around the core: workers, committer, timers, reconciler. It depends on ports, never on adapters."""
