"""The table of settings: each variable, the values it takes, and its purpose (docs/settings.md)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cms.hashing.hash_parameters import (
    DEFAULT_PARAMETERS,
    MAX_MEMORY_COST,
    MAX_PARALLELISM,
    MAX_TIME_COST,
    MIN_MEMORY_PER_LANE,
)
from cms.text_shapes import MASK

# With more workers the connections of one machine exceed PostgreSQL's default of 100.
MAX_DEFAULT_WORKERS = 16


@dataclass(frozen=True, slots=True)
class SettingType:
    """A type of values: a description of them, how text is parsed, and how a value is shown."""

    takes: str
    parse: Callable[[str], Any]  # raises ValueError, without a text: the error names `takes`
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable. `unset` says what happens without a value, where there is no `default`."""

    name: str
    kind: SettingType
    help: str
    default: str = ""
    unset: str = ""
    mask: Callable[[str], str] | None = None


# In milliseconds.
DURATION_UNITS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
SIZE_UNITS = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}
BOOLEANS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


def matched(pattern: str) -> Callable[[str], str]:
    """Return a parser of texts that match a pattern as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return parse


def _integer(minimum: int, maximum: int) -> SettingType:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not minimum <= int(text) <= maximum:
            raise ValueError
        return int(text)

    return SettingType(f"a whole number from {minimum} to {maximum}", parse)


def choice(*words: str) -> SettingType:
    """Return the type of one of several words, in small letters."""
    return SettingType(
        "one of " + ", ".join(words), lambda text: matched("|".join(words))(text.lower())
    )


def _with_unit(text: str, units: Mapping[str, int], *, default_unit: str) -> int:
    # 15m, 1.5h, 10 mb; the unit may be left out.
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]*)", text.lower())
    if match is None:
        raise ValueError
    factor = units.get(match[2] or default_unit)
    if factor is None:
        raise ValueError
    return int(float(match[1]) * factor)


def parse_milliseconds(text: str, *, default_unit: str) -> int:
    """Return the milliseconds of a time such as 15m; raises ValueError."""
    return _with_unit(text, DURATION_UNITS, default_unit=default_unit)


def _in_largest_unit(amount: int, units: Mapping[str, int]) -> str:
    # Whole units only, so that the text means exactly this amount when it is read again.
    fitting = {factor: name for name, factor in units.items() if amount % factor == 0}
    largest = max(fitting)
    return f"{amount // largest}{fitting[largest]}"


def _duration(maximum: timedelta) -> SettingType:
    def parse(text: str) -> timedelta:
        value = timedelta(milliseconds=parse_milliseconds(text, default_unit="ms"))
        if not timedelta(0) < value <= maximum:
            raise ValueError
        return value

    def show(value: timedelta) -> str:
        return _in_largest_unit(value // timedelta(milliseconds=1), DURATION_UNITS)

    return SettingType(
        f"a time such as 500ms, 30s, 15m, 12h, 7d or 2w, at most {maximum.days}d", parse, show
    )


def _size(maximum: int) -> SettingType:
    def parse(text: str) -> int:
        value = _with_unit(text, SIZE_UNITS, default_unit="b")
        if not 0 < value <= maximum:
            raise ValueError
        return value

    def show(value: int) -> str:
        return _in_largest_unit(value, SIZE_UNITS)

    return SettingType(
        f"a size such as 512kb, 1mb or 1048576, at most {show(maximum)}", parse, show
    )


def _retention(text: str) -> str:
    # Months have no fixed length, so the text itself is the value.
    return matched("[1-9][0-9]{0,3}(d|w|mo)|[1-9][0-9]{0,2}y")(text.lower().replace(" ", ""))


def _boolean(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise ValueError
    return BOOLEANS[text.lower()]


def _folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # a "~" without a home folder behind it
        raise ValueError from error


def _host(text: str) -> str:
    if ":" in text:
        return str(ipaddress.IPv6Address(text))
    return matched(r"[0-9A-Za-z_.-]+")(text)


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    # A port that is not a number raises ValueError by itself.
    if parts.port == 0 or re.search(r"\s", text):
        raise ValueError
    return text.rstrip("/")


def _comma_separated(parse_part: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(",")]
        return tuple(parse_part(part) for part in parts if part)

    return parse


def _list_of(takes: str, parse_part: Callable[[str], str]) -> SettingType:
    return SettingType(takes, _comma_separated(parse_part), ",".join)


def _names(pattern: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of names that match a pattern; it raises ValueError for repeated names."""
    parse = _comma_separated(matched(pattern))

    def parse_names(text: str) -> tuple[str, ...]:
        names = parse(text)
        if len(set(names)) < len(names):
            raise ValueError
        return names

    return parse_names


