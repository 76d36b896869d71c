"""The values that rows and operands are drawn from: few, so that they are often equal;
nasty, so that comparing them shows mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXTS = (
    *("", " ", "a", "A", "b", "ab", "AB", "Abba", "e", "é", "É", "naïve", "Naive", "Ångström"),
    *(
        "%",
        "_",
        "\\",
        "a%b",
        "a_b",
        "a\\b",
        "100%",
        "%s",
        "$1",
        "'",
        '"',
        "null",
        "true",
        "1",
        "1.5",
        "7",
    ),
)
CSVS = ("", "a", "a,b", "A,b%", "é,_", "1")
KEYS = ("a", "A", "b", "é", "a%", "a_", "\\", "x y")
UUIDS = tuple(
    f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "0129abcf"
)

ROWS: Mapping[str, tuple[Any, ...]] = {
    "string": TEXTS,
    "integer": (-1, 0, 1, 2, 2**31 - 1),
    "decimal": ("0", "1", "1.5", "1.50", "-2.25", "0.0001", "100000000000000000000.01"),
    "boolean": (True, False),
    "date": ("2024-02-29", "2024-12-30", "1999-12-31", "2021-01-03", "2000-01-01"),
    "timestamp": (
        *("2024-02-29T23:30:00Z", "2024-12-30T00:00:00.123Z", "2021-01-03T12:34:59.900Z"),
        *("1999-12-31T22:30:00-02:00", "2000-01-01T00:30:00Z"),
    ),
    "uuid": UUIDS[:4],
    "csv": CSVS,
    "json": ([], {}, "", "a", 0, False, [1, 2], [None], {"a": [1, {"b": None}]}, [[], {}, "é"]),
    "hash": ("", "secret"),
}

OPERANDS: Mapping[str, tuple[Any, ...]] = {
    **{kind: ROWS[kind] for kind in ("string", "integer", "boolean", "date")},
    "decimal": (0, 1, 1.5, -2.25, "1.500", "0.0001", "100000000000000000000.01"),
    "timestamp": (*ROWS["timestamp"], "2000-01-01T00:30:00", "2024-12-30T01:00:00.123+01:00"),
    "uuid": (*UUIDS[:3], UUIDS[3].upper(), UUIDS[-1].upper()),
    "csv": (*CSVS, ",", "b"),
}

NOWHERE = "99"
"""The key of no item, for the many-to-any column, which no foreign key keeps from pointing to it.
"""

PARTS = (0, 1, 2, 3, 6, 12, 29, 30, 52, 59, 1999, 2000, 2024)
"""What a function may be compared with."""

WORDS = (
    "a",
    "A",
    "AB",
    "e",
    "É",
    "naive",
    "Å",
    "%",
    "_",
    "\\",
    "1",
    "1.5",
    "1.50",
    "7",
    "'",
    UUIDS[1].upper(),
    "a e",
    "1 a",
    "É \\",
)
