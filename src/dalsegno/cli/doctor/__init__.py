"""The doctor's checks: of the machine, of the store's file, of what is in the store."""

from dalsegno.cli.doctor.check import Check, as_object, print_checks
from dalsegno.cli.doctor.examination import examine

__all__ = ["Check", "as_object", "examine", "print_checks"]
