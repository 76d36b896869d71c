"""Names of fields: parsed once, written as they came."""

from __future__ import annotations

import pytest

from cms.schema.names import DottedName, FieldName, dotted_name, invalid_name_reason, parse_name


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("title", FieldName("title"), "title"),
        ("item:headings", FieldName("item", target="headings"), "item"),
        ("a:b:c", FieldName("a", target="b:c"), "a"),
        ("item:", FieldName("item", target=""), "item"),
        ("year(published)", FieldName("published", "year"), "published_year"),
        ("count(item:headings)", FieldName("item", "count", "headings"), "item:headings_count"),
        ("YEAR(published)", FieldName("YEAR(published)"), "YEAR(published)"),
        ("year()", FieldName("year()"), "year()"),
        ("", FieldName(""), ""),
    ],
)
def test_a_name_is_a_field_with_its_function_and_target(
    text: str, name: FieldName, key: str
) -> None:
    assert parse_name(text) == name
    assert name.key == key
    assert str(name) == text


def test_a_step_of_a_path_has_no_function() -> None:
    assert FieldName.parse("year(item:headings)") == FieldName("year(item", target="headings)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("meta", None),
        ("c.d", None),
        ("meta.a.b", DottedName(FieldName("meta"), ("a", "b"))),
        ("c.d.e", DottedName(FieldName("c.d"), ("e",))),
        ("f:g.h", DottedName(FieldName("f:g"), ("h",))),
        ("item:headings.title", DottedName(FieldName("item", target="headings"), ("title",))),
        ("x.y.z", DottedName(FieldName("x"), ("y", "z"))),
        ("meta..", DottedName(FieldName("meta"), ("", ""))),
        ("x" + ".y" * 100, DottedName(FieldName("x"), ("y",) * 100)),
    ],
)
def test_the_longest_name_of_a_field_is_taken_off_a_path(
    text: str, expected: DottedName | None
) -> None:
    fields = {"meta", "c", "c.d", "f:g", "item"}
    assert dotted_name(FieldName.parse(text), fields.__contains__) == expected


def test_a_function_stays_with_both_parts_of_a_path() -> None:
    dotted = dotted_name(parse_name("year(author.born)"), {"author"}.__contains__)
    assert dotted == DottedName(FieldName("author", "year"), ("born",))
    assert dotted.rest == FieldName("born", "year")


def test_a_name_that_is_refused_is_told_which_letters_it_may_have() -> None:
    assert invalid_name_reason("groesse") is None
    reason = invalid_name_reason("größe")
    assert reason is not None
    assert "from a to z" in reason