def _origin(text: str) -> str:
    if text in ("*", "null") or urlsplit(_web_address(text)).path:
        raise ValueError
    return _web_address(text).lower()


def _origins(text: str) -> tuple[str, ...]:
    if text == "*" or text.lower() == "true":
        return ("*",)
    if text.lower() == "false":
        return ()
    return _comma_separated(_origin)(text)


def _networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    # Not strict: 10.1.2.3/8 means the network that holds the address.
    parts = _comma_separated(str)(text)
    return tuple(ipaddress.ip_network(part, strict=False) for part in parts)


def _hops(text: str) -> int:
    # True counts as one proxy.
    if text.isdecimal():
        return int(matched("[0-9]|1[0-6]")(text))
    return int(_boolean(text))


TEXT = SettingType("a text", str)
LONG_TEXT = SettingType("a text of 32 characters or more", matched("(?s).{32,}"))


def _time_zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError from None


HOST = SettingType("a host name or an IP address", _host)
ADDRESS = SettingType(
    "an address such as https://cms.example.com or https://example.com/cms", _web_address
)
EMAIL = SettingType("an e-mail address", matched(r"[^\s@]+@[^\s@]+"))
_ADDRESS_PART = r"[^\s\x00-\x1f\x7f-\x9f@<>()\[\],;:\\\"]+"
_SENDER = rf"{_ADDRESS_PART}@{_ADDRESS_PART}"
SENDER = SettingType(
    "an e-mail address, alone or as Name <address>", matched(rf"{_SENDER}|[^<>\r\n]*<{_SENDER}>")
)
# libpq takes an address, or names with values.
DATABASE = SettingType(
    "a PostgreSQL address such as postgresql://user:password@host:5432/name",
    matched(r"(?s)postgres(ql)?://.+|\s*\w+\s*=.+"),
)

SCHEMA = SettingType(
    "a name of small letters, digits and _ that does not begin with pg_",
    matched(r"(?!pg_)[a-z_][a-z0-9_]{0,62}"),
)


def _redis_address(text: str) -> str:
    address = matched(r"rediss?://\S+|redis\+unix:///\S+")(text)
    # Raises ValueError for a port that is none, as where a password has a slash in it.
    _ = urlsplit(address).port
    return address


REDIS_ADDRESS = SettingType(
    "an address such as redis://:password@host:6379/0, rediss://… or redis+unix:///its/socket",
    _redis_address,
)
FOLDER = SettingType("a folder", _folder)
BOOLEAN = SettingType("true or false", _boolean, lambda value: "true" if value else "false")
SIZE = _size(2**31)
FILE_SIZE = _size(5000 * 2**30)  # the largest object of S3
LIFETIME = _duration(timedelta(days=3650))
UP_TO_A_DAY = _duration(timedelta(days=1))
TIME_ZONE = SettingType("the name of a time zone such as Europe/Berlin", _time_zone, str)
RETENTION = SettingType("a span such as 90d, 8w, 12mo or 2y", _retention)
ADDRESSES = _list_of(
    "addresses such as https://example.com/welcome, with commas between them", _web_address
)
ORIGINS = SettingType(
    "true or * for any, false, or origins such as https://example.com with commas between",
    _origins,
    ",".join,
)
METHODS = _list_of("methods with commas between them", matched("[A-Z]+"))
HEADERS = _list_of("names of headers with commas between them", matched("[A-Za-z0-9-]+"))
HOPS = SettingType("true, false, or how many proxies there are, up to 16", _hops)
STATEMENT_TIME = _duration(timedelta(days=24))  # the server counts milliseconds in 31 bits
NETWORKS = SettingType(
    "addresses and networks such as 10.0.0.0/8,::1",
    _networks,
    lambda networks: ",".join(map(str, networks)),
)
MEDIA_TYPES = _list_of(
    "media types such as image/*,application/pdf",
    lambda part: matched(r"[\w.+-]+/([\w.+-]+|\*)|\*/\*")(part.lower()),
)
LOCATIONS = SettingType(
    "names such as local,s3, each once: small letters, digits and _, first the default",
    _names(r"[a-z][a-z0-9_]{0,62}"),
    ",".join,
)
PROVIDERS = SettingType(
    "names such as keycloak,google, each once: small letters, digits and _",
    _names(r"(?!default$)[a-z][a-z0-9_]{0,62}"),
    ",".join,
)
DRIVER = choice("local", "s3", "gcs", "azure")
ENDPOINT = SettingType("an address such as https://s3.example.com", _web_address)

