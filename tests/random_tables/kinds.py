"""Kinds of columns: the types that PostgreSQL ships, each with a strategy of its values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]


class Comparison(Enum):
    """How filters compare the values of a column."""

    NONE = "not at all"
    TEXT = "for equality, as texts"
    EQUALITY = "for equality"
    ORDER = "for equality and order"


@dataclass(frozen=True)
class Kind:
    """A type of columns."""

    type: str
    texts: Texts = field(repr=False)
    """Values as PostgreSQL reads them."""
    comparison: Comparison = Comparison.ORDER
    is_key: bool = True
    """Whether columns of the type can be of a primary key."""
    since: int = 0
    """The first version of PostgreSQL that has the type."""
    changes: tuple[str, ...] = field(default=())
    """Expressions over `{0}` by which triggers change values."""
    base_type: str = ""
    """The type whose operators compare the values, if it is another one."""
    has_constants: bool = True
    """Whether defaults and checks can name values."""

    @property
    def is_json(self) -> bool:
        return self.base_type == "jsonb"

    def compared(self, value: str) -> str:
        """Return the SQL that tells values apart as filters do."""
        if self.base_type:
            return f"{value}::{self.base_type}"
        if self.comparison in (Comparison.TEXT, Comparison.NONE):
            return f"{value}::text"
        return value


def quoted_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Texts

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ODD_TEXTS = st.sampled_from(
    [
        "", " ", ",", "a,b", "%", "50%", "%2C", "%25", "%00", "/", "a/b", "a/", "?", "#", "a&b=c",
        ".", "..", "../..", "\\", "a\\", "\\x41", "'", '"', 'say "x"', " a ", "a ", "\t", "\n",
        "a\r\nb", "NULL", "null", "true", "[]", "{}", '["a","b"]', "$1", "%s", "{0}", "_", "a_b",
        "*", "+", "a+b", "ü", "u\u0308", "İ", "ß", "中文", "\U0001f600", "\ufeff", "\u2028",
        "--", ";", "NaN", "0", "-0", "01", "1e3", "infinity", "12,34",
    ]
)  # fmt: skip


def texts_of(max_size: int) -> Texts:
    """Draw texts of at most so many characters, unusual ones among them."""
    odd = ODD_TEXTS.filter(lambda text: len(text) <= max_size)
    return st.one_of(odd, st.text(CHARACTERS, max_size=max_size))


TEXTS = texts_of(12)

# Numbers

NOT_FINITE = ["NaN", "Infinity", "-Infinity"]


def whole_numbers(bits: int) -> Texts:
    limit = 2 ** (bits - 1)
    extremes = st.sampled_from([0, 1, -1, limit - 1, -limit])
    return st.one_of(extremes, st.integers(-limit, limit - 1)).map(str)


DECIMALS = st.one_of(
    st.sampled_from(
        [
            *NOT_FINITE,
            "0",
            "1.50",
            "0.10",
            "100",
            "1e20",
            "1e-20",
            "-0.000001",
            "12345678901234567890.5",
        ]
    ),
    st.decimals(allow_nan=False, allow_infinity=False).map(str).filter(lambda text: len(text) < 60),
)
SMALL_DECIMALS = st.one_of(
    st.just("NaN"), st.decimals(-999, 999, places=3, allow_nan=False).map(str)
)
FLOATS = st.one_of(
    st.sampled_from(
        [*NOT_FINITE, "0", "-0", "0.1", "1e300", "5e-324", "1e22", "123456789012345680"]
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
REALS = st.one_of(
    st.sampled_from([*NOT_FINITE, "0", "-0", "0.1", "16777216", "3.4028235e38", "1e-45"]),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
)


def is_not_negative_zero(text: str) -> bool:
    """Tell a number from what many clients send as 0, which is another value within an array."""
    return text == "0" or float(text) != 0


COORDINATES = st.one_of(
    st.sampled_from(["0", "1", "-2.5", "1e300", "0.1"]), st.integers(-100, 100).map(str)
)
UNSIGNED = st.one_of(st.just("0"), st.integers(0, 2**32 - 1).map(str))

# Times


def padded(number: int, digits: int = 2) -> str:
    return str(number).rjust(digits, "0")


YEARS = st.one_of(
    st.integers(1970, 2050), st.sampled_from([1, 4, 99, 999, 9999]), st.integers(1, 9999)
)


@st.composite
def dates(draw: st.DrawFn) -> str:
    year = draw(YEARS)
    day = f"{padded(year, 4)}-{padded(draw(st.integers(1, 12)))}-{padded(draw(st.integers(1, 28)))}"
    return draw(st.sampled_from([day] * 4 + [f"{day} BC" if year < 4700 else day, f"1{day}"]))


@st.composite
def times(draw: st.DrawFn) -> str:
    hour, minute, second = draw(st.tuples(st.integers(0, 23), *[st.integers(0, 59)] * 2))
    digits = draw(st.sampled_from(["", ".5", ".828", ".828033", ".000001", ".100000", ".999999"]))
    return f"{padded(hour)}:{padded(minute)}:{padded(second)}{digits}"


@st.composite
def moments(draw: st.DrawFn, zones: tuple[str, ...] = ("",)) -> str:
    day, era, _ = draw(dates()).partition(" BC")
    return f"{day} {draw(times())}{draw(st.sampled_from(zones))}{era and ' BC'}"


ENDLESS = st.sampled_from(["infinity", "-infinity"])
DATES = st.one_of(dates(), dates(), ENDLESS, st.sampled_from(["5874897-12-31", "4714-11-24 BC"]))
ZONES = ("", "Z", "+02", "-05:30", "+14:00", "+00:19:32")
TIMES = st.one_of(times(), st.sampled_from(["00:00", "24:00"]))
ZONED_TIMES = st.builds(lambda text, zone: text + zone, TIMES, st.sampled_from(ZONES))
MOMENTS = st.one_of(moments(), moments(), ENDLESS)
ZONED_MOMENTS = st.one_of(moments(ZONES), moments(ZONES), ENDLESS)


@st.composite
def intervals(draw: st.DrawFn) -> str:
    parts = [
        f"{draw(st.integers(-20, 20))} {unit}"
        for unit in draw(st.lists(st.sampled_from(["years", "mons", "days", "hours"]), unique=True))
    ]
    fraction = draw(
        st.sampled_from(["", "0.5 secs", "-0.000001 secs", "90 mins", "-59 mins 7 secs"])
    )
    return " ".join([*parts, fraction]).strip() or "0"


INTERVALS = intervals()

# Structures

# In the form in which the service writes JSON: columns of the type `json` keep a text as it is.
# Answers show JSON's null as they show SQL's.
JSON_VALUES = st.recursive(
    st.sampled_from(
        ["null", "true", "false", "1.50", "-0.5", "1E+20", '""', '"a\\"b"', '"ü"', "[]", "{}"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(inner, max_size=3).map(
            lambda items: in_braces([f'"m{n}":{item}' for n, item in enumerate(items)])
        ),
    ),
    max_leaves=5,
).filter(lambda text: text != "null")


def in_braces(items: list[str]) -> str:
    return "{" + ",".join(items) + "}"


def array_element(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def arrays(elements: Texts) -> Texts:
    """Draw arrays of one or two dimensions, with nulls."""
    element = st.one_of(elements.map(array_element), elements.map(array_element), st.just("NULL"))
    rows = st.integers(1, 3).flatmap(
        lambda size: st.lists(
            st.lists(element, min_size=size, max_size=size).map(in_braces), min_size=1, max_size=2
        )
    )
    return st.one_of(st.lists(element, max_size=3), rows).map(in_braces)


def ranges(low: str, high: str, middle: str) -> Texts:
    """Draw ranges of three values that are in this order."""
    bounds = st.sampled_from(
        [("", ""), (low, ""), ("", high), (low, high), (low, middle), (middle, high), (low, low)]
    )
    brackets = st.sampled_from(["[]", "[)", "(]", "()"])
    plain = st.builds(
        lambda ends, kind: (
            f"{kind[0]}{ends[0] and array_element(ends[0])},"
            f"{ends[1] and array_element(ends[1])}{kind[1]}"
        ),
        bounds,
        brackets,
    )
    return st.one_of(st.just("empty"), plain)


def multiranges(of: Texts) -> Texts:
    return st.lists(of, max_size=3).map(in_braces)


RANGES = {
    "int4": ranges("-5", "12", "3"),
    "int8": ranges("-5", "9223372036854775806", "3"),
    "num": ranges("-1.50", "1e20", "0.10"),
    "ts": ranges("0044-03-15 12:00:00 BC", "infinity", "2024-01-01 00:00:00.828033"),
    "tstz": ranges("-infinity", "2024-02-01 00:00:00+02", "2024-01-01 00:00:00.5Z"),
    "date": ranges("0044-03-15 BC", "12024-01-01", "2024-02-29"),
}


def points(number: int) -> Texts:
    pair = st.builds(lambda x, y: f"({x},{y})", COORDINATES, COORDINATES)
    return st.lists(pair, min_size=number, max_size=number).map(",".join)


ADDRESSES = [
    "10.0.0.1", "10.1.2.3/8", "0.0.0.0/0", "255.255.255.255", "::1", "fe80::1/64", "::ffff:1.2.3.4",
]  # fmt: skip
NETWORKS = ["10.0.0.0/8", "192.168.1.5/32", "0.0.0.0/0", "::/0", "fe80::/10", "10.1"]
MOODS = ["so-so", "good", 'Very, "very" bad', "it's 50%", "a/b", "ü", " ", "\\"]
HEX = st.binary(max_size=8).map(lambda content: "\\x" + content.hex())
BITS = st.text(st.sampled_from("01"), max_size=10)
LEXEMES = st.lists(texts_of(4).filter(str.strip), max_size=3).map(
    lambda words: " ".join(quoted_literal(word.replace("\\", "\\\\")) for word in words)
)
QUERIES = st.sampled_from(["", "'a'", "a & b", "!a | 'b c':*", "a <-> b", "a:AB <2> 'it''s'"])
PLACES = st.builds(
    lambda street, number: f"({array_element(street)},{number})", TEXTS, whole_numbers(32)
)
PAIRS = st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3).map(
    lambda pairs: ", ".join(
        f"{array_element(key)}=>{'NULL' if value is None else array_element(value)}"
        for key, value in pairs.items()
    )
)
LABELS = st.lists(st.sampled_from(["a", "B_1", "top", "x9"]), max_size=3).map(".".join)

TYPES = f"""
    CREATE EXTENSION IF NOT EXISTS citext;
    CREATE EXTENSION IF NOT EXISTS hstore;
    CREATE EXTENSION IF NOT EXISTS ltree;
    CREATE TYPE mood AS ENUM ({", ".join(map(quoted_literal, MOODS))});
    CREATE TYPE place AS (street text, number integer);
    CREATE TYPE stay AS (at place, during tstzrange, tags text[]);
    CREATE TYPE floatrange AS RANGE (subtype = float8);
    CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'never');
    CREATE DOMAIN small AS integer CHECK (VALUE < 2000000000);
    CREATE DOMAIN shorter AS short CHECK (VALUE <> 'no');
    CREATE DOMAIN mood_of_day AS mood;
    CREATE DOMAIN span AS int4range;
    CREATE DOMAIN words AS text[];
    CREATE DOMAIN home AS place;
    CREATE DOMAIN document AS jsonb;
    CREATE DOMAIN price AS numeric(8,3);
    CREATE DOMAIN exact_time AS timestamptz;
