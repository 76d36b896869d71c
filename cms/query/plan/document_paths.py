"""Paths into JSON fields, as values of a plan have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Leads to a value inside of a JSON field: names of members, and indexes of arrays.

    The steps are those of a request, and so parameters of its statement.
    """

    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonPaths:
    """Shows a part of a JSON field: an object of the values at the paths, nested like the paths."""

    paths: tuple[tuple[str, ...], ...]


def json_path_key(field: str, path: JsonPath) -> str:
    """Return the key of a value inside of a JSON field, `meta_price` of `meta.price`."""
    return "_".join((field, *path.steps))
