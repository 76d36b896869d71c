"""Providers of external logins: the settings `AUTH_<NAME>_…` for each of AUTH_PROVIDERS."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from cms.config.driver_options import (
    ATTRIBUTE,
    CERTIFICATES,
    DIRECTORY,
    KEY,
    MODE,
    PARAMS,
    ROLE,
    ROLES,
    SCOPE,
    URL,
    missing_options,
    named_settings,
)
from cms.config.settings import ADDRESSES, BOOLEAN, TEXT, Setting, choice, mask_all

OAUTH2 = "oauth2"
OPENID = "openid"
SAML = "saml"
LDAP = "ldap"


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider; each field is the setting of that name behind `AUTH_<NAME>_`.

    Keys are dotted paths into the profile of a user at the provider. `role_mapping` leads from
    groups to ids of roles, the first that fits first.
    """

    name: str
    driver: str = ""
    label: str | None = None
    icon: str | None = None
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    issuer_url: str = ""
    authorize_url: str = ""
    access_url: str = ""
    profile_url: str = ""
    scope: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    identifier_key: str = ""
    email_key: str = ""
    first_name_key: str = ""
    last_name_key: str = ""
    group_claim_name: str = "groups"
    allow_public_registration: bool | None = None
    require_verified_email: bool = False
    default_role_id: str | None = None
    role_mapping: Mapping[str, str] = field(default_factory=dict)
    sync_user_info: bool = False
    redirect_allow_list: tuple[str, ...] = ()
    mode: str = "session"
    allow_insecure: bool = False
    idp_metadata: str = ""
    sp_metadata: str = ""
    sp_certificate: str = ""
    sp_private_key: str = field(default="", repr=False)
    client_url: str = ""
    client_ca: str = ""
    bind_dn: str = ""
    bind_password: str = field(default="", repr=False)
    user_dn: str = ""
    user_attribute: str = "cn"
    user_scope: str = "one"
    mail_attribute: str = "mail"
    first_name_attribute: str = "givenName"
    last_name_attribute: str = "sn"
    group_dn: str = ""
    group_attribute: str = "member"
    group_scope: str = "one"

    def variable_name(self, option: str) -> str:
        """Return the name of the variable that sets an option."""
        return f"AUTH_{self.name.upper()}_{option.upper()}"

    def listed(self) -> Mapping[str, str | None]:
        """Return the public properties of the provider."""
        return {
            "name": self.name,
            "driver": self.driver,
            "label": self.label or self.name,
            "icon": self.icon,
        }

    def allows_address(self, url: str) -> bool:
        """Tell whether secrets may go to an address: over TLS, or within this machine."""
        parts = urlsplit(url)
        if parts.scheme == "https" or self.allow_insecure:
            return True
        return _is_this_machine(parts.hostname or "")


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


DRIVER = choice(OAUTH2, OPENID, SAML, LDAP)

