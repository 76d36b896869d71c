"""The printer of conditions: values, predicates, and the ties between rows. A function for each syntactic idea."""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

from cms.fragment import EMPTY, Fragment, concat, fill, join, name, param, quoted, text
from cms.query.language import functions
from cms.query.language.ast import Constant
from cms.query.language.operators import Takes
from cms.query.plan.bindings import Placeholder
from cms.query.plan.links import Link
from cms.query.plan.resolved import (
    All,
    AnyOf,
    CallerPath,
    Exists,
    LinkStep,
    Predicate,
    RevisionItem,
    SearchMatch,
    TypedTest,
    Value,
)
from cms.schema.model import Field
from cms.schema.types import Family


def link_condition(step: LinkStep, level: int) -> Fragment:
    """Print the condition between a row and those that a step leads to, with the rules on either side of it."""
    rules = [
        predicate(rule, at)
        for rule, at in ((step.when, level), (step.allowed, level + 1))
        if rule is not None
    ]
    return join(
        " AND ", [key_condition(step.link, level), *(rule for rule in rules if rule != TRUE)]
    )


def key_condition(link: Link, level: int) -> Fragment:
    """Print which columns of the two rows are equal."""
    far, near = f"{alias(level + 1)}.{quoted(link.far)}", f"{alias(level)}.{quoted(link.near)}"
    if link.collection_field is None:
        return text(f"{far} = {near}")
    # The key is cast for the rows that it is meant for only: another collection's need not look like one.
    shape = "{0} = CASE WHEN {1} = {2} AND {3}::text ~ {4} THEN {3}::text::{5} END"
    cast = link.cast
    far = f"{far}::text" if cast == "text" else far
    told = text(f"{alias(level)}.{quoted(link.collection_field)}")
    target, looks = (
        param(_constant(link.target), "text"),
        param(_constant(KEY_PATTERNS[cast]), "text"),
    )
    return fill(shape, text(far), told, target, text(near), looks, text(cast))


@lru_cache(maxsize=1024)
def _constant(value: str) -> Placeholder:
    """Return one parameter for a text, however often it is printed: so GROUP BY knows the expression of SELECT."""
    return Placeholder(Constant(value), str, "")


def _integers_up_to(most: str) -> str:
    """Return the pattern of whole numbers whose digits say no more than these, of either sign."""
    rest = len(most) - 1
    less = [
        f"{most[:n]}[0-{int(digit) - 1}][0-9]{{{rest - n}}}"
        for n, digit in enumerate(most)
        if digit != "0"
    ]
    return f"^-?({'|'.join((f'[0-9]{{1,{rest}}}', *less, most))})$"


@lru_cache(maxsize=1024)
def _constants(values: tuple[str, ...]) -> Placeholder:
    """Return one parameter for a list of texts."""
    return Placeholder(Constant(values), _as_it_is, "")


def _as_it_is(values: object) -> object:
    return values


KEY_PATTERNS = {
    "bigint": _integers_up_to(str(2**63 - 1)),
    "uuid": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
    "text": "",
}
"""What a key of a type looks like; one that does not belongs to no item, and would break the cast."""


# Values


def expression(value: Value, level: int) -> Fragment:
    """Print a value as it is compared and sorted."""
    if value.step:
        counted = "(SELECT count(*)::integer FROM {0} AS {1} WHERE {2})"
        return fill(
            counted,
            name(value.step.link.target),
            text(alias(level + 1)),
            link_condition(value.step, level),
        )
    column = column_of(value.field, level)
    if value.members is not None:
        column = visible_members(column, value.members, level)
    column = masked(column, value.when, level)
    if value.function:
        template = functions.function_sql(value.function, value.field.type_name)
        assert template, "the planner refuses functions that do not fit"
        return fill(template, column)
    return column


def masked(value: Fragment, when: Predicate | None, level: int) -> Fragment:
    """Print a value that is null in rows in which its field may not be read."""
    return (
        value if when is None else fill("CASE WHEN {0} THEN {1} END", predicate(when, level), value)
    )


def visible_members(
    value: Fragment, members: tuple[tuple[Predicate, tuple[str, ...]], ...], level: int
) -> Fragment:
    """Print a JSON object with those of its members that are there; any other value has none and is null."""
    shape = (
        "CASE WHEN json_typeof({0}) = 'object' THEN ("
        "SELECT '{' || coalesce(string_agg(to_json(m.key)::text || ':' || m.value::text, ','), '') || '}' "
        "FROM json_each({0}) AS m WHERE m.key = ANY (ARRAY({1})))::json END"
    )
    names = [
        fill(
            "SELECT unnest({0}) WHERE {1}",
            param(_constants(names), "text[]"),
            predicate(when, level),
        )
        for when, names in members
    ]
    return fill(shape, value, join(" UNION ALL ", names or [text("SELECT NULL::text")]))


def column_of(field: Field, level: int) -> Fragment:
    return fill(field.value, text(f"{alias(level)}.{quoted(field.name)}"))


def alias(level: int) -> str:
    return f"t{level}"


# Predicates

TRUE, FALSE = text("TRUE"), text("FALSE")

MAX_JOINED_SUBSELECTS = 12
"""How many sub-selects PostgreSQL may join in one plan: planning takes ten seconds for ninety."""


