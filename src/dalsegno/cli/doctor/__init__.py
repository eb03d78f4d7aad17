"""The checks of ``doctor``: the machine, the store's file or server, and the content of the store."""

from dalsegno.cli.doctor.check import Check, as_object, print_checks
from dalsegno.cli.doctor.examination import examine

__all__ = ["Check", "as_object", "examine", "print_checks"]
