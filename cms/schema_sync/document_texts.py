"""Documents as files: YAML and JSON with a line for each value, which version control compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import NamedTuple

import yaml

from cms import jsontext


class _Dumper(yaml.SafeDumper):
    """Writes decimals with all their digits, and equal values twice instead of as an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_decimal(dumper: _Dumper, value: Decimal) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", str(value))


def _represent_text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # In any other style PyYAML writes this line break of old terminals as if it were a usual one.
    style = '"' if "\x85" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(Decimal, _represent_decimal)
_Dumper.add_representer(str, _represent_text)


def write_yaml(document: Mapping[str, object]) -> bytes:
    # Through JSON, so that every value is of a type that both formats have.
    plain = jsontext.loads_stored(jsontext.dumps(document))
    return yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, encoding="utf-8", width=100
    )


class FileFormat(NamedTuple):
    suffix: str
    media_type: str
    write: Callable[[Mapping[str, object]], bytes]


FILE_FORMATS = {
    "json": FileFormat("json", "application/json", jsontext.dumps_indented),
    "yaml": FileFormat("yaml", "application/yaml", write_yaml),
}


_YAML_MEDIA_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


def is_yaml(media_type: str) -> bool:
    """Tell whether a media type is one of those of YAML."""
    return media_type in _YAML_MEDIA_TYPES
