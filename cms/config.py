"""Read the settings of a process, once, into one frozen record (decisions, section 16)."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from cms import dotenv
from cms.locations import Location, missing_options, options_of, with_absolute_root
from cms.not_implemented import unbuilt
from cms.settings import LONG_TEXT, MAX_DEFAULT_WORKERS, SETTINGS, Setting

Network = IPv4Network | IPv6Network
Sources = tuple[Mapping[str, str], ...]


class ConfigError(Exception):
    """Settings that cannot be used; holds one sentence for each, never a secret's value."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a process; each field is the setting of that name in lower case.

    Sizes are bytes, lives and limits of time are timedeltas, paths are absolute. The fields left out of
    the representation may hold passwords, so that no log shows them. `locations` are those of `storage_locations`.
    """

    host: str
    port: int
    public_url: str
    secret: str | None = field(repr=False)
    admin_email: str
    admin_password: str | None = field(repr=False)
    database_url: str | None = field(repr=False)
    database_read_url: str | None = field(repr=False)
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
    password_reset_ttl: timedelta
    password_reset_url_allow_list: tuple[str, ...]
    user_invite_ttl: timedelta
    user_invite_url_allow_list: tuple[str, ...]
    user_register_ttl: timedelta
    user_register_url_allow_list: tuple[str, ...]
    storage_locations: tuple[str, ...]
    files_max_upload_size: int
    files_mime_type_allow_list: tuple[str, ...]
    import_ip_allow_list: tuple[Network, ...]
    import_ip_deny_list: tuple[Network, ...]
    import_timeout: timedelta
    assets_cache_ttl: timedelta
    assets_transform_image_max_dimension: int
    assets_transform_timeout: timedelta
    assets_transform_max_concurrent: int
    assets_sendfile: str | None
    query_limit_default: int
    query_limit_max: int | None
    max_payload_size: int
    max_relational_depth: int
    max_nested_rows: int
    max_answer_size: int
    db_statement_timeout: timedelta
    request_timeout: timedelta
    send_timeout: timedelta
    log_level: str
    log_style: str
    web_concurrency: int
    web_threads: int
    web_timeout: timedelta
    web_worker: str
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


def load(environ: Mapping[str, str], *, folder: Path) -> Config:
    """Read the settings from the environment, `folder/.env` and the files that `<NAME>_FILE` names.

    The environment wins over `.env`; an empty value counts as unset; relative paths start at `folder`.
    Raises one `ConfigError` that tells everything that is wrong.
    """
    problems: list[str] = []
    sources = (environ, _dotenv(folder / ".env", problems=problems))
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        values[setting.name.lower()] = _value(setting, sources, folder=folder, problems=problems)
    problems.extend(problem for source in sources for problem in unbuilt(source))
    found = [
        _read_location(name, sources, folder, problems)
        for name in values["storage_locations"] or ()
    ]
    if not problems:
        problems.extend(_contradictions(values))
    if problems:
        raise ConfigError(*problems)
    values = _with_defaults(values, folder)
    uploads = values["data_dir"] / "uploads"
    locations = tuple(with_absolute_root(one, uploads=uploads, folder=folder) for one in found)
    config = Config(**values, locations=locations)
    if config.session_cookie_same_site == "none" and not config.session_cookie_secure:
        raise ConfigError(
            "SESSION_COOKIE_SAME_SITE=none needs SESSION_COOKIE_SECURE=true: browsers refuse it otherwise."
        )
    return config


def effective(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every setting in the table's order, locations last, with secrets masked.

    An unset one is the empty text, so that unmasked lines can go back into a `.env`.
    """
    for setting in SETTINGS:
        yield setting.name, _show(setting, getattr(config, setting.name.lower()))
    for location in config.locations:
        for option, setting in options_of(location.name).items():
            yield setting.name, _show(setting, getattr(location, option))


def _show(setting: Setting, value: object) -> str:
    text = "" if value is None else setting.kind.show(value)
    return setting.mask(text) if setting.mask and text else text


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    if values["database_read_url"] and not values["database_url"]:
        yield "DATABASE_READ_URL needs DATABASE_URL: the embedded server has no replica."
    if values["email_transport"] == "smtp" and not values["email_smtp_host"]:
        yield "EMAIL_TRANSPORT=smtp needs EMAIL_SMTP_HOST: the name of the mail server."
    if bool(values["email_smtp_user"]) != bool(values["email_smtp_password"]):
        yield "EMAIL_SMTP_USER and EMAIL_SMTP_PASSWORD go together: set both, or none."
    if values["email_smtp_secure"] and values["email_smtp_ignore_tls"]:
        yield "EMAIL_SMTP_SECURE and EMAIL_SMTP_IGNORE_TLS contradict each other: keep one."


