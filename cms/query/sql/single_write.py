"""What the printers of writes need for a write that is one statement and answers the items."""

from __future__ import annotations

from dataclasses import dataclass

from cms.fragment import Fragment
from cms.schema.model import Version


@dataclass(frozen=True, slots=True)
class StoredRowRules:
    """Conditions on a row (t0) as it was: does the caller see it, and may the caller write it?"""

    seen: Fragment
    writable: Fragment


@dataclass(frozen=True, slots=True)
class SingleStatement:
    """A write in one statement: counters, columns of the answer, and rules.

    The statement writes only while the counters are those of `version`. Rules are conditions on a
    row (t0); None is no rule. `before` are tried on the row as it was, `after` must hold for the
    row as it then is, or nothing is written. `shown` says whether the caller may read that row. The
    answer has `rows.found`, and behind it the results of `shown` and of `before.seen`.
    """

    version: Version
    outputs: tuple[Fragment, ...] = ()
    before: StoredRowRules | None = None
    after: Fragment | None = None
    shown: Fragment | None = None
