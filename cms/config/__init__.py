"""Reads the settings of a process once, into one frozen record (docs/settings.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cms.config import locations, providers
from cms.config.locations import Location
from cms.config.providers import Provider
from cms.config.setting_values import Sources, read_options, sources_of, value_of
from cms.config.settings import MAX_DEFAULT_WORKERS, SETTINGS, Setting
from cms.distribution import install_command
from cms.hashing.hash_parameters import MIN_MEMORY_PER_LANE, HashParameters
from cms.processes.machine import present_machine
from cms.text_shapes import url_host

Network = IPv4Network | IPv6Network


class ConfigError(Exception):
    """Settings that cannot be used: a sentence for each problem, never with a secret's value."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a process; each field is the setting of that name in lower case.

    Sizes are bytes, lifetimes and time limits are timedeltas, paths are absolute. Fields that are
    left out of the representation may hold passwords, so that no log shows them. `locations` are
    those that `storage_locations` names, `providers` those of `auth_providers`, `flows_env` the
    values of `flows_env_allow_list`.
    """

    host: str
    port: int
    public_url: str
    secret: str | None = field(repr=False)
    admin_email: str
    admin_password: str | None = field(repr=False)
    database_url: str | None = field(repr=False)
    database_schema: str | None
    database_read_url: str | None = field(repr=False)
    database_read_lag: timedelta
    database_direct_url: str | None = field(repr=False)
    database_prepare: bool
    database_pool_size: int
    data_dir: Path
    postgres_bin: Path | None
    access_token_ttl: timedelta
    refresh_token_ttl: timedelta
    activity_retention: str | None
    session_cookie_ttl: timedelta
    session_cookie_secure: bool
    session_cookie_same_site: str
    cors_enabled: bool
    cors_origin: tuple[str, ...]
    cors_methods: tuple[str, ...]
    cors_allowed_headers: tuple[str, ...]
    cors_exposed_headers: tuple[str, ...]
    cors_credentials: bool
    cors_max_age: int
    ip_trust_proxy: int
    embedded_unknown: str
    redis: str | None = field(repr=False)
    rate_limiter_enabled: bool
    rate_limiter_per_second: int
    rate_limiter_per_minute: int
    rate_limiter_logins_per_address: int
    rate_limiter_logins_per_account: int
    hash_time_cost: int
    hash_memory_cost: int
    hash_parallelism: int
    password_reset_ttl: timedelta
    password_reset_url_allow_list: tuple[str, ...]
    user_invite_ttl: timedelta
    user_invite_url_allow_list: tuple[str, ...]
    share_url_allow_list: tuple[str, ...]
    user_register_ttl: timedelta
    user_register_url_allow_list: tuple[str, ...]
    auth_providers: tuple[str, ...]
    auth_disable_default: bool
    storage_locations: tuple[str, ...]
    files_max_upload_size: int
    files_mime_type_allow_list: tuple[str, ...]
    import_ip_allow_list: tuple[Network, ...]
    import_ip_deny_list: tuple[Network, ...]
    import_timeout: timedelta
    cache_ttl: timedelta
    flows_time_zone: ZoneInfo
    flows_run_retention: timedelta
    assets_cache_ttl: timedelta
    assets_transform_image_max_dimension: int
    assets_transform_timeout: timedelta
    assets_transform_max_concurrent: int
    flows_env_allow_list: tuple[str, ...]
    flows_request_allow_list: tuple[str, ...]
    flows_max_outage: timedelta
    flows_run_script_timeout: timedelta
    flows_sync_timeout: timedelta
    flows_concurrency: int
    assets_sendfile: str | None
    query_limit_default: int
    query_limit_max: int | None
    max_payload_size: int
    max_relational_depth: int
    max_answer_size: int
    db_statement_timeout: timedelta
    request_timeout: timedelta
    send_timeout: timedelta
    log_level: str
    log_style: str
    metrics_token: str | None = field(repr=False)
    openapi_docs: bool
    web_concurrency: int
    web_threads: int
    web_cpu_affinity: str
    web_timeout: timedelta
    worker_concurrency: int
    email_transport: str
    email_from: str
    email_smtp_host: str | None
    email_smtp_port: int
    email_smtp_user: str | None
    email_smtp_password: str | None = field(repr=False)
    email_smtp_secure: bool
    email_smtp_ignore_tls: bool
    locations: tuple[Location, ...]
    providers: tuple[Provider, ...]
    flows_env: Mapping[str, str] = field(repr=False)

    @property
    def hash_parameters(self) -> HashParameters:
        """How much work a hash of a password is."""
        return HashParameters(self.hash_time_cost, self.hash_memory_cost, self.hash_parallelism)


def load(environ: Mapping[str, str], *, folder: Path) -> Config:
    """Read the settings from the environment, `folder/.env` and the files that `<NAME>_FILE` names.

    The environment wins over `.env`; an empty value counts as unset; relative paths start at
    `folder`. Raises one `ConfigError` with everything that is wrong.
    """
    # All problems are collected, so that one start names everything that is to be corrected.
    problems: list[str] = []
    sources = sources_of(environ, folder=folder, problems=problems)
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        values[setting.name.lower()] = value_of(setting, sources, folder=folder, problems=problems)
    names = values["storage_locations"] or ()
    read_locations = [_read_location(name, sources, folder, problems) for name in names]
    names = values["auth_providers"] or ()
    read_providers = [_read_provider(name, sources, folder, problems) for name in names]
    for source in sources:
        problems.extend(providers.unknown_options(names, source))
    # A setting that is wrong by itself would only seem to contradict another one.
    if not problems:
        problems.extend(_contradictions(values))
    if problems:
        raise ConfigError(*problems)
    values = _with_defaults(values, folder)
    uploads = values["data_dir"] / "uploads"
    absolute_locations = [
        locations.with_absolute_root(location, uploads=uploads, folder=folder)
        for location in read_locations
    ]
    flows_env = _allowed_variables(values["flows_env_allow_list"], sources)
    config = Config(
        **values,
        locations=tuple(absolute_locations),
        providers=tuple(read_providers),
        flows_env=flows_env,
    )
    # Checked with the defaults as well: the default of `secure` follows from PUBLIC_URL.
    if config.session_cookie_same_site == "none" and not config.session_cookie_secure:
        raise ConfigError(
            "SESSION_COOKIE_SAME_SITE=none needs SESSION_COOKIE_SECURE=true: "
            "browsers refuse it otherwise."
        )
    return config


def _allowed_variables(names: Sequence[str], sources: Sources) -> Mapping[str, str]:
    """Return the variables that flows may read and that are set; the first source wins."""
    variables = {}
    for name in names:
        source = next((source for source in sources if name in source), {})
        if name in source:
            variables[name] = source[name]
    return variables


def effective(config: Config) -> Iterator[tuple[str, str]]:
    """Yield name and text of every setting in the order of the table, then of each location and
    provider.

    Secrets are masked. An unset setting has the empty text, so that lines without a mask can go
    back into a `.env`.
    """
    for setting in SETTINGS:
        yield setting.name, _show(setting, getattr(config, setting.name.lower()))
    for location in config.locations:
        for option, setting in locations.options_of(location.name).items():
            yield setting.name, _show(setting, getattr(location, option))
    for provider in config.providers:
        for option, setting in providers.options_of(provider.name).items():
            yield setting.name, _show(setting, getattr(provider, option) or None)


def _show(setting: Setting, value: object) -> str:
    if value is None:
        return ""
    text = setting.kind.show(value)
    return setting.mask(text) if setting.mask else text


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    if values["database_read_url"] and not values["database_url"]:
        yield "DATABASE_READ_URL needs DATABASE_URL: the embedded server has no replica."
    if values["database_direct_url"] and not values["database_url"]:
        yield "DATABASE_DIRECT_URL needs DATABASE_URL: there is no pooler to go past."
    yield from _schema_contradictions(values)
    if values["redis"] and find_spec("redis") is None:
        yield f"REDIS needs the extra redis: {install_command('redis')}."
    needed = MIN_MEMORY_PER_LANE * values["hash_parallelism"]
    if values["hash_memory_cost"] < needed:
        yield (
            f"HASH_MEMORY_COST takes at least {MIN_MEMORY_PER_LANE} for each lane of "
            f"HASH_PARALLELISM: {needed}."
        )
    if values["email_transport"] == "smtp" and not values["email_smtp_host"]:
        yield "EMAIL_TRANSPORT=smtp needs EMAIL_SMTP_HOST: the name of the mail server."
    if bool(values["email_smtp_user"]) != bool(values["email_smtp_password"]):
        yield "EMAIL_SMTP_USER and EMAIL_SMTP_PASSWORD go together: set both, or none."
    if values["email_smtp_secure"] and values["email_smtp_ignore_tls"]:
        yield "EMAIL_SMTP_SECURE and EMAIL_SMTP_IGNORE_TLS contradict each other: keep one."


_ADDRESSES = ("database_url", "database_read_url", "database_direct_url")


def _schema_contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    schema = values["database_schema"]
    if not schema:
        return
    if not values["database_url"]:
        yield "DATABASE_SCHEMA needs DATABASE_URL: the embedded server has one installation."
    for name in _ADDRESSES:
        address = values[name] or ""
        if "options=" in address and in_schema(address, schema) != address:
            yield (
                f"DATABASE_SCHEMA and the options of {name.upper()} contradict each other: "
                "set search_path in these options instead."
            )


def _with_defaults(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values, with the defaults that follow from other settings or the machine."""
    complete = dict(values)
    complete["auth_providers"] = values["auth_providers"] or ()
    if schema := values["database_schema"]:
        for name in _ADDRESSES:
            complete[name] = values[name] and in_schema(values[name], schema)
    for name, value in values.items():
        # Lists without a value are empty, and not None.
        if name.endswith(("_allow_list", "_deny_list")):
            complete[name] = value or ()
    local_url = f"http://{url_host(values['host'])}:{values['port']}"
    public_url = values["public_url"] or local_url
    complete["public_url"] = public_url
    if values["session_cookie_secure"] is None:
        complete["session_cookie_secure"] = public_url.startswith("https:")
    complete["data_dir"] = Path(os.path.abspath(folder / values["data_dir"]))
    if values["postgres_bin"] is not None:
        complete["postgres_bin"] = Path(os.path.abspath(folder / values["postgres_bin"]))
    if values["database_pool_size"] is None:
        # A connection for each thread, and one for work beside requests.
        complete["database_pool_size"] = values["web_threads"] + 1
    if values["email_smtp_port"] is None:
        # The usual ports of TLS from the first byte, and of STARTTLS.
        complete["email_smtp_port"] = 465 if values["email_smtp_secure"] else 587
    if values["assets_transform_max_concurrent"] is None:
        complete["assets_transform_max_concurrent"] = present_machine().cores
    if values["web_concurrency"] is None:
        complete["web_concurrency"] = min(max(present_machine().cores, 2), MAX_DEFAULT_WORKERS)
    return complete


