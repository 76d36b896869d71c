"""/users, /roles, /permissions and /settings: written as items are,
with the checks of their hooks.
"""

from __future__ import annotations

import pytest

from cms.schema.system import ENDPOINTS
from tests.client import ADMIN_EMAIL, Client
from tests.members import may, member, member_of, new_role
from tests.things import Stage, field, table

PASSWORD = "a password for tests"


def new_user(admin: Client, **values: object) -> dict[str, object]:
    number = len(admin.get("/users", limit=-1).data)
    user: dict[str, object] = admin.post(
        "/users", {"email": f"p{number}@example.com", **values}
    ).data
    return user


def test_a_user_is_made_logs_in_and_is_shown_without_secrets(stage: Stage, admin: Client) -> None:
    user = new_user(admin, email="new@example.com", password=PASSWORD, first_name="Nora")
    assert (user["password"], user["first_name"], user["status"]) == (
        "**********",
        "Nora",
        "active",
    )
    stage.anonymous.login("NEW@example.com", PASSWORD)
    assert admin.post("/users", {"email": "New@Example.com"}).codes == ["RECORD_NOT_UNIQUE"]
    assert PASSWORD not in str(
        stage.value("SELECT string_agg(data::text, '') FROM system_revisions")
    )


@pytest.mark.parametrize(
    ("body", "status", "location"),
    [
        ({"email": "nobody"}, 422, "email"),
        ({"email": "two@example.com,three@example.com"}, 422, "email"),
        ({"email": "**********"}, 422, "email"),
        ({"email": "a@b.example", "status": "sleeping"}, 422, "status"),
        ({"email": "a@b.example", "token": "short"}, 422, "token"),
        ({"email": "a@b.example", "token": "with spaces in the token"}, 422, "token"),
        ({"email": "a@b.example", "token": "with-ümlauts-in-the-token"}, 422, "token"),
        ({"email": "a@b.example", "token": "an.access.token-by-its-dots"}, 422, "token"),
        ({"email": "a@b.example", "tfa_secret": "AAAA"}, 422, "tfa_secret"),
        ({"email": "a@b.example", "password": "x" * 1001}, 400, "password"),
        ({"email": "a@b.example", "role": "5f6f9b1a-0000-4000-8000-000000000000"}, 400, "role"),
        ({"email": "a@b.example", "failed_logins": 1}, 400, "failed_logins"),
    ],
)
def test_what_a_user_cannot_be_is_refused_with_its_place(
    admin: Client, body: dict[str, object], status: int, location: str
) -> None:
    answer = admin.post("/users", body)
    assert (answer.status, answer.errors[0]["field"]) == (status, location)


def test_a_static_token_is_kept_as_a_digest(stage: Stage, admin: Client) -> None:
    token = "a-static-token-for-tests"
    user = new_user(admin, role=None, token=token)
    assert user["token"] == "**********"
    assert stage.anonymous.bearing(token).get("/users/me").data["id"] == user["id"]
    assert stage.value(f"SELECT token FROM system_users WHERE id = '{user['id']}'") != token
    assert admin.patch(f"/users/{user['id']}", {"token": "**********"}).status == 200
    assert stage.anonymous.bearing(token).get("/users/me").status == 200
    admin.patch(f"/users/{user['id']}", {"token": None})
    assert stage.anonymous.bearing(token).get("/users/me").status == 401


@pytest.mark.parametrize("status", ["suspended", "archived", "draft", "invited"])
def test_a_static_token_stops_while_its_user_is_not_active(
    stage: Stage, admin: Client, status: str
) -> None:
    caller = member_of(stage, new_role(stage))
    path = f"/users/{caller.get('/users/me').data['id']}"
    assert admin.patch(path, {"status": status}).status == 200
    assert caller.get("/users/me").codes == caller.get("/permissions/me").codes == ["INVALID_TOKEN"]
    assert caller.patch("/users/me", {"title": "x"}).codes == ["INVALID_TOKEN"]
    assert admin.patch(path, {"status": "active"}).status == caller.get("/users/me").status == 200


