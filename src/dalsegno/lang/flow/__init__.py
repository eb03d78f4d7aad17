"""Programs of the script language: how they are compiled, stored, run, stopped and resumed."""
