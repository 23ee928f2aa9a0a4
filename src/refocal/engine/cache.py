"""Results that are kept with the rows they were computed from, for other fits on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CacheKey(Generic[T]):
    """Under what a result of type T is kept; results that depend on settings have a subclass with these as fields."""


@dataclass(frozen=True)
class NamedKey(CacheKey[T]):
    """The key of a result that depends on the rows alone.

    >>> COUNT: CacheKey[int] = NamedKey("count")
    """

    name: str


class Cache:
    """Results by key; what is returned for a key has the type that the key says.

    >>> cache = Cache()
    >>> cache.keep(NamedKey("count"), 3)
    3
    >>> cache.get(NamedKey("count")), cache.get(NamedKey("mean")), len(cache)
    (3, None, 1)
    """

    def __init__(self) -> None:
        self._results: dict[CacheKey[Any], Any] = {}

    def __len__(self) -> int:
        return len(self._results)

    def get(self, key: CacheKey[T]) -> T | None:
        """The result, if it was computed before."""
        result: T | None = self._results.get(key)
        return result

    def keep(self, key: CacheKey[T], result: T) -> T:
        """Keep a result, and return it."""
        self._results[key] = result
        return result
