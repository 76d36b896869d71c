"""The planner: turns a guarded query into a read that can be printed, without looking up names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cms.errors import invalid_query
from cms.query.language.ast import RELEVANCE, Constant, RowOutput, SearchWord
from cms.query.language.parameters import COUNT_ESTIMATE, COUNTS, RANKED
from cms.query.plan.bindings import Placeholder
from cms.query.plan.conditions import predicate_of, typed_test, value_of
from cms.query.plan.grouping import grouping_of, unfit
from cms.query.plan.guarded import (
    AggregateTerm,
    Guarded,
    GuardedColumn,
    GuardedEmbed,
    GuardedOutput,
    GuardedQuery,
    GuardedTerm,
    GuardedTest,
    RelatedSearch,
    RelevanceTerm,
)
from cms.query.plan.masks import is_restricted, with_rules_beside
from cms.query.plan.ordering import cursor_of
from cms.query.plan.read_plan import (
    EVERY_ROW,
    All,
    AnyOf,
    CountEstimate,
    Embed,
    EmbedChoice,
    Exists,
    Highlights,
    Order,
    Output,
    Page,
    Predicate,
    ReadPlan,
    Relevance,
    RowValue,
    SearchMatch,
    Value,
    ValueOutput,
    both,
)
from cms.schema.model import VERSION_COLUMN, Collection, Field
from cms.schema.names import MAX_NAME_BYTES
from cms.schema.types.field_type import Search, Trait
from cms.schema.types.numbers import INTEGER
from cms.schema.types.texts import UNKNOWN, parse_text


def plan(guarded: Guarded) -> ReadPlan:
    """Plan a guarded query.

    Raises `Refused` INVALID_QUERY where an operator or a function does not fit.
    """
    read = _read(guarded.query)
    if not _is_page_by_relevance(guarded.query):
        return read
    return replace(
        read,
        counts=(*read.counts, RANKED),
        is_found_by_index=any(_is_indexed(guarded.query)),
    )


def _read(query: GuardedQuery) -> ReadPlan:
    grouping = grouping_of(query)
    # Groups have an order of their own, and show nothing but themselves and aggregates.
    order = () if grouping else _order(query)
    allowed = both(predicate_of(query.base_filter), query.rule) or EVERY_ROW
    where = _where(query, _search(query))
    return ReadPlan(
        collection=query.collection,
        outputs=() if grouping else _outputs(query),
        allowed=allowed,
        where=with_rules_beside(where),
        order=order,
        page=_page(query),
        grouping=grouping,
        counts=tuple(count for count in query.counts if count in COUNTS),
        renamed=any(map(_is_renamed, query.outputs)),
        row_values=tuple(_row_value(output, query.collection) for output in query.row_outputs),
        cursor=cursor_of(query, order),
        highlights=_highlights(query),
        count_estimate=_count_estimate(query, allowed, where),
    )


# What is shown


def _outputs(query: GuardedQuery) -> tuple[Output, ...]:
    # The targets of a many-to-any field share one key, and become one output.
    outputs_by_key: dict[str, list[GuardedOutput]] = {}
    for output in query.outputs:
        outputs_by_key.setdefault(output.key, []).append(output)
    return tuple(_output(query.collection, outputs) for outputs in outputs_by_key.values())


def _output(collection: Collection, outputs: list[GuardedOutput]) -> Output:
    """Return the one output of a key: a column, related items, or both of a many-to-any field."""
    columns: list[Output] = []
    guarded_embeds: list[GuardedEmbed] = []
    for output in outputs:
        if isinstance(output, GuardedColumn):
            columns.append(ValueOutput(output.key, value_of(output.value)))
        else:
            guarded_embeds.append(output)
    if not guarded_embeds:
        return columns[0]
    embeds = tuple(map(_embed, guarded_embeds))
    return _merge_embeds(collection, embeds, guarded_embeds[0].field)


def _embed(output: GuardedEmbed) -> Embed:
    inner = _read(output.query)
    # One row needs neither order nor page.
    if not output.step.link.to_many:
        inner = replace(inner, order=(), page=None)
    return Embed(output.key, output.step, inner, keys_only=output.keys_only)


def _merge_embeds(collection: Collection, embeds: tuple[Embed, ...], field: Field) -> Output:
    """Return one output for the targets of a many-to-any field, which share a key.

    If no target is opened, the output is the column itself, in the rows whose item is seen.
    """
    key = embeds[0].key
    # Nothing is fetched from the targets: the column holds the key already.
    if all(embed.keys_only and embed.step.link.collection_field for embed in embeds):
        # The target still decides what is seen: a row whose item is hidden shows null.
        seen = tuple(
            Exists(embed.step, All((embed.plan.allowed, embed.plan.where))) for embed in embeds
        )
        return ValueOutput(key, Value(field, when=AnyOf(seen)))
    naming_column = embeds[0].step.link.collection_field
    if naming_column is None or embeds[0].step.link.to_many:
        return embeds[0]
    # The rules of both columns hold for their values, as for every item.
    opened = tuple(embed.step.link.target for embed in embeds)
    is_other = typed_test(
        GuardedTest("_nin", (Constant(opened),)), Value(collection.fields[naming_column])
    )
    return EmbedChoice(key, embeds, Value(field, when=both(embeds[0].step.when, is_other)))


def _row_value(output: RowOutput, collection: Collection) -> RowValue:
    if output is RowOutput.KEY:
        return RowValue(output, Value(collection.key))
    return RowValue(output, Value(Field(collection.name, VERSION_COLUMN, UNKNOWN)))


def _is_renamed(output: GuardedOutput) -> bool:
    return output.key != output.own_key or len(output.key.encode()) > MAX_NAME_BYTES


# Which rows


def _where(query: GuardedQuery, search: Predicate | None) -> Predicate:
    conditions = [predicate_of(query.filter)]
    if query.key_test:
        conditions.append(typed_test(query.key_test, Value(query.collection.key)))
    if search is not None:
        conditions.append(search)
    if len(conditions) == 1:
        return conditions[0]
    return All(tuple(conditions))


def _is_page_by_relevance(query: GuardedQuery) -> bool:
    """Tell whether a page is sorted by relevance, and the key tells which rows are ranked."""
    if not any(isinstance(term, RelevanceTerm) for term in query.sort):
        return False
    # The one row of a singleton comes with its version, and needs no order.
    if query.collection.primary_key is None or RowOutput.VERSION in query.row_outputs:
        return False
    # Where all rows are read, all are ranked.
    return query.window is not None and query.window.row_limit is not None


def _is_indexed(query: GuardedQuery) -> list[bool]:
    """Tell of each word of a search whether an index finds the rows that hold it themselves."""
    has_indexes = all(map(_has_search_index, _search_values(query)))
    return [has_indexes and not word.is_short for word in query.search]


def _search(query: GuardedQuery) -> Predicate | None:
    """Return the condition that the row or a related item has each word; None without a search."""
    if not query.search:
        return None
    matches_by_word = _search_matches(_search_values(query), query.search)
    # If no index serves the row's own values, the row is read anyway, and compared with the keys of
    # the related items one by one.
    indexed = _is_indexed(query)
    words: list[Predicate] = []
    for word, own_matches, is_indexed in zip(query.search, matches_by_word, indexed, strict=True):
        matches: list[Predicate] = [*own_matches]
        for items in query.search_items:
            matches.append(_related_match(items, word, is_indexed=is_indexed))
        words.append(AnyOf(tuple(matches)))
    if len(words) == 1:
        return words[0]
    return All(tuple(words))


def _related_match(items: RelatedSearch, word: SearchWord, *, is_indexed: bool) -> Exists:
    values = list(map(value_of, items.values))
    (matches,) = _search_matches(values, [word])
    return Exists(items.step, AnyOf(matches), keys_first=items.is_indexed and is_indexed)


def _highlights(query: GuardedQuery) -> Highlights | None:
    if not query.highlights:
        return None
    return Highlights(_search_matches(_search_values(query), query.search))


def _search_values(query: GuardedQuery) -> list[Value]:
    return list(map(value_of, query.search_values))


def _count_estimate(
    query: GuardedQuery, allowed: Predicate, where: Predicate
) -> CountEstimate | None:
    """Return how the rows that fulfil the filter are estimated; None if the query does not ask."""
    if COUNT_ESTIMATE not in query.counts:
        return None
    if allowed != EVERY_ROW or is_restricted(where):
        return CountEstimate.SAMPLE
    return CountEstimate.STATISTICS


def _page(query: GuardedQuery) -> Page | None:
    window = query.window
    if window is None:
        return None
    # The statement casts text to bigint; a limit of -1 was turned into None by the parser, and
    # LIMIT NULL is no limit.
    return Page(
        window.row_limit,
        window.limit,
        window.offset,
        page_limit=window.page_limit,
        has_next_row=query.cursor is not None,
    )


# In which order


def _order(query: GuardedQuery) -> tuple[Order, ...]:
    order = []
    for term in query.sort:
        if isinstance(term, RelevanceTerm):
            # The best first, which is the greatest number.
            order.append(Order(_relevance(query), descending=not term.descending))
        else:
            order.append(_term(term))
    return tuple(order)


def _term(term: GuardedTerm | AggregateTerm) -> Order:
    # A write takes the keys of the items that its query selects, and drops the aggregates of the
    # query (cms/items/write/transaction/named_keys.py), but not a sort by them.
    if isinstance(term, AggregateTerm):
        raise invalid_query("Only groups are sorted by aggregates", parameter="sort")
    value = value_of(term.value)
    if Trait.SORTING not in value.type.traits:
        raise unfit(value, "cannot be sorted by", "sort")
    return Order(value, term.path, descending=term.descending)


def _relevance(query: GuardedQuery) -> Value:
    """Return how well a row fits the words of the search, as a value to sort by."""
    matches = _search_matches(_search_values(query), query.search)
    return Value(Field(query.collection.name, RELEVANCE, INTEGER), relevance=Relevance(matches))


# Words of a search


def _search_matches(
    values: Sequence[Value], words: Sequence[SearchWord]
) -> tuple[tuple[SearchMatch, ...], ...]:
    """Return for each word its tests of the values, in their order."""
    return tuple(_matches_of_word(values, word) for word in words)


def _matches_of_word(values: Sequence[Value], word: SearchWord) -> tuple[SearchMatch, ...]:
    # One parameter for all texts, however many there are.
    text = Placeholder(word.text, parse_text, "search")
    return tuple(SearchMatch(value, _operand(value, word, text), word.is_short) for value in values)


def _operand(value: Value, word: SearchWord, text: Placeholder) -> Placeholder:
    if value.type.search is Search.CONTAINED:
        return text
    return Placeholder(word.text, partial(_parse_or_null, value.parse), "search")


def _parse_or_null(parse: Callable[[object], str], word: object) -> str | None:
    """Return the parsed word, or None for a word that is no value of the type and so equals none.

    As NULL it leaves the statement the same for every word.
    """
    try:
        return parse(word)
    except ValueError:
        return None


def _has_search_index(value: Value) -> bool:
    """Tell whether an index finds the rows in which a value holds a word."""
    column = value.field.column
    if column is None:
        return False
    if value.type.search is Search.CONTAINED:
        return column.is_search_indexed
    return column.is_indexed or column.is_unique
