"""The messages that travel between Dal Segno and other programs, as rules without I/O."""
