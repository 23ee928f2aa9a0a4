"""`python -m refocal` is `refocal`."""

from refocal.cli import main

main()
