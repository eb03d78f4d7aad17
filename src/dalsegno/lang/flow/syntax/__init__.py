"""Scripts (``.flow``): parsing, and the checks before a program runs."""
