"""What a member may write, the slow way: by the plain reading of
docs/permissions.md, over rows as dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.model.rights import covers

Row = dict[str, Any]
Tables = dict[str, dict[int, Row]]
Json = dict[str, Any]

OK = 200


@dataclass(frozen=True)
class WriteGrant:
    """A permission: the fields of the rows that fulfil the rule, what a
    payload must fulfil, and what it is given.
    """

    collection: str
    action: str
    fields: tuple[str, ...]
    rule: Json = field(default_factory=dict)
    validation: Json = field(default_factory=dict)
    presets: Json = field(default_factory=dict)

    def covers(self, name: str) -> bool:
        return covers(self.fields, name)


class Refusal(Exception):
    """The status of a refused call."""


@dataclass
class WriteModel:
    """The rows, and what the member holds."""

    tables: Tables
    role: Sequence[WriteGrant]

    def do(self, call: Mapping[str, Any]) -> tuple[int, Tables]:
        """Return the status of a call (200 for whatever succeeds) and the rows after it."""
        before = deepcopy(self.tables)
        try:
            getattr(self, call["kind"])(
                **{name: part for name, part in call.items() if name not in ("kind", "single")}
            )
        except Refusal as refusal:
            self.tables = before
            return refusal.args[0], before
        return OK, self.tables

    # What there is

    def grants(self, collection: str, action: str) -> list[WriteGrant]:
        grants = [
            grant for grant in self.role if (grant.collection, grant.action) == (collection, action)
        ]
        if not grants:
            raise Refusal(403)
        return grants

    def holds(self, rule: Json, row: Row) -> bool:
        """Tell whether a row fulfils a rule; a comparison with null holds for nothing."""
        for name, test in rule.items():
            if name == "parent":
                above = self.tables["parents"].get(row["parent"])
                if above is None or not self.holds(test, above):
                    return False
            elif not _passes(test, row[name]):
                return False
        return True

    def seen(self, collection: str, row: Row, name: str | None = None) -> bool:
        """Tell whether a row, or a field of it, is there for the member."""
        return any(
            self.holds(grant.rule, row) and (name is None or grant.covers(name))
            for grant in self.role
            if (grant.collection, grant.action) == (collection, "read")
        )

    def grants_by_row(
        self, collection: str, keys: Sequence[int], action: str
    ) -> list[list[WriteGrant]]:
        """Return the permissions that hold for each row; one that cannot be read is not there."""
        grants = self.grants(collection, action)
        rows = self.tables[collection]
        by_key = [
            [grant for grant in grants if key in rows and self.holds(grant.rule, rows[key])]
            for key in keys
        ]
        lost = [key for key, holding in zip(keys, by_key, strict=True) if not holding]
        if any(key not in rows or not self.seen(collection, rows[key]) for key in lost):
            raise Refusal(404)
        if lost:
            raise Refusal(403)
        return by_key

    def may_name(self, collection: str, action: str, names: Sequence[str]) -> None:
        grants = self.grants(collection, action)
        if not all(any(grant.covers(name) for grant in grants) for name in names):
            raise Refusal(403)

    def known(self, collection: str, name: str) -> bool:
        return any(grant.collection == collection and grant.covers(name) for grant in self.role)

    # Calls

    def create(self, items: Sequence[Json]) -> None:
        written = []
        failed = []
        self.may_name("things", "create", [name for item in items for name in item])
        for item in items:
            covering = [
                grant for grant in self.grants("things", "create") if all(map(grant.covers, item))
            ]
            if not covering:
                raise Refusal(403)
            whole = {"size": None, "state": None}
            passing = [
                grant for grant in covering if _valid(grant, {**whole, **grant.presets, **item})
            ]
            if passing:
                row = {
                    "size": None,
                    "state": None,
                    "note": None,
                    "parent": None,
                    **passing[0].presets,
                    **item,
                }
                written.append((passing, row))
            else:
                failed += _broken(covering[0], {**whole, **covering[0].presets, **item})
        self.refuse_invalid("things", failed)
        for number, (passing, row) in enumerate(written):
            self.tables["things"][1000 + number] = row
            if not any(self.holds(grant.rule, row) for grant in passing):
                raise Refusal(403)

    def change(self, keys: Sequence[int], data: Json) -> None:
        self.may_name("things", "update", list(data))
        grants = self.grants_by_row("things", keys, "update")
        for key, passing in zip(keys, self.permitted("things", data, grants), strict=True):
            for grant in reversed(passing):
                self.tables["things"][key] |= {
                    name: preset for name, preset in grant.presets.items() if name not in data
                }
            self.tables["things"][key] |= data
        self.fulfil("things", keys, list(data))

    def change_filtered(self, state: str, data: Json) -> None:
        self.may_name("things", "update", list(data))
        self.may_name("things", "read", ["state"])
        rows = self.tables["things"].items()
        keys = [
            key for key, row in rows if row["state"] == state and self.seen("things", row, "state")
        ]
        if keys:
            self.change(keys, data)

    def delete(self, keys: Sequence[int]) -> None:
        self.grants_by_row("things", keys, "delete")
        for key in keys:
            del self.tables["things"][key]

    def unlink(self, parent: int, key: int) -> None:
        """Take a thing out of the list of its parent."""
        self.may_name("parents", "update", ["things"])
        self.may_name("things", "read", ["id", "parent"])
        row = self.tables["things"].get(key)
        there = (
            row is not None
            and row["parent"] == parent
            and all(self.seen("things", row, n) for n in ("id", "parent"))
        )
        self.permitted("parents", {"things": 0}, self.grants_by_row("parents", [parent], "update"))
        if row is None or not there:
            raise Refusal(400)
        (passing,) = self.permitted(
            "things", {"parent": None}, self.grants_by_row("things", [key], "update")
        )
        for grant in reversed(passing):
            row |= grant.presets
        row["parent"] = None
        self.fulfil("parents", [parent], ["things"])
        self.fulfil("things", [key], ["parent"])

    # Rules of changes

    def permitted(
        self, collection: str, data: Json, grants: Sequence[list[WriteGrant]]
    ) -> list[list[WriteGrant]]:
        """Return the permissions of each row whose validation passes: they
        have to speak of all that changes.
        """
        allowing = []
        failed = []
        for holding in grants:
            if not _speak_of(holding, data):
                raise Refusal(403)
            passing = [grant for grant in holding if _valid(grant, {**grant.presets, **data})]
            if not passing or not _speak_of(passing, data):
                wrong = next(grant for grant in holding if grant not in passing)
                failed += _broken(wrong, {**wrong.presets, **data})
            allowing.append(passing)
        self.refuse_invalid(collection, failed)
        return allowing

    def fulfil(self, collection: str, keys: Sequence[int], names: Sequence[str]) -> None:
        """Every field that has changed needs a permission that holds for the row as it is now."""
        for key in keys:
            row = self.tables[collection][key]
            holding = [
                grant for grant in self.grants(collection, "update") if self.holds(grant.rule, row)
            ]
            if not _speak_of(holding, names):
                raise Refusal(403)

    def refuse_invalid(self, collection: str, names: Sequence[str]) -> None:
        if names:
            raise Refusal(422 if all(self.known(collection, name) for name in names) else 403)


def _speak_of(grants: Sequence[WriteGrant], names: Sequence[str] | Json) -> bool:
    return all(any(grant.covers(name) for grant in grants) for name in names)


def _valid(grant: WriteGrant, values: Json) -> bool:
    return not _broken(grant, values)


def _broken(grant: WriteGrant, values: Json) -> list[str]:
    return [
        name
        for name, test in grant.validation.items()
        if name in values and not _passes(test, values[name])
    ]


def _passes(test: Json, value: Any) -> bool:
    ((operator, operand),) = test.items()
    if operator == "_null":
        return bool((value is None) == operand)
    if value is None:
        return False
    return bool({"_eq": value == operand, "_gt": value > operand, "_lt": value < operand}[operator])
