"""The printer of conditions: values, predicates, and the ties between rows. A function for each syntactic idea."""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

from cms.fragment import EMPTY, Fragment, concat, fill, join, name, param, quoted, text
from cms.query import functions
from cms.query.ast import Fixed
from cms.query.bind import Bind
from cms.query.operators import Takes
from cms.query.resolved import All, AnyOf, Check, Exists, Held, Hit, Predicate, Step, Subject, Value
from cms.query.walk import Link
from cms.schema.model import Field
from cms.schema.types import Family


def tie(step: Step, level: int) -> Fragment:
    """Print the condition between a row and those that a step leads to, with the rules on either side of it."""
    rules = [predicate(rule, at) for rule, at in ((step.when, level), (step.allowed, level + 1)) if rule is not None]
    return join(" AND ", [meeting(step.link, level), *(rule for rule in rules if rule != TRUE)])


def meeting(link: Link, level: int) -> Fragment:
    """Print which columns of the two rows are equal."""
    far, near = f"{alias(level + 1)}.{quoted(link.far)}", f"{alias(level)}.{quoted(link.near)}"
    if link.told_by is None:
        return text(f"{far} = {near}")
    # The key is cast for the rows that it is meant for only: another collection's need not look like one.
    shape = "{0} = CASE WHEN {1} = {2} AND {3}::text ~ {4} THEN {3}::text::{5} END"
    cast = link.cast
    far = f"{far}::text" if cast == "text" else far
    told = text(f"{alias(level)}.{quoted(link.told_by)}")
    target, looks = param(_constant(link.target), "text"), param(_constant(LOOKS[cast]), "text")
    return fill(shape, text(far), told, target, text(near), looks, text(cast))


@lru_cache(maxsize=1024)
def _constant(value: str) -> Bind:
    """Return one parameter for a text, however often it is printed: so GROUP BY knows the expression of SELECT."""
    return Bind(Fixed(value), str, "")


def _whole_numbers_to(most: str) -> str:
    """Return the pattern of whole numbers whose digits say no more than these, of either sign."""
    rest = len(most) - 1
    less = [f"{most[:n]}[0-{int(digit) - 1}][0-9]{{{rest - n}}}" for n, digit in enumerate(most) if digit != "0"]
    return f"^-?({'|'.join((f'[0-9]{{1,{rest}}}', *less, most))})$"


@lru_cache(maxsize=1024)
def _constants(values: tuple[str, ...]) -> Bind:
    """Return one parameter for a list of texts."""
    return Bind(Fixed(values), _as_it_is, "")


def _as_it_is(values: object) -> object:
    return values


LOOKS = {
    "bigint": _whole_numbers_to(str(2**63 - 1)),
    "uuid": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
    "text": "",
}
"""What a key of a type looks like; one that does not belongs to no item, and would break the cast."""


# Values


def expression(value: Value, level: int) -> Fragment:
    """Print a value as it is compared and sorted."""
    if value.step:
        counted = "(SELECT count(*)::integer FROM {0} AS {1} WHERE {2})"
        return fill(counted, name(value.step.link.target), text(alias(level + 1)), tie(value.step, level))
    column = column_of(value.field, level)
    if value.members is not None:
        column = narrowed(column, value.members, level)
    column = masked(column, value.when, level)
    if value.function:
        template = functions.template(value.function, value.field.type_name)
        assert template, "the planner refuses functions that do not fit"
        return fill(template, column)
    return column


def masked(value: Fragment, when: Predicate | None, level: int) -> Fragment:
    """Print a value that is null in rows in which its field may not be read."""
    return value if when is None else fill("CASE WHEN {0} THEN {1} END", predicate(when, level), value)


def narrowed(value: Fragment, members: tuple[tuple[Predicate, tuple[str, ...]], ...], level: int) -> Fragment:
    """Print a JSON object with those of its members that are there; any other value has none and is null."""
    shape = (
        "CASE WHEN json_typeof({0}) = 'object' THEN ("
        "SELECT '{' || coalesce(string_agg(to_json(m.key)::text || ':' || m.value::text, ','), '') || '}' "
        "FROM json_each({0}) AS m WHERE m.key = ANY (ARRAY({1})))::json END"
    )
    names = [
        fill("SELECT unnest({0}) WHERE {1}", param(_constants(names), "text[]"), predicate(when, level))
        for when, names in members
    ]
    return fill(shape, value, join(" UNION ALL ", names or [text("SELECT NULL::text")]))


def column_of(field: Field, level: int) -> Fragment:
    return fill(field.value, text(f"{alias(level)}.{quoted(field.name)}"))


def alias(level: int) -> str:
    return f"t{level}"


# Predicates

TRUE, FALSE = text("TRUE"), text("FALSE")

MAX_JOINED = 12
"""How many sub-selects PostgreSQL may join in one plan: planning takes ten seconds for ninety."""