VARIABLES = _list_of(
    "names of variables with commas between them", matched(r"[A-Za-z_][A-Za-z0-9_]*")
)
HOSTS = _list_of(
    "hosts such as api.example.com, or *.example.com, with commas between them",
    lambda part: matched(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:.]+")(part.lower()),
)
SENDFILE = SettingType(
    "x-sendfile, or the path of nginx's internal location such as /protected",
    matched(r"x-sendfile|(?:/[A-Za-z0-9._~-]+)+"),
)


def mask_all(_text: str) -> str:
    """Show nothing of a secret."""
    return MASK


def mask_password(address: str) -> str:
    """Return a PostgreSQL address, in either form that libpq takes, with its passwords masked."""
    # postgresql://user:password@host, in which the password may hold an @ of its own: the last one
    # ends it.
    without_userinfo = re.sub(r"(?s)(://[^:@/?]*):.*@", rf"\1:{MASK}@", address)
    # password=… in the form of names and values, in quotes or not, and in the query of an address.
    parameter = r"(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)"
    return re.sub(parameter, rf"\g<1>{MASK}", without_userinfo)


# The order is that of `cms config` and of docs/settings.md.
SETTINGS: tuple[Setting, ...] = (
    Setting("HOST", HOST, "where the service listens; 0.0.0.0 is every network", "127.0.0.1"),
    Setting("PORT", _integer(1, 65535), "the port it listens on", "8055"),
    Setting("PUBLIC_URL", ADDRESS, "its address as clients see it", unset="http://HOST:PORT"),
    Setting(
        "SECRET",
        LONG_TEXT,
        "signs tokens; the same on every machine",
        unset="a random one, kept in DATA_DIR/secret",
        mask=mask_all,
    ),
    Setting("ADMIN_EMAIL", EMAIL, "the first admin, made when there is none", "admin@example.com"),
    Setting(
        "ADMIN_PASSWORD",
        TEXT,
        "the first admin's password",
        unset="a random one, printed once",
        mask=mask_all,
    ),
    Setting(
        "DATABASE_URL",
        DATABASE,
        "the PostgreSQL (14 or newer) that holds everything",
        unset="the embedded server, in DATA_DIR/postgres",
        mask=mask_password,
    ),
    Setting(
        "DATABASE_SCHEMA",
        SCHEMA,
        "the schema of this installation, where several share a database",
        unset="the first one on the search path",
    ),
    Setting(
        "DATABASE_READ_URL",
        DATABASE,
        "a replica that answers reads",
        unset="reads go to DATABASE_URL",
        mask=mask_password,
    ),
    Setting(
        "DATABASE_READ_LAG",
        UP_TO_A_DAY,
        "how long callers who have written read from the primary, as the replica may lag behind",
        "10s",
    ),
    Setting(
        "DATABASE_DIRECT_URL",
        DATABASE,
        "the same database past a pooler: for the queue of a worker, indexes and backups",
        unset="they use DATABASE_URL",
        mask=mask_password,
    ),
    Setting(
        "DATABASE_PREPARE",
        BOOLEAN,
        "prepared statements; false behind PgBouncer in transaction mode",
        "true",
    ),
    Setting(
        "DATABASE_POOL_SIZE",
        _integer(1, 1000),
        "connections of one worker to read, and as many to write",
        unset="WEB_THREADS + 1",
    ),
    Setting("DATA_DIR", FOLDER, "where the service keeps its files", "./data"),
    Setting(
        "POSTGRES_BIN",
        FOLDER,
        "the programs of the embedded server",
        unset="those that were installed with the service, then the system's",
    ),
    Setting("ACCESS_TOKEN_TTL", LIFETIME, "how long an access token lives", "15m"),
    Setting("REFRESH_TOKEN_TTL", LIFETIME, "how long a refresh token lives", "7d"),
    Setting(
        "ACTIVITY_RETENTION",
        RETENTION,
        "how long activity and revisions are kept, in whole months",
        unset="for ever",
    ),
    Setting(
        "SESSION_COOKIE_TTL",
        LIFETIME,
        "how long a session cookie lives without a refresh",
        "1d",
    ),
    Setting(
        "SESSION_COOKIE_SECURE",
        BOOLEAN,
        "sends the cookies of logins over TLS only",
        unset="true when PUBLIC_URL begins with https",
    ),
    Setting(
        "SESSION_COOKIE_SAME_SITE",
        choice("lax", "strict", "none"),
        "the `SameSite` attribute of the cookies of logins",
        "lax",
    ),
    Setting("CORS_ENABLED", BOOLEAN, "whether pages of other sites may read answers", "false"),
    Setting(
        "CORS_ORIGIN", ORIGINS, "those sites; only sites that are named may use cookies", "false"
    ),
    Setting(
        "CORS_METHODS",
        METHODS,
        "the methods that they may use",
        "GET,POST,PUT,PATCH,DELETE,SEARCH,QUERY",
    ),
    Setting(
        "CORS_ALLOWED_HEADERS",
        HEADERS,
        "the headers that they may send",
        "Content-Type,Authorization,If-Match,If-None-Match,Idempotency-Key,X-Request-Id",
    ),
    Setting(
        "CORS_EXPOSED_HEADERS",
        HEADERS,
        "the headers that they may read",
        "Content-Range,Content-Disposition,ETag,Retry-After,X-Request-Id,"
        "X-RateLimit-Limit,X-RateLimit-Remaining,X-RateLimit-Reset",
    ),
    Setting("CORS_CREDENTIALS", BOOLEAN, "lets the named sites use cookies", "true"),
    Setting(
        "CORS_MAX_AGE",
        _integer(0, 31_536_000),
        "seconds for which a browser remembers these permissions",
        "18000",
    ),
    Setting(
        "IP_TRUST_PROXY",
        HOPS,
        "takes the caller's address from X-Forwarded-For, "
        "as the outermost of so many proxies wrote it",
        "false",
    ),
    Setting(
        "EMBEDDED_UNKNOWN",
        choice("public", "refuse"),
        "what a request is whose user the application around the service names, and who has no "
        "account here: a public one, or refused",
        "public",
    ),
    Setting(
        "REDIS",
        REDIS_ADDRESS,
        "the Redis in which several machines count requests together",
        unset="each machine counts for itself",
        mask=mask_password,
    ),
    Setting("RATE_LIMITER_ENABLED", BOOLEAN, "whether requests are limited", "true"),
    Setting(
        "RATE_LIMITER_PER_SECOND",
        _integer(1, 1_000_000),
        "requests that pass from one address in a second",
        "100",
    ),
    Setting(
        "RATE_LIMITER_PER_MINUTE",
        _integer(1, 60_000_000),
        "requests that pass from one address in a minute",
        "1000",
    ),
    Setting(
        "RATE_LIMITER_LOGINS_PER_ADDRESS",
        _integer(1, 1_000_000),
        "logins, registrations and password requests that pass from one address in a minute",
        "30",
    ),
    Setting(
        "RATE_LIMITER_LOGINS_PER_ACCOUNT",
        _integer(1, 1_000_000),
        "those that pass for one account in a minute, whatever address they come from",
        "10",
    ),
    Setting(
        "HASH_TIME_COST",
        _integer(1, MAX_TIME_COST),
        "passes of argon2 over its memory, for a hash of a password (see authentication)",
        str(DEFAULT_PARAMETERS.time_cost),
    ),
    Setting(
        "HASH_MEMORY_COST",
        _integer(MIN_MEMORY_PER_LANE, MAX_MEMORY_COST),
        "its memory in KiB, at least 8 for each lane",
        str(DEFAULT_PARAMETERS.memory_cost),
    ),
    Setting(
        "HASH_PARALLELISM",
        _integer(1, MAX_PARALLELISM),
        "its lanes, each of which may take a processor",
        str(DEFAULT_PARAMETERS.parallelism),
    ),
    Setting("PASSWORD_RESET_TTL", LIFETIME, "how long the link of a password reset is good", "1d"),
    Setting(
        "PASSWORD_RESET_URL_ALLOW_LIST",
        ADDRESSES,
        "what reset_url may be",
        unset="links go to PUBLIC_URL/admin/reset-password only",
    ),
    Setting("USER_INVITE_TTL", LIFETIME, "how long the link of an invitation is good", "7d"),
    Setting(
        "USER_INVITE_URL_ALLOW_LIST",
        ADDRESSES,
        "what invite_url may be",
        unset="links go to PUBLIC_URL/admin/accept-invite only",
    ),
    Setting(
        "SHARE_URL_ALLOW_LIST",
        ADDRESSES,
        "what share_url may be",
        unset="links go to PUBLIC_URL/admin/shared only",
    ),
    Setting("USER_REGISTER_TTL", LIFETIME, "how long the link of a registration is good", "7d"),
    Setting(
        "USER_REGISTER_URL_ALLOW_LIST",
        ADDRESSES,
        "what verification_url may be",
        unset="links go to PUBLIC_URL/users/register/verify-email only",
    ),
    Setting("AUTH_PROVIDERS", PROVIDERS, "other services by which users log in", unset="none"),
    Setting(
        "AUTH_DISABLE_DEFAULT", BOOLEAN, "refuses logins by a password of this service", "false"
    ),
    Setting("STORAGE_LOCATIONS", LOCATIONS, "where files live; the first is the default", "local"),
    Setting("FILES_MAX_UPLOAD_SIZE", FILE_SIZE, "the largest upload: all files of one call", "1gb"),
    Setting("FILES_MIME_TYPE_ALLOW_LIST", MEDIA_TYPES, "what may be uploaded", "*/*"),
    Setting(
        "IMPORT_IP_ALLOW_LIST",
        NETWORKS,
        "addresses that an import by URL may reach although they are not public",
        unset="nothing",
    ),
    Setting(
        "IMPORT_IP_DENY_LIST",
        NETWORKS,
        "further addresses that an import by URL may not reach",
        unset="nothing",
    ),
    Setting("IMPORT_TIMEOUT", UP_TO_A_DAY, "how long an import by URL may take", "5m"),
    Setting(
        "CACHE_TTL",
        LIFETIME,
        "how long the answer of a flow with `cacheEnabled` is served again",
        "5m",
    ),
    Setting("FLOWS_TIME_ZONE", TIME_ZONE, "the time zone of the schedules of flows", "UTC"),
    Setting(
        "FLOWS_RUN_RETENTION", LIFETIME, "how long runs of flows are kept after their end", "30d"
    ),
    Setting("ASSETS_CACHE_TTL", LIFETIME, "how long clients may keep an asset", "30d"),
    Setting(
        "ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION",
        _integer(1, 16_000),
        "the longest side of a transformed image, in pixels",
        "6000",
    ),
    Setting("ASSETS_TRANSFORM_TIMEOUT", UP_TO_A_DAY, "how long one transform may take", "7500ms"),
    Setting(
        "ASSETS_TRANSFORM_MAX_CONCURRENT",
        _integer(1, 256),
        "transforms at a time on one machine",
        unset="the cores of the machine or container",
    ),
    Setting(
        "FLOWS_ENV_ALLOW_LIST",
        VARIABLES,
        "the variables of the environment that flows may read",
        unset="none",
    ),
    Setting(
        "FLOWS_REQUEST_ALLOW_LIST",
        HOSTS,
        "the hosts that requests of flows may ask",
        unset="all with a permitted address",
    ),
    Setting(
        "FLOWS_MAX_OUTAGE",
        LIFETIME,
        "how long signed requests of a flow may fail before it is switched off",
        "5d",
    ),
    Setting("FLOWS_RUN_SCRIPT_TIMEOUT", UP_TO_A_DAY, "how long a script of a flow may run", "10s"),
    Setting(
        "FLOWS_SYNC_TIMEOUT",
        UP_TO_A_DAY,
        "how long a flow may run while its caller waits, or all filter flows of one write",
        "30s",
    ),
    Setting(
        "FLOWS_CONCURRENCY",
        _integer(1, 100),
        "runs of flows that one worker works on at a time, beside its other jobs",
        "4",
    ),
    Setting(
        "ASSETS_SENDFILE",
        SENDFILE,
        "lets the proxy send contents that are in a folder",
        unset="the service sends it",
    ),
    Setting(
        "QUERY_LIMIT_DEFAULT", _integer(1, 2**31 - 1), "rows of a page that names no limit", "100"
    ),
    Setting(
        "QUERY_LIMIT_MAX",
        _integer(1, 2**31 - 1),
        "the largest limit a request may name",
        unset="no bound",
    ),
    Setting("MAX_PAYLOAD_SIZE", SIZE, "the largest JSON body", "1mb"),
    Setting(
        "MAX_RELATIONAL_DEPTH", _integer(1, 100), "how deep a request may follow relations", "10"
    ),
    Setting("MAX_ANSWER_SIZE", SIZE, "the largest answer; exports and files may be larger", "64mb"),
    Setting("DB_STATEMENT_TIMEOUT", STATEMENT_TIME, "how long one statement may run", "30s"),
    Setting(
        "REQUEST_TIMEOUT",
        UP_TO_A_DAY,
        "how long a head, and a body up to 256 KB, may take to arrive",
        "10s",
    ),
    Setting(
        "SEND_TIMEOUT",
        UP_TO_A_DAY,
        "how long a client may take for 256 KB of an answer or a longer body",
        "30s",
    ),
    Setting(
        "LOG_LEVEL",
        choice("fatal", "error", "warn", "info", "debug", "trace"),
        "the lowest level that is logged",
        "info",
    ),
    Setting("LOG_STYLE", choice("pretty", "json"), "how a line of the log looks", "pretty"),
    Setting(
        "METRICS_TOKEN",
        TEXT,
        "the bearer token with which anybody may read /metrics",
        unset="administrators only",
        mask=mask_all,
    ),
    Setting("OPENAPI_DOCS", BOOLEAN, "whether /docs shows what the service offers", "true"),
    Setting(
        "WEB_CONCURRENCY",
        _integer(1, 512),
        "worker processes",
        unset=f"the cores of the machine or container, 2 to {MAX_DEFAULT_WORKERS}",
    ),
    Setting("WEB_THREADS", _integer(1, 256), "requests that one worker works on at a time", "4"),
    Setting(
        "WEB_CPU_AFFINITY",
        choice("auto", "off"),
        "whether as many workers as processors get one each (see deployment)",
        "auto",
    ),
    Setting(
        "WEB_TIMEOUT",
        UP_TO_A_DAY,
        "how long a worker may work on one request before it is replaced",
        "15m",
    ),
    Setting(
        "WORKER_CONCURRENCY",
        _integer(1, 100),
        "background jobs other than runs of flows that one worker runs at a time",
        "4",
    ),
    Setting(
        "EMAIL_TRANSPORT",
        choice("smtp", "log"),
        "where mail goes: to a mail server or, for development, into the log",
        "log",
    ),
    Setting(
        "EMAIL_FROM",
        SENDER,
        "the sender of mail; without a name, it has the project's",
        "no-reply@example.com",
    ),
    Setting(
        "EMAIL_SMTP_HOST", HOST, "the mail server", unset="none; EMAIL_TRANSPORT=smtp needs it"
    ),
    Setting(
        "EMAIL_SMTP_PORT",
        _integer(1, 65535),
        "its port",
        unset="465 with EMAIL_SMTP_SECURE, else 587",
    ),
    Setting(
        "EMAIL_SMTP_USER", TEXT, "the account there", unset="none: the server asks for no login"
    ),
    Setting("EMAIL_SMTP_PASSWORD", TEXT, "the account's password", unset="none", mask=mask_all),
    Setting(
        "EMAIL_SMTP_SECURE",
        BOOLEAN,
        "TLS from the first byte; false begins it with STARTTLS",
        "false",
    ),
    Setting(
        "EMAIL_SMTP_IGNORE_TLS",
        BOOLEAN,
        "true sends without TLS, for a server on a trusted network",
        "false",
    ),
)
