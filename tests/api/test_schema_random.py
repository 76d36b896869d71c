"""Whatever the structures: a snapshot leads an empty service, or one with another, to itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from random import Random

import pytest

from cms.schema_sync.comparison import differences
from tests.api.snapshots import snapshot
from tests.client import Client
from tests.structures import Json, make_structure
from tests.things import Stage

SEEDS = range(6)


def gap(client: Client, target: Json) -> list[Json]:
    """Return what the structure still lacks of a snapshot, its derived members included."""
    present = snapshot(client)
    gaps: list[Json] = []
    for section in ("collections", "fields", "relations"):
        pairs: Iterable[tuple[Json, Json]]
        pairs = zip_longest(present[section], target[section], fillvalue={})
        for one, other in pairs:
            for entry in differences(one, other):
                gaps.append({"in": other.get("collection"), **entry.as_entry()})
    return gaps


def lead(client: Client, target: Json) -> None:
    """Apply the diff to a snapshot, which is then reached: another diff is empty."""
    answer = client.post("/schema/diff", target)
    if answer.status == 204:
        assert gap(client, target) == []
        return
    applied = client.post("/schema/apply?allow_destructive=true", answer.data)
    assert applied.status == 204, (applied.text, answer.data)
    assert gap(client, target) == []
    assert client.post("/schema/diff", target).status == 204
    assert client.post("/schema/apply", answer.data).status == 204
    assert snapshot(client) == target


@pytest.mark.release
@pytest.mark.parametrize("seed", SEEDS)
def test_every_diff_of_two_structures_leads_from_one_to_the_other(
    stage: Stage, other_stage: Stage, seed: int
) -> None:
    random = Random(seed)
    empty = {**snapshot(stage.admin), "collections": [], "fields": [], "relations": []}
    lead(stage.admin, empty)
    make_structure(stage.admin, random)
    one = snapshot(stage.admin)
    lead(stage.admin, empty)
    make_structure(stage.admin, random)
    two = snapshot(stage.admin)
    for target in (empty, one, two, one, empty):
        lead(other_stage.admin, target)
