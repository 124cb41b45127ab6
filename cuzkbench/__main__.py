"""`python -m cuzkbench` is the command `cuzkbench`."""

from cuzkbench.cli import main

if __name__ == "__main__":
    main()
