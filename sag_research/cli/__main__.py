"""``python -m sag_research.cli``."""

from sag_research.cli._base import main

if __name__ == "__main__":
    main()
