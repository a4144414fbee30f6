"""``python -m labelry``: the command line."""

from labelry.cli import main

if __name__ == "__main__":
    main()
