"""Schedules and the executions behind them."""
