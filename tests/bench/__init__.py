"""What measures is tested, too: small, on real stores."""
