"""`python -m trainer`: hands over to `commands.cli`, as the console command `unbroken` does."""

import sys

from trainer.commands import cli

if __name__ == "__main__":
    sys.exit(cli.console())
