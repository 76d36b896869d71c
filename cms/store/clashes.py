"""Which row of a call brought the value that the database refuses (decisions, section 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cms.query.drafts import Draft, Faults
from cms.schema.model import Collection
from cms.store.border import Clash


@contextmanager
def clashes_told(collection: Collection, drafts: Sequence[Draft]) -> Iterator[None]:
    """Add the value, and the place where it was sent, to a refusal of the rows that are written inside.

    A value that no row has sent is another's or a preset's and is not told, nor is a secret; of several rows with the
    same the last one is meant.
    """
    try:
        yield
    except Clash as clash:
        problem = clash.problems[0]
        found = collection.fields.get(str(problem.extensions.get("field")))
        if problem.extensions.get("collection") != collection.name or found is None:
            raise
        sent = next((draft for draft in reversed(drafts) if draft.values.get(found.name) == clash.value), None)
        if sent is None:
            raise
        told = {} if found.secret or found.name not in sent.sent else {"value": clash.value}
        faults = Faults()
        faults.add(replace(problem, extensions={**problem.extensions, **told}), sent.place)
        raise Clash(faults.found[0][1], clash.value) from clash