def test_a_new_password_follows_the_policy_and_ends_other_sessions(
    stage: Stage, admin: Client
) -> None:
    user = new_user(admin, email="policy@example.com", password=PASSWORD)
    one, other = (stage.anonymous.login("policy@example.com", PASSWORD) for _ in range(2))
    assert admin.patch("/settings", {"auth_password_policy": "/^.{12,}$/"}).status == 200
    assert admin.patch(f"/users/{user['id']}", {"password": "short"}).codes == ["FAILED_VALIDATION"]
    assert one.get("/users/me").status == other.get("/users/me").status == 200
    assert admin.patch(f"/users/{user['id']}", {"password": "long enough for it"}).status == 200
    assert one.get("/users/me").status == other.get("/users/me").status == 401
    assert admin.patch("/settings", {"auth_password_policy": None}).status == 200


def test_a_new_address_ends_other_sessions_and_not_the_one_that_set_it(
    stage: Stage, admin: Client
) -> None:
    role = new_role(stage, may("system_users"), may("system_users", "email", action="update"))
    user = new_user(admin, email="old@example.com", password=PASSWORD, role=role)
    one, other = (stage.anonymous.login("old@example.com", PASSWORD) for _ in range(2))
    assert (
        one.patch("/users/me", {"email": "newer@example.com"}).status
        == one.get("/users/me").status
        == 200
    )
    assert other.get("/users/me").codes == ["INVALID_TOKEN"]
    assert admin.patch(f"/users/{user['id']}", {"email": "newest@example.com"}).status == 200
    assert one.get("/users/me").codes == ["INVALID_TOKEN"]


def test_an_address_that_is_sent_back_unchanged_ends_no_sessions(
    stage: Stage, admin: Client
) -> None:
    user = new_user(admin, email="same@example.com", password=PASSWORD)
    caller = stage.anonymous.login("same@example.com", PASSWORD)
    path = f"/users/{user['id']}"
    assert admin.patch(path, {"email": "same@example.com", "title": "Editor"}).status == 200
    assert caller.get("/users/me").status == 200
    admin.patch("/settings", {"project_name": "Whatever moves the counter of rights"})
    assert caller.get("/users/me").status == 200
    users = [{"id": user["id"], "email": "same@example.com"}]
    assert admin.patch("/users", users).status == caller.get("/users/me").status == 200


def test_a_password_follows_the_policy_whatever_else_of_the_account_is_sent(
    stage: Stage, admin: Client
) -> None:
    posts = table(admin, field("author", "uuid"))
    admin.post(
        "/relations",
        {"collection": posts.name, "field": "author", "related_collection": "system_users"},
    )
    rights = may(posts.name), may(posts.name, action="create"), may("system_users")
    caller = member_of(
        stage, new_role(stage, *rights, may("system_users", "id", "password", action="update"))
    )
    me = caller.get("/users/me").data["id"]
    assert admin.patch("/settings", {"auth_password_policy": "/^.{8,}$/"}).status == 200
    try:
        for second in ("**********", "long enough"):
            bodies = [{"author": {"id": me, "password": password}} for password in ("x", second)]
            assert (second, caller.post(posts.path, bodies[:1]).status) == (second, 422)
            assert caller.post(posts.path, bodies).status == (
                422 if second == "**********" else 200
            )
    finally:
        admin.patch("/settings", {"auth_password_policy": None})


def test_the_last_active_administrator_stays(stage: Stage, admin: Client) -> None:
    me = admin.get("/users/me").data
    role = me["role"]
    before = stage.value("SELECT count(*) FROM system_activity")
    for answer in (
        admin.delete(f"/users/{me['id']}"),
        admin.patch(f"/users/{me['id']}", {"role": None}),
        admin.patch(f"/users/{me['id']}", {"status": "suspended"}),
        admin.patch(
            "/users",
            {"query": {"filter": {"email": {"_eq": ADMIN_EMAIL}}}, "data": {"status": "draft"}},
        ),
        admin.patch(f"/roles/{role}", {"admin_access": False}),
        admin.patch(f"/roles/{role}", {"users": []}),
        admin.delete(f"/roles/{role}"),
        admin.delete("/roles", [role]),
    ):
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"]), answer
    assert stage.value("SELECT count(*) FROM system_activity") == before
    second = new_user(admin, role=role)
    assert admin.patch(f"/users/{second['id']}", {"status": "suspended"}).status == 200


def test_an_administrator_by_a_parent_role_counts(stage: Stage, admin: Client) -> None:
    role = admin.get("/users/me").data["role"]
    child = admin.post("/roles", {"name": "Deputies", "parent": role}).data["id"]
    deputy = member_of(stage, child)
    assert deputy.get("/users").status == 200
    assert admin.patch(f"/roles/{role}", {"parent": child}).codes == ["UNPROCESSABLE_CONTENT"]


