"""Names of fields: parsed once, written as they came."""

from __future__ import annotations

import pytest

from cms.schema.field_names import FieldName, parse_name


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
