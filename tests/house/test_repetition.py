"""What is known stands in one place (docs/code-map.md)."""

from __future__ import annotations

from collections import defaultdict

from tests.house.source_modules import source_modules

SHORT = 60
"""Characters of code that are no repetition yet: two functions may well call the same third one."""


def test_no_function_stands_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in source_modules("cms"):
        for function in module.functions:
            if len(function.body) >= SHORT:
                places[function.body].append(f"{module.path}: {function.name}")
    assert [names for names in places.values() if len(names) > 1] == []


def test_no_regular_expression_stands_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in source_modules("cms"):
        for pattern in module.patterns:
            places[pattern].append(str(module.path))
    assert {pattern: names for pattern, names in places.items() if len(names) > 1} == {}
