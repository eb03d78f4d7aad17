"""The worker: claims, slots, leases, heartbeats, and the capabilities of other workers."""
