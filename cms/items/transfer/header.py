"""The header of an imported CSV file: the names of fields, and how the cells below are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cms.errors import Refused, invalid_payload
from cms.items.transfer.cells import COLUMN_PARSERS, cell_parser
from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.import_problems import ImportProblems, refusal_at
from cms.items.transfer.sources import SourceColumn
from cms.items.write.calls import WriteCall
from cms.items.write.stages.parsed import Expects
from cms.query.plan.links import link_of, target_collections
from cms.schema.model import Field
from cms.schema.payload import invalid_item


def source_columns(
    call: WriteCall, cells: Sequence[str], line: int, problems: ImportProblems
) -> list[SourceColumn]:
    """Return the columns of a header.

    Raises `Refused` with the names that the caller may not write, and with those that stand in the
    header twice.
    """
    names: list[str] = []
    for cell in cells:
        name = cell
        # Some programs put blanks around names.
        if name not in call.collection.fields:
            name = name.strip()
        # An export escapes names like any other text, because a field may be called "=total".
        if name:
            name = unescape_formula(name)
        names.append(name)
    if not names:
        raise invalid_payload("The file has no header with the names of fields", line=line)
    collection = call.collection
    for name, count in Counter(names).items():
        if count > 1:
            problem = invalid_item("the header names it twice", collection.name, name)
            problems.add(problem, line)
    _check_names(call, names, line, problems)
    problems.refuse()
    return [_source_column(call, collection.fields[name]) for name in names]


def _check_names(
    call: WriteCall, names: Sequence[str], line: int, problems: ImportProblems
) -> None:
    """Parse an item that names every field and holds no values."""
    fields = call.collection.fields
    item: dict[str, object] = {}
    for name in names:
        item[name] = None
        # A list takes no null, and an empty one changes nothing.
        if name in fields and fields[name].column is None:
            item[name] = []
    parser = call.payload_parser()
    try:
        # Rows with a stored key are changes and all others new: a name is allowed for either.
        parser.parse(call.collection, [item], Expects.ANY)
    except Refused as refused:
        # Past the first hundred problems the parser stops; those are told with their number.
        if refused.total <= len(refused.problems):
            raise refusal_at(line, refused) from refused
    for _, problem in parser.problems.entries:
        problems.add(problem, line)
    # Problems beyond the first hundred are counted, not kept.
    problems.total += parser.problems.total - len(parser.problems.entries)


def _source_column(call: WriteCall, field: Field) -> SourceColumn:
    catalogue = call.context.snapshot.catalogue
    is_relational = bool(
        link_of(catalogue, call.collection, field.name)
        or target_collections(catalogue, call.collection, field.name)
    )
    parse_cell = cell_parser(field, is_relational=is_relational)
    return SourceColumn(
        field.name,
        parse_cell,
        COLUMN_PARSERS.get(parse_cell),
        takes_null=field.column is not None,
    )
