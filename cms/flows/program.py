"""A flow made ready to run: its operations with their options as templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.flows.definition.flow import FlowDefinition, FlowOperation, flow_definition
from cms.flows.definition.options import any_json
from cms.flows.definition.templates import (
    FixedValue,
    Lookup,
    Object,
    Template,
    TemplateError,
    lookups,
    parse_template,
)
from cms.flows.run import OperationType, Services
from cms.store.snapshot import Snapshot

_BEGINNING = re.compile(r"[.\[]")


class FlowStep(NamedTuple):
    """One operation, and the ids of those that follow it.

    Options that hold no template are `is_constant`, unless something is wrong with them.
    """

    id: str
    key: str
    type: str
    operation: OperationType
    options: Template
    is_constant: bool
    resolve: str | None
    reject: str | None


@dataclass(frozen=True, slots=True)
class Program:
    """The steps of a flow by id, the first one, and what a run returns."""

    definition: FlowDefinition
    steps: Mapping[str, FlowStep]
    returns: str | Template
    """The word `$all`, or a template."""
    sees_client: bool
    """Whether its results may depend on the headers and the address of its caller."""

    @property
    def flow(self) -> str:
        return self.definition.id


def program_of(services: Services, snapshot: Snapshot, flow: str, fetch: Fetch) -> Program | None:
    """Return a flow made ready to run, which a snapshot keeps; None where there is no such flow."""
    key = ("flow program", flow)
    programs: tuple[Program, ...] | None = snapshot.derived.get(key)
    if programs is None:
        rows = fetch(statement("find_flow_definitions"), ([flow],))
        programs = tuple(compile_flow(flow_definition(row), services.operations) for row in rows)
        # A flow that is missing is remembered as well: events of a flow that was just deleted ask
        # for it again and again.
        snapshot.derived[key] = programs
    return programs[0] if programs else None


def compile_flow(flow: FlowDefinition, operations: Mapping[str, OperationType]) -> Program:
    """Return the program of a flow that has no problems.

    It has no steps for operations of a type that this process does not have: a run that comes to
    one of them is rejected.
    """
    steps = {
        operation.id: _step(operation, operations[operation.type])
        for operation in flow.graph.operations.values()
        if operation.type in operations
    }
    returns = _returns(flow)
    return Program(flow, steps, returns, _sees_client(flow, steps.values(), returns))


def _sees_client(flow: FlowDefinition, steps: Iterable[FlowStep], returns: str | Template) -> bool:
    """Tell whether headers or address of the caller can get into a run's results.

    Results of operations need no check: they are made of what their options look up.
    """
    # `$all` returns the trigger too, with its headers.
    if isinstance(returns, str):
        return True
    first = flow.graph.first
    for step in steps:
        if step.operation.sees_run or _leads_to_client(step.options, is_first=step.id == first):
            return True
    return _leads_to_client(returns, is_first=first is None)


def _leads_to_client(template: Template, *, is_first: bool) -> bool:
    return any(_is_of_client(lookup, is_first=is_first) for lookup in lookups(template))


def _is_of_client(lookup: Lookup, *, is_first: bool) -> bool:
    name, *path = lookup.steps
    # To the first operation, `$last` is the same as `$trigger`.
    if name == "$trigger" or (name == "$last" and is_first):
        # Path and query are part of the cache's key, and cached requests have no body: of the
        # trigger only the headers remain.
        return path[:1] in ([], ["headers"])
    return name == "$accountability"


def _returns(flow: FlowDefinition) -> str | Template:
    """Return the name of a value or the key of an operation, or the template of a value."""
    value = flow.options.get("return")
    if value is None:
        return _path("$last")
    if value == "$all":
        return value
    key_by_id = {operation.id: operation.key for operation in flow.graph.operations.values()}
    # A path may stand without braces where it begins with something of the run.
    if isinstance(value, str) and not value.isspace():
        path = key_by_id.get(value, value)
        beginning = _BEGINNING.split(path, maxsplit=1)[0]
        # `$last.id`, or `read_user.name` with the key of an operation; any other text is returned
        # itself.
        if path.startswith("$") or beginning in key_by_id.values():
            return _path(path)
    return parse_template(value)


def _path(path: str) -> Template:
    try:
        # In an f-string two braces print one: this is {{path}}.
        return parse_template(f"{{{{{path}}}}}")
    except TemplateError:
        return FixedValue(path)


def _step(operation: FlowOperation, operation_type: OperationType) -> FlowStep:
    entries = []
    options_of_type = operation_type.options
    # An inactive flow may lack some, and `cms flows run` runs it.
    is_constant = not any(options_of_type.errors(operation.options))
    for name, value in (operation.options or {}).items():
        option = options_of_type.options.get(name)
        if option is None:
            continue
        # Null counts as not given, so that null in a run can only be a template that leads
        # nowhere. Only an option that takes any JSON may be null itself.
        if value is None and option.check is not any_json:
            continue
        template = option.template(value)
        entries.append((FixedValue(name), template))
        is_constant = is_constant and isinstance(template, FixedValue)
    options = Object(tuple(entries))
    return FlowStep(
        operation.id,
        operation.key,
        operation.type,
        operation_type,
        options,
        is_constant,
        operation.resolve,
        operation.reject,
    )
