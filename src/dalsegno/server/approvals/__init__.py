"""Approval links and the page behind them."""
