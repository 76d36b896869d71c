"""How panels find values in items, and write them in pictures."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cms.dashboards.definition.panel_queries import display_text, value_at
from cms.dashboards.pictures import cut, number_of, value_text

ITEM = {"title": "Notes", "author": {"name": "Ada"}, "published_year": 1843, "tags": ["a"]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("title", "Notes"),
        ("author.name", "Ada"),
        ("year(published)", 1843),
        ("author.missing", None),
        ("title.name", None),
        ("tags.name", None),
        ("missing", None),
    ],
)
def test_a_path_leads_to_a_value_or_nowhere(path: str, value: object) -> None:
    assert value_at(ITEM, path) == value


def test_a_display_template_shows_the_values_of_an_item() -> None:
    template = "{{ title }} by {{author.name}} ({{missing}}) {not} {{}}"
    assert display_text(template, ITEM, as_text=value_text) == "Notes by Ada (–) {not} {{}}"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (Decimal("1.5"), 1.5),
        ("-2", -2.0),
        (1e-300, 0.0),
        (10**400, None),
        (1e101, None),
        (float("nan"), None),
        (float("-inf"), None),
        ("many", None),
        (None, None),
    ],
)
def test_only_finite_numbers_are_drawn(value: object, number: float | None) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("exactly te", "exactly te"),
        ("more than ten", "more than…"),
        ("a\nb\x00c\ud800", "a b c "),
    ],
)
def test_a_text_of_a_picture_is_one_line_of_limited_length(text: str, shown: str) -> None:
    assert cut(text, 10) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (True, "yes"), (False, "no"), (0, "0"), (Decimal("1.50"), "1.50")],
)
def test_every_value_has_a_text(value: object, text: str) -> None:
    assert value_text(value) == text
