"""`python -m refocal_paper.cli` is `refocal-paper`."""

from refocal_paper.cli import main

main()
