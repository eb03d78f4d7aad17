"""The simulated environment: virtual time, processes that crash, ports that lose and repeat messages."""
