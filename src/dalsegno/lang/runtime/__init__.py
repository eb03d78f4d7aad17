"""The stack machine that expressions and scripts share."""
