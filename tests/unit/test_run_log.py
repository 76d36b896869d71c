"""What logs of runs keep of values that are too large for them, and what that takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from cms.flows.redaction import Secrets
from cms.flows.run_log import run_log
from cms.text_shapes import MASK

SECRET = "hunter2-correct-horse"


def value_of(size: int) -> dict[str, object]:
    rows = [{"id": number, "title": f"Row {number} of {SECRET}"} for number in range(size)]
    return {"token": SECRET, "rows": rows}


def log_of(value: object) -> str:
    secrets = Secrets()
    secrets.collect(value)
    data = run_log(value, (), None, secrets).data
    assert data is not None
    return data


def calls_of_log(value: object) -> int:
    """Return how many functions `cms/flows` calls for the log of a value."""
    secrets = Secrets()
    secrets.collect(value)
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        # A parser of JSON reads the whole of a text, and calls Python for its numbers.
        count += event in ("call", "c_call") and "/flows/" in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        run_log(value, (), None, secrets)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.release
@pytest.mark.parametrize("shape", [lambda value: value, json.dumps, lambda value: [str(value)]])
def test_of_a_large_value_the_log_looks_at_the_beginning_only(
    shape: Callable[[object], object],
) -> None:
    assert calls_of_log(shape(value_of(40_000))) < 1.1 * calls_of_log(shape(value_of(4_000)))


def test_of_a_large_text_that_is_json_the_beginning_is_kept_without_secrets() -> None:
    # The numbers take many more characters than they were written with.
    numbers = ",".join(["1e15"] * 1_500)
    text = f'{{"pin":"{SECRET}","numbers":[{numbers}],"password":"abc"}}'
    for rows in (value_of(4_000), {"tokens": [SECRET] * 4_000}):
        log = log_of(json.dumps(rows))
        assert MASK in log
        assert SECRET not in log
        assert " …" in log
    assert "abc" not in log_of(text)


def test_the_beginning_is_kept_without_secrets_and_the_size_is_reported() -> None:
    log = log_of(value_of(4_000))
    assert f'\\"token\\":\\"{MASK}\\"' in log
    assert SECRET not in log
    assert f"Row 100 of {MASK}" in log
    assert "Row 3999" not in log
    assert log.endswith(' bytes"')


def test_a_value_that_is_too_deep_and_too_large_is_cut() -> None:
    deep: object = [SECRET] * 10_000
    for _ in range(300):
        deep = {"password": SECRET, "a": [deep]}
    log = log_of(deep)
    assert SECRET not in log
    assert MASK in log