"""
"""What some of the kinds need to be made."""

_NO = Comparison.NONE
_TEXT = Comparison.TEXT
_EQUALITY = Comparison.EQUALITY
_CASES = ("upper({0})", "trim({0})", "{0} || ''")

KINDS: list[Kind] = [
    Kind("smallint", whole_numbers(16), changes=("least({0}, 100)",)),
    Kind("integer", whole_numbers(32), changes=("{0} / 2", "greatest({0}, 0)")),
    Kind("bigint", whole_numbers(64), changes=("{0} / 2",)),
    Kind("numeric", DECIMALS, changes=("round({0}, 1)", "trim_scale({0})")),
    Kind("numeric(9,3)", SMALL_DECIMALS, changes=("round({0})",)),
    Kind("numeric(4,-2)", st.integers(-9999, 9999).map(str), since=15),
    Kind("numeric(2,4)", st.sampled_from(["0.0012", "0.0099", "-0.0001", "0", "NaN"]), since=15),
    Kind("real", REALS, changes=("{0} / 3",)),
    Kind("double precision", FLOATS, changes=("{0} / 3",)),
    Kind("money", st.decimals(-(10**9), 10**9, places=2).map(str), changes=("{0} / 2",)),
    Kind("text", TEXTS, changes=_CASES),
    Kind("varchar", TEXTS, changes=_CASES),
    Kind("varchar(5)", texts_of(5), changes=("left(upper({0}), 5)",)),
    Kind("char(5)", texts_of(5), changes=("left(upper({0}), 5)",)),
    Kind("char", texts_of(1)),
    Kind('"char"', st.characters(codec="ascii", exclude_characters="\0"), _TEXT),
    Kind("name", TEXTS),
    Kind("citext", TEXTS, changes=_CASES),
    Kind("short", texts_of(5)),
    Kind("shorter", texts_of(5).filter(lambda text: text != "no")),
    Kind("bytea", HEX, _NO, is_key=False),
    Kind("boolean", st.sampled_from(["true", "false"]), _EQUALITY, changes=("NOT {0}",)),
    Kind("date", DATES),
    Kind("time", TIMES),
    Kind("time(3)", TIMES),
    Kind("timetz", ZONED_TIMES),
    Kind("timestamp", MOMENTS, changes=("date_trunc('second', {0})",)),
    Kind("timestamptz", ZONED_MOMENTS, changes=("date_trunc('second', {0})",)),
    Kind("timestamptz(3)", ZONED_MOMENTS),
    Kind("exact_time", ZONED_MOMENTS),
    Kind("interval", INTERVALS, changes=("{0} * 2", "justify_interval({0})")),
    Kind("interval day to second(3)", INTERVALS),
    Kind("interval", st.sampled_from(["infinity", "-infinity"]), since=17),
    Kind("uuid", st.uuids().map(str), _EQUALITY),
    Kind("json", JSON_VALUES, _NO, is_key=False, base_type="jsonb"),
    Kind("jsonb", JSON_VALUES, _NO, is_key=False, base_type="jsonb"),
    Kind("document", JSON_VALUES, _NO, is_key=False, base_type="jsonb"),
    Kind("xml", st.sampled_from(["", "a", "<a b='1'>x</a>", "<a/><b/>"]), _TEXT, is_key=False),
    Kind("inet", st.sampled_from(ADDRESSES)),
    Kind("cidr", st.sampled_from(NETWORKS)),
    Kind("macaddr", st.sampled_from(["08:00:2b:01:02:03", "ff-ff-ff-ff-ff-ff", "0800.2b01.0203"])),
    Kind("macaddr8", st.sampled_from(["08:00:2b:01:02:03:04:05", "00:00:00:00:00:00:00:00"])),
    Kind("bit(3)", st.text(st.sampled_from("01"), min_size=3, max_size=3)),
    Kind("bit varying", BITS),
    Kind("bit varying(10)", BITS),
    Kind("tsvector", LEXEMES, _TEXT),
    Kind("tsquery", QUERIES, _TEXT),
    Kind("point", points(1), _TEXT, is_key=False),
    Kind("line", st.sampled_from(["{1,-1,0}", "{0,1,2.5}", "{-1,0,1e300}"]), _TEXT, is_key=False),
    Kind("lseg", points(2), _TEXT, is_key=False),
    Kind("box", points(2), _TEXT, is_key=False),
    Kind("path", points(3).map(lambda text: f"[{text}]"), _TEXT, is_key=False),
    Kind("path", points(3).map(lambda text: f"({text})"), _TEXT, is_key=False),
    Kind("polygon", points(3).map(lambda text: f"({text})"), _TEXT, is_key=False),
    Kind(
        "circle",
        st.builds(lambda at, size: f"<{at},{size}>", points(1), st.integers(0, 9)),
        _TEXT,
        is_key=False,
    ),
    *(Kind(f"{name}range", texts) for name, texts in RANGES.items()),
    *(Kind(f"{name}multirange", multiranges(texts)) for name, texts in RANGES.items()),
    Kind("floatrange", ranges("-1.5", "Infinity", "0.1"), _TEXT),
    Kind("pg_lsn", st.sampled_from(["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"])),
    Kind("mood", st.sampled_from(MOODS)),
    Kind("mood_of_day", st.sampled_from(MOODS), base_type="mood"),
    Kind("span", RANGES["int4"], base_type="int4range"),
    Kind("small", whole_numbers(30)),
    Kind("price", SMALL_DECIMALS),
    Kind("home", PLACES, _TEXT),
    Kind("place", PLACES, _TEXT),
    Kind(
        "stay",
        st.builds(
            lambda *parts: f"({','.join(map(array_element, parts))})",
            PLACES,
            RANGES["tstz"],
            arrays(TEXTS),
        ),
        _TEXT,
    ),
    Kind("oid", UNSIGNED),
    Kind("regclass", st.sampled_from(["pg_class", "pg_catalog.pg_type", "-"]), _TEXT),
    Kind("regtype", st.sampled_from(["integer", "text[]", "character varying"]), _TEXT),
    Kind("regproc", st.sampled_from(["now", "pg_backend_pid"]), _TEXT),
    Kind("regprocedure", st.sampled_from(["upper(text)", "round(numeric,integer)"]), _TEXT),
    Kind("regoper", st.sampled_from(["||/", "|/"]), _TEXT),
    Kind("regoperator", st.sampled_from(["+(integer,integer)", "||(text,text)"]), _TEXT),
    Kind("regnamespace", st.sampled_from(["pg_catalog", "information_schema"]), _TEXT),
    Kind(
        "regrole", st.sampled_from(["pg_monitor", "pg_read_all_data"]), _TEXT, has_constants=False
    ),
    Kind("regconfig", st.sampled_from(["simple", "english"]), _TEXT),
    Kind("regdictionary", st.sampled_from(["simple", "english_stem"]), _TEXT),
    Kind("regcollation", st.sampled_from(['"C"', '"POSIX"']), _TEXT),
    Kind("xid", UNSIGNED, _TEXT, is_key=False),
    Kind("cid", UNSIGNED, _TEXT, is_key=False),
    Kind("xid8", st.integers(0, 2**64 - 1).map(str), _TEXT),
    Kind("tid", st.sampled_from(["(0,0)", "(4294967295,65535)"]), _TEXT),
    Kind("pg_snapshot", st.sampled_from(["10:20:10,14,15", "1:1:"]), _TEXT, is_key=False),
    Kind("txid_snapshot", st.sampled_from(["10:20:10,14,15", "1:1:"]), _TEXT, is_key=False),
    Kind(
        "jsonpath", st.sampled_from(["$", "$.a[*] ? (@ > 1)", 'strict $."ü"']), _TEXT, is_key=False
    ),
    Kind("refcursor", TEXTS, _TEXT, is_key=False),
    Kind(
        "aclitem",
        st.sampled_from(["=r/pg_monitor", "pg_monitor=arwd/pg_monitor"]),
        _TEXT,
        is_key=False,
    ),
    Kind("int2vector", st.sampled_from(["", "1 2 3", "-5"]), _TEXT, is_key=False),
    Kind("oidvector", st.sampled_from(["", "1 2 3", "4294967295"]), _TEXT),
    Kind("hstore", PAIRS, _TEXT),
    Kind("ltree", LABELS, _TEXT),
    Kind("words", arrays(TEXTS), _NO, is_key=False),
    *(
        Kind(f"{name}[]", arrays(texts), _NO, is_key=False)
        for name, texts in {
            "text": TEXTS,
            "varchar(5)": texts_of(5),
            "char(5)": texts_of(5),
            "citext": TEXTS,
            "smallint": whole_numbers(16),
            "integer": whole_numbers(32),
            "bigint": whole_numbers(64),
            "numeric": DECIMALS,
            "numeric(9,3)": SMALL_DECIMALS,
            "real": REALS.filter(is_not_negative_zero),
            "double precision": FLOATS.filter(is_not_negative_zero),
            "money": st.decimals(-(10**9), 10**9, places=2).map(str),
            "boolean": st.sampled_from(["t", "f"]),
            "uuid": st.uuids().map(str),
            "date": DATES,
            "time": TIMES,
            "timetz": ZONED_TIMES,
            "timestamp": MOMENTS,
            "timestamptz": ZONED_MOMENTS,
            "interval": INTERVALS,
            "inet": st.sampled_from(ADDRESSES),
            "cidr": st.sampled_from(NETWORKS),
            "mood": st.sampled_from(MOODS),
            "int4range": RANGES["int4"],
            "tstzrange": RANGES["tstz"],
            "bit varying": BITS,
            "short": texts_of(5),
            "point": points(1),
            "pg_lsn": st.sampled_from(["0/0", "16/B374D848"]),
            "xid8": UNSIGNED,
        }.items()
    ),
    *(
        Kind(f"{name}[]", arrays(texts), _TEXT, is_key=False)
        for name, texts in {
            "json": JSON_VALUES,
            "jsonb": JSON_VALUES,
            "bytea": HEX,
            "place": PLACES,
        }.items()
    ),
    Kind("box[]", points(2).map(lambda text: "{" + text + "}"), _TEXT, is_key=False),
]

NOT_OF_COLUMNS = {
    "gtsvector": "has no input",
    "pg_brin_bloom_summary": "has no input",
    "pg_brin_minmax_multi_summary": "has no input",
    "pg_dependencies": "has no input",
    "pg_mcv_list": "has no input",
    "pg_ndistinct": "has no input",
    "pg_node_tree": "has no input",
}
"""Types of PostgreSQL that no client can write, whatever the service does."""
