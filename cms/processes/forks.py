"""Objects that begin anew in a process that was just forked.

Their connections and child processes belong to the parent.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def reset_after_fork(self) -> None:
        """Forget resources of the parent, and replace locks that its threads may hold."""


_objects: WeakSet[Forkable] = WeakSet()


def register_for_forks(forkable: Forkable) -> None:
    """Have the object begin anew in each process that is forked from this one."""
    _objects.add(forkable)


def _reset_after_fork() -> None:
    for forkable in _objects:
        forkable.reset_after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
