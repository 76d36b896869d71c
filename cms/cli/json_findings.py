"""The findings of `cms doctor` about large tables that are searched by paths without an index."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cms.cli.finding import OK, WARNING, Finding
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Refused
from cms.schema.model import Catalogue
from cms.structure.indexes import LARGE_BYTES, large_tables
from cms.structure.value_indexes import index_target, value_indexes


def json_findings(transaction: Transaction, catalogue: Catalogue) -> Iterator[Finding]:
    """Yield a finding for each path into JSON that reads of a large table search or sort by.

    Those with an index are left out, and those that can have none any more.
    """
    present = {index.target for index in value_indexes(transaction) if index.is_valid}
    is_complete = True
    rows = transaction.read(statement("recorded_json_paths"))
    collections = {str(collection) for collection, _, _ in rows}
    large = large_tables(transaction, collections, min_bytes=LARGE_BYTES)
    for collection, path, last_used in rows:
        if collection not in large:
            continue
        try:
            target = index_target(catalogue, collection, path)
        except Refused:
            continue  # the field is gone, or has another type
        if target not in present:
            is_complete = False
            command = shlex.join(["cms", "index", collection, str(target)])
            yield Finding(
                WARNING,
                f"JSON: {collection} is filtered or sorted by {target}, which has no index "
                f"(last on {last_used}); run `{command}`",
            )
    if is_complete:
        yield Finding(OK, "JSON: paths that large tables are searched by have indexes")
