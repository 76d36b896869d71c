"""Logins by other services: OAuth 2 and OpenID Connect, SAML, LDAP."""
