"""Which types PostgreSQL compares with each other by `=`, as relations do."""

from __future__ import annotations

_FAMILIES = (
    frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"}),
    frozenset({"text", "varchar", "bpchar", "name", "citext"}),
    frozenset({"date", "timestamp", "timestamptz"}),
    frozenset({"time", "timetz"}),
    frozenset({"time", "interval"}),
    frozenset({"oid", "int2", "int4", "int8"}),
    frozenset({"bit", "varbit"}),
    frozenset({"inet", "cidr"}),
)


def are_comparable(base_type: str, other: str) -> bool:
    """Tell whether two types, by the names that PostgreSQL has, can be compared."""
    return base_type == other or any(
        base_type in family and other in family for family in _FAMILIES
    )
