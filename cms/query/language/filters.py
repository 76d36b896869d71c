"""Filters and rules from nested values to the tree (docs/query-language.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from cms import jsontext
from cms.digits import TooManyDigits, too_many_digits
from cms.errors import MAX_PROBLEMS, Problem, Refused, combined, invalid_query
from cms.query.language.ast import (
    EVERYTHING,
    And,
    AtField,
    CallerValue,
    Filter,
    Operand,
    OperatorTest,
    Or,
    Some,
)
from cms.query.language.limits import (
    MAX_FILTER_DEPTH,
    MAX_FILTER_NODES,
    MAX_LIST_OPERANDS,
    MAX_PATTERNS,
    LimitExceeded,
)
from cms.query.language.literals import JsonLiterals, Literals, parse_variable
from cms.query.language.operators import OPERATORS, OperandKind, Operator
from cms.query.language.query_strings import Brackets, as_list
from cms.regex import compile_regex
from cms.schema.names import FOLLOW, FieldName, follow_name, parse_name

# An empty text is true: `filter[title][_null]=` needs no value in a query string.
_TRUE = ("", "true", "1")
_FALSE = ("false", "0")
_KEY_OPERATORS = frozenset({"_eq", "_neq", "_in", "_nin"})
"""Operators that take keys of several columns, which are arrays."""

_NO_VALUE = "it takes one value that is not null"

FilterPath = tuple[str, ...]
"""The parameter, and the keys that lead to a part of it."""
MAX_PATH_LENGTH = 200
"""Characters of such a path in an answer."""


def parse_filter(
    value: object,
    literals: Literals,
    *,
    parameter: str = "filter",
    operators: Mapping[str, Operator] = OPERATORS,
) -> Filter:
    """Return the tree of a filter given as nested dicts or as JSON text; literals are set aside.

    Rules that are tried on payloads take `RULE_OPERATORS`. Raises `Refused` INVALID_QUERY with the
    path to the problem.
    """
    decoded = decode_json(value, parameter)
    parser = _Parser(literals, operators, is_text=isinstance(decoded, Brackets))
    return parser.group(decoded, (parameter,))


def require_not_blank(value: object, parameter: str) -> object:
    """Return a stored rule as it is; raises `Refused` INVALID_QUERY for a blank text.

    A request's `filter=` asks for everything; a stored rule that is blank must not allow
    everything.
    """
    if isinstance(value, str) and not value.strip():
        raise invalid_query(f'"{parameter}" is a blank text', parameter=parameter)
    return value


def decode_json(value: object, parameter: str) -> object:
    """Return the value of a parameter that comes as JSON text or as brackets."""
    if not isinstance(value, str):
        return value
    try:
        # `filter=` in a query string counts as no filter.
        return jsontext.loads(value) if value.strip() else {}
    except TooManyDigits as error:
        path = _path_text((parameter, *map(str, error.path)))
        raise Refused(too_many_digits(error, parameter=parameter, path=path)) from None
    except ValueError as error:
        raise invalid_query(f'"{parameter}" is not JSON: {error}', parameter=parameter) from None


class _Parser:
    def __init__(
        self, literals: Literals, operators: Mapping[str, Operator], *, is_text: bool
    ) -> None:
        self.literals = literals
        self.operators = operators
        self.is_text = is_text

    def group(self, value: object, path: FilterPath) -> Filter:
        """Several keys at one level mean `_and`."""
        self._count_node(path)
        if not isinstance(value, Mapping):
            raise _wrong(path, "a filter is an object")
        problems: list[Problem] = []
        items: list[Filter] = []
        for key, inner in value.items():
            with _collecting(problems):
                items.append(self._entry(str(key), inner, (*path, str(key))))
        if problems:
            raise combined(problems)
        if not items:
            return EVERYTHING
        # A group of one filter is replaced by it, so that requests with one meaning share a
        # statement.
        if len(items) == 1:
            return items[0]
        return And(tuple(items))

    def _entry(self, key: str, value: object, path: FilterPath) -> Filter:
        if key in ("_and", "_or"):
            items = self._groups(value, path)
            if key == "_and":
                return And(items)
            return Or(items)
        if key in ("_some", "_none"):
            return Some(self.group(value, path), negated=key == "_none")
        # Operators come first: a field of a table made elsewhere that is called `_eq` cannot be
        # filtered by.
        if key in self.operators:
            return self._test(key, value, path)
        # A field may begin with an underscore; then a filter of it follows, and no plain value.
        if key.startswith("_") and _looks_like_operator(value):
            raise _wrong(path, f'there is no operator "{key}"')
        if key.startswith(FOLLOW):
            return AtField(self._follow_name(key, path), self._inner(value, path))
        return AtField(parse_name(key), self._parser_at(key)._inner(value, path))

    def _follow_name(self, key: str, path: FilterPath) -> FieldName:
        if self.operators is not OPERATORS:
            raise _wrong(path, "a rule of values knows nothing of the items that lead to its item")
        follow = follow_name(key)
        if follow is None:
            raise _wrong(
                path, f"it is {FOLLOW}collection,field) or {FOLLOW}collection,field,field)"
            )
        # One way to write it, so that requests with one meaning share a statement.
        return FieldName(str(follow))

    def _groups(self, value: object, path: FilterPath) -> tuple[Filter, ...]:
        problems: list[Problem] = []
        items: list[Filter] = []
        for index, item in enumerate(_filters_in(value, path)):
            with _collecting(problems):
                items.append(self.group(item, (*path, str(index))))
        if problems:
            raise combined(problems)
        return tuple(items)

    def _parser_at(self, name: str) -> _Parser:
        """Return the parser of what stands at a name: a path may lead into a JSON field."""
        # The values of a body have types of their own, and those in brackets are texts.
        if self.is_text and "." in name:
            return _Parser(JsonLiterals(self.literals), self.operators, is_text=True)
        return self

    def _inner(self, value: object, path: FilterPath) -> Filter:
        if isinstance(value, Mapping):
            return self.group(value, path)
        if isinstance(value, list):
            raise _wrong(path, "a list needs an operator, such as _in")
        return self._test("_eq", value, path)

    def _test(self, operator: str, value: object, path: FilterPath) -> Filter:
        self._count_node(path)
        # SQL has no equality with NULL; a client that compares with null means IS NULL.
        if value is None and operator == "_eq":
            return OperatorTest("_null")
        if value is None and operator == "_neq":
            return OperatorTest("_nnull")
        entry = self.operators[operator]
        match entry.operand_kind:
            case OperandKind.NOTHING:
                # `_null: false` is `_nnull`, so that the tree and the statement have no flag.
                if not _parse_flag(value, path):
                    return OperatorTest(entry.opposite)
                return OperatorTest(operator)
            case OperandKind.LIST:
                values = self._parse_list(value, path, takes_keys=operator in _KEY_OPERATORS)
                return OperatorTest(operator, (self._list_operand(values, path),))
            case OperandKind.TWO:
                return OperatorTest(operator, self._two_operands(value, path))
            case OperandKind.FLAG:
                return OperatorTest(operator, (self.literals.literal(_parse_flag(value, path)),))
            case OperandKind.REGEX:
                tally = self.literals.tally
                tally.add(1, "patterns", maximum=MAX_PATTERNS, parameter=path[0])
                return OperatorTest(operator, (self.literals.literal(_pattern(value, path)),))
            case _:
                parts = as_list(value) if operator in _KEY_OPERATORS else value
                if isinstance(parts, list):
                    return OperatorTest(operator, (self.literals.literal(_key(parts, path)),))
                return OperatorTest(operator, (self._one_operand(value, path),))

    def _parse_list(
        self, value: object, path: FilterPath, *, takes_keys: bool = False
    ) -> list[object]:
        """Return a list that is written with commas, with brackets or as JSON.

        An array in it is a key of several columns.
        """
        items = as_list(value)
        if isinstance(items, str):
            items = items.split(",") if items else []
        if not isinstance(items, list):
            items = [items]
        self.literals.tally.add(
            len(items), "values in lists", maximum=MAX_LIST_OPERANDS, parameter=path[0]
        )
        if takes_keys:
            items = [_key(item, path) if isinstance(item, list) else item for item in items]
        if any(item is None or isinstance(item, dict | list) for item in items):
            raise _wrong(path, "it takes a list of values that are not null")
        return items

    def _list_operand(self, items: list[object], path: FilterPath) -> Operand:
        """Return the operand of a list.

        A path from the caller is the whole list, as it may lead to many values.
        """
        values: list[object] = []
        for item in items:
            value = _variable(item, path)
            # $CURRENT_USER itself is one value, and may stand in a list with others.
            if not isinstance(value, CallerValue):
                values.append(value)
            elif len(items) == 1:
                return value
            else:
                reason = "a path from $CURRENT_USER or $CURRENT_ROLE stands alone in a list"
                raise _wrong(path, reason)
        return self.literals.literal(tuple(values))

    def _two_operands(self, value: object, path: FilterPath) -> tuple[Operand, ...]:
        items = self._parse_list(value, path)
        if len(items) != 2:
            raise _wrong(path, "it takes exactly two values")
        low, high = items
        return self._one_operand(low, path), self._one_operand(high, path)

    def _one_operand(self, value: object, path: FilterPath) -> Operand:
        if value is None or isinstance(value, list):
            raise _wrong(path, _NO_VALUE)
        try:
            return self.literals.operand(value)
        except ValueError as error:
            raise _wrong(path, str(error)) from None

    def _count_node(self, path: FilterPath) -> None:
        self.literals.tally.add(1, "nodes of filters", maximum=MAX_FILTER_NODES, parameter=path[0])
        # Depth is counted in keys: each costs a level of recursion here and in the later passes.
        if len(path) > MAX_FILTER_DEPTH:
            raise _wrong(path[:1], f"it is nested deeper than {MAX_FILTER_DEPTH}")


@contextmanager
def _collecting(problems: list[Problem]) -> Iterator[None]:
    """Collect the problems of a part, which are raised with those of all parts of its group."""
    try:
        yield
    except LimitExceeded:
        raise  # nothing else of the request is looked at
    except Refused as refused:
        problems.extend(refused.problems)
        if len(problems) >= MAX_PROBLEMS:
            raise combined(problems) from None  # an answer has no room for more


def _filters_in(value: object, path: FilterPath) -> Sequence[object]:
    filters = as_list(value)
    if filters == {}:
        return ()
    if not isinstance(filters, list):
        raise _wrong(path, "it takes a list of filters")
    return filters


def _key(values: list[object], path: FilterPath) -> tuple[object, ...]:
    """Return a key of several columns, whose values are as they are stored."""
    for value in values:
        if value is None or isinstance(value, dict | list) or _variable(value, path) is not value:
            raise _wrong(path, "a key takes values that are neither null, variables nor lists")
    if not values:
        raise _wrong(path, _NO_VALUE)
    return tuple(values)


def _variable(value: object, path: FilterPath) -> object:
    """Return a value of a list; a variable is parsed here and resolved with each request."""
    try:
        return parse_variable(value)
    except ValueError as error:
        raise _wrong(path, str(error)) from None


def _parse_flag(value: object, path: FilterPath) -> bool:
    if isinstance(value, bool | str | int):
        text = str(value).lower()
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
    raise _wrong(path, "it takes true or false")


def _pattern(value: object, path: FilterPath) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "it takes a text")
    try:
        compile_regex(value)
    except ValueError as error:
        raise _wrong(path, str(error)) from None
    return value


def _looks_like_operator(value: object) -> bool:
    # The filter of a field is an object with something in it. Anything else is more likely an
    # operator that was misspelled.
    return not isinstance(value, Mapping) or not value


def _wrong(path: FilterPath, reason: str) -> Exception:
    path_text = _path_text(path)
    return invalid_query(f"{path_text}: {reason}", parameter=path[0], path=path_text)


def _path_text(path: FilterPath) -> str:
    head, *keys = path
    text = head + "".join(f"[{key}]" for key in keys)
    # The path goes into the answer; keys come from the request and may be of any length.
    if len(text) > MAX_PATH_LENGTH:
        return text[:MAX_PATH_LENGTH] + "…"
    return text
