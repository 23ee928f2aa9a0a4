"""`python -m refocal.cli` is `refocal`."""

from refocal.cli import main

main()