def _with_defaults(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    host = f"[{values['host']}]" if ":" in values["host"] else values["host"]
    binaries = values["postgres_bin"]
    public_url = values["public_url"] or f"http://{host}:{values['port']}"
    secure = values["session_cookie_secure"]
    lists = {name: values[name] or () for name in values if name.endswith("_allow_list")}
    return values | {
        **lists,
        "public_url": public_url,
        "session_cookie_secure": public_url.startswith("https:") if secure is None else secure,
        "database_pool_size": values["database_pool_size"] or values["web_threads"] + 1,
        "data_dir": Path(os.path.abspath(folder / values["data_dir"])),
        "postgres_bin": binaries and Path(os.path.abspath(folder / binaries)),
        "import_ip_allow_list": values["import_ip_allow_list"] or (),
        "import_ip_deny_list": values["import_ip_deny_list"] or (),
        "assets_transform_max_concurrent": values["assets_transform_max_concurrent"] or _cores(),
        "email_smtp_port": values["email_smtp_port"]
        or (465 if values["email_smtp_secure"] else 587),
        "web_concurrency": values["web_concurrency"] or min(max(_cores(), 2), MAX_DEFAULT_WORKERS),
    }


def _read_location(name: str, sources: Sources, folder: Path, problems: list[str]) -> Location:
    """Return a location as the settings name it; adds to the problems what its driver lacks."""
    said = {
        option: _value(setting, sources, folder=folder, problems=problems)
        for option, setting in options_of(name).items()
    }
    found = Location(
        name=name, **{option: value for option, value in said.items() if value is not None}
    )
    problems += missing_options(found)
    return found


def _cores() -> int:
    """Return how many cores this process may use: in a container often fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _value(setting: Setting, sources: Sources, *, folder: Path, problems: list[str]) -> Any:
    """Return the value from the first source that names the setting or its file; None when unset or wrong."""
    name, from_file = setting.name, f"{setting.name}_FILE"
    source = next((source for source in sources if name in source or from_file in source), {})
    text = source.get(name, "")
    if source.get(from_file):
        if text:
            problems.append(f"{name} and {from_file} are both set: keep one.")
            return None
        text = _read_file(
            folder / Path(source[from_file]), setting_name=from_file, problems=problems
        )
    try:
        if "\0" in text:
            raise ValueError
        return setting.kind.parse(text or setting.default) if text or setting.default else None
    except (ValueError, OverflowError):
        seen = "" if setting.mask or source.get(from_file) else f", not {text[:60]!r}"
        problems.append(f"{name} takes {setting.kind.takes}{seen}.")
        return None


def _read_file(path: Path, *, setting_name: str, problems: list[str]) -> str:
    try:
        return path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as fault:
        problems.append(f"{setting_name} names a file that cannot be read: {_reason(fault)}.")
        return ""


def _reason(fault: OSError | ValueError) -> str:
    if isinstance(fault, OSError):
        return fault.strerror or "unreadable"
    return "it is not UTF-8 text" if isinstance(fault, UnicodeDecodeError) else str(fault)


def _dotenv(path: Path, *, problems: list[str]) -> Mapping[str, str]:
    try:
        values, faults = dotenv.read(path)
    except (OSError, ValueError) as fault:
        problems.append(f"{path.name} cannot be read: {_reason(fault)}.")
        return {}
    problems.extend(faults)
    return values


def secret_of(config: Config) -> str:
    """Return SECRET, or the random one that this installation keeps in `DATA_DIR/secret`, made when missing.

    Every process over one DATA_DIR gets the same. Raises `ConfigError` when it cannot be kept.
    """
    if config.secret:
        return config.secret
    path = config.data_dir / "secret"
    try:
        kept = _read_or_make(path).strip()
    except (OSError, ValueError) as fault:
        raise ConfigError(
            f"SECRET is not set, and none can be kept in {path}: {_reason(fault)}."
        ) from fault
    try:
        LONG_TEXT.parse(kept)
    except ValueError:
        sentence = f"SECRET is not set, and {path} does not hold {LONG_TEXT.takes}: set one, or remove that file."
        raise ConfigError(sentence) from None
    return kept


def _read_or_make(path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _publish(secrets.token_urlsafe(32), path)
    return path.read_text("utf-8")


def _publish(content: str, path: Path) -> None:
    """Write a file that appears whole or not at all, readable by this account only; the first writer wins."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # another process was first, and its secret is the one to use
    finally:
        os.unlink(draft)