def test_a_role_takes_networks_that_can_be_read(admin: Client) -> None:
    answer = admin.post("/roles", {"name": "x", "ip_access": ["10.0.0.0/8", "elsewhere"]})
    assert (answer.status, answer.errors[0]["path"]) == (422, ["ip_access", 1])
    assert admin.post("/roles", {"name": " "}).status == admin.post("/roles", {}).status == 422
    role = admin.post("/roles", {"name": "x", "ip_access": ["10.0.0.0/8", "::1"]}).data
    assert admin.delete(f"/roles/{role['id']}").status == 204


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "body",
    [
        {"collection": "nowhere"},
        {"action": "look"},
        {"permissions": {"gone": {"_eq": 1}}},
        {"permissions": {"size": {"_eq": "much"}}},
        {"permissions": {"size": {"_no": 1}}},
        {"permissions": [1]},
        {"validation": {"size": {"_no": 1}}},
        {"presets": ["size"]},
        {"presets": {"gone": 1}},
        {"presets": {"size": "much"}},
        {"fields": "gone"},
        {"fields": {"size": True}},
        {"fields": ["gone"]},
    ],
)
def test_a_permission_that_could_not_be_applied_is_refused(
    stage: Stage, admin: Client, body: dict[str, object]
) -> None:
    things = table(admin, field("size", "integer"))
    role = new_role(stage)
    good = {"role": role, "collection": things.name, "action": "read", "fields": ["*"]}
    before = stage.value("SELECT count(*) FROM system_permissions")
    answer = admin.post("/permissions", {**good, **body})
    assert answer.status == 422, answer.text
    assert stage.value("SELECT count(*) FROM system_permissions") == before
    permission = admin.post("/permissions", good).data
    assert admin.patch(f"/permissions/{permission['id']}", body).status == 422


def test_a_permission_is_in_force_at_the_next_request(stage: Stage, admin: Client) -> None:
    things = table(admin, field("size", "integer"))
    things.add({"size": 1}, {"size": 2})
    role = new_role(stage)
    caller = member_of(stage, role)
    assert caller.get(things.path).status == 403
    answer = admin.post(
        "/permissions",
        {"role": role, "collection": things.name, "action": "read", "fields": ["size"]},
    )
    assert caller.get(things.path).data == [{"size": 1}, {"size": 2}]
    assert (
        admin.patch(f"/permissions/{answer.data['id']}", {"permissions": {"size": 2}}).status == 200
    )
    assert caller.get(things.path).data == [{"size": 2}]
    assert admin.delete(f"/permissions/{answer.data['id']}").status == 204
    assert caller.get(things.path).status == 403


def test_rights_are_explained_to_administrators(stage: Stage, admin: Client) -> None:
    things = table(admin, field("size", "integer"))
    role = new_role(stage, may(things.name, "size", permissions={"size": {"_gt": 1}}))
    caller = member_of(stage, role)
    user = stage.value(f"SELECT id::text FROM system_users WHERE role = '{role}'")
    path = f"/permissions/explain?user={user}&collection={things.name}&action=read"
    (rule,) = admin.get(path).data
    assert (rule["rule"], rule["sql"], rule["parameters"]) == (
        {"size": {"_gt": 1}},
        't0."size" > $1::bigint',
        ["1"],
    )
    assert caller.get(path).status == 403
    assert (
        admin.get(f"/permissions/explain?user=public&collection={things.name}&action=read").data
        == []
    )
    for wrong in (
        "user=x",
        f"user={user}&collection=nowhere&action=read",
        f"user={user}&collection=x&action=look",
    ):
        assert admin.get(f"/permissions/explain?{wrong}").status == 400


@pytest.mark.parametrize("collection", ["system_roles", "system_permissions", "system_settings"])
def test_rights_are_changed_by_administrators_only(
    stage: Stage, admin: Client, collection: str
) -> None:
    everything = [
        may(collection, action=action) for action in ("read", "create", "update", "delete")
    ]
    caller = member(stage, *everything)
    path = ENDPOINTS[collection]
    (row, *_) = [admin.get(path, limit=1).data]
    row = row[0] if isinstance(row, list) else row
    payloads = [{"name": "x"}, {"collection": "x", "action": "read"}, {"project_name": "x"}]
    for payload in payloads:
        assert caller.post(path, payload).status in (403, 404, 405)
        assert caller.patch(
            path, payload if collection == "system_settings" else [payload]
        ).status in (403, 400)
    assert caller.patch(f"{path}/{row['id']}", {}).status in (403, 404)
    assert caller.delete(f"{path}/{row['id']}").status in (403, 404)


