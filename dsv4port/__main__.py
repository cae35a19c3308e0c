"""``python -m dsv4port``: the command line."""

from __future__ import annotations

from dsv4port.cli.main import main

if __name__ == "__main__":
    main()
