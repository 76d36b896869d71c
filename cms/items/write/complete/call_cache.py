"""What one call remembers between its planning and its transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from cms.access.policy import Actor, Grant
from cms.query.language.ast import CallerValue
from cms.schema.auto_fields import Writer


class BoundPresets(NamedTuple):
    """The presets of a permission, with the values that their variables stand for.

    The permission is kept alive because its `id` is a key of the cache: Python would give the
    number of a freed object to another one.
    """

    grant: Grant
    values: dict[str, object]


@dataclass
class CallCache:
    """Lookups of one call, each made once and so with the same result for all rows.

    `caller_values` are the values that paths from the caller lead to. `presets` are the bound
    presets of permissions, by the identities of these.
    """

    actor: Actor
    caller_values: dict[CallerValue, tuple[object, ...]] = field(default_factory=dict)
    presets: dict[int, BoundPresets] = field(default_factory=dict)

    @cached_property
    def writer(self) -> Writer:
        """The author and the time of the write; all rows of a call have the same time."""
        return Writer.now(self.actor.user, self.actor.role)
