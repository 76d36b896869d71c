"""The command `cms`, also as `python -m cms`."""

from __future__ import annotations

from cms.cli import cms


def main() -> None:
    cms(prog_name="cms")


if __name__ == "__main__":
    main()
