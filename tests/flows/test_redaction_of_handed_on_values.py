"""Values that operations hand on are searched for secrets once, and no less exactly for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.flows import redaction
from cms.flows.redaction import MAX_DEPTH, Secrets

SECRET = "hunter2-correct-horse"
ROW = {"title": "50% off", "password": SECRET}


class CountingList(list[object]):
    """A list that counts how often it is walked through."""

    walks = 0

    def __iter__(self) -> Iterator[object]:
        self.walks += 1
        return super().__iter__()


def test_a_large_value_that_is_handed_on_is_searched_once() -> None:
    rows = CountingList(dict(ROW) for _ in range(redaction._LARGE))
    secrets = Secrets()
    for _ in range(40):
        secrets.collect({"json": [rows, rows]})
        secrets.collect(rows)
    assert rows.walks == 1
    assert SECRET in secrets


def test_a_large_value_under_the_name_of_a_secret_is_one() -> None:
    rows = ["50%"] * redaction._LARGE + [SECRET]
    secrets = Secrets()
    secrets.collect(rows)
    assert SECRET not in secrets
    secrets.collect({"password": rows})
    assert SECRET in secrets


def test_a_large_value_as_a_query_is_searched_for_more_names() -> None:
    values = {"key": SECRET, "50%": ["a title"] * redaction._LARGE}
    secrets = Secrets()
    secrets.collect(values)
    assert SECRET not in secrets
    secrets.collect({"query": values})
    assert SECRET in secrets


def test_a_value_that_was_too_deep_to_be_searched_is_searched_further_up() -> None:
    value: object = [{"token": SECRET}, *["50%"] * redaction._LARGE]
    deep: object = value
    for _ in range(MAX_DEPTH):
        deep = [deep]
    secrets = Secrets()
    secrets.collect(deep)
    assert SECRET not in secrets
    secrets.collect(value)
    assert SECRET in secrets


def test_of_texts_that_are_json_only_the_texts_are_kept() -> None:
    secrets = Secrets()
    numbers = range(20)
    for number in numbers:
        rows = [{"title": "a title", "token": f"{SECRET}-{number}"}] * redaction._LARGE
        secrets.collect(json.dumps({"rows": rows}))
    assert all(f"{SECRET}-{number}" in secrets for number in numbers)
    assert all(isinstance(value, str) for value in secrets._searched.values())


names = st.sampled_from(["title", "token", "query", "key", "name", "value", "headers"])
texts = st.sampled_from(["50%", "token", "secret-one", "secret-two", "secret-three"])
trees = st.recursive(
    texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(trees, min_size=1, max_size=3), st.data())
def test_values_handed_on_show_the_same_secrets_as_values_of_their_own(
    first: list[object], data: st.DataObject
) -> None:
    values = list(first)
    for _ in range(4):
        shared = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
        values.append(data.draw(st.sampled_from([shared, {data.draw(names): shared[0]}])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_LARGE", 0)
        handed_on = Secrets()
        for value in values:
            handed_on.collect(value)
    of_their_own = Secrets()
    for value in values:
        of_their_own.collect(copy.deepcopy(value))
    assert handed_on.masked(values) == of_their_own.masked(values)
