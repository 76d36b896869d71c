"""What each type takes, and what a column can hold."""

from __future__ import annotations

import base64
import uuid
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.schema.definitions import KNOWN_SPECIALS
from cms.schema.types import TYPES, VARIANTS, type_of_base_type, type_of_column
from cms.schema.types.field_type import OutOfRange, Trait

ANYTHING: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.decimals(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()),
)


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", TYPES)
@given(value=ANYTHING)
def test_any_value_is_taken_as_text_or_refused_with_a_reason(name: str, value: object) -> None:
    with suppress(ValueError):
        assert isinstance(TYPES[name].parse(value), str)


@pytest.mark.parametrize("name", [name for name in TYPES if name not in ("json", "binary", "hash")])
@given(value=ANYTHING)
def test_what_was_taken_is_taken_again_as_the_same(name: str, value: object) -> None:
    parse = TYPES[name].parse
    try:
        parsed = parse(value)
    except ValueError:
        return
    assert parse(parsed) == parsed


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_are_taken_in_every_form(number: int) -> None:
    parse = TYPES["bigInteger"].parse
    assert (
        parse(number)
        == parse(str(number))
        == parse(Decimal(number))
        == parse(f" {number}.0 ")
        == str(number)
    )


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=30, min_value=-(10**40), max_value=10**40
    )
)
def test_decimals_keep_every_digit(number: Decimal) -> None:
    assert Decimal(TYPES["decimal"].parse(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_stay_what_they_are(number: float) -> None:
    assert float(TYPES["float"].parse(Decimal(repr(number)))) == number


@given(st.dates())
def test_dates(day: date) -> None:
    assert TYPES["date"].parse(day.isoformat()) == day.isoformat()


@given(st.times())
def test_times(moment: time) -> None:
    assert time.fromisoformat(TYPES["time"].parse(moment.isoformat())) == moment


@given(
    st.datetimes(
        timezones=st.timezones(), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)
    )
)
def test_moments_with_a_zone_are_turned_to_utc(moment: datetime) -> None:
    timestamp = datetime.fromisoformat(TYPES["timestamp"].parse(moment.isoformat()))
    local = datetime.fromisoformat(TYPES["datetime"].parse(moment.isoformat()))
    assert abs((timestamp - moment).total_seconds()) < 1e-6
    assert local.replace(tzinfo=UTC) == timestamp


@given(st.uuids())
def test_uuids_are_lower_case_with_hyphens(key: uuid.UUID) -> None:
    for form in (str(key), str(key).upper(), key.hex):
        assert TYPES["uuid"].parse(form) == str(key)


@given(st.binary())
def test_binary(raw: bytes) -> None:
    assert TYPES["binary"].parse(base64.b64encode(raw).decode()) == "\\x" + raw.hex()


@given(st.lists(st.text(st.characters(exclude_characters=",\0"), min_size=1)))
def test_csv(entries: list[str]) -> None:
    assert TYPES["csv"].parse(entries) == ",".join(entries)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("integer", 2**63),
        ("bigInteger", Decimal("1e400")),
        ("float", Decimal("1e309")),
        ("float", "1e-400"),
        ("decimal", Decimal("1e131072")),
        ("decimal", Decimal("1e-16384")),
        ("timestamp", "+294277-01-01T00:00:00Z"),
    ],
)
def test_what_is_beyond_a_type_is_out_of_range(name: str, value: object) -> None:
    with pytest.raises(OutOfRange):
        TYPES[name].parse(value)


@pytest.mark.parametrize(
    ("base_type", "sizes", "inside", "beyond"),
    [
        ("int2", (None, None), ("32767", "-32768"), ("32768", "-32769")),
        ("int4", (None, None), ("2147483647",), ("2147483648",)),
        ("float4", (None, None), ("3.4028235e38", "1e-45", "0"), ("3.41e38", "-1e39", "1e-46")),
        ("numeric", (5, 2), ("999.994", "-999.99", "1e-999"), ("999.995", "1000", "1e999999")),
        ("numeric", (2, 2045), ("99000", "99499"), ("99500", "100000")),
        ("numeric", (3, 5), ("0.00999", "-0.00123"), ("0.01",)),
    ],
)
def test_a_column_holds_what_fits_after_rounding(
    base_type: str,
    sizes: tuple[int | None, int | None],
    inside: tuple[str, ...],
    beyond: tuple[str, ...],
) -> None:
    in_range = type_of_base_type(base_type).range_test(*sizes)
    assert in_range
    assert [text for text in inside if not in_range(text)] == []
    assert [text for text in beyond if in_range(text)] == []


@pytest.mark.parametrize("base_type", ["int8", "numeric", "text"])
def test_a_column_without_a_range_of_its_own_holds_what_its_type_takes(base_type: str) -> None:
    assert type_of_base_type(base_type).range_test(None, None) is None


@pytest.mark.parametrize(
    ("base", "data", "special", "name"),
    [
        ("varchar", "character varying(255)", (), "string"),
        ("text", "text", ("cast-csv",), "csv"),
        ("varchar", "character varying(255)", ("hash",), "hash"),
        ("jsonb", "jsonb", (), "json"),
        ("int2", "smallint", (), "integer"),
        ("_int4", "integer[]", (), "unknown"),
        ("geometry", "geometry(Point,4326)", (), "geometry.Point"),
        ("geometry", "geometry(CircularString,4326)", (), "geometry"),
    ],
)
def test_the_type_of_a_column(base: str, data: str, special: tuple[str, ...], name: str) -> None:
    assert type_of_column(base, data, special).name == name


def test_every_type_of_a_column_has_one_field_type() -> None:
    every = (*TYPES.values(), *VARIANTS)
    base_types = [base_type for field_type in every for base_type in field_type.base_types]
    assert len(base_types) == len(set(base_types))
    assert {field_type.name for field_type in VARIANTS} <= TYPES.keys()


def test_every_marker_of_a_type_is_one_that_fields_may_have() -> None:
    for field_type in (*TYPES.values(), *VARIANTS):
        assert field_type.markers <= set(KNOWN_SPECIALS)
        assert not field_type.marker or field_type.marker in field_type.markers
        assert not field_type.marked_types or field_type.marker


def test_every_trait_is_one_of_a_type_and_needed_by_something() -> None:
    traits = {trait for field_type in (*TYPES.values(), *VARIANTS) for trait in field_type.traits}
    assert traits == set(Trait)


def test_every_new_field_has_a_column_that_reads_back_as_its_type() -> None:
    for name, field_type in TYPES.items():
        assert bool(field_type.column_sql) == (name not in ("alias", "unknown"))
        if field_type.size_settings:
            sizes = range(1, len(field_type.size_settings) + 1)
            assert field_type.sized_column_sql.format(*sizes).endswith(")")
