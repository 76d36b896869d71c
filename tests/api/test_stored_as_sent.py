"""What an application stores for itself comes back as it was sent: JSON of any shape, folders."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client import Client
from tests.things import Stage, field, table

pytestmark = pytest.mark.release

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_NUMBERS = st.one_of(
    st.integers(-(10**60), 10**60),
    st.decimals(allow_nan=False, allow_infinity=False, places=12),
    st.sampled_from([2**53 + 1, -(2**63), 2**64, 0, Decimal("1E+30"), Decimal("-1.50")]),
)
JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_TEXTS | st.just("__proto__"), inner, max_size=4)
    ),
    max_leaves=12,
)


def written(value: object) -> str:
    """Return the JSON text of a value with decimals."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            pairs = (f"{json.dumps(key)}: {written(inner)}" for key, inner in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list():
            return f"[{', '.join(map(written, value))}]"
        case _:
            return json.dumps(value)


def patched(client: Client, path: str, body: dict[str, object]) -> Any:
    """Change something, and return it as it is read afterwards, numbers with all their digits."""
    answer = client.send("PATCH", path, raw=written(body))
    assert answer.status == 200, (answer, written(body))
    read = client.get(path)
    assert read.status == 200
    return json.loads(read.content, parse_float=Decimal)["data"]


def same(stored: object, sent: object) -> bool:
    """Compare values as JSON: true is not 1, and keys keep their order."""
    if isinstance(sent, dict):
        return (
            isinstance(stored, dict)
            and list(stored) == list(sent)
            and all(same(stored[key], sent[key]) for key in sent)
        )
    if isinstance(sent, list):
        return (
            isinstance(stored, list) and len(stored) == len(sent) and all(map(same, stored, sent))
        )
    if isinstance(sent, bool) or isinstance(stored, bool):
        return stored is sent
    return stored == sent


@pytest.fixture(scope="module")
def preset(admin: Client) -> str:
    return f"/presets/{admin.post('/presets', {}).data['id']}"


@pytest.fixture(scope="module")
def panel(admin: Client) -> str:
    dashboard = admin.post("/dashboards", {"name": "any"}).data["id"]
    return f"/panels/{admin.post('/panels', {'dashboard': dashboard, 'type': 'label'}).data['id']}"


@given(query=JSON, options=JSON, filter=JSON)
def test_presets_keep_any_json(
    admin: Client, preset: str, query: object, options: object, filter: object
) -> None:
    sent = {"layout_query": query, "layout_options": options, "filter": filter}
    stored = patched(admin, preset, sent)
    assert same({name: stored[name] for name in sent}, sent)


@given(more=st.dictionaries(_TEXTS, JSON, max_size=4))
def test_panels_keep_options_of_applications(
    admin: Client, panel: str, more: dict[str, object]
) -> None:
    options = {**more, "text": "a"}
    assert same(patched(admin, panel, {"options": options})["options"], options)


@pytest.fixture(scope="module")
def some_field(admin: Client) -> str:
    return f"/fields/{table(admin, field('name', 'string')).name}/name"


@pytest.mark.release
@given(options=JSON, display_options=JSON, note=_TEXTS)
def test_fields_keep_options_of_interfaces_and_displays(
    admin: Client, some_field: str, options: object, display_options: object, note: str
) -> None:
    sent = {"options": options, "display_options": display_options, "note": note}
    stored = patched(admin, some_field, {"meta": sent})["meta"]
    assert same({name: stored[name] for name in sent}, sent)


COLLECTION_META = st.fixed_dictionaries(
    {
        "display_template": _TEXTS,
        "note": _TEXTS,
        "icon": _TEXTS,
        "sort": st.integers(0, 10**6),
        "color": st.sampled_from(["#AbCdEf", "#123"]),
        "collapse": st.sampled_from(["open", "closed", "locked"]),
        "preview_url": st.just("https://example.com/{{ id }}?a=ä"),
        "translations": st.lists(
            st.fixed_dictionaries(
                {"language": st.just("de-DE"), "translation": _TEXTS, "plural": st.none() | _TEXTS}
            ),
            max_size=2,
        ),
    }
)


@pytest.mark.release
@given(sent=COLLECTION_META)
def test_collections_keep_what_applications_show(
    admin: Client, some_field: str, sent: dict[str, object]
) -> None:
    path = f"/collections/{some_field.split('/')[2]}"
    stored = patched(admin, path, {"meta": sent})["meta"]
    assert same({name: stored[name] for name in sent}, sent)


def test_folders_of_collections_are_collections_without_a_table(
    stage: Stage, admin: Client
) -> None:
    meta = {"icon": "folder", "color": "#6644FF", "collapse": "closed", "sort": 2, "note": "n"}
    made = admin.post("/collections", {"collection": "Ordner", "schema": None, "meta": meta}).data
    assert made["schema"] is None
    inner = table(admin, field("name", "string"), group="Ordner", sort=1)
    assert admin.get(f"/collections/{inner.name}").data["meta"]["group"] == "Ordner"
    folder = admin.get("/collections/Ordner").data
    assert (folder["schema"], folder["collection"]) == (None, "Ordner")
    assert {name: folder["meta"][name] for name in meta} == meta
    assert stage.value("SELECT to_regclass('\"Ordner\"')") is None
    assert admin.get("/items/Ordner").status in (403, 404)
    changed = {"meta": {"translations": [{"language": "en-US", "translation": "Folder"}]}}
    assert admin.patch("/collections/Ordner", changed).data["meta"]["color"] == "#6644FF"
    assert admin.delete("/collections/Ordner").status == 204
    assert admin.get(f"/collections/{inner.name}").data["meta"]["group"] is None


@pytest.mark.parametrize("path", ["/collections/{}", "/fields/{}/name"])
def test_unknown_keys_of_meta_are_refused_and_never_lost(admin: Client, path: str) -> None:
    things = table(admin, field("name", "string"))
    answer = admin.patch(path.format(things.name), {"meta": {"my_own": {"a": 1}}})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert "my_own" in answer.text
