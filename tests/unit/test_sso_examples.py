"""The worked examples of docs/sso.md are settings with which the service starts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import trustme

from cms.config import load
from cms.config.providers import Provider

DOCUMENT = Path(__file__).parents[2] / "docs" / "sso.md"
ROLE = "8f2f1a0e-6a5f-4a57-b6a4-6d8c2e4a0a01"

EXAMPLES = {
    "Settings": "openid",
    "Google": "openid",
    "Microsoft Entra": "openid",
    "Okta": "openid",
    "OAuth 2 alone": "oauth2",
    "SAML": "saml",
    "OpenLDAP": "ldap",
    "Active Directory": "ldap",
}
"""The examples by the heading, or the word, before them, and their drivers."""


def example(name: str) -> str:
    """Return the block of settings behind a heading, or behind a name with a colon."""
    text = DOCUMENT.read_text()
    start = re.search(rf"^(#+ {name}|{name}:)$", text, re.MULTILINE)
    assert start, name
    block = re.search(r"```sh\n(AUTH_PROVIDERS=.*?)```", text[start.end() :], re.DOTALL)
    assert block, name
    return block[1]


def variables(settings: str, folder: Path) -> dict[str, str]:
    """Return the variables of an example, with its files, and an id for each that is meant."""
    files = folder / "file.pem"
    trustme.CA().cert_pem.write_to_path(str(files))
    read: dict[str, str] = {}
    for word in shlex.split(re.sub(r"<[^>]*>", ROLE, settings), comments=True):
        name, _, value = word.partition("=")
        read[name] = str(files) if name.endswith("_FILE") else value
    return read


def provider_of(settings: str, folder: Path) -> Provider:
    (provider,) = load(variables(settings, folder), folder=folder).providers
    return provider


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_complete(tmp_path: Path, name: str) -> None:
    assert provider_of(example(name), tmp_path).driver == EXAMPLES[name]


def test_that_of_keycloak_is_the_first_with_groups(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    groups = re.search(r"^AUTH_KEYCLOAK_ROLE_MAPPING=.*$", text, re.MULTILINE)
    assert groups
    provider = provider_of(f"{example('Settings')}{groups[0]}\n", tmp_path)
    assert provider.role_mapping == {"cms-admins": ROLE}


def test_there_is_a_picture_of_the_flow() -> None:
    picture = re.search(r"!\[[^]]+\]\((sso/[^)]+\.svg)\)", DOCUMENT.read_text())
    assert picture
    assert "<svg" in (DOCUMENT.parent / picture[1]).read_text()
