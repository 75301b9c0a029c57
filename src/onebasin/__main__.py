"""`python -m onebasin` is the command `onebasin`."""

from onebasin.cli import main

if __name__ == "__main__":
    main()
