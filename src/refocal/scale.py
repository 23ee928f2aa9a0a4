"""A former name of `refocal.io`."""

from refocal.data import __getattr__ as __getattr__