def test_others_than_administrators_never_get_hold_of_more_rights(
    stage: Stage, admin: Client
) -> None:
    me = admin.get("/users/me").data
    posts = table(admin, field("title", "string"), field("author", "uuid"))
    relation = {"collection": posts.name, "field": "author", "related_collection": "system_users"}
    assert admin.post("/relations", relation).status == 200
    (post,) = posts.add({"title": "x", "author": me["id"]})
    actions = ("read", "create", "update", "delete")
    caller = member(
        stage,
        *(may(name, action=action) for name in ("system_users", posts.name) for action in actions),
    )
    own = caller.get("/users/me").data
    for body in (
        {"role": me["role"]},
        {"status": "active"},
        {"token": "x" * 20},
        {"provider": "x"},
        {"tfa_secret": None},
    ):
        assert caller.patch(f"/users/{own['id']}", body).status == 403
        assert caller.patch("/users/me", body).status == 403
        assert caller.patch("/users", [{"id": own["id"], **body}]).status == 403
        assert caller.post("/users", {"email": "x@example.com", **body}).status == 403
        assert (
            caller.patch(f"{posts.path}/{post['id']}", {"author": {"id": own["id"], **body}}).status
            == 403
        )
    for body in ({"password": PASSWORD}, {"email": "mine@example.com"}):
        assert caller.patch(f"/users/{me['id']}", body).status == 403
        assert (
            caller.patch(f"{posts.path}/{post['id']}", {"author": {"id": me["id"], **body}}).status
            == 403
        )
    assert caller.delete(f"/users/{me['id']}").status == 403
    assert (
        caller.patch("/users/me", {"first_name": "Me", "password": PASSWORD}).data["first_name"]
        == "Me"
    )
    assert admin.get("/users/me").data == me | {
        "last_access": admin.get("/users/me").data["last_access"]
    }


def test_settings_are_one_record_of_which_everybody_reads_the_public_part(
    stage: Stage, admin: Client
) -> None:
    whole = admin.get("/settings").data
    public = stage.anonymous.get("/settings").data
    assert whole["auth_login_attempts"] == 25
    assert public["project_name"] == whole["project_name"]
    assert "auth_login_attempts" not in public
    assert stage.anonymous.get("/settings", fields="auth_password_policy").status == 403
    assert stage.anonymous.patch("/settings", {"project_name": "x"}).status == 403
    assert member(stage).get("/settings").data == public
    assert admin.patch("/settings", {"project_name": "Ours"}).data["project_name"] == "Ours"
    assert stage.anonymous.get("/settings").data["project_name"] == "Ours"
    assert admin.post("/settings", {}).status == 405


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"project_color": "blue"}, ["project_color"]),
        ({"project_name": ""}, ["project_name"]),
        ({"project_url": "javascript:alert(1)"}, ["project_url"]),
        ({"default_language": "English!"}, ["default_language"]),
        ({"auth_login_attempts": 0}, ["auth_login_attempts"]),
        ({"auth_password_policy": "("}, ["auth_password_policy"]),
        ({"auth_password_policy": "(a)\\1"}, ["auth_password_policy"]),
        ({"storage_asset_transform": "some"}, ["storage_asset_transform"]),
        ({"storage_asset_presets": {}}, ["storage_asset_presets"]),
        (
            {"storage_asset_presets": [{"key": "a", "width": "wide"}]},
            ["storage_asset_presets", 0, "width"],
        ),
        (
            {"storage_asset_presets": [{"key": "a"}, {"key": "a"}]},
            ["storage_asset_presets", 1, "key"],
        ),
        (
            {"storage_asset_presets": [{"key": "a", "width": 0}]},
            ["storage_asset_presets", 0, "width"],
        ),
        (
            {"storage_asset_presets": [{"key": "a", "heigth": 5}]},
            ["storage_asset_presets", 0, "heigth"],
        ),
        (
            {"storage_asset_presets": [{"key": "a", "focal_point_x": 2}]},
            ["storage_asset_presets", 0, "focal_point_x"],
        ),
        (
            {"storage_asset_presets": [{"key": "a", "transforms": [["flip"], ["blur", 0]]}]},
            ["storage_asset_presets", 0, "transforms[1]"],
        ),
        ({"storage_asset_presets": [{"key": "system-x"}]}, ["storage_asset_presets", 0, "key"]),
        ({"custom_aspect_ratios": [{"text": "16:9"}]}, ["custom_aspect_ratios", 0]),
        ({"custom_aspect_ratios": [{"text": "16:9", "value": True}]}, ["custom_aspect_ratios", 0]),
        (
            {"public_registration_email_filter": {"email": {"_no": 1}}},
            ["public_registration_email_filter"],
        ),
        # Tests that no address fails, whatever was meant.
        (
            {"public_registration_email_filter": {"mail": {"_null": True}}},
            ["public_registration_email_filter"],
        ),
        (
            {"public_registration_email_filter": {"_or": [{"email": {"of": {"_null": True}}}]}},
            ["public_registration_email_filter"],
        ),
        (
            {"public_registration_email_filter": {"_null": True}},
            ["public_registration_email_filter"],
        ),
        ({"auth_password_policy": 8}, ["auth_password_policy"]),
        ({"auth_password_policy": "(a{99}){99}"}, ["auth_password_policy"]),
        ({"auth_password_policy": "a" * 1_001}, ["auth_password_policy"]),
        ({"project_url": "https://" + "a" * 2_000}, ["project_url"]),
    ],
)
def test_settings_that_nothing_could_go_by_are_refused(
    admin: Client, body: dict[str, object], path: list[object]
) -> None:
    answer = admin.patch("/settings", body)
    assert (answer.status, answer.errors[0]["path"]) == (422, path)


