"""`python -m covopt`, and the script `covopt`: the command line, which answers Ctrl-C from its first moment."""

from covopt.interrupts import ending, ignore

with ending():
    from covopt.cli import main as command_line


def main() -> None:
    """What the script runs."""
    try:
        command_line()
    finally:
        ignore()


if __name__ == "__main__":
    main()
