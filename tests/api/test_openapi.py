"""/server/specs/oas: the document is valid, complete, and shows nothing that is hidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from falcon.inspect import inspect_routes
from openapi_spec_validator import OpenAPIV31SpecValidator

from cms.distribution import installed_version
from cms.errors import STATUS
from cms.http.saml import AnswerResource, MetadataResource, SingleLogoutResource
from cms.openapi.account_routes import ACCOUNT_ROUTES
from cms.query.language.operators import OPERATORS
from cms.schema.system import CREATE_ONLY, SERVER_OWNED
from cms.transforms.transform import PARAMETERS
from tests.api.described_calls import parameters_of
from tests.api.test_structure_disclosure import HIDDEN, SEEN, make_collections
from tests.client import Client
from tests.members import grant, may, member, member_of, new_role
from tests.things import Stage, field

Json = dict[str, Any]

PATH = "/server/specs/oas"
METHODS = {"get", "post", "put", "patch", "delete", "x-search"}
OWN_NAMES = ("books", "people", "shelves", "hush_vault", "shops", "front", "of%20others%20%2F%201")
OWN_PATHS = tuple(f"/items/{name}" for name in OWN_NAMES)


@pytest.fixture(scope="module", autouse=True)
def collections(stage: Stage) -> None:
    make_collections(stage.admin)
    fields = [
        field("kind", "string", max_length=20),
        field("amount", "decimal"),
        {**field("note", "text"), "meta": {"note": "What the shop says."}},
        field("code", "string", is_nullable=False),
    ]
    created = stage.admin.post(
        "/collections", {"collection": "shops", "schema": {}, "fields": fields}
    )
    assert created.status == 200, created
    created = stage.admin.post(
        "/collections",
        {"collection": "front", "schema": {}, "meta": {"singleton": True}, "fields": []},
    )
    assert created.status == 200, created
    stage.execute("CREATE TYPE mood AS ENUM ('hush_sad', 'glad')")
    stage.execute('CREATE TABLE "of others / 1" (id int PRIMARY KEY, "a b" text, mood mood)')


def document(client: Client) -> Json:
    answer = client.get(PATH)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/json"
    body: Json = answer.body
    return body


def schema(client: Client, component: str) -> Json:
    schemas: Json = document(client)["components"]["schemas"]
    schema: Json = schemas[component]
    return schema


def callers(stage: Stage) -> dict[str, Client]:
    return {
        "admin": stage.admin,
        "public": stage.anonymous,
        "member": member(stage, may("shops", "id", "kind"), may("shops", "code", action="create")),
        "app": member_of(stage, new_role(stage, *SEEN, app_access=True)),
    }


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["public", "admin", "member", "app"])
def test_the_document_is_valid(stage: Stage, name: str) -> None:
    OpenAPIV31SpecValidator(document(callers(stage)[name])).validate()


def test_every_route_of_the_application_is_described(stage: Stage) -> None:
    paths = document(stage.admin)["paths"]
    for route in inspect_routes(stage.admin.app):
        methods = {method.method for method in route.methods if not method.internal} - {"HEAD"}
        served = {"x-search" if name == "QUERY" else name.lower() for name in methods}
        assert METHODS & set(paths[route.path]) == served, route.path


def test_the_routes_of_saml_are_described() -> None:
    """The application has them only with a provider of SAML."""
    resources = {"acs": AnswerResource, "metadata": MetadataResource, "slo": SingleLogoutResource}
    for name, resource in resources.items():
        served = {method for method in METHODS if hasattr(resource, f"on_{method}")}
        assert served == set(ACCOUNT_ROUTES[f"/auth/login/{{provider}}/{name}"])


def test_nothing_is_described_that_is_not_served(stage: Stage) -> None:
    served = {route.path for route in inspect_routes(stage.admin.app)}
    own = [path for path in document(stage.admin)["paths"] if path not in served]
    assert own
    for path in own:
        assert path.startswith(OWN_PATHS), path


def test_every_operation_has_its_errors_with_examples(stage: Stage) -> None:
    described = document(stage.admin)
    for path, item in described["paths"].items():
        for method in METHODS & set(item):
            responses = item[method]["responses"]
            assert {"400", "401", "403", "500", "503"} <= set(responses), (method, path)
    examples: set[str] = set()
    for response in described["components"]["responses"].values():
        examples |= set(response["content"]["application/json"]["examples"])
    assert examples == set(STATUS)


def test_every_operator_is_described(stage: Stage) -> None:
    assert set(OPERATORS) == set(schema(stage.admin, "FilterTests")["properties"])


def test_every_parameter_of_images_is_described(stage: Stage) -> None:
    described = document(stage.admin)
    names = set()
    for name in parameters_of(described["paths"]["/assets/{key}"]["get"]):
        names.add(described["components"]["parameters"][name]["name"])
    assert {"download", "Range", "access_token"} <= names
    assert names - {"download", "access_token", "Range", "If-None-Match"} == set(PARAMETERS)


def test_a_file_may_be_sent_with_each_field_that_clients_may_set(stage: Stage) -> None:
    described = document(stage.admin)
    content = described["paths"]["/files"]["post"]["requestBody"]["content"]
    columns = set(schema(stage.admin, "Item_system_files")["properties"])
    in_json = content["application/json"]["schema"]
    assert set(in_json["properties"]) == columns - SERVER_OWNED | {"data"}
    in_form = content["multipart/form-data"]["schema"]
    assert set(in_form["properties"]) == columns - SERVER_OWNED | {"file"}
    assert in_json["required"] == ["data", "filename_download"]
    body = {"filename_download": "a.txt", "title": "A", "tags": ["b"], "data": "YQ=="}
    jsonschema_rs.validate({**in_json, "components": described["components"]}, body)
    changed = set(schema(stage.admin, "ItemChange_system_files")["properties"])
    assert changed == columns - SERVER_OWNED - CREATE_ONLY
    replacing = described["paths"]["/files/{key}"]["patch"]["requestBody"]["content"]
    form_of_change = replacing["multipart/form-data"]["schema"]
    assert set(form_of_change["properties"]) == changed | {"file"}


def test_a_service_that_is_not_well_is_as_the_document_says(stage: Stage) -> None:
    described = document(stage.admin)
    responses = described["paths"]["/server/health"]["get"]["responses"]
    for status, body in (
        ("200", {"data": {"status": "ok"}}),
        ("200", {"data": {"status": "warn", "storage": {"local": {"status": "error"}}}}),
        ("503", {"data": {"status": "error", "reason": "The database does not answer."}}),
    ):
        jsonschema_rs.validate(responses[status]["content"]["application/json"]["schema"], body)


def test_a_refusal_says_what_is_left_and_when_to_come_again(stage: Stage) -> None:
    refusal = document(stage.admin)["components"]["responses"]["Error429"]
    names = {"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
    assert set(refusal["headers"]) == names


def test_operation_ids_are_unique(stage: Stage) -> None:
    ids = []
    for item in document(stage.admin)["paths"].values():
        ids += [item[method]["operationId"] for method in METHODS & set(item)]
    assert len(ids) == len(set(ids))


# Schemas of collections


def test_schemas_follow_the_fields(stage: Stage) -> None:
    item = schema(stage.admin, "Item_shops")["properties"]
    assert item["kind"] == {"type": ["string", "null"], "maxLength": 20}
    texts = {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}
    number = {"anyOf": [{"type": "number"}, texts]}
    assert item["amount"] == {"anyOf": [number, {"type": "null"}]}
    assert item["note"]["description"] == "What the shop says."
    new_item = schema(stage.admin, "NewItem_shops")
    assert new_item["required"] == ["code"]
    assert new_item["properties"]["code"]["type"] == "string"
    assert "required" not in schema(stage.admin, "ItemChange_shops")


def test_relations_refer_to_each_other(stage: Stage) -> None:
    author = schema(stage.admin, "Item_books")["properties"]["author"]
    assert {"$ref": "#/components/schemas/Item_people"} in author["anyOf"][0]["anyOf"]
    books = schema(stage.admin, "Item_people")["properties"]["hush_books"]
    assert "Item_books" in json.dumps(books)


@pytest.mark.release
@pytest.mark.parametrize("name", ["admin", "member", "app"])
def test_examples_of_rows_match_their_schemas(stage: Stage, name: str) -> None:
    described = document(callers(stage)[name])
    components = described["components"]["schemas"]
    names = {name for name, schema in components.items() if "examples" in schema}
    assert names
    for name in names:
        whole = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
        for example in components[name]["examples"]:
            jsonschema_rs.validate(whole, example)


def test_examples_that_are_sent_can_be_written(stage: Stage) -> None:
    (new,) = schema(stage.admin, "NewItem_shops")["examples"]
    assert new == {"kind": "text", "amount": 1.5, "note": "text", "code": "text"}
    created = stage.admin.post("/items/shops", new)
    assert created.status == 200, created
    (change,) = schema(stage.admin, "ItemChange_shops")["examples"]
    assert stage.admin.patch(f"/items/shops/{created.data['id']}", change).status == 200
    (item,) = schema(stage.admin, "Item_shops")["examples"]
    assert set(item) == set(created.data)


def test_rows_of_the_service_have_no_examples_that_it_would_refuse(stage: Stage) -> None:
    assert "examples" not in schema(stage.admin, "NewItem_system_users")


def test_examples_have_the_fields_that_a_caller_may_use(stage: Stage) -> None:
    caller = callers(stage)["member"]
    assert schema(caller, "Item_shops")["examples"] == [{"id": 1, "kind": "text"}]
    assert schema(caller, "NewItem_shops")["examples"] == [{"code": "text"}]


def test_a_singleton_is_no_list(stage: Stage) -> None:
    paths = document(stage.admin)["paths"]
    assert METHODS & set(paths["/items/front"]) == {"get", "patch", "x-search"}
    assert "/items/front/{key}" not in paths


def test_enums_have_their_choices(stage: Stage) -> None:
    item = schema(stage.admin, "Item_of-20-others-20--2f--20-1")["properties"]
    assert item["mood"] == {"type": ["string", "null"], "enum": ["hush_sad", "glad", None]}


def test_the_document_follows_the_structure(stage: Stage) -> None:
    assert "colour" not in schema(stage.admin, "Item_shops")["properties"]
    assert stage.admin.post("/fields/shops", field("colour", "string")).status == 200
    assert "colour" in schema(stage.admin, "Item_shops")["properties"]
    assert stage.admin.delete("/fields/shops/colour").status == 204


def test_the_document_follows_the_rights(stage: Stage) -> None:
    role = new_role(stage, may("shops", "id"))
    caller = member_of(stage, role)
    assert list(schema(caller, "Item_shops")["properties"]) == ["id"]
    permission = {"role": role, **may("shops", "kind")}
    assert stage.admin.post("/permissions", permission).status == 200
    assert list(schema(caller, "Item_shops")["properties"]) == ["id", "kind"]


def test_a_client_that_has_the_document_gets_it_no_more(stage: Stage) -> None:
    tag = stage.admin.get(PATH).headers["etag"]
    again = stage.admin.send("GET", PATH, **{"If-None-Match": tag})
    assert (again.status, again.content) == (304, b"")


# What a caller may not know


def test_no_hidden_name_is_reported(stage: Stage) -> None:
    assert HIDDEN in stage.admin.get(PATH).text
    for settings in ({}, {"app_access": True}):
        caller = member_of(stage, new_role(stage, *SEEN, **settings))
        answer = caller.get(PATH)
        assert "Item_books" in answer.text
        assert HIDDEN not in answer.text, settings


def test_the_public_sees_nothing_without_permissions(stage: Stage) -> None:
    described = document(stage.anonymous)
    text = json.dumps(described)
    for name in ("books", "people", "shops", "shelves", "system_users", "of others", HIDDEN):
        assert name not in text, name
    assert "/users" not in described["paths"]
    assert "/utils/cache/clear" not in described["paths"]
    assert "/items/{collection}" in described["paths"]


def test_the_public_sees_what_it_may_read(stage: Stage) -> None:
    grant(stage, None, [may("shops", "id", "kind")])
    try:
        paths = document(stage.anonymous)["paths"]
        assert METHODS & set(paths["/items/shops"]) == {"get", "x-search"}
        assert list(schema(stage.anonymous, "Item_shops")["properties"]) == ["id", "kind"]
    finally:
        stage.execute("DELETE FROM system_permissions WHERE role IS NULL")


def test_each_schema_has_the_fields_of_its_action(stage: Stage) -> None:
    caller = callers(stage)["member"]
    assert list(schema(caller, "Item_shops")["properties"]) == ["id", "kind"]
    assert list(schema(caller, "NewItem_shops")["properties"]) == ["code"]
    assert "ItemChange_shops" not in document(caller)["components"]["schemas"]


def test_presets_are_not_reported(stage: Stage) -> None:
    secret = may("shops", "id", "code", action="create", presets={"code": "hush", "kind": "hush"})
    caller = member_of(stage, new_role(stage, secret, app_access=True))
    answer = caller.get(PATH)
    assert HIDDEN not in answer.text
    assert "kind" not in schema(caller, "NewItem_shops")["properties"]
    assert "required" not in schema(caller, "NewItem_shops")


def test_choices_and_notes_are_for_who_may_read_the_structure(stage: Stage) -> None:
    others = may("of others / 1", "id", "mood")
    shops = may("shops", "id", "note")
    plain = member(stage, others, shops)
    assert HIDDEN not in plain.get(PATH).text
    assert "What the shop says." not in plain.get(PATH).text
    app = member_of(stage, new_role(stage, others, shops, app_access=True))
    assert "hush_sad" in app.get(PATH).text
    assert "What the shop says." in app.get(PATH).text


def test_callers_do_not_get_each_others_documents(stage: Stage) -> None:
    first = member(stage, may("shops", "id"))
    second = member(stage, may("people", "id"))
    for _ in range(2):
        assert "Item_people" not in first.get(PATH).text
        assert "Item_shops" not in second.get(PATH).text


def test_the_exact_version_is_for_administrators(stage: Stage) -> None:
    versions = {
        name: document(caller)["info"]["version"] for name, caller in callers(stage).items()
    }
    own = installed_version()
    assert {name for name, version in versions.items() if version == own} == {"admin"}


def test_a_wrong_token_is_refused(stage: Stage) -> None:
    assert stage.anonymous.bearing("wrong").get(PATH).status == 401


def test_generators_of_clients_read_every_parameter_and_list(stage: Stage) -> None:
    described = document(stage.admin)
    for name, parameter in described["components"]["parameters"].items():
        assert "schema" in parameter, name
        assert "content" not in parameter, name
    listed = {name for name, _ in without_items(described)}
    assert listed == set()
    assert schema(stage.admin, "Item_system_users")["x-collection"] == "system_users"
    answer = described["paths"]["/items/books"]["get"]["responses"]["200"]["content"]
    rows = answer["application/json"]["schema"]["properties"]["data"]["items"]
    assert rows == {"$ref": "#/components/schemas/Item_books"}
    page = described["components"]["parameters"]["page"]
    assert "page[after]" in page["description"]


def test_rows_of_any_collection_are_a_list_or_the_one_of_a_singleton(stage: Stage) -> None:
    described = document(stage.admin)
    content = described["paths"]["/items/{collection}"]["get"]["responses"]["200"]["content"]
    whole = {**content["application/json"]["schema"], "components": described["components"]}
    valid: list[object] = [{"data": []}, {"data": [{"id": 1}]}, {"data": {"id": 1}}, [{"id": 1}]]
    for body in valid:
        jsonschema_rs.validate(whole, body)
    invalid: list[object] = [{"data": "x"}, {"data": [1]}, [1], {}]
    for body in invalid:
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(whole, body)


def without_items(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the schemas of arrays that say nothing of their items, with the way to them."""
    if isinstance(node, dict):
        kinds = node.get("type")
        if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "items" not in node:
            yield path, node
        for key, value in node.items():
            yield from without_items(value, f"{path}/{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from without_items(value, f"{path}/{number}")
