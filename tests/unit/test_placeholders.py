"""The placeholders of display templates."""

from __future__ import annotations

import pytest

from cms.schema.references import placeholders


@pytest.mark.parametrize(
    ("template", "paths"),
    [
        ("{{name}}", ["name"]),
        ("{{ author.name }}, {{\n id\t}}", ["author.name", "id"]),
        ("{{year(born)}} {{a b}}", ["year(born)", "a b"]),
        ("{{{name}}}", ["name"]),
        ("{{}} {{ }} {name} {{name}", []),
    ],
)
def test_what_stands_in_a_placeholder_is_a_path(template: str, paths: list[str]) -> None:
    assert placeholders(template) == paths


@pytest.mark.parametrize("end", ["", "a", "}", "{{"])
def test_a_template_with_a_million_spaces_is_read_once(end: str) -> None:
    assert placeholders("{{" + " " * 1_000_000 + end) == []
    assert placeholders("{{a" + " " * 1_000_000 + end) == []
