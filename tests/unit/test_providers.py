"""Settings of login providers: how a wrong or missing one is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from cms.config import Config, ConfigError, effective, load
from cms.config.providers import Provider

ROLE = "8f2f1a0e-6a5f-4a57-b6a4-6d8c2e4a0a01"
OPENID = {
    "AUTH_PROVIDERS": "keycloak",
    "AUTH_KEYCLOAK_DRIVER": "openid",
    "AUTH_KEYCLOAK_CLIENT_ID": "cms",
    "AUTH_KEYCLOAK_CLIENT_SECRET": "a-secret",
    "AUTH_KEYCLOAK_ISSUER_URL": "https://id.example.com/.well-known/openid-configuration",
}
OAUTH2 = {
    "AUTH_PROVIDERS": "github",
    "AUTH_GITHUB_DRIVER": "oauth2",
    "AUTH_GITHUB_CLIENT_ID": "cms",
    "AUTH_GITHUB_CLIENT_SECRET": "a-secret",
    "AUTH_GITHUB_AUTHORIZE_URL": "https://git.example.com/authorize",
    "AUTH_GITHUB_ACCESS_URL": "https://git.example.com/token",
    "AUTH_GITHUB_PROFILE_URL": "https://git.example.com/user",
}

LDAP = {
    "AUTH_PROVIDERS": "ldap",
    "AUTH_LDAP_DRIVER": "ldap",
    "AUTH_LDAP_CLIENT_URL": "ldaps://ldap.example.com",
    "AUTH_LDAP_USER_DN": "dc=example,dc=com",
}


def load_with(tmp_path: Path, *base: dict[str, str], **more: str) -> Config:
    environ: dict[str, str] = {}
    for settings in base:
        environ |= settings
    return load(environ | more, folder=tmp_path)


def provider_of(tmp_path: Path, *base: dict[str, str], **more: str) -> Provider:
    (provider,) = load_with(tmp_path, *base, **more).providers
    return provider


def problems(tmp_path: Path, *base: dict[str, str], **more: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_with(tmp_path, *base, **more)
    return caught.value.problems


def test_nothing_set_is_no_provider(tmp_path: Path) -> None:
    assert load({}, folder=tmp_path).providers == ()


def test_defaults_follow_from_the_driver(tmp_path: Path) -> None:
    openid = provider_of(tmp_path, OPENID)
    assert (openid.identifier_key, openid.email_key, openid.mode) == ("sub", "email", "session")
    assert (openid.first_name_key, openid.last_name_key) == ("given_name", "family_name")
    assert openid.scope == "openid profile email"
    oauth2 = provider_of(tmp_path, OAUTH2)
    assert (oauth2.identifier_key, oauth2.first_name_key, oauth2.scope) == ("email", "", "email")
    named = provider_of(tmp_path, OAUTH2, AUTH_GITHUB_EMAIL_KEY="user.email")
    assert named.identifier_key == "user.email"


@pytest.mark.parametrize("name", [*OPENID][1:])
def test_what_openid_needs(tmp_path: Path, name: str) -> None:
    settings = {**OPENID}
    del settings[name]
    (problem,) = problems(tmp_path, settings)
    assert problem.startswith(f"{name} is needed")


@pytest.mark.parametrize("name", [*OAUTH2][1:])
def test_what_oauth2_needs(tmp_path: Path, name: str) -> None:
    settings = {**OAUTH2}
    del settings[name]
    (problem,) = problems(tmp_path, settings)
    assert problem.startswith(f"{name} is needed")


def test_everything_that_is_wrong_is_reported_at_once(tmp_path: Path) -> None:
    wrong = {"AUTH_KEYCLOAK_MODE": "cookies", "AUTH_KEYCLOAK_SYNC_USER_INFO": "maybe"}
    assert len(problems(tmp_path, OPENID, wrong, AUTH_KEYCLOAK_CLIENT_ID="")) == 3


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("DRIVER", "kerberos"),
        ("ISSUER_URL", "id.example.com"),
        ("ISSUER_URL", "https://user@id.example.com/"),
        ("ISSUER_URL", "file:///etc/passwd"),
        ("DEFAULT_ROLE_ID", "editors"),
        ("ROLE_MAPPING", "editors"),
        ("ROLE_MAPPING", "[]"),
        ("ROLE_MAPPING", '{"editors": 5}'),
        ("ROLE_MAPPING", '{"editors": "no id"}'),
        ("ROLE_MAPPING", "json:"),
        ("PARAMS", '{"prompt": ["login"]}'),
        ("REDIRECT_ALLOW_LIST", "app.example.com"),
        ("MODE", "ldap"),
        ("ALLOW_PUBLIC_REGISTRATION", "sometimes"),
        ("EMAIL_KEY", "user..email"),
    ],
)
def test_a_wrong_value_is_reported_with_the_name_of_its_setting(
    tmp_path: Path, option: str, text: str
) -> None:
    variable = f"AUTH_KEYCLOAK_{option}"
    reported = problems(tmp_path, OPENID, **{variable: text})
    assert any(variable in problem for problem in reported), reported


def test_secrets_are_in_no_problem_and_masked(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, OPENID, AUTH_KEYCLOAK_CLIENT_ID="")
    assert "a-secret" not in problem
    config = load_with(tmp_path, OPENID)
    assert "a-secret" not in repr(config)
    assert "a-secret" not in "".join(text for _, text in effective(config))


@pytest.mark.parametrize("option", ["AUTHORIZE_URL", "ACCESS_URL", "PROFILE_URL"])
def test_plain_http_is_for_this_machine(tmp_path: Path, option: str) -> None:
    variable = f"AUTH_GITHUB_{option}"
    for host in ("localhost", "127.0.0.1:8080", "[::1]:80", "127.3.2.1"):
        provider_of(tmp_path, OAUTH2, **{variable: f"http://{host}/x"})
    for host in ("git.example.com", "localhost.example.com", "10.0.0.1", "127.0.0.1.nip.io"):
        (problem,) = problems(tmp_path, OAUTH2, **{variable: f"http://{host}/x"})
        assert problem.startswith(variable)
        assert "AUTH_GITHUB_ALLOW_INSECURE" in problem
        provider_of(
            tmp_path, OAUTH2, AUTH_GITHUB_ALLOW_INSECURE="true", **{variable: f"http://{host}/x"}
        )


@pytest.mark.parametrize("text", [f'{{"editors": "{ROLE}"}}', f'json:{{"editors": "{ROLE}"}}'])
def test_a_mapping_is_json_also_behind_the_mark(tmp_path: Path, text: str) -> None:
    provider = provider_of(tmp_path, OPENID, AUTH_KEYCLOAK_ROLE_MAPPING=text)
    assert provider.role_mapping == {"editors": ROLE}


def test_the_order_of_a_mapping_stays(tmp_path: Path) -> None:
    text = f'{{"z": "{ROLE}", "a": "{ROLE}", "m": "{ROLE}"}}'
    provider = provider_of(tmp_path, OPENID, AUTH_KEYCLOAK_ROLE_MAPPING=text)
    assert list(provider.role_mapping) == ["z", "a", "m"]


def test_an_unknown_setting_is_reported_with_one_that_is_alike(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, OPENID, AUTH_KEYCLOAK_CLIENTID="cms")
    assert problem == "AUTH_KEYCLOAK_CLIENTID is no setting of a provider: AUTH_KEYCLOAK_CLIENT_ID?"
    (problem,) = problems(tmp_path, OPENID, AUTH_KEYCLOAK_XYZZY="cms")
    assert problem == "AUTH_KEYCLOAK_XYZZY is no setting of a provider."


def test_one_name_may_begin_with_another(tmp_path: Path) -> None:
    second = {name.replace("KEYCLOAK", "KEYCLOAK_B"): value for name, value in OPENID.items()}
    config = load_with(tmp_path, OPENID, second, AUTH_PROVIDERS="keycloak,keycloak_b")
    assert [provider.client_id for provider in config.providers] == ["cms", "cms"]


@pytest.mark.parametrize("names", ["keycloak,keycloak", "keycloak, other ,keycloak", "Keycloak"])
def test_a_name_that_comes_twice_or_in_capitals_is_reported_by_its_setting(
    tmp_path: Path, names: str
) -> None:
    (problem,) = problems(tmp_path, OPENID, AUTH_PROVIDERS=names)
    assert problem.startswith("AUTH_PROVIDERS takes names such as keycloak,google, each once")


def test_secrets_come_from_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("from-a-file\n")
    settings = {**OPENID, "AUTH_KEYCLOAK_CLIENT_SECRET_FILE": str(path)}
    del settings["AUTH_KEYCLOAK_CLIENT_SECRET"]
    assert provider_of(tmp_path, settings).client_secret == "from-a-file"
    missing = str(tmp_path / "none")
    reported = problems(tmp_path, settings, AUTH_KEYCLOAK_CLIENT_SECRET_FILE=missing)
    assert any("AUTH_KEYCLOAK_CLIENT_SECRET_FILE" in problem for problem in reported)


def test_names_are_taken_in_small_letters_too(tmp_path: Path) -> None:
    settings: dict[str, str] = {}
    for name, value in OPENID.items():
        settings[name.replace("KEYCLOAK", "keycloak")] = value
    assert provider_of(tmp_path, settings).client_id == "cms"


@pytest.mark.parametrize(
    "url", ["https://[::1", "https://[", "https://:443/", "https://a:99999/", "https://a:b/"]
)
def test_an_address_without_host_or_port_is_reported_by_name(tmp_path: Path, url: str) -> None:
    reported = problems(tmp_path, OPENID, AUTH_KEYCLOAK_ISSUER_URL=url)
    assert reported[0].startswith("AUTH_KEYCLOAK_ISSUER_URL takes an address")


@pytest.mark.parametrize("url", ["ldap://[::1", "ldap://:389", "ldap://a:99999", "ldaps://a:b"])
def test_a_directory_without_host_or_port_is_reported_by_name(tmp_path: Path, url: str) -> None:
    reported = problems(tmp_path, LDAP, AUTH_LDAP_CLIENT_URL=url)
    assert reported[0].startswith("AUTH_LDAP_CLIENT_URL takes an address")


@pytest.mark.parametrize("url", ["ldap://[::1]:389", "ldaps://a:636/", "ldap://a"])
def test_addresses_of_directories(tmp_path: Path, url: str) -> None:
    assert provider_of(tmp_path, LDAP, AUTH_LDAP_CLIENT_URL=url).client_url == url


def test_an_authority_that_is_no_certificate_is_reported_by_name(tmp_path: Path) -> None:
    reported = problems(tmp_path, LDAP, AUTH_LDAP_CLIENT_CA="rubbish")
    assert reported[0].startswith("AUTH_LDAP_CLIENT_CA takes certificates as PEM")


@pytest.mark.parametrize("name", ["state", "nonce", "redirect_uri", "response_type", "client_id"])
def test_parameters_of_the_service_itself_are_no_settings(tmp_path: Path, name: str) -> None:
    reported = problems(tmp_path, OPENID, AUTH_KEYCLOAK_PARAMS=f'{{"{name}": "x"}}')
    assert reported[0].startswith("AUTH_KEYCLOAK_PARAMS takes JSON")