def _read_location(name: str, sources: Sources, folder: Path, problems: list[str]) -> Location:
    """Return a storage location of the settings; missing options are added to `problems`."""
    options = read_options(locations.options_of(name), sources, folder, problems)
    location = Location(name=name, **options)
    problems += locations.location_problems(location)
    return location


def _read_provider(name: str, sources: Sources, folder: Path, problems: list[str]) -> Provider:
    """Return a provider of external logins; its problems are added to `problems`."""
    options = read_options(providers.options_of(name), sources, folder, problems)
    provider = providers.with_driver_defaults(Provider(name=name, **options))
    problems += providers.provider_problems(provider)
    return provider


def in_schema(address: str, schema: str) -> str:
    """Return an address, in either form that libpq takes, whose sessions use this schema.

    Extensions are found in `public`, which all schemas share. An address that leads there already
    stays as it is.
    """
    is_url = address.lstrip().startswith(("postgres://", "postgresql://"))
    # Commas and equal signs stand for themselves in names with values, but not in a query string.
    path = f"{schema}%2Cpublic" if is_url else f"{schema},public"
    option = f"options=-csearch_path%3D{path}" if is_url else f"options=-csearch_path={path}"
    if address.endswith(option):
        return address
    if not is_url:
        return f"{address} {option}"
    return f"{address}{'&' if '?' in address else '?'}{option}"
