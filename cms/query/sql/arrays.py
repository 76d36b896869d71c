"""Arrays as PostgreSQL reads them: many values as one parameter."""

from __future__ import annotations

from collections.abc import Sequence


def array(values: Sequence[str | None]) -> str:
    """Return PostgreSQL's text of an array, which the driver would build far more slowly."""
    # Most values need no escaping: joined at once, they hold no other quotes than those between
    # them.
    if values and None not in values:
        joined = '","'.join(values)  # type: ignore[arg-type]
        if joined.count('"') == 2 * (len(values) - 1) and "\\" not in joined:
            return f'{{"{joined}"}}'
    # Unquoted NULL is the null of an array; every other element is quoted, so that a text "NULL"
    # stays a text.
    elements = ["NULL" if value is None else _element(value) for value in values]
    return "{" + ",".join(elements) + "}"


def _element(value: str) -> str:
    if '"' in value or "\\" in value:
        # The backslash first: otherwise the backslashes of escaped quotes would be doubled.
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
