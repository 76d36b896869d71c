"""The examples of docs/embedding.md, written into a folder as somebody would copy them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text()

# The name of a file stands in the last line before its block.
_FILES = dict(re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL))

FLASK = ("flask_shop.py",)
DJANGO = ("shop/settings.py", "shop/urls.py", "shop/wsgi.py")
PUBLIC_URL = "http://localhost/cms"


def write_example(folder: Path, names: tuple[str, ...], dsn: str, **settings: str) -> None:
    """Write the files of an example, and the settings of the service beside them."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_FILES[name])
    write_settings(folder / "content", dsn, **settings)
    static = folder / "static"
    static.mkdir()
    (static / "shop.css").write_text("body { color: navy }")


def write_settings(folder: Path, dsn: str, **settings: str) -> None:
    """Write the settings of a copy into its folder."""
    values = {
        "DATABASE_URL": dsn,
        "SECRET": f"the secret of the copy in {folder.name}, long enough",
        "PUBLIC_URL": PUBLIC_URL,
        "DATABASE_POOL_SIZE": "2",
        **settings,
    }
    lines = [f"{name}='{value}'" for name, value in values.items()]
    folder.mkdir()
    (folder / ".env").write_text("\n".join(lines))