def test_the_fields_of_a_permission_may_be_a_text(stage: Stage, admin: Client) -> None:
    things = table(admin, field("size", "integer"))
    base = {"role": new_role(stage), "collection": things.name, "action": "read"}
    for text, names in (("*", ["*"]), ("id, size", ["id", "size"]), ("", [])):
        permission = admin.post("/permissions", {**base, "fields": text}).data
        assert permission["fields"] == names
    path = f"/permissions/{permission['id']}"
    assert admin.patch(path, {"fields": "size,id"}).data["fields"] == ["size", "id"]
    assert admin.patch(path, {"fields": "size,gone"}).status == 422


def test_the_permissions_of_a_new_role_with_app_access_are_made_in_one_call(
    stage: Stage, admin: Client
) -> None:
    role = new_role(stage, app_access=True)
    base: dict[str, object] = {"role": role, "permissions": {}, "validation": None, "presets": None}
    owned = ("system_files", "system_dashboards", "system_panels", "system_folders")
    permissions: list[dict[str, object]] = [
        {**base, "collection": collection, "action": action, "fields": "*"}
        for collection in (*owned, "system_shares")
        for action in ("create", "read", "update", "delete")
    ]
    profile = [
        *("first_name", "last_name", "email", "password", "location", "title", "description"),
        *("avatar", "language", "appearance", "theme_light", "theme_dark"),
        *("theme_light_overrides", "theme_dark_overrides", "tfa_secret"),
    ]
    own_user = {"id": {"_eq": "$CURRENT_USER"}}
    for collection, action, fields, rule in (
        ("system_users", "read", ["*"], {}),
        ("system_users", "update", profile, own_user),
        ("system_roles", "read", ["*"], {}),
        ("system_flows", "read", ["id", "name", "icon"], {"trigger": {"_eq": "manual"}}),
    ):
        entry = {"collection": collection, "action": action, "fields": fields}
        permissions.append({**base, **entry, "permissions": rule})
    assert len(admin.post("/permissions", permissions).data) == len(permissions)
    caller = member_of(stage, role)
    colors = {"primary": "#6644FF"}
    changed = caller.patch("/users/me", {"theme_dark": "night", "theme_dark_overrides": colors})
    assert changed.data["theme_dark_overrides"] == colors


def test_an_account_that_is_sent_back_unchanged_keeps_its_sessions(
    stage: Stage, admin: Client
) -> None:
    role = new_role(stage, may("system_users"))
    user = new_user(admin, email="whole@example.com", password=PASSWORD, role=role)
    caller = stage.anonymous.login("whole@example.com", PASSWORD)
    path = f"/users/{user['id']}"
    for body in ({"role": role}, {"status": "active"}, admin.get(path).data):
        assert admin.patch(path, body).status == 200
        assert caller.get("/users/me").data["id"] == user["id"]
