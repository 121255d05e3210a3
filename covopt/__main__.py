"""`python -m covopt`: the command line."""

from covopt.cli import main

if __name__ == "__main__":
    main()
