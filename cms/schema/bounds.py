"""The bounds of columns, checked by the service: its refusals name the field, PostgreSQL's not."""

from __future__ import annotations

from cms.schema.types.field_type import OutOfRange, Parse, RangeTest, TooLong


def bounded(
    parse: Parse, max_length: int | None, in_range: RangeTest | None, *, subject: str = "it"
) -> Parse:
    """Return a parser that takes no text longer than `max_length`, and no value out of range."""
    if not max_length and not in_range:
        return parse

    # Characters, not bytes: so PostgreSQL counts the length of varchar(n).
    def parse_bounded(value: object) -> str:
        text = parse(value)
        if max_length and len(text) > max_length:
            raise TooLong(f"{subject} takes at most {max_length} characters")
        if in_range and not in_range(text):
            raise OutOfRange(subject)
        return text

    return parse_bounded
