"""A directory that runs for the tests: slapd of OpenLDAP, as a process of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme

from tests.smoke.running import free_port
from tests.waiting import eventually

BASE = "dc=example,dc=org"
PEOPLE = f"ou=people,{BASE}"
GROUPS = f"ou=groups,{BASE}"
SERVICE = f"cn=service,{BASE}"
SERVICE_PASSWORD = "the service's own"
PASSWORD = "correct horse"

CONFIG = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
include /etc/ldap/schema/nis.schema
attributetype ( 1.3.6.1.4.1.99999.1 NAME 'userAccountControl'
  EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.3 NAME 'pwdAccountLockedTime'
  EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.4 NAME 'nsAccountLock'
  EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.5 NAME 'loginDisabled'
  EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.6 NAME 'accountExpires'
  EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE )
objectclass ( 1.3.6.1.4.1.99999.2 NAME 'controlled' SUP top AUXILIARY
  MAY ( userAccountControl $ accountExpires
  $ pwdAccountLockedTime $ nsAccountLock $ loginDisabled ) )
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
TLSCACertificateFile {folder}/ca.pem
TLSCertificateFile {folder}/server.pem
TLSCertificateKeyFile {folder}/server.pem
allow bind_anon_cred bind_anon_dn
database mdb
suffix "{base}"
rootdn "cn=admin,{base}"
rootpw secret
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by * read
"""


def person(name: str, *lines: str, password: str = PASSWORD) -> str:
    text = "\n".join(lines)
    return f"""
dn: uid={name},{PEOPLE}
objectClass: inetOrgPerson
objectClass: controlled
uid: {name}
cn: {name}
sn: Lovelace
givenName: Ada
mail: {name}@example.org
userPassword: {password}
{text}
"""


def group(name: str, *members: str) -> str:
    lines = "\n".join(f"member: {member}" for member in members)
    return f"\ndn: cn={name},{GROUPS}\nobjectClass: groupOfNames\ncn: {name}\n{lines}\n"


def dn_of(name: str) -> str:
    return f"uid={name},{PEOPLE}"


def group_dn(name: str) -> str:
    return f"cn={name},{GROUPS}"


LOCKED = {
    "removed": ["userAccountControl: 514"],
    "locked": ["pwdAccountLockedTime: 000001010000Z"],
    "nslocked": ["nsAccountLock: TRUE"],
    "nologin": ["loginDisabled: true"],
    "expired": ["objectClass: shadowAccount", "shadowExpire: 19000"],
    "expired0": ["objectClass: shadowAccount", "shadowExpire: 0"],
}
"""Accounts whose password the directory takes, and that must not log in all the same."""
NOT_LOCKED = {
    "normal": ["userAccountControl: 512"],
    "waited": ["pwdAccountLockedTime: 20200101000000Z"],
    "nsfree": ["nsAccountLock: false"],
    "login": ["loginDisabled: FALSE"],
    "forever": ["objectClass: shadowAccount", "shadowExpire: -1"],
    "hired": ["objectClass: shadowAccount", "shadowExpire: 99999"],
    "shadow": ["objectClass: shadowAccount"],
}

ENTRIES = (
    f"""
dn: {BASE}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

dn: {SERVICE}
objectClass: simpleSecurityObject
objectClass: organizationalRole
cn: service
userPassword: {SERVICE_PASSWORD}
"""
    + "".join(
        person(name)
        for name in ("ada", "grace", "edith", "mary", "hedy", "joan", "radia", "kay", "eve", "ann")
    )
    + person("disabled", "userAccountControl: 514")
    + person("enabled", "userAccountControl: 512")
    + "".join(person(name, *lines) for name, lines in LOCKED.items())
    + "".join(person(name, *lines) for name, lines in NOT_LOCKED.items())
    + person("special", "cn: Ada (R&D)* \\o/")
    + person("twin", "cn: double")
    + person("other", "cn: double")
    + person("nomail").replace("mail: nomail@example.org\n", "")
    + group("Editors", dn_of("ada"), dn_of("grace"))
    + group("writers", dn_of("edith"), group_dn("circle"))
    + group("staff", group_dn("writers"))
    + group("circle", group_dn("staff"))
)


@dataclass
class Directory:
    """A running directory with its ports, the authority of its certificate, and its log."""

    folder: Path
    port: int
    tls_port: int
    authority: str
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"ldap://localhost:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"ldaps://localhost:{self.tls_port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        addresses = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        words = ["slapd", "-f", str(self.folder / "slapd.conf"), "-h", addresses, "-d", "256"]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(words, stderr=log, text=True)
        eventually(lambda: _answers(self.port), otherwise=lambda: self.log)

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def binds_of(self, dn: str) -> int:
        """Return how often somebody has begun a session here."""
        return self.log.count(f'BIND dn="{dn}" method')

    def change(self, ldif: str) -> None:
        """Change entries as the administrator does."""
        words = ["ldapmodify", "-x", "-H", f"ldap://127.0.0.1:{self.port}"]
        words += ["-D", f"cn=admin,{BASE}", "-w", "secret"]
        subprocess.run(words, input=ldif, text=True, check=True, capture_output=True)


@contextmanager
def running_directory(folder: Path) -> Iterator[Directory]:
    """Run a directory with the entries of the tests; skip where there is no slapd."""
    if not (shutil.which("slapd") and shutil.which("ldapmodify")):
        pytest.skip("slapd and ldap-utils are needed")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    (folder / "data").mkdir()
    (folder / "slapd.conf").write_text(CONFIG.format(folder=folder, base=BASE))
    words = ["slapadd", "-f", str(folder / "slapd.conf")]
    subprocess.run(words, input=ENTRIES, text=True, check=True, capture_output=True)
    pem = authority.cert_pem.bytes().decode()
    directory = Directory(folder, free_port(), free_port(), pem)
    directory.start()
    try:
        yield directory
    finally:
        directory.stop()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False
