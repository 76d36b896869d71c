"""Differences of two JSON values, as entries of the kinds that SDKs know: N, D and E."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]


class ChangeKind(StrEnum):
    NEW = "N"
    DELETED = "D"
    EDITED = "E"


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is new (`after`), deleted (`before`) or edited (both), at a path of keys.

    Arrays are edited as a whole: the kind A of other tools is never made.
    """

    kind: ChangeKind
    path: Path
    before: object = None
    after: object = None

    def as_entry(self) -> dict[str, object]:
        """Return `{kind, path, lhs, rhs}`."""
        entry: dict[str, object] = {"kind": self.kind.value}
        if self.path:
            entry["path"] = list(self.path)
        if self.kind is not ChangeKind.NEW:
            entry["lhs"] = self.before
        if self.kind is not ChangeKind.DELETED:
            entry["rhs"] = self.after
        return entry


def differences(before: object, after: object, path: Path = ()) -> Iterator[Difference]:
    """Yield the changes from one value to the other; none for equal values."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_mappings(before, after, path)
    elif not _is_same(before, after):
        yield Difference(ChangeKind.EDITED, path, before, after)


def _of_mappings(
    before: Mapping[str, object], after: Mapping[str, object], path: Path
) -> Iterator[Difference]:
    for key in sorted({*before, *after}):
        inner = (*path, key)
        if key not in before:
            yield Difference(ChangeKind.NEW, inner, after=after[key])
        elif key not in after:
            yield Difference(ChangeKind.DELETED, inner, before[key])
        else:
            yield from differences(before[key], after[key], inner)


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return False
        return all(_is_same(one[key], other[key]) for key in one)
    # In Python `1` and `true` are equal.
    return isinstance(one, bool) == isinstance(other, bool) and one == other
