"""Step functions of scripts and Python workflows."""
