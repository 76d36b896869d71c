"""What the application, the worker and the command line are made of, and may have more of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import click

from cms.config import Config
from cms.files.storage import Storages
from cms.flows.operations import OPERATIONS
from cms.flows.run import OperationType, Services
from cms.health.checks import Part, other_parts
from cms.items.write.hooks import HOOKS
from cms.items.write.hooks.flows import hooks_of_flows
from cms.jobs.task import Task
from cms.store.store import Store
from cms.store.table_hooks import TableHooks
from cms.tasks import own_tasks

ResourceMaker = Callable[[Store], object]
"""Makes the Falcon resource of a route."""

TaskMaker = Callable[[Services], Iterable[Task]]

PartMaker = Callable[[Config, Store, Storages], Iterable[Part]]


@dataclass(frozen=True, slots=True)
class Extensions:
    """The parts of the service that others may add to; the default has the service's own.

    `hooks` run before and after writes, by collection. `operations` are the types of operations of
    flows. `tasks` make the tasks of a worker, and `checks` the parts that /server/health checks.

    The routes and commands of the service itself need more than a store, or must be there before
    anything is imported: they are in cms/app.py and cms/cli, and `routes` and `commands` are those
    beside them.
    """

    routes: Mapping[str, ResourceMaker] = field(default_factory=lambda: MappingProxyType({}))
    hooks: Mapping[str, TableHooks] = field(default_factory=lambda: HOOKS)
    operations: Mapping[str, OperationType] = field(default_factory=lambda: OPERATIONS)
    tasks: tuple[TaskMaker, ...] = (own_tasks,)
    commands: tuple[click.Command, ...] = ()
    checks: tuple[PartMaker, ...] = (other_parts,)

    def store_hooks(self) -> Mapping[str, TableHooks]:
        """Return the hooks of a store; those of flows know all types of operations."""
        types = {name: operation.options for name, operation in self.operations.items()}
        return {**self.hooks, **hooks_of_flows(types)}


OWN = Extensions()
"""The service without extensions."""
