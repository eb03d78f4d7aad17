"""``python -m dalsegno``: the command line."""

from dalsegno.cli.main import main

if __name__ == "__main__":
    main()
