"""Strategies: rows for a shape, and queries in the form of a SEARCH body's."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.model.pools import KEYS, NOWHERE, OPERANDS, PARTS, ROWS, TEXTS, UUIDS, WORDS
from tests.model.shape import KEY, Collection, Row, Shape
from tests.model.values import FUNCTIONS

Json = dict[str, Any]

SIZES = (0, 1, 3, 5, 8, 8)
DEPTH = 3

STARS_MEET_NAMES = True
"""Whether `*.*` stands beside relations that are named in `fields` or
`deep`: what either asks for is then shown.
"""

KEYS_OF = {"integer": tuple(range(1, 9)), "uuid": UUIDS, "string": KEYS}

NULL = ("_null", "_nnull")
EMPTY = (*NULL, "_empty", "_nempty")
EQUAL = ("_eq", "_neq", "_in", "_nin")
ORDER = ("_lt", "_lte", "_gt", "_gte", "_between", "_nbetween")
PARTIAL = tuple(
    f"_{mode}{name}"
    for mode in ("", "n", "i", "ni")
    for name in ("contains", "starts_with", "ends_with")
)
OPERATORS = {
    "string": (*EQUAL, *ORDER, *EMPTY, *PARTIAL, "_ieq", "_nieq"),
    **dict.fromkeys(("integer", "decimal", "date", "timestamp"), (*EQUAL, *ORDER, *NULL)),
    **dict.fromkeys(("boolean", "uuid"), (*EQUAL, *NULL)),
    "csv": (*EMPTY, *PARTIAL),
    "json": EMPTY,
    "hash": EMPTY,
}
NUMBERS = ("integer", "decimal")
ORDERED = (*NUMBERS, "date", "timestamp", "string")
GROUPED = (*ORDERED, "boolean", "uuid", "csv")
AGGREGATED = {
    **dict.fromkeys(("sum", "sumDistinct", "avg", "avgDistinct"), NUMBERS),
    **dict.fromkeys(("min", "max"), ORDERED),
    "count": tuple(kind for kind in ROWS if kind != "hash"),
    "countDistinct": GROUPED,
}


# Rows


@st.composite
def all_rows(draw: st.DrawFn, shape: Shape) -> dict[str, list[Row]]:
    """Draw up to eight rows for each collection; every to-one column
    holds the key of a row or null.
    """
    keys = {name: draw(_keys(KEYS_OF[target.columns[KEY]])) for name, target in shape.items()}
    rows = {name: _row(target, keys) for name, target in shape.items()}
    return {name: [{KEY: key, **draw(row)} for key in keys[name]] for name, row in rows.items()}


# One draw of some bytes is quicker by far than one for each value, and bytes shrink to the first
# values as well.


def _keys(known: tuple[Any, ...]) -> st.SearchStrategy[list[Any]]:
    """Draw some of these keys, in any order."""

    def pick(drawn: bytes) -> list[Any]:
        ranked = sorted(zip(drawn[1:], range(len(known)), strict=True))
        return [known[number] for _, number in ranked][: SIZES[drawn[0] % len(SIZES)]]

    return _drawn(1 + len(known)).map(pick)


def _row(collection: Collection, keys: dict[str, list[Any]]) -> st.SearchStrategy[Row]:
    """Draw what a row of a collection holds beside its key."""
    values: dict[str, tuple[Any, ...]] = {}
    for name, kind in collection.columns.items():
        link = collection.links.get(name)
        values[name] = (None, *(keys[link.target] if link else ROWS[kind]))
    arms = [collection.links[name].target for name in collection.arms("any")]
    if arms:
        some = [str(other) for arm in arms for other in keys[arm]]
        values |= {"any": (None, NOWHERE, "%s", *some), "kind": (None, "%s", *arms)}
    del values[KEY]

    def fill(drawn: bytes) -> Row:
        return {
            name: some[byte % len(some)]
            for (name, some), byte in zip(values.items(), drawn, strict=True)
        }

    return _drawn(len(values)).map(fill)


def _drawn(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


# Queries


@st.composite
def queries(draw: st.DrawFn, shape: Shape, collection: Collection) -> Json:
    """Draw a query of the top level: of items, or of groups and aggregates."""
    meta = draw(
        st.sampled_from(
            ([], [], ["total_count", "filter_count"], ["total_count"], ["filter_count"])
        )
    )
    counts = {"meta": meta} if meta else {}
    if draw(st.integers(0, 3)) == 0:
        return {**counts, **draw(_which(shape, collection, DEPTH)), **draw(_grouping(collection))}
    paths, params, deep = draw(_items(shape, collection, DEPTH))
    fields = {"fields": paths} if paths != ["*"] or draw(st.booleans()) else {}
    return {**counts, **fields, **params, **({"deep": deep} if deep else {})}


@st.composite
def _items(
    draw: st.DrawFn, shape: Shape, collection: Collection, depth: int
) -> tuple[list[str], Json, Json]:
    """Draw what is shown of one level, its parameters, and the parameters of the levels below
    it.
    """
    params = {
        **draw(_which(shape, collection, depth)),
        **draw(_window()),
        **draw(_sorting(shape, collection)),
    }
    names = _output_names(collection)
    aliases = {
        f"alias{n}": name
        for n, name in enumerate(draw(st.lists(st.sampled_from(names), max_size=2)))
    }
    paths: list[str] = []
    deep: Json = {}
    heads = [
        *draw(st.lists(st.sampled_from(["*", *names, *collection.links]), unique=True, max_size=4)),
        *aliases,
    ]
    for head in heads:
        if (
            head == "*"
            and depth
            and draw(st.booleans())
            and (STARS_MEET_NAMES or not collection.links.keys() & heads)
        ):
            paths.append("*.*")
            continue
        steps, below = draw(_path(shape, collection, (head, aliases.get(head, head)), depth))
        paths += steps
        deep |= {head: below} if below else {}
    if "*" in paths or (STARS_MEET_NAMES and "*.*" in paths):
        lists = [name for name, link in collection.links.items() if link.many and name not in deep]
        deep |= {
            name: {f"_{key}": value for key, value in draw(_window()).items()} for name in lists
        }
    return paths or ["*"], {**params, **({"alias": aliases} if aliases else {})}, deep


def _output_names(collection: Collection) -> list[str]:
    lists = [name for name, link in collection.links.items() if link.many]
    return [*collection.columns, *lists, *_functions(collection)]


def _functions(collection: Collection) -> list[str]:
    of_columns = [
        f"{function}({name})"
        for name, kind in collection.columns.items()
        for function in FUNCTIONS.get(kind, ())
    ]
    return of_columns + [f"count({name})" for name, link in collection.links.items() if link.many]


@st.composite
def _path(
    draw: st.DrawFn, shape: Shape, collection: Collection, start: tuple[str, str], depth: int
) -> tuple[list[str], Json]:
    """Draw the paths behind one name, and its parameters when it leads to other items."""
    head, name = start
    link = collection.links.get(name)
    if link and link.collection_column:
        names = st.sampled_from(["*", *_output_names(shape[link.target])])
        return [
            f"{head}.{path}" for path in draw(st.lists(names, unique=True, min_size=1, max_size=3))
        ], {}
    if link is None or depth == 0:
        return [head], {}
    target = shape[link.target]
    if link.many and draw(st.integers(0, 4)) == 0:
        params = {**draw(_which(shape, target, depth - 1)), **draw(_grouping(target))}
        return [head], {f"_{key}": value for key, value in params.items()}
    paths, params, deep = draw(_items(shape, target, depth - 1))
    if draw(st.integers(0, 2)) == 0:
        return [head], {
            f"_{key}": value for key, value in params.items() if link.many and key != "alias"
        }
    if not link.many:
        params = {
            key: value for key, value in params.items() if key in ("filter", "search", "alias")
        }
    return [f"{head}.{path}" for path in paths], {
        **{f"_{key}": value for key, value in params.items()},
        **deep,
    }


@st.composite
def _which(draw: st.DrawFn, shape: Shape, collection: Collection, depth: int) -> Json:
    params: Json = {}
    if draw(st.integers(0, 2)) == 0:
        params["filter"] = draw(filters(shape, collection, depth))
    if draw(st.integers(0, 5)) == 0:
        params["search"] = draw(st.sampled_from(WORDS))
    return params


@st.composite
def _window(draw: st.DrawFn) -> Json:
    limit = draw(st.sampled_from((None, None, -1, 0, 1, 2, 3, 4, 9)))
    start = draw(
        st.sampled_from(
            ({}, {}, {"offset": 0}, {"offset": 1}, {"offset": 3}, {"page": 1}, {"page": 2})
        )
    )
    return {**({} if limit is None else {"limit": limit}), **start}


@st.composite
def _sorting(draw: st.DrawFn, shape: Shape, collection: Collection) -> Json:
    terms = draw(st.lists(_term(shape, collection, 2), max_size=2))
    return {"sort": [draw(st.sampled_from(("", "-"))) + term for term in terms]} if terms else {}


@st.composite
def _term(draw: st.DrawFn, shape: Shape, collection: Collection, depth: int) -> str:
    steps = list(collection.links)
    if depth and steps and draw(st.integers(0, 2)) == 0:
        step = draw(st.sampled_from(steps))
        return f"{step}.{draw(_term(shape, shape[collection.links[step].target], depth - 1))}"
    return draw(st.sampled_from([*_of_kinds(collection, GROUPED), *_functions(collection)]))


def _of_kinds(collection: Collection, kinds: tuple[str, ...]) -> list[str]:
    return [name for name, kind in collection.columns.items() if kind in kinds]


@st.composite
def _grouping(draw: st.DrawFn, collection: Collection) -> Json:
    """Draw groups, aggregates or both, in an order that they have."""
    names = (*_of_kinds(collection, GROUPED), *_functions(collection))
    choices = [name for name in names if name not in AGGREGATED]
    groups = draw(
        st.lists(st.sampled_from(choices), unique=True, max_size=draw(st.sampled_from((0, 1, 2))))
    )
    aggregate = draw(_aggregates(collection))
    if not groups and not aggregate:
        return {"aggregate": {"count": ["*"]}}
    terms = groups + [
        f"{name}.{field}" if field != "*" else name
        for name in aggregate
        for field in aggregate[name]
    ]
    sort = draw(st.lists(st.sampled_from(terms), unique=True, max_size=2)) if groups else []
    query = {
        "groupBy": groups,
        "aggregate": aggregate,
        "sort": [draw(st.sampled_from(("", "-"))) + t for t in sort],
    }
    return {**draw(_window()), **{name: value for name, value in query.items() if value}}


@st.composite
def _aggregates(draw: st.DrawFn, collection: Collection) -> dict[str, list[str]]:
    functions: dict[str, list[str]] = {}
    min_functions = draw(st.integers(0, 1))
    for function in draw(
        st.lists(
            st.sampled_from(("countAll", *AGGREGATED)),
            unique=True,
            min_size=min_functions,
            max_size=6,
        )
    ):
        fields = _of_kinds(collection, AGGREGATED.get(function, ()))
        stars = ["*"] if function.startswith("count") and function != "countDistinct" else []
        choices = st.sampled_from([*stars, *fields]) if stars or fields else st.nothing()
        if not choices.is_empty:
            functions[function] = draw(st.lists(choices, unique=True, min_size=1, max_size=3))
    return functions


# Filters


@st.composite
def filters(
    draw: st.DrawFn, shape: Shape, collection: Collection, depth: int, *, min_parts: int = 0
) -> Json:
    """Draw a filter that fits: of one field, of several, or a group of
    `min_parts` or more, through relations too.
    """
    kind = draw(st.sampled_from(("leaf", "leaf", "leaf", "both", "_and", "_or")))
    if kind == "both":
        return {**draw(_leaf(shape, collection, depth)), **draw(_leaf(shape, collection, depth))}
    if kind == "leaf" or depth == 0:
        return draw(_leaf(shape, collection, depth))
    inner = filters(shape, collection, depth - 1, min_parts=min_parts)
    return {kind: draw(st.lists(inner, min_size=min_parts, max_size=3))}


@st.composite
def _leaf(draw: st.DrawFn, shape: Shape, collection: Collection, depth: int) -> Json:
    links = [*collection.links] if depth else []
    choices = [*collection.columns, *_functions(collection)]
    if links and draw(st.integers(0, 1)) == 0:
        name = draw(st.sampled_from(links))
        return {name: draw(_beyond(shape, collection, name, depth))}
    name = draw(st.sampled_from(choices))
    return {name: draw(_tests(collection, name))}


@st.composite
def _beyond(draw: st.DrawFn, shape: Shape, collection: Collection, name: str, depth: int) -> Json:
    """Draw a filter on items at the other end; a group of nothing would filter neither
    end.
    """
    link = collection.links[name]
    target = shape[link.target]
    inner: Json = draw(_leaf(shape, target, depth - 1))
    if draw(st.integers(0, 2)) == 0:
        inner = {
            draw(st.sampled_from(("_and", "_or"))): [
                inner,
                draw(filters(shape, target, depth - 1, min_parts=1)),
            ]
        }
    if link.many:
        return {"": inner, "_some": {"_some": inner}, "_none": {"_none": inner}}[
            draw(st.sampled_from(QUANTIFIED))
        ]
    if not link.collection_column and draw(st.integers(0, 3)) == 0:
        return {draw(st.sampled_from(("_and", "_or"))): [inner, draw(_tests(collection, name))]}
    return inner


QUANTIFIED = ("", "_some", "_none")


@st.composite
def _tests(draw: st.DrawFn, collection: Collection, name: str) -> Json:
    """Draw one test of a field or a function of one, or a group of them."""
    kind = collection.columns.get(name, "integer")
    operands = OPERANDS.get(kind, ())
    if name not in collection.columns:
        operands = PARTS
    elif name == KEY or name in collection.links:
        operands = KEYS_OF[kind]
    one = _test(kind, operands)
    if draw(st.integers(0, 7)) == 0:
        return {draw(st.sampled_from(("_and", "_or"))): draw(st.lists(one, min_size=1, max_size=2))}
    return draw(one)


@st.composite
def _test(draw: st.DrawFn, kind: str, operands: tuple[Any, ...]) -> Json:
    operator = draw(st.sampled_from(OPERATORS[kind]))
    if operator in EMPTY:
        return {operator: draw(st.booleans())}
    if operator in PARTIAL:
        return {operator: draw(st.sampled_from(TEXTS if kind == "string" else operands))}
    value = st.sampled_from(operands)
    if operator in ("_in", "_nin"):
        return {operator: draw(st.lists(value, max_size=3))}
    if operator in ("_between", "_nbetween"):
        return {operator: [draw(value), draw(value)]}
    return {
        operator: None
        if operator in ("_eq", "_neq") and draw(st.integers(0, 9)) == 0
        else draw(value)
    }