OPTIONS: tuple[Setting, ...] = (
    Setting("AUTH_<NAME>_DRIVER", DRIVER, "the protocol of the provider", unset="needed"),
    Setting("AUTH_<NAME>_LABEL", TEXT, "its name for people, in `GET /auth`", unset="none"),
    Setting("AUTH_<NAME>_ICON", TEXT, "its icon, in `GET /auth`", unset="none"),
    Setting("AUTH_<NAME>_CLIENT_ID", TEXT, "the client's id there", unset="needed"),
    Setting("AUTH_<NAME>_CLIENT_SECRET", TEXT, "its secret", unset="needed", mask=mask_all),
    Setting(
        "AUTH_<NAME>_ISSUER_URL",
        URL,
        "the discovery document, which ends in `/.well-known/openid-configuration` (openid)",
        unset="needed by openid",
    ),
    Setting(
        "AUTH_<NAME>_AUTHORIZE_URL", URL, "where users log in (oauth2)", unset="needed by oauth2"
    ),
    Setting(
        "AUTH_<NAME>_ACCESS_URL",
        URL,
        "where a code is exchanged for a token (oauth2)",
        unset="needed by oauth2",
    ),
    Setting(
        "AUTH_<NAME>_PROFILE_URL",
        URL,
        "the address of the profile of the user (oauth2)",
        unset="needed by oauth2",
    ),
    Setting(
        "AUTH_<NAME>_SCOPE",
        TEXT,
        "what is asked for",
        unset="`openid profile email` (openid), `email` (oauth2)",
    ),
    Setting(
        "AUTH_<NAME>_PARAMS", PARAMS, "more parameters for the page of the provider", unset="none"
    ),
    Setting(
        "AUTH_<NAME>_IDENTIFIER_KEY",
        KEY,
        "what identifies a user there for ever",
        unset="`sub` (openid), the NameID (saml), the value of `_EMAIL_KEY` (oauth2)",
    ),
    Setting(
        "AUTH_<NAME>_EMAIL_KEY",
        KEY,
        "where the address is",
        unset="`email`; `emailaddress` of the usual claims (saml)",
    ),
    Setting(
        "AUTH_<NAME>_FIRST_NAME_KEY",
        KEY,
        "where the first name is",
        unset="`given_name` (openid), `givenname` of the usual claims (saml), none (oauth2)",
    ),
    Setting(
        "AUTH_<NAME>_LAST_NAME_KEY",
        KEY,
        "where the last name is",
        unset="`family_name` (openid), `surname` of the usual claims (saml), none (oauth2)",
    ),
    Setting("AUTH_<NAME>_GROUP_CLAIM_NAME", KEY, "where the groups are", "groups"),
    Setting(
        "AUTH_<NAME>_ALLOW_PUBLIC_REGISTRATION",
        BOOLEAN,
        "makes users of those who log in for the first time",
        unset="true (ldap), false (others)",
    ),
    Setting(
        "AUTH_<NAME>_REQUIRE_VERIFIED_EMAIL",
        BOOLEAN,
        "makes users only of those whose address the provider has verified",
        "false",
    ),
    Setting("AUTH_<NAME>_DEFAULT_ROLE_ID", ROLE, "the role of new users", unset="none"),
    Setting(
        "AUTH_<NAME>_ROLE_MAPPING",
        ROLES,
        "the roles of groups, set at each login; the first group that fits wins",
        unset="groups decide nothing",
    ),
    Setting(
        "AUTH_<NAME>_SYNC_USER_INFO",
        BOOLEAN,
        "takes over address and names at each login",
        "false",
    ),
    Setting(
        "AUTH_<NAME>_REDIRECT_ALLOW_LIST",
        ADDRESSES,
        "what `redirect` may be",
        unset="a login answers with JSON",
    ),
    Setting("AUTH_<NAME>_MODE", MODE, "how a client holds the session after a redirect", "session"),
    Setting(
        "AUTH_<NAME>_ALLOW_INSECURE",
        BOOLEAN,
        "takes addresses without TLS that are not on this machine",
        "false",
    ),
    Setting(
        "AUTH_<NAME>_IDP_METADATA",
        TEXT,
        "the provider's metadata as XML (saml)",
        unset="needed by saml",
    ),
    Setting(
        "AUTH_<NAME>_SP_METADATA",
        TEXT,
        "metadata of this service as XML, whose entityID is then its name (saml)",
        unset="those at `/auth/login/{provider}/metadata`",
    ),
    Setting(
        "AUTH_<NAME>_SP_CERTIFICATE",
        TEXT,
        "the certificate of the key below, as PEM (saml)",
        unset="none",
    ),
    Setting(
        "AUTH_<NAME>_SP_PRIVATE_KEY",
        TEXT,
        "signs requests and decrypts assertions, as PEM (saml)",
        unset="requests are not signed",
        mask=mask_all,
    ),
    Setting("AUTH_<NAME>_CLIENT_URL", DIRECTORY, "the server (ldap)", unset="needed by ldap"),
    Setting(
        "AUTH_<NAME>_CLIENT_CA",
        CERTIFICATES,
        "the authority that signs its certificate, as PEM (ldap)",
        unset="those of the system",
    ),
    Setting(
        "AUTH_<NAME>_BIND_DN",
        TEXT,
        "the entry as which the service searches (ldap)",
        unset="nobody",
    ),
    Setting("AUTH_<NAME>_BIND_PASSWORD", TEXT, "its password (ldap)", unset="none", mask=mask_all),
    Setting("AUTH_<NAME>_USER_DN", TEXT, "where users are (ldap)", unset="needed by ldap"),
    Setting("AUTH_<NAME>_USER_ATTRIBUTE", ATTRIBUTE, "what users type in (ldap)", "cn"),
    Setting("AUTH_<NAME>_USER_SCOPE", SCOPE, "how deep below they are (ldap)", "one"),
    Setting("AUTH_<NAME>_MAIL_ATTRIBUTE", ATTRIBUTE, "where the address is (ldap)", "mail"),
    Setting(
        "AUTH_<NAME>_FIRST_NAME_ATTRIBUTE", ATTRIBUTE, "where the first name is (ldap)", "givenName"
    ),
    Setting("AUTH_<NAME>_LAST_NAME_ATTRIBUTE", ATTRIBUTE, "where the last name is (ldap)", "sn"),
    Setting("AUTH_<NAME>_GROUP_DN", TEXT, "where groups are (ldap)", unset="groups decide nothing"),
    Setting(
        "AUTH_<NAME>_GROUP_ATTRIBUTE", ATTRIBUTE, "where a group has its members (ldap)", "member"
    ),
    Setting("AUTH_<NAME>_GROUP_SCOPE", SCOPE, "how deep below they are (ldap)", "one"),
)
"""The options of a provider; `<NAME>` stands for its name in capitals."""

_CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims"

_NEEDED: Mapping[str, tuple[str, ...]] = {
    OAUTH2: ("client_id", "client_secret", "authorize_url", "access_url", "profile_url"),
    OPENID: ("client_id", "client_secret", "issuer_url"),
    SAML: ("idp_metadata",),
    LDAP: ("client_url", "user_dn"),
}
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    OAUTH2: {"scope": "email", "email_key": "email"},
    OPENID: {
        "scope": "openid profile email",
        "email_key": "email",
        "identifier_key": "sub",
        "first_name_key": "given_name",
        "last_name_key": "family_name",
    },
    SAML: {
        "identifier_key": "NameID",
        "email_key": f"{_CLAIMS}/emailaddress",
        "first_name_key": f"{_CLAIMS}/givenname",
        "last_name_key": f"{_CLAIMS}/surname",
    },
}
_PAIRS = (("bind_dn", "bind_password"), ("sp_private_key", "sp_certificate"))
"""Options that are of use together only."""
_URLS = ("issuer_url", "authorize_url", "access_url", "profile_url")


def options_of(name: str) -> dict[str, Setting]:
    """Return the settings of a provider, by the fields of `Provider` that they fill."""
    return named_settings(OPTIONS, "AUTH_<NAME>_", name)


def with_driver_defaults(provider: Provider) -> Provider:
    """Return a provider with the defaults that follow from its driver."""
    defaults = _DEFAULTS.get(provider.driver, {})
    defaults = {option: defaults[option] for option in defaults if not getattr(provider, option)}
    complete = replace(provider, **defaults)  # type: ignore[arg-type]
    registers = provider.allow_public_registration
    return replace(
        complete,
        identifier_key=complete.identifier_key or complete.email_key,
        # People in the directory of an organisation are its users already.
        allow_public_registration=provider.driver == LDAP if registers is None else registers,
    )


def provider_problems(provider: Provider) -> Iterator[str]:
    """Yield a sentence for each option that is missing or unsafe."""
    if not provider.driver:
        yield f"{provider.variable_name('driver')} is needed: {DRIVER.takes}."
        return
    yield from missing_options(provider, _NEEDED)
    for first, second in _PAIRS:
        if bool(getattr(provider, first)) != bool(getattr(provider, second)):
            variables = f"{provider.variable_name(first)} and {provider.variable_name(second)}"
            yield f"{variables} go together: set both, or none."
    for option in _URLS:
        url = getattr(provider, option)
        if url and not provider.allows_address(url):
            variable = provider.variable_name(option)
            yield (
                f"{variable} has to begin with https outside of this machine; "
                f"{provider.variable_name('allow_insecure')}=true allows it all the same."
            )


def in_capitals(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return variables with the names of providers' options in capitals; any case is accepted."""
    capitals: dict[str, str] = {}
    for name, value in variables.items():
        is_option = name.upper().startswith("AUTH_")
        capitals[name.upper() if is_option else name] = value
    return capitals


def unknown_options(names: Iterable[str], variables: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each variable of a provider that no option has.

    `names` are those of AUTH_PROVIDERS.
    """
    known_variables: dict[str, str] = {}
    # Longer names last: of the providers `a` and `a_b`, AUTH_A_B_LABEL is one of the second.
    for name in sorted(names, key=len):
        for setting in options_of(name).values():
            known_variables[setting.name] = name
            known_variables[f"{setting.name}_FILE"] = name
    prefixes = tuple(f"AUTH_{name.upper()}_" for name in names)
    for variable in variables:
        if not prefixes or not variable.startswith(prefixes) or variable in known_variables:
            continue
        similar = difflib.get_close_matches(variable, known_variables, n=1, cutoff=0.8)
        hint = f": {similar[0]}?" if similar else "."
        yield f"{variable} is no setting of a provider{hint}"
