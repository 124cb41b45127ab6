"""The command `cuzkbench`, also as `python -m cuzkbench`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being loaded ends in a line too."""
    try:
        from cuzkbench.cli import main as run

        run()
    except KeyboardInterrupt:
        print("cuzkbench: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