def predicate(said: Predicate, level: int, *, separately: bool = False) -> Fragment:
    """Print a condition; its sub-selects are planned `separately` from each other where they are many."""
    separately = separately or count_subselects(said) > MAX_JOINED_SUBSELECTS
    match said:
        case All(items):
            return join_conditions(
                [predicate(item, level, separately=separately) for item in items], " AND ", TRUE
            )
        case AnyOf(items):
            return join_conditions([predicate(item, level) for item in items], " OR ", FALSE)
        case TypedTest():
            return operator_test(said, level)
        case Exists():
            return fill("({0}) IS TRUE", exists(said, level)) if separately else exists(said, level)
        case SearchMatch():
            return search_match(said, level)
        case RevisionItem():
            return revision_item(said, level)
        case _ as never:
            assert_never(never)


def count_subselects(said: Predicate) -> int:
    """Return how many sub-selects PostgreSQL would join with the rows that the condition is about."""
    match said:
        case All(items):
            return sum(map(count_subselects, items))
        case Exists(step, where):
            rules = (rule for rule in (step.when, step.allowed, where) if rule is not None)
            return 1 + sum(map(count_subselects, rules))
        case _:
            return 0


def join_conditions(items: list[Fragment], word: str, nothing: Fragment) -> Fragment:
    """An empty AND is TRUE, an empty OR is FALSE: a rule that says nothing shows nothing."""
    return concat("(", join(word, items), ")") if items else nothing


def operator_test(said: TypedTest, level: int) -> Fragment:
    operator = said.operator
    is_json = said.value.family in (Family.JSON, Family.LIST)
    template = operator.json_sql if operator.json_sql and is_json else operator.sql
    value, cast = expression(said.value, level), said.value.cast
    if operator.takes is Takes.LIST:
        cast = said.value.index_cast if operator.name == "_in" else cast
        value = _same_type(value, said.value, cast)
    operands = (operand(bind, operator.takes, cast, level) for bind in said.operands)
    return fill(template, value, *operands)


def _same_type(printed: Fragment, value: Value, cast: str) -> Fragment:
    """Print a whole number in the type of the list that it is looked up in.

    PostgreSQL puts a list into a hash table where both are of one type only, else it compares every row with all of it.
    """
    return (
        fill("({0})::bigint", printed) if cast == "bigint" and value.is_small_integer else printed
    )


def caller_path(found: CallerPath, level: int) -> Fragment:
    """Print the values that a path from the caller leads to, each step the keys of the one before."""
    depth = level + 1
    rows = fill(
        "{0} AS {1} WHERE {1}.id = {2}",
        name(found.collection.name),
        text(alias(depth)),
        param(found.start, "uuid"),
    )
    rows += and_rule(found.allowed, depth)
    for step in found.steps:
        near = text(f"{alias(depth)}.{quoted(step.link.near)}")
        keys = fill("ARRAY(SELECT {0} FROM {1}{2})", near, rows, and_rule(step.when, depth))
        depth += 1
        far = text(f"{alias(depth)}.{quoted(step.link.far)}")
        rows = fill(
            "{0} AS {1} WHERE {2} = ANY ({3})",
            name(step.link.target),
            text(alias(depth)),
            far,
            keys,
        )
        rows += and_rule(step.allowed, depth)
    return fill("SELECT {0} FROM {1}", expression(found.value, depth), rows)


def and_rule(rule: Predicate | None, level: int) -> Fragment:
    return EMPTY if rule is None else concat(" AND ", predicate(rule, level))


def operand(bind: Placeholder | CallerPath, takes: Takes, cast: str, level: int) -> Fragment:
    if isinstance(bind, CallerPath):
        shape = "ARRAY({0})" if takes is Takes.LIST else "({0} LIMIT 1)"
        return fill(shape, caller_path(bind, level))
    match takes:
        case Takes.LIST:
            return param(bind, f"{cast}[]")
        case Takes.PATTERN:
            return param(bind, "text")
        case Takes.GEOMETRY:
            return fill("ST_MakeValid(ST_GeomFromGeoJSON({0}))", param(bind, "text"))
        case _:
            return param(bind, cast)


def exists(said: Exists, level: int) -> Fragment:
    inner = predicate(said.where, level + 1)
    table = concat(name(said.step.link.target), f" AS {alias(level + 1)}")
    shape = "{0}EXISTS (SELECT FROM {1} WHERE {2} AND {3}{4})"
    fence = (
        text(" OFFSET 0") if said.per_row else EMPTY
    )  # what has an OFFSET is neither hashed nor joined
    return fill(
        shape,
        text("NOT " if said.negated else ""),
        table,
        link_condition(said.step, level),
        inner,
        fence,
    )


# Folding can turn a letter into a metacharacter (those of full width), so the pattern is made after it.
_FOLDED = "system_fold({0}) LIKE '%' || regexp_replace(system_fold({1}), '([\\\\%_])', '\\\\\\1', 'g') || '%'"


def revision_item(said: RevisionItem, level: int) -> Fragment:
    shape = "EXISTS (SELECT FROM system_held(NULL::{0}, {1}, {2}) AS {3} WHERE {4})"
    data, columns = text(f"{alias(level)}.data"), param(_constants(said.columns), "text[]")
    inner = predicate(said.where, level + 1)
    return fill(shape, name(said.collection.name), data, columns, text(alias(level + 1)), inner)


def search_match(said: SearchMatch, level: int) -> Fragment:
    column = expression(said.value, level)
    if said.value.family is Family.TEXT:
        return fill(_FOLDED, column, param(said.word, "text"))
    return fill("{0} = {1}", column, param(said.word, said.value.cast))
