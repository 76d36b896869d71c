"""Settings: where they come from, what they take, how a wrong one is refused."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cms.config import Config, ConfigError, effective, load, providers
from cms.config.locations import OPTIONS, Location
from cms.config.secret_file import secret_of
from cms.config.settings import SETTINGS, Setting
from cms.processes.machine import GIBIBYTE, Machine
from cms.text_shapes import MASK

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"
MINUTE = timedelta(minutes=1)
SECRET = "only-for-tests-" * 3


def problems_of(environ: dict[str, str], folder: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(environ, folder=folder)
    return caught.value.problems


def test_nothing_set_is_a_service_of_this_machine(tmp_path: Path) -> None:
    config = load({}, folder=tmp_path)
    assert (config.host, config.port, config.public_url) == (
        "127.0.0.1",
        8055,
        "http://127.0.0.1:8055",
    )
    assert (config.database_url, config.secret, config.admin_password) == (None, None, None)
    assert (config.admin_email, config.data_dir) == ("admin@example.com", tmp_path / "data")
    assert (config.access_token_ttl, config.refresh_token_ttl) == (15 * MINUTE, timedelta(days=7))
    assert (config.query_limit_default, config.query_limit_max) == (100, None)
    assert (config.max_payload_size, config.max_relational_depth) == (1024 * 1024, 10)
    assert (config.web_threads, config.database_pool_size) == (4, 5)
    assert 2 <= config.web_concurrency <= 16


def test_there_is_a_web_worker_for_each_core_that_the_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.config.present_machine", lambda: Machine(GIBIBYTE, 3))
    assert load({}, folder=tmp_path).web_concurrency == 3


def test_what_is_not_set_follows_what_is(tmp_path: Path) -> None:
    config = load({"HOST": "::1", "PORT": "80", "WEB_THREADS": "7"}, folder=tmp_path)
    assert (config.public_url, config.database_pool_size) == ("http://[::1]:80", 8)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HOST", "cms.example.com", "cms.example.com"),
        ("HOST", "::", "::"),
        ("PORT", "65535", 65535),
        ("PUBLIC_URL", "https://example.com/cms/", "https://example.com/cms"),
        ("DATABASE_URL", "postgres://u:p@a:1,b:2/name", "postgres://u:p@a:1,b:2/name"),
        ("DATABASE_URL", "host=/tmp dbname='my base'", "host=/tmp dbname='my base'"),
        ("DATABASE_PREPARE", "False", False),
        ("DATABASE_PREPARE", "1", True),
        ("DATA_DIR", "/srv/../srv/cms", Path("/srv/cms")),
        ("ACCESS_TOKEN_TTL", "900000", 15 * MINUTE),
        ("ACCESS_TOKEN_TTL", "1.5 h", 90 * MINUTE),
        ("ACCESS_TOKEN_TTL", "2w", timedelta(weeks=2)),
        ("DB_STATEMENT_TIMEOUT", "250ms", timedelta(milliseconds=250)),
        ("MAX_PAYLOAD_SIZE", "2000", 2000),
        ("MAX_PAYLOAD_SIZE", "512KB", 512 * 1024),
        ("MAX_PAYLOAD_SIZE", "0.5gb", 512 * 1024 * 1024),
        ("QUERY_LIMIT_MAX", "500", 500),
        ("CORS_ORIGIN", "true", ("*",)),
        ("CORS_ORIGIN", "false", ()),
        (
            "CORS_ORIGIN",
            "https://App.example.com, http://localhost:5173/",
            ("https://app.example.com", "http://localhost:5173"),
        ),
        ("CORS_METHODS", "GET,POST", ("GET", "POST")),
        ("IP_TRUST_PROXY", "true", 1),
        ("IP_TRUST_PROXY", "2", 2),
        ("IP_TRUST_PROXY", "false", 0),
        (
            "USER_INVITE_URL_ALLOW_LIST",
            "https://a.example/x, https://b.example",
            ("https://a.example/x", "https://b.example"),
        ),
        ("SESSION_COOKIE_SAME_SITE", "Strict", "strict"),
        ("LOG_LEVEL", "WARN", "warn"),
        ("LOG_STYLE", "json", "json"),
        ("EMAIL_FROM", "Zoë, “CMS” <cms@example.com>", "Zoë, “CMS” <cms@example.com>"),
        ("EMAIL_SMTP_SECURE", "true", True),
        ("ADMIN_PASSWORD", " spaces stay ", " spaces stay "),
    ],
)
def test_a_setting_takes(name: str, text: str, value: object, tmp_path: Path) -> None:
    assert getattr(load({name: text}, folder=tmp_path), name.lower()) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HOST", "a b"),
        ("HOST", "localhost:80"),
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "80.0"),
        ("PORT", "٣"),
        ("PORT", "9" * 5000),
        ("PUBLIC_URL", "example.com"),
        ("PUBLIC_URL", "https://example.com:port"),
        ("PUBLIC_URL", "https://example.com/?a=b"),
        ("ADMIN_EMAIL", "admin"),
        ("DATABASE_URL", "mysql://localhost/cms"),
        ("DATABASE_PREPARE", "maybe"),
        ("DATABASE_POOL_SIZE", "0"),
        ("ACCESS_TOKEN_TTL", "0"),
        ("ACCESS_TOKEN_TTL", "-1m"),
        ("ACCESS_TOKEN_TTL", "15 minutes"),
        ("ACCESS_TOKEN_TTL", "999999999999w"),
        ("DB_STATEMENT_TIMEOUT", "25d"),
        ("MAX_PAYLOAD_SIZE", "1tb"),
        ("MAX_PAYLOAD_SIZE", "3gb"),
        ("MAX_RELATIONAL_DEPTH", "101"),
        ("STORAGE_LOCATIONS", "local, my files"),
        ("STORAGE_LOCATIONS", "local,s3,local"),
        ("FILES_MIME_TYPE_ALLOW_LIST", "image"),
        ("IMPORT_IP_DENY_LIST", "10.0.0.0/33"),
        ("FLOWS_REQUEST_ALLOW_LIST", "https://api.example.com"),
        ("FLOWS_REQUEST_ALLOW_LIST", "*example.com"),
        ("CORS_ORIGIN", "app.example.com"),
        ("CORS_ORIGIN", "https://app.example.com/path"),
        ("CORS_ORIGIN", "https://app.example.com,*"),
        ("CORS_ALLOWED_HEADERS", "X Header"),
        ("IP_TRUST_PROXY", "17"),
        ("IP_TRUST_PROXY", "10.0.0.1"),
        ("PASSWORD_RESET_URL_ALLOW_LIST", "https://a.example/x?y=z"),
        ("SESSION_COOKIE_SAME_SITE", "sometimes"),
        ("LOG_LEVEL", "loud"),
        ("LOG_STYLE", "pretty|json"),
        ("WORKER_CONCURRENCY", "0"),
        ("EMAIL_TRANSPORT", "sendmail"),
        ("EMAIL_FROM", "cms"),
        ("EMAIL_FROM", "a@example.com, b@example.com"),
        ("EMAIL_FROM", "CMS <a@example.com>\r\nBcc: <b@example.com>"),
    ],
)
def test_a_wrong_value_is_reported_by_name_with_what_it_takes(
    name: str, text: str, tmp_path: Path
) -> None:
    (problem,) = problems_of({name: text}, tmp_path)
    takes = next(setting.kind.takes for setting in SETTINGS if setting.name == name)
    assert problem.startswith(f"{name} takes {takes}")
    assert len(problem) < 200


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"EMAIL_TRANSPORT": "smtp"}, "EMAIL_TRANSPORT=smtp needs EMAIL_SMTP_HOST"),
        ({"EMAIL_SMTP_USER": "cms"}, "EMAIL_SMTP_USER and EMAIL_SMTP_PASSWORD go together"),
        ({"EMAIL_SMTP_PASSWORD": "s3cret"}, "EMAIL_SMTP_USER and EMAIL_SMTP_PASSWORD go together"),
        ({"EMAIL_SMTP_SECURE": "1", "EMAIL_SMTP_IGNORE_TLS": "1"}, "contradict each other"),
    ],
)
def test_settings_of_mail_that_contradict_each_other_are_reported(
    settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    (problem,) = problems_of(settings, tmp_path)
    assert message in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(("secure", "port"), [("true", 465), ("false", 587)])
def test_the_port_of_the_mail_server_follows_its_tls(
    secure: str, port: int, tmp_path: Path
) -> None:
    assert load({"EMAIL_SMTP_SECURE": secure}, folder=tmp_path).email_smtp_port == port


def test_everything_wrong_is_reported_at_once(tmp_path: Path) -> None:
    problems = problems_of({"PORT": "x", "WEB_THREADS": "0", "LOG_STYLE": "x"}, tmp_path)
    assert [problem.split()[0] for problem in problems] == ["PORT", "LOG_STYLE", "WEB_THREADS"]


def test_a_wrong_secret_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("hunter2")
    (tmp_path / ".env").write_text("SECRET='hunter2\nhunter2\n")
    wrong = {"DATABASE_URL": "hunter2", "DATABASE_READ_URL": "hunter2", "PORT_FILE": "port"}
    problems = problems_of(wrong, tmp_path)
    assert len(problems) == 5
    assert "hunter2" not in " ".join(problems)


def test_cookies_for_all_sites_need_tls(tmp_path: Path) -> None:
    (problem,) = problems_of({"SESSION_COOKIE_SAME_SITE": "none"}, tmp_path)
    assert problem.startswith("SESSION_COOKIE_SAME_SITE=none needs SESSION_COOKIE_SECURE=true")
    config = load(
        {"SESSION_COOKIE_SAME_SITE": "none", "PUBLIC_URL": "https://example.com"}, folder=tmp_path
    )
    assert config.session_cookie_secure


@pytest.mark.parametrize("name", ["DATABASE_READ_URL", "DATABASE_DIRECT_URL"])
def test_other_addresses_of_the_database_need_the_first_one(name: str, tmp_path: Path) -> None:
    (problem,) = problems_of({name: "postgresql://replica/cms"}, tmp_path)
    assert problem.startswith(f"{name} needs DATABASE_URL")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ADMIN_PASSWORD=plain", "plain"),
        ("export ADMIN_PASSWORD = plain  # a comment", "plain"),
        ("ADMIN_PASSWORD=a#b", "a#b"),
        ("ADMIN_PASSWORD=a=b c", "a=b c"),
        ("ADMIN_PASSWORD='a # \"b\" \\n'  # a comment", 'a # "b" \\n'),
        ('ADMIN_PASSWORD="a # \\"b\\" \\\\ \\n"', 'a # "b" \\ \n'),
        ("ADMIN_PASSWORD=é\u2028\r", "é"),
        ("ADMIN_PASSWORD='é\u2028'\r", "é\u2028"),
        ("\ufeffADMIN_PASSWORD=x", "x"),
        ("# a comment\n\nADMIN_PASSWORD=first\nADMIN_PASSWORD=last", "last"),
        ("ADMIN_PASSWORD=", None),
        ("ADMIN_PASSWORD= # nothing", None),
    ],
)
def test_a_dotenv_line_is_read_as_a_shell_would(
    line: str, value: str | None, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(line, newline="")
    assert load({}, folder=tmp_path).admin_password == value


@pytest.mark.parametrize("line", ["PORT", "PORT: 80", "1PORT=80", "PORT='80", 'PORT="80" 1'])
def test_a_dotenv_line_that_is_none_is_reported_by_number(line: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"HOST=127.0.0.1\n{line}\n")
    assert problems_of({}, tmp_path) == ("Line 2 of .env is not NAME=value.",)


def test_a_dotenv_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    (problem,) = problems_of({}, tmp_path)
    assert problem.startswith(".env cannot be read")


def test_the_environment_wins_over_dotenv(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"PORT=1\nHOST=localhost\nSECRET={SECRET}\nADMIN_PASSWORD=one\n")
    (tmp_path / "kept").write_text("two")
    config = load({"PORT": "2", "SECRET": "", "ADMIN_PASSWORD_FILE": "kept"}, folder=tmp_path)
    assert (config.port, config.host, config.secret, config.admin_password) == (
        2,
        "localhost",
        None,
        "two",
    )


@pytest.mark.parametrize("content", ["p w", "p w\n", "p w\r\n"])
def test_a_value_may_come_from_a_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text(content, newline="")
    assert (
        load({"ADMIN_PASSWORD_FILE": str(tmp_path / "kept")}, folder=tmp_path).admin_password
        == "p w"
    )


def test_a_value_and_a_file_of_it_is_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("two")
    problems = problems_of({"SECRET": "one", "SECRET_FILE": "kept"}, tmp_path)
    assert problems == ("SECRET and SECRET_FILE are both set: keep one.",)


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    problems = problems_of({"SECRET_FILE": "missing", "ADMIN_PASSWORD_FILE": "binary"}, tmp_path)
    assert [problem.split()[0] for problem in problems] == ["SECRET_FILE", "ADMIN_PASSWORD_FILE"]


SPREAD = {
    "SECRET": f"hunter2{SECRET}",
    "ADMIN_PASSWORD": "hunter2",
    "DATABASE_URL": "postgresql://u:hunter2@h/d?sslpassword=hunter2&connect_timeout=3",
    "DATABASE_READ_URL": "host=h password = 'hun\\'ter2 hunter2' dbname=d",
    "STORAGE_LOCATIONS": "local,s3,azure",
    "STORAGE_S3_DRIVER": "s3",
    "STORAGE_S3_BUCKET": "files",
    "STORAGE_S3_KEY": "hunter2",
    "STORAGE_S3_SECRET": "hunter2",
    "STORAGE_AZURE_DRIVER": "azure",
    "STORAGE_AZURE_CONTAINER_NAME": "files",
    "STORAGE_AZURE_ACCOUNT_NAME": "me",
    "STORAGE_AZURE_ACCOUNT_KEY": "hunter2",
}


def test_what_is_in_effect_shows_no_secret(tmp_path: Path) -> None:
    settings = dict(effective(load(SPREAD, folder=tmp_path)))
    assert "ter2" not in " ".join(settings.values())
    assert settings["SECRET"] == settings["ADMIN_PASSWORD"] == MASK
    assert (
        settings["DATABASE_URL"]
        == f"postgresql://u:{MASK}@h/d?sslpassword={MASK}&connect_timeout=3"
    )
    assert settings["DATABASE_READ_URL"] == f"host=h password = {MASK} dbname=d"


@pytest.mark.parametrize("password", ["a@hunter2", "a:hunter2", "hunter2/b", "hunter2?x=@y"])
def test_a_password_with_signs_of_an_address_in_it_is_masked_whole(
    password: str, tmp_path: Path
) -> None:
    config = load({"DATABASE_URL": f"postgresql://u:{password}@host/d"}, folder=tmp_path)
    assert dict(effective(config))["DATABASE_URL"] == f"postgresql://u:{MASK}@host/d"


def test_a_printed_record_shows_no_secret(tmp_path: Path) -> None:
    assert "hunter2" not in repr(load(SPREAD, folder=tmp_path))


def test_what_is_in_effect_is_a_dotenv_of_the_same_settings(tmp_path: Path) -> None:
    values = {
        "ACCESS_TOKEN_TTL": "90s",
        "MAX_PAYLOAD_SIZE": "1500",
        "DATABASE_PREPARE": "off",
        "QUERY_LIMIT_MAX": "9",
        "IMPORT_IP_ALLOW_LIST": "10.0.0.7/8, ::1",
        "STORAGE_LOCATIONS": "disk, s3",
        "STORAGE_DISK_ROOT": "files",
        "STORAGE_S3_DRIVER": "s3",
        "STORAGE_S3_BUCKET": "b",
        "STORAGE_S3_ROOT": "/some/root/",
    }
    config = load(values, folder=tmp_path)
    (tmp_path / ".env").write_text(
        "".join(f"{name}={value}\n" for name, value in effective(config))
    )
    assert load({}, folder=tmp_path) == config


def test_a_location_has_its_own_settings(tmp_path: Path) -> None:
    assert load({}, folder=tmp_path).locations == (
        Location("local", "local", str(tmp_path / "data" / "uploads")),
    )
    settings = {
        "STORAGE_LOCATIONS": "disk,s3",
        "STORAGE_DISK_ROOT": "files",
        "STORAGE_S3_DRIVER": "s3",
        "STORAGE_S3_BUCKET": "b",
        "STORAGE_S3_ROOT": "/some/root/",
    }
    disk, s3 = load(settings, folder=tmp_path).locations
    assert (disk.name, disk.root) == ("disk", str(tmp_path / "files"))
    assert (s3.name, s3.bucket, s3.root, s3.secret) == ("s3", "b", "some/root", None)


def test_what_a_driver_lacks_is_reported_by_name(tmp_path: Path) -> None:
    wrong = {"STORAGE_LOCATIONS": "a,b", "STORAGE_A_DRIVER": "s3", "STORAGE_B_DRIVER": "ftp"}
    problems = problems_of(wrong, tmp_path)
    assert problems == (
        "STORAGE_A_BUCKET is needed by the driver s3.",
        "STORAGE_B_DRIVER takes one of local, s3, gcs, azure, not 'ftp'.",
    )


def test_the_record_and_the_table_name_the_same_settings() -> None:
    names = [field.name.upper() for field in fields(Config)]
    assert names == [*(setting.name for setting in SETTINGS), "LOCATIONS", "PROVIDERS", "FLOWS_ENV"]
    options = [f"STORAGE_<NAME>_{field.name.upper()}" for field in fields(Location)]
    assert sorted(options) == sorted(["STORAGE_<NAME>_NAME", *(option.name for option in OPTIONS)])


def test_every_setting_is_documented_with_its_default() -> None:
    lines = DOCS.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert rows == [
        f"| `{one.name}` | {one.help} | {one.kind.takes} | {unset(one)} |"
        for one in (*SETTINGS, *OPTIONS, *providers.OPTIONS)
    ]


def unset(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default else setting.unset


def config_in(folder: Path, **environ: Any) -> Config:
    return load(environ, folder=folder)


def test_a_secret_that_is_set_is_used_and_not_kept(tmp_path: Path) -> None:
    assert secret_of(config_in(tmp_path, SECRET=SECRET)) == SECRET
    assert not (tmp_path / "data").exists()


def test_a_secret_that_is_not_set_is_made_once_and_kept_private(tmp_path: Path) -> None:
    secret = secret_of(config_in(tmp_path))
    assert len(secret) >= 32
    assert secret_of(config_in(tmp_path)) == secret
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["secret"]
    assert stat.S_IMODE((tmp_path / "data" / "secret").stat().st_mode) == 0o600


def test_all_who_make_the_secret_at_once_agree(tmp_path: Path) -> None:
    for round_of in range(20):
        config = config_in(tmp_path / str(round_of))
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(secret_of, [config] * 8))) == 1


@pytest.mark.parametrize("content", ["", "\n", "short\n", "x" * 31])
def test_a_secret_file_without_a_long_secret_is_refused(content: str, tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.data_dir.mkdir()
    (config.data_dir / "secret").write_text(content)
    with pytest.raises(ConfigError, match="does not hold a text of 32 characters or more"):
        secret_of(config)


@pytest.mark.parametrize("name", ["SECRET", "SECRET_FILE"])
@pytest.mark.parametrize("written", ["environment", ".env"])
def test_a_short_secret_stops_the_start_wherever_it_comes_from(
    name: str, written: str, tmp_path: Path
) -> None:
    def problems(secret: str) -> tuple[str, ...]:
        (tmp_path / "kept").write_text(f"{secret}\n")
        value = "kept" if name == "SECRET_FILE" else secret
        if written == "environment":
            return problems_of({name: value, "PORT": "x"}, tmp_path)
        (tmp_path / ".env").write_text(f"{name}={value}\n")
        return problems_of({"PORT": "x"}, tmp_path)

    port = "PORT takes a whole number from 1 to 65535, not 'x'."
    assert problems("y" * 31) == (port, "SECRET takes a text of 32 characters or more.")
    assert problems("y" * 32) == (port,)


def test_a_data_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match=f"SECRET is not set.*{os.sep}data"):
        secret_of(config_in(tmp_path))


def test_flows_read_only_the_variables_that_are_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LATER=from the file\nOTHER=hidden\n")
    environ = {"FLOWS_ENV_ALLOW_LIST": "KEY, LATER,MISSING", "KEY": "a=b", "HIDDEN": "x"}
    config = load(environ, folder=tmp_path)
    assert config.flows_env == {"KEY": "a=b", "LATER": "from the file"}
    assert "a=b" not in repr(config)


def test_variables_of_others_are_passed_over(tmp_path: Path) -> None:
    others = (
        "AUTH_TOKEN",
        "AUTH_GITHUB_ID",
        "REDIS_URL",
        "REDIS_PORT",
        "FLOWS",
        "METRICS",
        "SECRETS",
        "PORTS",
    )
    assert load(dict.fromkeys(others, "1"), folder=tmp_path) == load({}, folder=tmp_path)


def test_redis_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "redis://:hunter2@127.0.0.1:6379/0"
    assert dict(effective(load({"REDIS": address}, folder=tmp_path)))["REDIS"] == (
        f"redis://:{MASK}@127.0.0.1:6379/0"
    )
    monkeypatch.setattr("cms.config.find_spec", lambda name: None)
    sentence = "REDIS needs the extra redis: pip install 'postgres-headless-cms[redis]'."
    assert problems_of({"REDIS": address}, tmp_path) == (sentence,)


@pytest.mark.parametrize(
    "address",
    ["redis://:hunter2@host:x/0", "redis://:hun/ter2@host", "redis://[::1:6379", "redis://h:99999"],
)
def test_an_address_of_redis_that_cannot_be_read_is_reported_without_the_password(
    tmp_path: Path, address: str
) -> None:
    (problem,) = problems_of({"REDIS": address}, tmp_path)
    assert problem.startswith("REDIS")
    assert "hun" not in problem
