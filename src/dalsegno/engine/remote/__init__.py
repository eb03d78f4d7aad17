"""Tasks for remote workers: claims, answers, heartbeats and sessions."""
