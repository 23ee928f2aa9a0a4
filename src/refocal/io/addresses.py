"""Addresses of files in object stores: file systems that fsspec knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refocal.errors import FormatError, MissingExtraError, need

Options = Mapping[str, Any] | None
"""What a file system is told beside the address, such as the endpoint and keys of an object store."""


def filesystem_of(address: str, options: Options = None) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    url_to_fs = need("fsspec", "dask", "Addresses of files").core.url_to_fs
    protocol = address.partition("://")[0]
    try:
        filesystem, path = url_to_fs(address, **(options or {}))
    except (ImportError, ValueError) as error:
        if isinstance(error, ImportError) and protocol in ("s3", "s3a"):
            raise MissingExtraError(f"{protocol}://", "s3", "s3fs") from error
        raise FormatError(f"{address}: {str(error).splitlines()[0]}") from error
    return filesystem, path


def state_of(address: str, options: Options = None) -> str:
    """What changes when the file at an address does: size, time or checksum, as the store has them."""
    filesystem, path = filesystem_of(address, options)
    return str(filesystem.ukey(path))