def predicate(said: Predicate, level: int, *, apart: bool = False) -> Fragment:
    """Print a condition; its sub-selects are planned `apart` from each other where they are many."""
    apart = apart or joined(said) > MAX_JOINED
    match said:
        case All(items):
            return together([predicate(item, level, apart=apart) for item in items], " AND ", TRUE)
        case AnyOf(items):
            return together([predicate(item, level) for item in items], " OR ", FALSE)
        case Check():
            return check(said, level)
        case Exists():
            return fill("({0}) IS TRUE", exists(said, level)) if apart else exists(said, level)
        case Hit():
            return hit(said, level)
        case Held():
            return held(said, level)
        case _ as never:
            assert_never(never)


def joined(said: Predicate) -> int:
    """Return how many sub-selects PostgreSQL would join with the rows that the condition is about."""
    match said:
        case All(items):
            return sum(map(joined, items))
        case Exists(step, where):
            rules = (rule for rule in (step.when, step.allowed, where) if rule is not None)
            return 1 + sum(map(joined, rules))
        case _:
            return 0


def together(items: list[Fragment], word: str, nothing: Fragment) -> Fragment:
    """An empty AND is TRUE, an empty OR is FALSE: a rule that says nothing shows nothing."""
    return concat("(", join(word, items), ")") if items else nothing


def check(said: Check, level: int) -> Fragment:
    operator = said.operator
    is_json = said.value.family in (Family.JSON, Family.LIST)
    template = operator.json_sql if operator.json_sql and is_json else operator.sql
    value, cast = expression(said.value, level), said.value.cast
    if operator.takes is Takes.LIST:
        cast = said.value.cast_by_index if operator.name == "_in" else cast
        value = _of_one_type(value, said.value, cast)
    operands = (operand(bind, operator.takes, cast, level) for bind in said.operands)
    return fill(template, value, *operands)


def _of_one_type(printed: Fragment, value: Value, cast: str) -> Fragment:
    """Print a whole number in the type of the list that it is looked up in.

    PostgreSQL puts a list into a hash table where both are of one type only, else it compares every row with all of it.
    """
    return fill("({0})::bigint", printed) if cast == "bigint" and value.is_narrow else printed


def subject(found: Subject, level: int) -> Fragment:
    """Print the values that a path from the caller leads to, each step the keys of the one before."""
    depth = level + 1
    rows = fill(
        "{0} AS {1} WHERE {1}.id = {2}", name(found.collection.name), text(alias(depth)), param(found.start, "uuid")
    )
    rows += also(found.allowed, depth)
    for step in found.steps:
        near = text(f"{alias(depth)}.{quoted(step.link.near)}")
        keys = fill("ARRAY(SELECT {0} FROM {1}{2})", near, rows, also(step.when, depth))
        depth += 1
        far = text(f"{alias(depth)}.{quoted(step.link.far)}")
        rows = fill("{0} AS {1} WHERE {2} = ANY ({3})", name(step.link.target), text(alias(depth)), far, keys)
        rows += also(step.allowed, depth)
    return fill("SELECT {0} FROM {1}", expression(found.value, depth), rows)


def also(rule: Predicate | None, level: int) -> Fragment:
    return EMPTY if rule is None else concat(" AND ", predicate(rule, level))


def operand(bind: Bind | Subject, takes: Takes, cast: str, level: int) -> Fragment:
    if isinstance(bind, Subject):
        shape = "ARRAY({0})" if takes is Takes.LIST else "({0} LIMIT 1)"
        return fill(shape, subject(bind, level))
    match takes:
        case Takes.LIST:
            return param(bind, f"{cast}[]")
        case Takes.PATTERN:
            return param(bind, "text")
        case Takes.SHAPE:
            return fill("ST_MakeValid(ST_GeomFromGeoJSON({0}))", param(bind, "text"))
        case _:
            return param(bind, cast)


def exists(said: Exists, level: int) -> Fragment:
    inner = predicate(said.where, level + 1)
    table = concat(name(said.step.link.target), f" AS {alias(level + 1)}")
    shape = "{0}EXISTS (SELECT FROM {1} WHERE {2} AND {3}{4})"
    fence = text(" OFFSET 0") if said.by_row else EMPTY  # what has an OFFSET is neither hashed nor joined
    return fill(shape, text("NOT " if said.negated else ""), table, tie(said.step, level), inner, fence)


# Folding can turn a letter into a metacharacter (those of full width), so the pattern is made after it.
_FOLDED = "system_fold({0}) LIKE '%' || regexp_replace(system_fold({1}), '([\\\\%_])', '\\\\\\1', 'g') || '%'"


def held(said: Held, level: int) -> Fragment:
    shape = "EXISTS (SELECT FROM system_held(NULL::{0}, {1}, {2}) AS {3} WHERE {4})"
    data, columns = text(f"{alias(level)}.data"), param(_constants(said.columns), "text[]")
    inner = predicate(said.where, level + 1)
    return fill(shape, name(said.collection.name), data, columns, text(alias(level + 1)), inner)


def hit(said: Hit, level: int) -> Fragment:
    column = expression(said.value, level)
    if said.value.family is Family.TEXT:
        return fill(_FOLDED, column, param(said.word, "text"))
    return fill("{0} = {1}", column, param(said.word, said.value.cast))
