"""A checkpoint in numbered parts, small enough to be carried one by one from machine to machine.

The folder holds the parts and manifest.json, which names each with its size and SHA-256. The manifest is written last
and the parts of an older checkpoint are removed after it, so that a write that was torn, a part that was lost and a
part that was damaged on the way are all noticed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from refocal._files import write_atomically
from refocal.errors import FormatError

# Bytes: below the 16 MiB at which many ways of carrying a file end. A ResNet-50 with its momentum has 13 parts.
PART_BYTES = 15 * 2**20
MANIFEST = "manifest.json"


def write_parts(folder: Path, content: bytes, epoch: int, part_bytes: int = PART_BYTES) -> None:
    """Keep a checkpoint after an epoch in place of the one that the folder holds."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, start in enumerate(range(0, len(content), part_bytes), 1):
        piece = content[start : start + part_bytes]
        name = f"{epoch:05d}-{number:03d}.part"
        write_atomically(folder / name, piece)
        parts.append({"name": name, "bytes": len(piece), "sha256": _hash(piece)})
    manifest = {"epoch": epoch, "bytes": len(content), "sha256": _hash(content), "parts": parts}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    current = {part["name"] for part in parts}
    for path in folder.glob("*.part"):
        if path.name not in current:
            path.unlink()


def read_parts(folder: Path) -> bytes:
    """The checkpoint of a folder; one that is not whole is refused, with the part that is missing or damaged."""
    manifest = read_manifest(folder)
    pieces = []
    for number, part in enumerate(manifest["parts"], 1):
        path = folder / Path(part["name"]).name
        which = f"{path}: part {number} of {len(manifest['parts'])}"
        if not path.is_file():
            raise FormatError(f"{which} is missing; carry it over again.")
        piece = path.read_bytes()
        if len(piece) != part["bytes"]:
            raise FormatError(f"{which} has {len(piece)} bytes instead of {part['bytes']}; carry it over again.")
        if _hash(piece) != part["sha256"]:
            raise FormatError(f"{which} is damaged: its SHA-256 is not the manifest's; carry it over again.")
        pieces.append(piece)
    content = b"".join(pieces)
    if len(content) != manifest["bytes"] or _hash(content) != manifest["sha256"]:
        raise FormatError(f"{folder / MANIFEST}: the parts together are not the checkpoint that it describes.")
    return content


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the folder's checkpoint consists of, and after which epoch it was kept."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FormatError(f"{folder}: holds no {MANIFEST}, so no checkpoint to go on from.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        whole = {"epoch": int, "bytes": int, "sha256": str, "parts": list}
        fits = all(isinstance(manifest[name], kind) for name, kind in whole.items())
        part = {"name": str, "bytes": int, "sha256": str}
        fits = fits and all(isinstance(one[name], kind) for one in manifest["parts"] for name, kind in part.items())
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: not a manifest that can be read: {error!r}.") from error
    if not fits:
        raise FormatError(f"{path}: not a manifest that can be read: a value has another type.")
    return manifest


def remove_parts(folder: Path) -> None:
    """Remove the checkpoint of a folder, and the folder if nothing else is in it."""
    if not folder.is_dir():
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in folder.glob("*.part"):
        path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
