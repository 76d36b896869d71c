"""A diff of the structure as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cms import jsontext

# By the kinds of changes: N is new, D is deleted. An edit (E) shows its values instead.
_SIGNS = {"N": "+", "D": "-"}
_MAX_VALUE_LENGTH = 60

DiffPart = Mapping[str, Any]


def diff_lines(diff: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each record, and one for each of its changed values below it."""
    if diff is None:
        return
    for section, entries in diff["diff"].items():
        for entry in entries:
            yield from _entry_lines(section.removesuffix("s"), entry)


def _entry_lines(noun: str, entry: DiffPart) -> Iterator[str]:
    changes: Sequence[DiffPart] = entry["diff"]
    sign = "~"
    # A record that is new or deleted has one change, which has no path.
    if changes and "path" not in changes[0]:
        sign = _SIGNS[changes[0]["kind"]]
    yield f"{sign} {noun} {_title(entry)}".rstrip()
    if sign == "~":
        for change in changes:
            yield f"    {_change_line(change)}"


def _title(entry: DiffPart) -> str:
    if "role" in entry:
        return f"{entry['action']} {entry['collection']} for {entry['role'] or 'everybody'}"
    title = ".".join(entry[key] for key in ("collection", "field", "name") if key in entry)
    if "renamed_from" in entry:
        title += f" (renamed from {entry['renamed_from']})"
    if entry.get("related_collection"):
        title += f" → {entry['related_collection']}"
    return title


def _change_line(change: DiffPart) -> str:
    path = ".".join(change["path"])
    if change["kind"] == "N":
        return f"{path}: {_shorten(change['rhs'])}"
    if change["kind"] == "D":
        return f"{path}: {_shorten(change['lhs'])} is gone"
    return f"{path}: {_shorten(change['lhs'])} → {_shorten(change['rhs'])}"


def _shorten(value: object) -> str:
    text = jsontext.dumps(value).decode()
    if len(text) > _MAX_VALUE_LENGTH:
        return text[:_MAX_VALUE_LENGTH] + "…"
    return text
