"""`python -m trainer`: hands over to `cli`."""

import sys

from trainer import cli

if __name__ == "__main__":
    sys.exit(cli.main())
