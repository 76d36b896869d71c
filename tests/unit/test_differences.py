"""Differences of JSON values lead from one to the other, and are none between equal values."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cms.schema_sync.comparison import ChangeKind, Difference, differences

LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.sampled_from("abcd"), VALUES)


def applied(record: dict[str, Any], changes: list[Difference]) -> dict[str, Any]:
    result = deepcopy(record)
    for change in changes:
        owner = result
        for key in change.path[:-1]:
            owner = owner[key]
        if change.kind is ChangeKind.DELETED:
            del owner[change.path[-1]]
        else:
            owner[change.path[-1]] = change.after
    return result


@given(RECORDS, RECORDS)
def test_differences_lead_from_one_record_to_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert repr_sorted(applied(before, list(differences(before, after)))) == repr_sorted(after)


@given(RECORDS)
def test_equal_records_have_no_differences(record: dict[str, Any]) -> None:
    assert list(differences(record, deepcopy(record))) == []


def repr_sorted(value: Any) -> str:
    if isinstance(value, dict):
        return repr([(key, repr_sorted(value[key])) for key in sorted(value)])
    if isinstance(value, list):
        return repr([repr_sorted(item) for item in value])
    return repr(value)


def test_a_number_in_a_list_is_no_boolean() -> None:
    assert len(list(differences({"a": [{"b": 1}]}, {"a": [{"b": True}]}))) == 1
