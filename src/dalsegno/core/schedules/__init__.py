"""Schedules: cron lines, specifications and the step that starts executions."""
