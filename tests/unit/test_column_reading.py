"""Rows read column by column equal rows read one by one."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.header import (
    COLUMN_PARSERS,
    parse_json,
    parse_json_or_text,
    parse_number,
)
from cms.items.transfer.sources import SourceColumn, _parse_row, read_csv
from cms.query.sql.arguments import array
from cms.schema import payload, types
from cms.schema.model import Collection, Field, Kind
from cms.schema.model import Column as Stored
from cms.schema.payload import ItemParser
from cms.schema.types import ALIAS, type_of_base_type
from cms.schema.types.field_type import FieldType
from tests.examples import example_count

TYPES = {
    "title": ("string", "varchar", 3),
    "body": ("text", "text", None),
    "small": ("integer", "int2", None),
    "count": ("integer", "int4", None),
    "large": ("bigInteger", "int8", None),
    "price": ("decimal", "numeric", None),
    "live": ("boolean", "bool", None),
    "tags": ("csv", "text", None),
    "more": ("json", "json", None),
    "password": ("hash", "varchar", 100),
}
SOUND = {
    "title": st.none() | st.text("ab'\"\\,é", max_size=3),
    "body": st.none() | st.text("ab'\"\\,é"),
    "small": st.none() | st.integers(-(2**15), 2**15 - 1),
    "count": st.none() | st.integers(-(2**31), 2**31 - 1),
    "large": st.none() | st.integers(-(2**63), 2**63 - 1),
    "price": st.none() | st.decimals(-9, 9, places=2),
    "live": st.none() | st.booleans(),
    "tags": st.none() | st.lists(st.sampled_from("ab"), max_size=2),
    "more": st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(-9, 9), max_size=2),
}
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 2**15, 2**31, 2**63, -(2**15) - 1, -(2**31) - 1, -(2**63) - 1]),
    st.sampled_from(["", "abc", "abcd", "a\0", "1", "true", "1.5"]),
    st.decimals(allow_nan=False, allow_infinity=False, places=1),
    st.just([]) | st.just({}) | st.just({"a": 1}),
)
TEXTS = st.sampled_from(["", "abc", "abc", "abcd", "a\0"])
WHOLE = st.sampled_from(
    [0, *(limit + step for n in (15, 31, 63) for limit in (2**n, -(2**n)) for step in (-1, 0))]
)
USUAL = {
    **dict.fromkeys(("title", "body"), TEXTS),
    **dict.fromkeys(("small", "count", "large"), WHOLE),
}
ODD = {**dict.fromkeys([*TYPES, "many", "none"], ANYTHING), "password": st.none() | st.just([])}
examples = settings(max_examples=example_count(200), deadline=None)


def type_of(name: str, base: str) -> FieldType:
    """Return the type of a column; special markers make some types of text."""
    own = type_of_base_type(base)
    return own if own.name == name else types.TYPES[name]


def collection() -> Collection:
    def stored(name: str, base: str, max_length: int | None) -> Stored:
        return Stored(name, base, base, None, max_length, None, None, True, False, False, None)

    fields = {
        name: Field("things", name, type_of(kind, base), (), stored(name, base, max_length))
        for name, (kind, base, max_length) in TYPES.items()
    }
    return Collection(
        "things", Kind.TABLE, {**fields, "many": Field("things", "many", ALIAS, (), None)}, None
    )


THINGS = collection()


def reader() -> ItemParser:
    return ItemParser(THINGS, lambda name: name == "many")


def rows(
    values: Mapping[str, st.SearchStrategy[object]],
) -> st.SearchStrategy[list[dict[str, object]]]:
    def of(names: list[str]) -> st.SearchStrategy[list[dict[str, object]]]:
        cells = st.tuples(*(values[name] for name in names))
        return st.lists(
            cells.map(lambda row: dict(zip(names, row, strict=True))), min_size=1, max_size=6
        )

    return st.lists(st.sampled_from(sorted(values)), unique=True, min_size=1, max_size=4).flatmap(
        of
    )


@examples
@given(rows(SOUND))
def test_sound_items_that_are_alike_are_read_column_by_column(
    items: list[dict[str, object]],
) -> None:
    assert reader().read_columns(items) == [reader().read(item).values for item in items]


@examples
@given(st.lists(rows(ODD), max_size=2) | st.lists(rows(USUAL), max_size=1))
def test_other_items_are_read_one_by_one(several: list[list[dict[str, object]]]) -> None:
    items = [item for some in several for item in some]
    columns = reader().read_columns(items)
    entries = [reader().read(item) for item in items]
    if columns is not None:
        assert columns == [entry.values for entry in entries]
        assert not any(entry.nested or entry.problems for entry in entries)


def test_items_that_are_read_one_by_one_are_not_read_by_columns_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(values: Sequence[object]) -> Sequence[str | None]:
        raise AssertionError("read in vain")

    monkeypatch.setattr(payload, "column_converter", lambda column_type, one: refuse)
    assert reader().read_columns([{}] * 2) == [{}, {}]
    assert reader().read_columns([{"title": "a", "many": []}] * 2) is None
    assert reader().read_columns([{"title": "a", "password": "b"}] * 2) is None


CELLS = (
    "",
    "a",
    "'a",
    "'=a",
    "=a",
    "7",
    "07",
    "-7",
    "1.5",
    "٧",
    "x" * 18,
    "1" * 17,
    "1" * 18,
    "[1]",
    "{",
    "{}",
    "\n",
)
WAYS = [
    SourceColumn(f"c{n}", cell, COLUMN_PARSERS.get(cell))
    for n, cell in enumerate((unescape_formula, parse_number, parse_json, parse_json_or_text))
]
WAYS.append(SourceColumn("list", parse_json, takes_null=False))


@examples
@given(st.lists(st.lists(st.sampled_from(CELLS), min_size=4, max_size=6), max_size=6))
def test_cells_are_read_column_by_column_as_one_by_one(table: list[list[str]]) -> None:
    _compare(table, WAYS)


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@examples
@given(table=st.lists(st.tuples(st.sampled_from(CELLS[1:])), max_size=6))
def test_cells_of_one_column_are_read_as_one_by_one(
    way: SourceColumn, table: list[tuple[str]]
) -> None:
    _compare(table, [way])


def _compare(table: Sequence[Sequence[str]], ways: list[SourceColumn]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["head"] * len(ways), *table])
    read_rows = list(
        read_csv(io.BytesIO(text.getvalue().encode()), 1_000, lambda names, line: ways)
    )
    with_content = [
        cells if any(cells[len(ways) :]) else cells[: len(ways)] for cells in table if any(cells)
    ]
    assert len(read_rows) == len(with_content)
    for row, cells in zip(read_rows, with_content, strict=True):
        alone = _parse_row(ways, row.line, row.size, list(cells))
        assert row == alone
        assert repr(row) == repr(alone)  # 1 and True are equal


@examples
@given(st.lists(st.none() | st.text('ab",\\{} é')))
def test_an_array_is_put_together_the_same_in_both_ways(values: list[str | None]) -> None:
    together = array(values)
    one_by_one = array([*values, None])
    assert one_by_one == (f"{together[:-1]},NULL}}" if values else "{NULL}")


@pytest.mark.parametrize(
    ("kind", "special"), [("hash", ()), ("string", ("digest",)), ("string", ("digest", "conceal"))]
)
def test_what_is_kept_as_a_digest_is_never_read_as_it_is(
    kind: str, special: tuple[str, ...]
) -> None:
    stored = THINGS.fields["body"].column
    things = Collection(
        "things",
        Kind.TABLE,
        {"key": Field("things", "key", types.TYPES[kind], special, stored)},
        None,
    )
    columns = ItemParser(things, lambda name: False).read_columns(
        [{"key": "secret"}, {"key": "other"}]
    )
    assert columns is None or all(
        "secret" not in str(row) and "other" not in str(row) for row in columns
    )


def test_a_number_that_is_no_int_is_read_by_its_type() -> None:
    assert reader().read_columns([{"count": 1}, {"count": Decimal("2.0")}]) == [
        {"count": "1"},
        {"count": "2"},
    ]
