"""The findings of `cms doctor` about flows: what is missing in them, and what has no effect."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Set

from cms.cli.structure_findings import OK, WARNING, Finding
from cms.database.connections import single_values, standalone_transaction
from cms.database.statements import statement
from cms.flows.definition.flow import FlowDefinition, flow_definition, flow_problems
from cms.flows.definition.options import Options
from cms.flows.definition.trigger_types import SCOPES, TRIGGER_TYPES
from cms.flows.run import OperationType
from cms.schema.system import OPERATIONS
from cms.store.snapshot import load_snapshot

_SIMILARITY = 0.8


def flow_findings(
    dsn: str, operations: Mapping[str, OperationType], *, mail_templates: Set[str]
) -> Iterator[Finding]:
    """Yield a finding for everything in flows that cannot have its effect."""
    with standalone_transaction(dsn) as transaction:
        collections = load_snapshot(transaction).catalogue.collections.keys()
        names = {str(row[0]): str(row[3]) for row in transaction.execute(statement("list_flows"))}
        flows = single_values(transaction.execute(statement("find_flow_ids")))
        rows = transaction.execute(statement("find_flow_definitions"), (flows,))
    types = {name: operation.options for name, operation in operations.items()}
    has_findings = False
    for row in rows:
        flow = flow_definition(row)
        for sentence in _sentences(flow, types, collections, mail_templates):
            has_findings = True
            yield Finding(WARNING, f"flow {names[flow.id]}: {sentence}")
    if not has_findings:
        yield Finding(OK, "flows: nothing is missing in them")


def _sentences(
    flow: FlowDefinition,
    types: Mapping[str, Options],
    collections: Set[str],
    mail_templates: Set[str],
) -> Iterator[str]:
    keys = {operation.id: operation.key for operation in flow.graph.operations.values()}
    for problem in flow_problems(flow, types):
        subject = "its"
        if problem.collection == OPERATIONS:
            subject = f"operation {keys[problem.key]}:"
        yield f"{subject} {'.'.join(map(str, problem.path))}: {problem.reason}"
    if flow.trigger is not None:
        yield from _of_trigger(flow, TRIGGER_TYPES[flow.trigger], collections)
    for operation in flow.graph.operations.values():
        options = operation.options or {}
        subject = f"operation {operation.key}: "
        collection = options.get("collection")
        if operation.type in types:
            yield from _misspelt(subject, options, types[operation.type])
        if operation.type.startswith("item-"):
            yield from _unknown(subject, "collection", [collection], collections)
        if operation.type == "mail":
            yield from _unknown(subject, "template", [options.get("template")], mail_templates)


def _of_trigger(flow: FlowDefinition, options: Options, collections: Set[str]) -> Iterator[str]:
    yield from _misspelt("", flow.options, options)
    for name, known in (("collections", collections), ("scope", SCOPES)):
        values = flow.options.get(name)
        if name in options.options and isinstance(values, list):
            yield from _unknown("", name, values, known)


def _misspelt(subject: str, values: Mapping[str, object], options: Options) -> Iterator[str]:
    """Yield the options that resemble a known one; all others are for apps."""
    for name in values.keys() - options.options.keys():
        similar = difflib.get_close_matches(name, options.options, n=1, cutoff=_SIMILARITY)
        if similar:
            yield f"{subject}the option {name} has no effect: {similar[0]}?"


def _unknown(subject: str, option: str, values: list[object], known: Set[str]) -> Iterator[str]:
    for value in values:
        # Templates are filled by each run.
        if isinstance(value, str) and value and "{{" not in value and value not in known:
            yield f"{subject}{option} names {value}, which is not there"
