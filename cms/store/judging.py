"""What permissions and the rules of fields say of rows that are to be written (decisions, sections 5, 6 and 11).

What needs nothing but the payload is judged while the call is planned, for all rows and all their faults at once
(`complete`). What depends on the rows that are there is judged inside the transaction, before anything is written
(`permit`, `permit_removal`), and what they have become after it (`check`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from cms import jsontext
from cms.access.guard import view_of
from cms.access.licence import Licence, covered, covering, rule_of
from cms.access.policy import Grant
from cms.errors import Problem, Refused, forbidden, not_found
from cms.query.ast import NOTHING, Current, Filter, Fixed, Now, Operand
from cms.query.bind import Bind, Context, bound
from cms.query.drafts import Batch, Draft, Faults
from cms.query.gates import contents, gate
from cms.query.literals import variable
from cms.query.plan import resolved
from cms.query.validation import Given, Rule, failures, paths_of
from cms.query.walk import link_of
from cms.schema.model import Collection, Field
from cms.schema.payload import converter
from cms.schema.specials import (
    UNSTAMPED,
    Duties,
    Stamps,
    Writer,
    complete_change,
    complete_new,
    duties_of,
    missing,
    stamps_of,
)
from cms.store.callers import values_of
from cms.store.field_rules import FieldRules, field_rules, filled
from cms.store.keepers import keeper_of
from cms.store.keepers.keeper import Keeper
from cms.store.store import Fetch, Scene, Store

log = logging.getLogger(__name__)

Json = Mapping[str, object]


class Judge:
    """Judges the rows of one call for one caller; `fetch` looks up what rules need to know of it."""

    def __init__(self, store: Store, scene: Scene, fetch: Fetch) -> None:
        self._store = store
        self._scene = scene
        self._fetch = fetch
        self._known: dict[Current, tuple[object, ...]] = {}
        self.licence = Licence(scene.actor.policy, scene.snapshot.catalogue)

    def look_up_within(self, fetch: Fetch) -> None:
        """Look things up in the transaction from now on: a second connection beside it could be waited for in vain."""
        self._fetch = fetch

    # The payload

    def complete(self, batch: Batch, faults: Faults) -> None:
        """Fill and check the rows of a batch whose `new` is known; changes that presets may add to only fill."""
        rules, keeper = self._rules(batch.collection), keeper_of(batch.collection.name)
        free, preset = self.licence.policy.admin, self._presets_changes(batch.collection)
        of_new: tuple[Duties, Stamps] | None = None
        of_change: tuple[Duties, Stamps] | None = None
        for draft in batch.drafts:
            if not free:
                self._permit_at_all(keeper, batch, draft)
            if draft.new:
                of_new = of_new or self._duties(batch.collection, new=True)
                problems = [] if free else self._permit_new(batch, draft)
                problems += complete_new(draft.values, *of_new)
            else:
                of_change = of_change or self._duties(batch.collection, new=False)
                problems = complete_change(draft.values, *of_change)
            if rules.tried and (draft.new or not preset):
                problems += self._against(rules, batch.collection, draft)
            if preset and not draft.new:
                problems = []
            if keeper.checks:
                problems += keeper.problems(draft, replace(self._scene, fetch=self._fetch), batch.collection.name)
            if problems:
                _tell(problems, draft, faults)

    def _presets_changes(self, collection: Collection) -> bool:
        """Tell whether a permission may add to changes, so that they are known only beside the rows that are there."""
        return any(grant.presets for grant in self.licence.policy.granted(collection.name, "update"))

    @cached_property
    def _writer(self) -> Writer:
        """Who writes; all rows of a call are of one moment."""
        return Writer.now(self._scene.actor.user, self._scene.actor.role)

    def _duties(self, collection: Collection, *, new: bool) -> tuple[Duties, Stamps]:
        """Return what rows need that are made, or that change, and what this writer's stamps are."""
        key = "duties", collection.name, new
        duties: Duties = self._scene.snapshot.kept.setdefault_with(key, lambda: duties_of(collection, new=new))
        return duties, stamps_of(duties, self._writer) if duties.stamped else UNSTAMPED

    def _permit_at_all(self, keeper: Keeper, batch: Batch, draft: Draft) -> None:
        """Refuse others than administrators what only those write; a key alone writes nothing."""
        if batch.level and not draft.new and not draft.values:
            return
        if keeper.closed or keeper.admin_fields & draft.sent.keys() or draft.tied in keeper.admin_fields:
            raise forbidden()

    def _permit_new(self, batch: Batch, draft: Draft) -> list[Problem]:
        """Take the presets of the first permission that lets the item be; it must fulfil the rule of one that does."""
        grants = covering(self.licence.grants(batch.collection, "create"), _named(batch, draft))
        if not grants:
            raise forbidden()
        passing, failed = self._tried(grants, batch.collection, draft)
        if not passing:
            return failed
        self._preset(passing[0], batch.collection, draft)
        draft.rule = rule_of(passing)
        return []

    def _tried(
        self, grants: tuple[Grant, ...], collection: Collection, draft: Draft
    ) -> tuple[tuple[Grant, ...], list[Problem]]:
        """Return the grants whose validation passes, and what is wrong with the item by the first that does not."""
        failed = [self._failed(grant, collection, draft) for grant in grants]
        passing = tuple(grant for grant, problems in zip(grants, failed, strict=True) if not problems)
        return passing, next(filter(None, failed), [])

    def _failed(self, grant: Grant, collection: Collection, draft: Draft) -> list[Problem]:
        if grant.validation is None:
            return []
        values = {**self._presets(grant), **draft.sent, **self._tie(collection, draft)}
        return failures(grant.validation, values, self._given(collection, [grant.validation], draft))

    def _preset(self, grant: Grant, collection: Collection, draft: Draft) -> None:
        """Merge presets under the payload."""
        for name, value in self._presets(grant).items() if grant.presets else ():
            found = collection.fields.get(name)
            if found and found.column and name not in draft.sent:
                if name in keeper_of(collection.name).unset:
                    raise _refusing(grant, found, "no preset sets it")
                draft.values[name] = None if value is None else _converted(grant, found, value)
                draft.presets = {**(draft.presets or {}), name: value}

    def _presets(self, grant: Grant) -> dict[str, object]:
        operands = {name: _operand(value) for name, value in grant.presets.items()}
        known = self._values_of(found for found in operands.values() if isinstance(found, Current) and found.path)
        fixed = [_fixed(found, known) for found in operands.values()]
        values = [Bind(found, _as_it_is, name) for name, found in zip(operands, fixed, strict=True)]
        return dict(
            zip(operands, bound(values, Context((), self._scene.actor.user, self._scene.actor.role)), strict=True)
        )

    # The rules of fields

    def _rules(self, collection: Collection) -> FieldRules:
        kept = self._scene.snapshot.kept
        rules: FieldRules = kept.setdefault_with(("rules", collection.name), lambda: field_rules(collection))
        return rules

    def _against(self, rules: FieldRules, collection: Collection, draft: Draft) -> list[Problem]:
        """Return what is wrong by the rules of fields that need nothing but the payload."""
        values, given = self._payload(collection, draft), self._given(collection, rules.tried, draft)
        given = replace(given, filled=filled(rules, draft) if draft.new else {})
        told = rules.broken(values, replace(given, creating=False))
        return told + ([missing(found) for found in rules.lacking_new(values, given)] if draft.new else [])

    def _mind(self, batch: Batch, drafts: Sequence[Draft], fetch: Fetch, faults: Faults) -> None:
        """Check what changes make of conditions, which speak of the whole item; what lacked already may go on."""
        rules = self._rules(batch.collection)
        if not rules.conditions or not drafts:
            return
        keys = [str(draft.key) for draft in drafts]
        text, values = contents(batch.collection, keys).numbered()
        stored: dict[object, Any] = {key: jsontext.stored(row) for key, row in fetch(text, values)}
        for draft in drafts:
            before = stored.get(draft.key, {})
            given = replace(self._given(batch.collection, rules.tried, draft), creating=True)
            lacked = rules.lacking(before, given)
            for found in rules.lacking({**before, **self._payload(batch.collection, draft)}, given):
                if found not in lacked:
                    faults.add(missing(found), draft.place)

    def _payload(self, collection: Collection, draft: Draft) -> Json:
        return {**(draft.presets or {}), **draft.sent, **self._tie(collection, draft)}

    def _tie(self, collection: Collection, draft: Draft) -> Json:
        """Return what a row of a list holds in the field that points to the row above, whatever was sent for it."""
        if draft.tied is None or draft.above is None or draft.tied not in draft.values:
            return {}
        catalogue = self._scene.snapshot.catalogue
        link = link_of(catalogue, collection, draft.tied)
        by_key = link is not None and link.far == catalogue.collections[link.target].primary_key
        return {draft.tied: draft.above.key if by_key and not draft.above.new else draft.above.sent}

    def _given(self, collection: Collection, rules: Iterable[Rule], draft: Draft) -> Given:
        actor, catalogue = self._scene.actor, self._scene.snapshot.catalogue
        paths = frozenset(path for rule in rules for path in paths_of(rule))
        known = self._values_of(paths)
        return Given(collection, catalogue, creating=draft.new, user=actor.user, role=actor.role, known=known)

    def _values_of(self, paths: Iterable[Current]) -> Mapping[Current, tuple[object, ...]]:
        """Return at least what these paths lead to; each is looked up once for a call, however many rows there are."""
        unknown = [path for path in paths if path not in self._known]
        if unknown:
            self._known.update(values_of(self._store, self._scene, self._fetch, unknown))
        return self._known

    # The rows that are there

    def permit(self, batch: Batch, drafts: Sequence[Draft], fetch: Fetch, faults: Faults) -> None:
        """Check changes against the rows as they are; raises `Refused` NOT_FOUND or FORBIDDEN.

        Rights come before what the keeper minds, which would tell of a row that the caller does not see.
        """
        if drafts and not self.licence.policy.admin:
            self._permit_changes(batch, drafts, fetch, faults)
        self._heed(batch.collection, [*drafts, *(draft for draft in batch.drafts if draft.new)], (), fetch)
        self._mind(batch, drafts, fetch, faults)

    def _permit_changes(self, batch: Batch, drafts: Sequence[Draft], fetch: Fetch, faults: Faults) -> None:
        grants = self.licence.grants(batch.collection, "update")
        held = self._held(batch.collection, [str(draft.key) for draft in drafts], grants, fetch)
        for draft in drafts:
            self._permit_change(batch, draft, held[str(draft.key)], faults)
            draft.rule = self.licence.rule_after(batch.collection, _changing(batch, draft))

    def minds(self, collection: Collection) -> bool:
        """Tell whether a change depends on what else the item holds."""
        return bool(self._rules(collection).conditions)

    def permit_unseen(self, batch: Batch, faults: Faults) -> None:
        """Check changes under permissions that all hold for the rows, as `Licence.terms` has the statement find out."""
        if not self.licence.policy.admin:
            for draft in batch.drafts:
                self._permit_change(batch, draft, self.licence.grants(batch.collection, "update"), faults)
                draft.rule = self.licence.rule_after(batch.collection, _changing(batch, draft))

    def _permit_change(self, batch: Batch, draft: Draft, held: tuple[Grant, ...], faults: Faults) -> None:
        names = _changing(batch, draft)
        if not covered(held, names):
            raise forbidden()
        passing, failed = self._tried(held, batch.collection, draft)
        for problem in failed if not passing or not covered(passing, names) else ():
            faults.add(problem, draft.place)
        for grant in reversed(passing):  # of two presets for one field the first counts
            self._preset(grant, batch.collection, draft)
        if self._presets_changes(batch.collection):
            self._complete_preset(batch.collection, draft, faults)

    def _complete_preset(self, collection: Collection, draft: Draft, faults: Faults) -> None:
        """Fill and check a change once its presets are there."""
        rules, problems = self._rules(collection), complete_change(draft.values, *self._duties(collection, new=False))
        if rules.tried:
            problems += self._against(rules, collection, draft)
        _tell(problems, draft, faults)

    def permit_removal(self, collection: Collection, keys: Sequence[str], fetch: Fetch) -> None:
        """Check that rows may be deleted."""
        if not self.licence.policy.admin:
            if keeper_of(collection.name).closed:
                raise forbidden()
            self._held(collection, keys, self.licence.grants(collection, "delete"), fetch)
        self._heed(collection, (), keys, fetch)

    def permit_column(self, collection: Collection, keys: Sequence[str], column: str, fetch: Fetch) -> None:
        """Check that what rows hold in a column may change."""
        if self.licence.policy.admin or not keys:
            return
        keeper = keeper_of(collection.name)
        if keeper.closed or column in keeper.admin_fields:
            raise forbidden()
        held = self._held(collection, keys, self.licence.grants(collection, "update"), fetch)
        if not all(covered(grants, [column]) for grants in held.values()):
            raise forbidden()

    def _heed(self, collection: Collection, drafts: Sequence[Draft], gone: Sequence[str], fetch: Fetch) -> None:
        keeper = keeper_of(collection.name)
        if keeper.before and (drafts or gone):
            keeper.before(fetch, self._scene, drafts, gone)

    def _held(
        self, collection: Collection, keys: Sequence[str], grants: tuple[Grant, ...], fetch: Fetch
    ) -> dict[str, tuple[Grant, ...]]:
        """Return which of the grants hold for each row, all of which are locked."""
        if not keys:
            return {}
        catalogue, policy = self._scene.snapshot.catalogue, self._scene.actor.policy
        view = view_of(collection.name, catalogue=catalogue, policy=policy)
        rules = [view.rule if view else NOTHING, *(grant.rule for grant in grants)]
        rows = self._asked(collection, keys, rules, fetch, lock=True)
        answers = {str(key): (seen, said) for key, seen, *said in rows}
        held = {
            key: tuple(grant for grant, holds in zip(grants, said, strict=True) if holds)
            for key, (_, said) in answers.items()
        }
        missing = [key for key in keys if not held.get(key)]
        if any(key not in answers or not answers[key][0] for key in missing):
            raise not_found()
        if missing:
            raise forbidden()
        return held

    # What they have become

    def check(self, batch: Batch, fetch: Fetch) -> None:
        """Check rows that were written against the rules that let them be; raises `Refused` FORBIDDEN."""
        self.check_left(batch.collection, fetch, [draft for draft in batch.drafts if draft.new or draft.values])
        by_rule: list[tuple[Filter, list[str]]] = []
        for draft in batch.drafts:
            if draft.rule is not None and draft.key is not None:
                _keys_under(draft.rule, by_rule).append(draft.key)
        for rule, keys in by_rule:
            self._require(batch.collection, keys, rule, fetch)

    def _require(self, collection: Collection, keys: Sequence[str], rule: Filter, fetch: Fetch) -> None:
        rows = self._asked(collection, keys, [rule], fetch)
        if len(rows) < len(keys) or not all(holds for _, holds in rows):
            raise forbidden()

    def check_left(self, collection: Collection, fetch: Fetch, drafts: Sequence[Draft] = ()) -> None:
        """Let the keeper of a collection look at what a write has left."""
        keeper = keeper_of(collection.name)
        if keeper.after:
            keeper.after(fetch, self._scene, drafts)

    def _asked(
        self, collection: Collection, keys: Sequence[str], rules: Sequence[Filter], fetch: Fetch, *, lock: bool = False
    ) -> list[tuple[object, ...]]:
        catalogue, actor = self._scene.snapshot.catalogue, self._scene.actor
        predicates = [resolved(rule, collection, catalogue) for rule in rules]
        text, values = gate(collection, list(dict.fromkeys(keys)), predicates, lock=lock).numbered()
        return fetch(text, bound(values, Context((), actor.user, actor.role)))


