"""The async shell around the core: workers, committer, timers, reconciler. It knows ports, never adapters."""
