"""Addresses of PostgreSQL that lead into one schema of a database."""

from __future__ import annotations


def in_schema(address: str, schema: str) -> str:
    """Return an address, in either form that libpq takes, whose sessions use this schema.

    Extensions are found in `public`, which all schemas share. An address that leads there already
    stays as it is.
    """
    is_url = address.lstrip().startswith(("postgres://", "postgresql://"))
    # Commas and equal signs stand for themselves in names with values, but not in a query string.
    path = f"{schema}%2Cpublic" if is_url else f"{schema},public"
    option = f"options=-csearch_path%3D{path}" if is_url else f"options=-csearch_path={path}"
    if address.endswith(option):
        return address
    if not is_url:
        return f"{address} {option}"
    return f"{address}{'&' if '?' in address else '?'}{option}"