def _tell(problems: Iterable[Problem], draft: Draft, faults: Faults) -> None:
    """Keep what is wrong with a row, but for fields whose values are known to be no good."""
    for problem in problems:
        if problem.extensions.get("field") not in draft.refused:
            faults.add(problem, draft.place)


def _keys_under(rule: Filter, by_rule: list[tuple[Filter, list[str]]]) -> list[str]:
    """Return the keys of a rule, which are there as soon as it is asked for; there are few different ones."""
    for known, keys in by_rule:
        if known == rule:
            return keys
    by_rule.append((rule, []))
    return by_rule[-1][1]


def _named(batch: Batch, draft: Draft) -> set[str]:
    """Return the fields that a row was sent with, and the one that ties it to the row above."""
    tied = {draft.tied} if draft.tied and draft.tied in draft.values else set()
    return {str(name) for name in draft.sent} | tied


def _changing(batch: Batch, draft: Draft) -> set[str]:
    """Return the fields of a row that change: its key does not."""
    return _named(batch, draft) - {batch.key_field}


def _converted(grant: Grant, found: Field, value: object) -> str:
    """Return a preset as its column takes it; one that does not fit refuses the item, and the log says which."""
    try:
        return converter(found)(value)
    except ValueError as error:
        raise _refusing(grant, found, str(error)) from None


def _refusing(grant: Grant, found: Field, reason: str) -> Refused:
    """Return the refusal of an item for a preset that cannot be set, once the log has said which it is."""
    place = f"{found.collection}.{found.name}"
    log.warning("permission %s refuses every item: its preset of %s: %s", grant.id, place, reason)
    return forbidden()


def _operand(value: object) -> Operand:
    """Return what a preset says: a variable, or the value itself."""
    try:
        found = variable(value)
    except ValueError:
        return Fixed(value)
    return found if isinstance(found, Now | Current) else Fixed(value)


def _fixed(found: Operand, known: Mapping[Current, tuple[object, ...]]) -> Operand:
    """Return what a path from the caller leads to, the first where it leads to many; anything else as it is."""
    return Fixed(next(iter(known[found]), None)) if isinstance(found, Current) and found.path else found


def _as_it_is(value: object) -> object:
    return value
