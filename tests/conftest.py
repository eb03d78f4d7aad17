"""Fixtures for all tests."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.plugin", "tests.servers.hasty", "tests.chaos.reporting"]

# The same examples every time: a build is red because of its change, not by chance. `make soak` looks further.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.register_profile(
    "searching", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("DALSEGNO_EXAMPLES", "steady"))
