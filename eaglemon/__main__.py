"""Run the command line with ``python -m eaglemon``."""

from eaglemon.cli.main import main

if __name__ == "__main__":
    main()
