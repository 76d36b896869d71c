"""The printer of conditions: values, predicates, and links. A function for each syntactic idea."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from cms.fragment import EMPTY, Fragment, concat, fill, join, name, optional, param, quoted, text
from cms.query.language.operators import OperandKind, Operator
from cms.query.plan.alternatives import (
    MAX_JOINED_SUBSELECTS,
    count_subselects,
    is_lookup,
    united_alternatives,
)
from cms.query.plan.bindings import Placeholder
from cms.query.plan.read_plan import (
    EVERY_ROW,
    All,
    AnyOf,
    CallerPath,
    Exists,
    JsonPath,
    JsonPaths,
    JsonTest,
    LinkStep,
    Predicate,
    Relevance,
    RevisionItem,
    SearchMatch,
    SharedMask,
    TypedTest,
    Value,
    VisibleMembers,
)
from cms.query.sql import json_paths
from cms.query.sql.columns import alias, column_of, key_condition, rows_of, stored_column, text_list
from cms.query.sql.keys import key_equals, key_is_any, key_is_in, key_order
from cms.schema.types.field_type import DETERMINISTIC, Search, Trait

WHOLE_WORD = 1_000_000
"""What a whole word counts: more than parts of all words in the fields that count most."""

FAST_FOLD = "system_fold_unindexed"

# Folding can turn a character into a metacharacter (those of full width), so the word is escaped
# after it.
CONTAINS = "{0} LIKE '%' || regexp_replace(system_fold({1}), '([\\\\%_])', '\\\\\\1', 'g') || '%'"
HAS_WHOLE = (
    "{0} ~ ('(^|\\W)' || regexp_replace(system_fold({1}), '([][(){}.*+?^$|\\\\-])', '\\\\\\1', 'g')"
    " || '(\\W|$)')"
)


def link_condition(step: LinkStep, level: int) -> Fragment:
    """Print the condition between a row and the rows of a step, with the rules of both."""
    condition = key_condition(step.link, level)
    condition += and_rule(step.when, level)
    condition += and_rule(step.allowed, level + 1)
    return condition


# Values


def expression(value: Value, level: int) -> Fragment:
    """Print a value as it is compared and sorted."""
    # The number of related items: the field itself has no column.
    if value.step:
        return fill(
            "(SELECT count(*)::integer FROM {0} AS {1} WHERE {2})",
            rows_of(value.step.link.target),
            text(alias(level + 1)),
            link_condition(value.step, level),
        )
    if value.relevance is not None:
        return relevance(value.relevance, level)
    if isinstance(value.at, JsonPath):
        return json_paths.key(json_member(value, value.at, level))
    column = visible_column(value, level)
    if isinstance(value.at, JsonPaths):
        return json_paths.part(json_paths.document(column, value.field.type), value.at.paths)
    if value.function is None:
        return column
    return fill(value.function.sql, column)


def compared(value: Value, level: int, trait: Trait | None) -> Fragment:
    """Print a value for comparisons, in which some types are not what answers show."""
    if value.own_cast(trait):
        return masked(stored_column(value.field, level), value.when, level)
    return expression(value, level)


def visible_column(value: Value, level: int) -> Fragment:
    """Print the column of a value as far as it may be read."""
    column = column_of(value.field, level)
    # Members first: a function of the object must not read those that are hidden.
    if value.members is not None:
        column = visible_members(column, value.members, level)
    return masked(column, value.when, level)


def json_member(value: Value, path: JsonPath, level: int) -> Fragment:
    """Print a value inside of a JSON field as it is shown."""
    document = json_paths.document(visible_column(value, level), value.field.type)
    return json_paths.member(document, path.steps)


def masked(value: Fragment, when: Predicate | None, level: int) -> Fragment:
    """Print a value that is null in rows in which its field may not be read."""
    if when is None:
        return value
    return fill("CASE WHEN {0} THEN {1} END", predicate(when, level), value)


def visible_members(value: Fragment, members: tuple[VisibleMembers, ...], level: int) -> Fragment:
    """Print a JSON object with the members that may be read; any other value becomes null."""
    shape = (
        "CASE WHEN json_typeof({0}) = 'object' THEN ("
        "SELECT '{' || coalesce(string_agg(to_json(m.key)::text || ':' || m.value::text, ','), "
        "'') || '}' "
        "FROM json_each({0}) AS m WHERE m.key = ANY (ARRAY({1})))::json END"
    )
    names = []
    for part in members:
        part_names = param(text_list(part.names), "text[]")
        names.append(fill("SELECT unnest({0}) WHERE {1}", part_names, predicate(part.when, level)))
    return fill(shape, value, join(" UNION ALL ", names or [text("SELECT NULL::text")]))


# Predicates

TRUE = text("TRUE")
FALSE = text("FALSE")


def predicate(condition: Predicate, level: int, *, separately: bool = False) -> Fragment:
    """Print a condition; many sub-selects in it are planned `separately` from each other."""
    # Planning time grows fast with joined sub-selects; separate ones are planned one by one.
    separately = separately or count_subselects(condition) > MAX_JOINED_SUBSELECTS
    match condition:
        case All(items):
            return all_of(items, level, separately=separately)
        case AnyOf(items):
            return any_of(united_alternatives(items), level, separately=separately)
        case TypedTest():
            return operator_test(condition, level)
        case JsonTest():
            return json_test(condition, level)
        case Exists():
            # PostgreSQL does not join what stands inside of IS TRUE.
            if separately:
                return fill("({0}) IS TRUE", exists(condition, level))
            return exists(condition, level)
        case SearchMatch():
            return search_match(condition, level)
        case RevisionItem():
            return revision_item(condition, level)
        case SharedMask(column):
            return text(f"{alias(level)}.{quoted(column)}")
        case _ as never:
            assert_never(never)


def all_of(items: Sequence[Predicate], level: int, *, separately: bool) -> Fragment:
    """Print that all conditions hold."""
    conditions = [predicate(item, level, separately=separately) for item in items]
    return join_conditions(conditions, " AND ", TRUE)


def any_of(items: Sequence[Predicate], level: int, *, separately: bool) -> Fragment:
    """Print that one of the alternatives holds."""
    if len(items) == 1:
        return predicate(items[0], level, separately=separately)
    # PostgreSQL joins no sub-select of an OR, so that there is nothing to separate.
    alternatives = [alternative(item, level) for item in items]
    return join_conditions(alternatives, " OR ", FALSE)


def alternative(item: Predicate, level: int) -> Fragment:
    """Print one of several alternatives; a related row that is unique is looked up first."""
    if not isinstance(item, Exists) or not is_lookup(item):
        return predicate(item, level)
    # t0."author" = (SELECT t1."id" FROM "authors" AS t1 WHERE t1."user" = $1 LIMIT 1): PostgreSQL
    # runs it once, and then takes the index of "author" as it takes those of other alternatives.
    # It is NULL and not FALSE where there is no such row, which makes no difference in an OR.
    where = item.where
    if item.step.allowed is not None:
        where = All((item.step.allowed, where))
    shape = "{0} = (SELECT {1} FROM {2} AS {3} WHERE {4} LIMIT 1)"
    return _looked_up_first(item.step, shape, predicate(where, level + 1), level)


def _looked_up_first(step: LinkStep, shape: str, where: Fragment, level: int) -> Fragment:
    """Print that a row leads to what a sub-select finds without it."""
    leads_to_key = fill(
        shape,
        stored_column(step.link.near, level),
        stored_column(step.link.far, level + 1),
        rows_of(step.link.target),
        text(alias(level + 1)),
        where,
    )
    if step.when is None:
        return leads_to_key
    return join_conditions([predicate(step.when, level), leads_to_key], " AND ", TRUE)


def join_conditions(items: list[Fragment], operator: str, nothing: Fragment) -> Fragment:
    """Join conditions with AND or OR; without any, print `nothing`.

    An empty AND is TRUE and an empty OR is FALSE, so a rule without alternatives shows nothing.
    """
    if not items:
        return nothing
    return concat("(", join(operator, items), ")")


def operator_test(test: TypedTest, level: int) -> Fragment:
    operator = test.operator
    value = compared(test.value, level, operator.trait)
    column = test.value.field.column
    if operator.operand_kind is OperandKind.PATTERN and column and column.base_type == "bpchar":
        # The text has no padding.
        value = fill("({0})::text", value)
    own_cast = test.value.own_cast(operator.trait)
    cast = own_cast or test.value.cast
    if operator.operand_kind is OperandKind.LIST and not own_cast:
        if operator.uses_index:
            cast = test.value.index_cast
        value = _same_type(value, test.value, cast)
    operands = [operand(item, operator.operand_kind, cast, level) for item in test.operands]
    if test.value.field.parts and operator.name in _KEY_TESTS:
        return _key_test(test.value, operator, level, operands)
    # JSON and lists have templates of their own for emptiness and entries.
    if operator.json_sql and Trait.JSON in test.value.type.traits:
        return fill(operator.json_sql, value, *operands)
    return fill(operator.sql, value, *operands)


_KEY_TESTS = {"_eq": key_equals, "_neq": key_equals, "_in": key_is_any, "_nin": key_is_any}


def _key_test(
    value: Value, operator: Operator, level: int, operands: Sequence[Fragment]
) -> Fragment:
    """Print a test of a key of several columns by these columns.

    An index serves them, and equal values may have different texts.
    """
    is_key = _KEY_TESTS[operator.name](value.field, alias(level), *operands)
    if operator.name == "_neq":
        return fill("({0} IS NOT NULL AND NOT {1})", expression(value, level), is_key)
    # No value is among those of an empty list, null included.
    if operator.name == "_nin":
        shape = "(({0} IS NOT NULL AND NOT {1}) OR cardinality({2}) = 0)"
        return fill(shape, expression(value, level), is_key, *operands)
    if value.when is None:
        return is_key
    return join_conditions([predicate(value.when, level), is_key], " AND ", TRUE)


def json_test(test: JsonTest, level: int) -> Fragment:
    assert isinstance(test.value.at, JsonPath)
    member = json_member(test.value, test.value.at, level)
    operands = [param(item.value, item.cast) for item in test.operands]
    return fill(test.sql, member, *operands)


def _same_type(printed: Fragment, value: Value, cast: str) -> Fragment:
    """Print a whole number in the type of the list that it is looked up in.

    PostgreSQL puts a list into a hash table only where both have the same type; otherwise it
    compares every row with the whole list.
    """
    if value.type.index_cast and cast == value.cast:
        return fill("({0})::{1}", printed, text(cast))
    return printed


def caller_path(path: CallerPath, level: int) -> Fragment:
    """Print the values that a path from the caller leads to.

    Each step selects rows by the keys of the step before, inside out.
    """
    # SELECT t2."id" FROM "departments" AS t2 WHERE t2."id" = ANY (ARRAY(SELECT t1."department" FROM
    # "system_users" AS t1 WHERE t1.id = $1::uuid)) for $CURRENT_USER.department.id. It depends on
    # no row around it, so PostgreSQL runs it once for a statement.
    depth = level + 1
    rows = fill(
        "{0} AS {1} WHERE {1}.id = {2}",
        rows_of(path.collection.name),
        text(alias(depth)),
        param(path.start, "uuid"),
    )
    rows += and_rule(path.allowed, depth)
    for step in path.steps:
        near = key_order(step.link.near, alias(depth))
        keys = fill("SELECT {0} FROM {1}{2}", near, rows, and_rule(step.when, depth))
        depth += 1
        rows = fill(
            "{0} AS {1} WHERE {2}",
            rows_of(step.link.target),
            text(alias(depth)),
            key_is_in(step.link.far, alias(depth), keys),
        )
        rows += and_rule(step.allowed, depth)
    return fill("SELECT {0} FROM {1}", expression(path.value, depth), rows)


def and_rule(rule: Predicate | None, level: int) -> Fragment:
    """Print a rule behind other conditions; nothing where every row fulfils it."""
    if rule is None or rule == EVERY_ROW:
        return EMPTY
    return concat(" AND ", predicate(rule, level))


def operand(value: Placeholder | CallerPath, kind: OperandKind, cast: str, level: int) -> Fragment:
    if isinstance(value, CallerPath):
        values = caller_path(value, level)
        if kind is OperandKind.LIST:
            return fill("ARRAY({0})", values)
        return fill("({0} LIMIT 1)", values)
    match kind:
        case OperandKind.LIST:
            return param(value, f"{cast}[]")
        case OperandKind.PATTERN:
            return param(value, "text")
        case OperandKind.GEOMETRY:
            # PostGIS fails on some invalid geometries.
            return fill("ST_MakeValid(ST_GeomFromGeoJSON({0}))", param(value, "text"))
        case _:
            return param(value, cast)


def exists(condition: Exists, level: int) -> Fragment:
    inner = predicate(condition.where, level + 1)
    if condition.keys_first:
        shape = "{0} = ANY (ARRAY(SELECT {1} FROM {2} AS {3} WHERE {4}))"
        inner += and_rule(condition.step.allowed, level + 1)
        return _looked_up_first(condition.step, shape, inner, level)
    table = concat(rows_of(condition.step.link.target), f" AS {alias(level + 1)}")
    shape = "{0}EXISTS (SELECT FROM {1} WHERE {2} AND {3}{4})"
    # PostgreSQL neither hashes nor joins a sub-select with an OFFSET: it runs for each row.
    fence = optional(" OFFSET 0", when=condition.per_row)
    return fill(
        shape,
        optional("NOT ", when=condition.negated),
        table,
        link_condition(condition.step, level),
        inner,
        fence,
    )


def revision_item(condition: RevisionItem, level: int) -> Fragment:
    shape = "EXISTS (SELECT FROM system_revision_row(NULL::{0}, {1}, {2}) AS {3} WHERE {4})"
    data = text(f"{alias(level)}.data")
    columns = param(text_list(condition.columns), "text[]")
    inner = predicate(condition.where, level + 1)
    return fill(
        shape, name(condition.collection.name), data, columns, text(alias(level + 1)), inner
    )


# Search


def search_match(match: SearchMatch, level: int) -> Fragment:
    word = param(match.word, match.value.cast)
    # Beside the rule and not within it: an index serves the bare column only.
    column = expression(replace(match.value, when=None), level)
    if match.value.type.search is Search.CONTAINED:
        column = searched_text(match.value, column)
        folded = fill("{0}({1})", text(_fold_function(match)), column)
        has_word = fill(CONTAINS, folded, word)
    else:
        has_word = fill("{0} = {1}", column, word)
    if match.value.when is None:
        return has_word
    return fill("({0} AND {1})", predicate(match.value.when, level), has_word)


def _fold_function(match: SearchMatch) -> str:
    """Return the function that folds a text as the index has it, or faster where none helps."""
    column = match.value.field.column
    if column is not None and column.is_search_indexed and not match.is_short:
        return "system_fold"
    return FAST_FOLD


def searched_text(value: Value, column: Fragment) -> Fragment:
    """Print a text under a collation that knows LIKE and regular expressions."""
    if value.field.column is not None and value.field.column.is_nondeterministic:
        return fill(DETERMINISTIC, column)
    return column


def relevance(value: Relevance, level: int) -> Fragment:
    """Print how well a row fits: for each word, the best of the values that hold it."""
    best = []
    for matches in value.words:
        # At least 0: a word that stands nowhere else may stand in a related item.
        counts = [text("0")]
        for match in matches:
            counts.append(_count_of(match, level))
        best.append(fill("GREATEST({0})", join(", ", counts)))
    return fill("({0})", join(" + ", best))


def _count_of(match: SearchMatch, level: int) -> Fragment:
    """Print a word's score in one value: a whole word counts more than a part in any other."""
    weight = match.value.field.search_weight
    whole = str(WHOLE_WORD + weight)
    if match.value.type.search is Search.CONTAINED:
        column = searched_text(match.value, expression(match.value, level))
        column = fill("{0}({1})", text(FAST_FOLD), column)
        shape = "CASE WHEN {0} THEN CASE WHEN {1} THEN {2} ELSE {3} END END"
        word = param(match.word, match.value.cast)
        contains = fill(CONTAINS, column, word)
        has_whole = fill(HAS_WHOLE, column, word)
        return fill(shape, contains, has_whole, text(whole), text(str(weight)))
    return fill("CASE WHEN {0} THEN {1} END", search_match(match, level), text(whole))
