"""Addresses that lead into one schema: the setting DATABASE_SCHEMA."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from cms.config import ConfigError, in_schema, load

ADDRESSES = [
    "postgresql://u:p@h:5433/d",
    "postgres://h/d?connect_timeout=3",
    "postgresql:///d?host=/run/postgresql",
    "host=h dbname=d",
    "host=h password='it\\'s'",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_in_either_form_gets_a_search_path(address: str) -> None:
    address_of_schema = conninfo_to_dict(in_schema(address, "blue"))
    assert address_of_schema.pop("options") == "-csearch_path=blue,public"
    assert address_of_schema == conninfo_to_dict(address)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_leads_there_already_stays(address: str) -> None:
    address_of_schema = in_schema(address, "blue")
    assert in_schema(address_of_schema, "blue") == address_of_schema


def test_all_addresses_of_the_settings_lead_into_the_schema(tmp_path: Path) -> None:
    names = ("DATABASE_URL", "DATABASE_READ_URL", "DATABASE_DIRECT_URL")
    environ = dict.fromkeys(names, "postgresql://h/d")
    config = load({**environ, "DATABASE_SCHEMA": "blue"}, folder=tmp_path)
    for address in (config.database_url, config.database_read_url, config.database_direct_url):
        assert conninfo_to_dict(address or "")["options"] == "-csearch_path=blue,public"
    assert load(environ, folder=tmp_path).database_url == "postgresql://h/d"


@pytest.mark.parametrize("name", ["Blue", "pg_blue", "blue,public", "a b", 'a"b', "1", "a" * 64])
def test_a_schema_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="DATABASE_SCHEMA"):
        load({"DATABASE_URL": "postgresql://h/d", "DATABASE_SCHEMA": name}, folder=tmp_path)


def test_the_embedded_server_has_one_installation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="DATABASE_SCHEMA needs DATABASE_URL"):
        load({"DATABASE_SCHEMA": "blue"}, folder=tmp_path)


def test_options_of_an_address_contradict_the_setting(tmp_path: Path) -> None:
    address = "postgresql://h/d?options=-cjit%3Doff"
    with pytest.raises(ConfigError, match="the options of DATABASE_URL contradict each other"):
        load({"DATABASE_URL": address, "DATABASE_SCHEMA": "blue"}, folder=tmp_path)
