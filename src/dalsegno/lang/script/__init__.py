"""Scripts (``.flow``): source text to syntax tree, and what can be said about a program before it runs."""
