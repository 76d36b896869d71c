"""Regular expressions take time that is linear in the text, whatever the text is."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cms

parser: Any = importlib.import_module("re._parser")

METHODS = {"fullmatch", "match", "search", "finditer", "findall", "sub", "split"}
ALPHABET = ' a0-."\\<'
SIZES = (500, 2_000, 12_000)
NOT_REQUESTS = ("cms.cli", "cms.config", "cms.embedded", "cms.backup", "cms.database.statements")
"""Modules that read what the operator has written: commands, settings, files of the service."""

USES = {
    use
    for path in Path(cms.__path__[0]).rglob("*.py")
    for use in re.findall(rf"\b(\w+)\.({'|'.join(METHODS)})\(", path.read_text())
}
"""The names of patterns in the code, each with a method that is called."""


def used_methods(name: str) -> set[str]:
    """Return how the code uses a pattern; one that is handed on is matched as a whole."""
    return {method for used, method in USES if used == name} or {"fullmatch"}


def patterns() -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    """Yield every pattern of text: those of modules, and those that stand in calls of `re`."""
    for module_info in pkgutil.walk_packages(cms.__path__, "cms."):
        if module_info.name.startswith(NOT_REQUESTS) or module_info.name.endswith("__main__"):
            continue
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                yield f"{module_info.name}.{name}", value, used_methods(name)
        if module.__file__:
            yield from inline_patterns(module_info.name, Path(module.__file__))


def inline_patterns(name: str, path: Path) -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(ast.Attribute(ast.Name("re"), method), [ast.Constant(str(text)), *_]):
                if method in METHODS:
                    yield f"{name}:{node.lineno}", re.compile(text), {method}


PATTERNS = {name: (pattern, methods) for name, pattern, methods in patterns()}


def accepted(charset: Any) -> list[str]:
    """Return the characters of the alphabet, and those named by the set, that a set takes."""
    named = [chr(value) for kind, value in charset if str(kind) == "LITERAL"]
    named += [chr(value[0]) for kind, value in charset if str(kind) == "RANGE"]
    return [character for character in [*named[:4], *ALPHABET] if takes(charset, character)]


def takes(charset: Any, character: str) -> bool:
    negated = False
    taken = False
    for kind, value in charset:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                taken |= chr(value) == character
            case "RANGE":
                taken |= value[0] <= ord(character) <= value[1]
            case "CATEGORY":
                taken |= bool(re.fullmatch(CATEGORIES[str(value)], character))
    return taken != negated


CATEGORIES = {
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def sample(tree: Any) -> str:
    """Return a short text that a part of a pattern matches."""
    return "".join(one_of(str(kind), value) for kind, value in tree)


def one_of(kind: str, value: Any) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "ANY" | "NOT_LITERAL":
            return "e" if value != ord("e") else "a"
        case "IN":
            return next(iter(accepted(value)), "")
        case "BRANCH":
            return sample(value[1][0])
        case "SUBPATTERN":
            return sample(value[-1])
        case "ATOMIC_GROUP":
            return sample(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return sample(value[2]) * max(int(value[0]), 1)
        case _:
            return ""


def repeated_parts(tree: Any, before: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield every part that may be repeated, as what stands before it, and what it may hold."""
    for kind, value in tree:
        match str(kind):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                inner = value[2]
                if len(inner) == 1 and str(inner[0][0]) == "IN":
                    yield before, accepted(inner[0][1])
                else:
                    yield before, [sample(inner)]
                yield from repeated_parts(inner, before)
            case "SUBPATTERN":
                yield from repeated_parts(value[-1], before)
            case "ATOMIC_GROUP":
                yield from repeated_parts(value, before)
            case "BRANCH":
                for branch in value[1]:
                    yield from repeated_parts(branch, before)
        before += one_of(str(kind), value)


def hostile_texts(pattern: re.Pattern[str]) -> Iterator[Callable[[int], str]]:
    """Yield texts of any size that a pattern could read in many ways, or from many starts."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    whole = sample(tree)
    for before, pieces in [*repeated_parts(tree), ("", [whole, whole[:-1]])]:
        for piece in filter(None, dict.fromkeys([*pieces, before])):
            yield partial(hostile_text_of, before, piece)


def hostile_text_of(start: str, piece: str, size: int) -> str:
    # Hardly any pattern takes such an end.
    return f"{start}{piece * (size // len(piece))} \0"


def seconds(pattern: re.Pattern[str], method: str, text: str) -> float:
    """Return the processor time of one use of a pattern."""
    started = time.process_time()
    if method in ("sub", "split", "findall", "finditer"):
        pattern.subn("", text)
    else:
        getattr(pattern, method)(text)
    return time.process_time() - started


def grows_faster_than_the_text(
    pattern: re.Pattern[str], method: str, text_of: Callable[[int], str]
) -> bool:
    for size in SIZES:
        # What is linear takes a hundredth of this. If it took more, the machine was busy: then the
        # growth decides, from a quarter of the text to all of it.
        if seconds(pattern, method, text_of(size)) > 0.02:
            short_run = min(seconds(pattern, method, text_of(size // 4)) for _ in range(3))
            long_run = min(seconds(pattern, method, text_of(size)) for _ in range(3))
            if long_run > 8 * short_run:
                return True
    return False


def hostile_text(pattern: re.Pattern[str], methods: set[str]) -> str | None:
    """Return the beginning of a text for which a pattern takes more than linear time."""
    for text_of in hostile_texts(pattern):
        for method in sorted(methods):
            if grows_faster_than_the_text(pattern, method, text_of):
                return text_of(20)
    return None


@pytest.mark.release
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_takes_linear_time(name: str) -> None:
    pattern, methods = PATTERNS[name]
    assert hostile_text(pattern, methods) is None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\$NOW(?:\(\s*([+-]?\s*[0-9]{1,9})\s*([a-z]+)\s*\))?", "fullmatch"),
        (r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})", "fullmatch"),
        (r"https?://[^\s/]+\S*", "fullmatch"),
        (r"\{\{.*?\}\}", "sub"),
        (r"\{\{\s*([^{}]+?)\s*\}\}", "findall"),
        (r"<!--.*?-->|<script.*?</script>", "sub"),
    ],
)
def test_a_quadratic_pattern_is_found(pattern: str, method: str) -> None:
    assert hostile_text(re.compile(pattern), {method}) is not None
