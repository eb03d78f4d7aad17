"""The users' test kit: see :class:`dalsegno.testing.TestKit`."""
