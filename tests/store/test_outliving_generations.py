"""Requests that began before several changes share caches with later ones, and neither sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

import pytest

from cms.items.read.prepare import ReadRequest
from cms.store.actors import find_actor
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot
from tests.store import test_outliving_changes
from tests.store.test_changed_structure import CHANGES, TABLES, written
from tests.store.test_outliving_changes import (
    OTHERS,
    QUERIES,
    ROLES,
    RULES,
    Installation,
    fresh,
    installation,
)
from tests.store.test_outliving_writes import FLOW, operations, planned

__all__ = ["installation"]

MORE_RULES = (
    {"c.x": {"_eq": 1}},
    {"c.x": {"_eq": True}},
    {"_or": [{"c.x": {"_in": [1, 2]}}, {"b": {"_eq": "glad"}}]},
    {"_or": [{"c.x": {"_in": [True, 2]}}, {"b": {"_eq": "glad"}}]},
)
VALIDATIONS = (None, {"a": {"_gt": 1}}, {"b": {"_nnull": True}}, {"b": {"_eq": "x"}})
PRESETS = (None, {"b": "glad"}, {"a": 1}, {"b": "$CURRENT_USER"})


@dataclass(frozen=True)
class Generation:
    """The snapshot of a process at one time, and one of the same time that shares nothing."""

    shared: Snapshot
    alone: Snapshot


def generation(installation: Installation, before: Snapshot) -> Generation:
    shared = installation.snapshots.refresh(before)
    alone = fresh(installation)
    assert shared.version == alone.version
    fetch = installation.client.app.store.database.fetch
    # Callers are looked up at once: later the counters are others.
    for role in ROLES:
        for snapshot in (shared, alone):
            find_actor(snapshot, Identity(role=role), fetch)
    return Generation(shared, alone)


def change(installation: Installation, random: Random) -> None:
    values: tuple[Any, ...]
    match random.randrange(7):
        case 0 | 1 | 2:
            installation.change_rights(random)
        case 3:
            installation.connection.execute(
                b"UPDATE system_flows SET status = "
                b"CASE status WHEN 'active' THEN 'inactive' ELSE 'active' END"
            )
        case 4:
            column = random.choice(("validation", "presets"))
            value = random.choice(VALIDATIONS if column == "validation" else PRESETS)
            values = (json.dumps(value), random.choice(ROLES), random.choice(TABLES))
            installation.connection.execute(
                f"UPDATE system_permissions SET {column} = %s "
                "WHERE role = %s AND collection = %s AND id % 2 = 0".replace(
                    "% 2", "%% 2"
                ).encode(),
                values,
            )
        case _:
            installation.attempt(written(random, random.choice(CHANGES)))


@pytest.mark.release
@pytest.mark.parametrize("seed", range(4))
def test_every_generation_has_the_statements_of_its_own_time(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    monkeypatch.setattr(test_outliving_changes, "RULES", (*RULES, *MORE_RULES))
    assert installation.client.post("/flows", FLOW).status == 200
    for role, table, action in product(ROLES, TABLES, ("read", "create", "update", "delete")):
        installation.connection.execute(
            b"INSERT INTO system_permissions (role, collection, action, permissions, fields) "
            b"VALUES (%s, %s, %s, NULL, '[\"*\"]')",
            (role, table, action),
        )
    writes = list(product((None, *ROLES), product(TABLES, list(operations()))))
    reads = [
        (caller, ReadRequest(table, query))
        for caller, table, query in product((None, *ROLES), (*TABLES, *OTHERS), QUERIES)
    ]
    generations = [generation(installation, installation.snapshots.current())]
    for _ in range(14):
        change(installation, random)
        generations.append(generation(installation, generations[-1].shared))
        for caller, write in random.sample(writes, 40):
            # The last one after an older one, which has just put its own into the caches.
            for one in (random.choice(generations), generations[-1]):
                kept = planned(installation, one.shared, caller, write)
                assert kept == planned(installation, one.alone, caller, write), (caller, write)
        for caller, read in random.sample(reads, 60):
            for one in (random.choice(generations), generations[-1]):
                kept = installation.statement(one.shared, caller, read)
                assert kept == installation.statement(one.alone, caller, read), (caller, read)
