"""The printers of questions about items: which rules they fulfil, and their contents."""

from __future__ import annotations

from collections.abc import Sequence

from cms.fragment import Fragment, commas, fill, name, optional, param
from cms.query.plan.read_plan import Predicate
from cms.query.sql.arguments import array, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.expressions import predicate
from cms.query.sql.write_history import whole_row
from cms.schema.model import Collection


def check_rows(
    collection: Collection, keys: Sequence[str], rules: Sequence[Predicate], *, lock: bool = False
) -> Fragment:
    """Print the question which rules items fulfil; its rows are a key and a boolean for each rule.

    Items that do not exist have no row. With `lock` items cannot change until the transaction ends;
    they are locked in the order of their keys, which prevents deadlocks.
    """
    key = collection.key
    answers = [fill("t0.{0}::text", name(key.name))]
    for rule in rules:
        # A rule that is NULL for a row, such as a comparison with NULL, does not hold.
        answers.append(fill("coalesce({0}, FALSE)", predicate(rule, 0)))
    shape = "SELECT {0} FROM {1} AS t0 WHERE t0.{2} = ANY ({3}) ORDER BY t0.{2}{4}"
    return fill(
        shape,
        commas(answers),
        rows_of(collection.name),
        name(key.name),
        param(list(keys), f"{key_cast(key)}[]"),
        optional(" FOR UPDATE", when=lock),
    )


def item_contents(collection: Collection, keys: Sequence[str], *, masks: bool = True) -> Fragment:
    """Print the read of the contents of items; its rows are a key and the item as JSON.

    Items are locked in the order of their keys. Secrets are masked, or left out without `masks`.
    """
    return fill(
        "SELECT t0.{0}::text, {1}::text FROM {2} AS t0 WHERE t0.{0} = ANY ({3}) ORDER BY t0.{0} "
        "FOR NO KEY UPDATE",
        name(collection.key.name),
        whole_row(collection, masks=masks),
        rows_of(collection.name),
        param(array(keys), f"{key_cast(collection.key)}[]"),
    )
