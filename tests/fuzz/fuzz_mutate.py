"""Mutations of a file: of its bytes, of the values of its JSON, of the members of its archive. Seeded."""

from __future__ import annotations

import json
import random
from typing import Any

from fuzz_targets import JSON, LARGEST, reopen_zip

STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e308, -1e308, 2**31, 2**63, -(2**63) - 1, 10**400, 53, 64, 1000,
    float("nan"), float("inf"), "", "x", "logits", "\x00", "../../etc/passwd", "é" * 50, [], [[]], {}, [0, 0],
    [1e308, 1], ["a", "b"], [None], {"a": 1}, [[0.0] * 3] * 3, "1" * 30, [[[[[]]]]],
]  # fmt: skip
WORDS = [b"\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"(", b")", b"'", b"1e999", b"nan", b"-inf", b",", b"\n",
         b"\t", b'"', b"{", b"[", b"(99999999999, 3)", b"|O8", b"<U99999", b">f2", b"F64",
         b"PK\x03\x04", b"\x80\x04", b"\x1f\x8b"]  # fmt: skip


def mutate(target: str, data: bytes, rng: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _change(target, data, rng)
    return data[:LARGEST]


def _change(target: str, data: bytes, rng: random.Random) -> bytes:
    if target in JSON and rng.random() < 0.7:
        try:
            return json.dumps(_change_json(json.loads(data), rng)).encode()
        except (ValueError, RecursionError, OverflowError):
            pass
    if target in ("npz", "pt") and rng.random() < 0.5:
        try:
            return reopen_zip(data, lambda part: _change_bytes(part, rng) if rng.random() < 0.4 else part)
        except Exception:  # noqa: S110 - what zipfile raises over a broken archive is not what is tested
            pass
    return _change_bytes(data, rng)


def _change_json(value: Any, rng: random.Random) -> Any:
    """One value somewhere, replaced, removed, doubled or taken from elsewhere."""
    holders = list(_holders(value))
    if not holders:
        return rng.choice(STRANGE)
    holder = rng.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        if isinstance(holder, list):
            holder.append(rng.choice(STRANGE))
        else:
            holder["x"] = rng.choice(STRANGE)
        return value
    key, what = rng.choice(keys), rng.random()
    if what < 0.6:
        holder[key] = rng.choice(STRANGE)
    elif what < 0.75:
        del holder[key]
    elif what < 0.85 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), holder[key])
    elif isinstance(holder[key], float | int) and not isinstance(holder[key], bool):
        holder[key] = holder[key] * rng.choice((-1, 2, 1e10, 1e-10, 0))
    else:
        holder[key] = json.loads(json.dumps(rng.choice(holders))) if rng.random() < 0.5 else str(key)
    return value


def _holders(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _holders(inner)


def _change_bytes(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.choice(WORDS)
    at, what = rng.randrange(len(data)), rng.randrange(7)
    length = min(len(data) - at, rng.choice((1, 1, 2, 4, 8, 64)))
    if what == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if what == 1:
        return data[:at] + rng.randbytes(length) + data[at + length :]
    if what == 2:
        return data[:at] + data[at + length :]
    if what == 3:
        return data[:at] + rng.choice(WORDS) + data[at:]
    if what == 4:
        word = rng.choice(WORDS)
        return data[:at] + word + data[at + len(word) :]
    if what == 5:
        return data[:at]
    source = rng.randrange(len(data))
    return data[:at] + data[source : source + length] + data[at:]
