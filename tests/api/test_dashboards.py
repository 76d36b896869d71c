"""/dashboards and /panels: written as items are, and what they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, field, table

ORDERS = (
    {"name": "Pears", "price": 3, "sold": "2024-12-30T10:15:20Z"},
    {"name": "Plums", "price": 5, "sold": "2024-12-31T23:00:00Z"},
    {"name": "Pears", "price": 4, "sold": "2025-01-02T00:00:00Z"},
    {"name": "Figs", "price": None, "sold": None},
)


@pytest.fixture(scope="module")
def orders(admin: Client) -> Iterator[str]:
    fields = [
        {"field": "name", "type": "string"},
        {"field": "price", "type": "integer"},
        {"field": "sold", "type": "timestamp"},
        {"field": "seller", "type": "uuid"},
    ]
    admin.post("/collections", {"collection": "orders", "schema": {}, "fields": fields})
    relation = {"collection": "orders", "field": "seller", "related_collection": "system_users"}
    admin.post("/relations", relation)
    admin.post("/items/orders", list(ORDERS))
    yield "orders"
    admin.delete("/collections/orders")


@pytest.fixture
def dashboard(admin: Client) -> Iterator[str]:
    key = admin.post("/dashboards", {"name": "Sales", "icon": "query_stats"}).data["id"]
    yield key
    admin.delete(f"/dashboards/{key}")


def panel(admin: Client, dashboard: str, type: str, **options: object) -> str:
    payload = {"dashboard": dashboard, "type": type, "options": options}
    answer = admin.post("/panels", payload)
    assert answer.status == 200, answer.text
    return str(answer.data["id"])


def data_of(client: Client, key: str) -> Any:
    return client.get(f"/panels/{key}/data").data


def codes(entry: dict[str, Any]) -> list[str]:
    return [error["extensions"]["code"] for error in entry["errors"]]


def reasons(answer: Answer) -> list[tuple[str, str]]:
    assert answer.status == 422, answer.text
    return [(".".join(map(str, error["path"])), error["reason"]) for error in answer.errors]


def test_a_dashboard_is_written_with_its_panels_and_deleted_with_them(admin: Client) -> None:
    text = {"type": "label", "options": {"text": "Hello"}, "position_x": 3, "width": 4}
    dashboard = admin.post("/dashboards", {"name": "Sales", "panels": [text]}).data
    read = admin.get(f"/dashboards/{dashboard['id']}", fields="*,panels.*").data
    assert (read["name"], read["icon"]) == ("Sales", "dashboard")
    (stored,) = read["panels"]
    assert (stored["options"], stored["position_x"], stored["height"]) == ({"text": "Hello"}, 3, 6)
    admin.patch(
        f"/dashboards/{dashboard['id']}", {"panels": {"update": [{"id": stored["id"], "width": 9}]}}
    )
    assert admin.get(f"/panels/{stored['id']}").data["width"] == 9
    assert admin.delete(f"/dashboards/{dashboard['id']}").status == 204
    assert admin.get(f"/panels/{stored['id']}").status == 404


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"function": "count"}, 4),
        ({"function": "count", "field": "price"}, 3),
        ({"function": "countDistinct", "field": "name"}, 3),
        ({"function": "sum", "field": "price"}, 12),
        ({"function": "max", "field": "price", "filter": {"name": {"_eq": "Pears"}}}, 4),
        ({"function": "first", "field": "name", "sortField": "price"}, "Pears"),
        ({"function": "last", "field": "sold", "sortField": "id"}, None),
        ({"function": "avg", "field": "price", "filter": {"id": {"_lt": 0}}}, None),
    ],
)
def test_a_metric_shows_one_value(
    admin: Client, orders: str, dashboard: str, options: dict[str, object], value: object
) -> None:
    key = panel(admin, dashboard, "metric", collection=orders, **options)
    assert data_of(admin, key) == {"value": value}


def test_lists_and_tables_show_items(admin: Client, orders: str, dashboard: str) -> None:
    template = "{{ name }}: {{price}} €"
    options = {"collection": orders, "sortField": "id", "sortDirection": "asc", "limit": 2}
    listed = panel(admin, dashboard, "list", displayTemplate=template, **options)
    assert data_of(admin, listed) == {
        "items": [{"name": "Pears", "price": 3}, {"name": "Plums", "price": 5}]
    }
    table = panel(admin, dashboard, "table", fields=["name"], collection=orders, sortField="id")
    assert data_of(admin, table)["items"][0] == {"name": "Figs"}


@pytest.mark.parametrize(
    ("precision", "points"),
    [
        ("year", [("2024-01-01T00:00:00Z", 8), ("2025-01-01T00:00:00Z", 4)]),
        ("month", [("2024-12-01T00:00:00Z", 8), ("2025-01-01T00:00:00Z", 4)]),
        # The 30th of December and the 2nd of January are in one week.
        ("week", [("2024-12-30T00:00:00Z", 12)]),
        (
            "hour",
            [("2024-12-30T10:00:00Z", 3), ("2024-12-31T23:00:00Z", 5), ("2025-01-02T00:00:00Z", 4)],
        ),
    ],
)
def test_a_time_series_has_a_point_for_each_period_with_rows(
    admin: Client, orders: str, dashboard: str, precision: str, points: list[tuple[str, int]]
) -> None:
    key = panel(
        admin,
        dashboard,
        "time-series",
        collection=orders,
        dateField="sold",
        precision=precision,
        function="sum",
        valueField="price",
    )
    assert [(point["date"], point["value"]) for point in data_of(admin, key)["points"]] == points


def test_the_range_of_a_time_series_ends_now(admin: Client, orders: str, dashboard: str) -> None:
    options = {"collection": orders, "dateField": "sold"}
    assert data_of(admin, panel(admin, dashboard, "time-series", range="1 day", **options)) == {
        "points": []
    }
    century = panel(admin, dashboard, "time-series", range="100 years", **options)
    assert len(data_of(admin, century)["points"]) == 3


@pytest.mark.parametrize("type", ["bar-chart", "line-chart"])
def test_a_chart_has_a_point_for_each_value_of_its_axis(
    admin: Client, orders: str, dashboard: str, type: str
) -> None:
    counted = panel(admin, dashboard, type, collection=orders, xAxis="name")
    assert data_of(admin, counted)["points"] == [
        {"x": "Figs", "y": 1},
        {"x": "Pears", "y": 2},
        {"x": "Plums", "y": 1},
    ]
    price_panel = panel(
        admin, dashboard, type, collection=orders, xAxis="year(sold)", yAxis="price", function="sum"
    )
    assert data_of(admin, price_panel)["points"] == [
        {"x": 2024, "y": 8},
        {"x": 2025, "y": 4},
        {"x": None, "y": None},
    ]


def test_labels_and_markdown_show_their_text(admin: Client, dashboard: str) -> None:
    source = "# Hi <script>alert(1)</script> [x](javascript:alert(1))"
    assert data_of(admin, panel(admin, dashboard, "label", text=source)) == {"text": source}
    markdown = data_of(admin, panel(admin, dashboard, "markdown", text=source))
    assert markdown["text"] == source
    assert "<h1>Hi &lt;script&gt;" in markdown["html"]
    assert "href" not in markdown["html"]


def test_a_dashboard_answers_with_the_data_of_all_its_panels(
    admin: Client, orders: str, dashboard: str
) -> None:
    keys = [
        panel(admin, dashboard, "metric", collection=orders, function="count") for _ in range(101)
    ]
    label = panel(admin, dashboard, "label", text="Orders")
    data = admin.get(f"/dashboards/{dashboard}/data").data
    assert data == {
        **{key: {"data": {"value": 4}} for key in keys},
        label: {"data": {"text": "Orders"}},
    }


def test_panels_show_what_the_caller_may_read(
    stage: Stage, admin: Client, orders: str, dashboard: str
) -> None:
    counted = panel(admin, dashboard, "metric", collection=orders, function="count")
    priced = panel(admin, dashboard, "metric", collection=orders, function="sum", field="price")
    reader = member(
        stage,
        may("system_dashboards"),
        may("system_panels"),
        may(orders, "id", "name", permissions={"name": {"_eq": "Pears"}}),
    )
    data = reader.get(f"/dashboards/{dashboard}/data").data
    assert data[counted] == {"data": {"value": 2}}
    assert codes(data[priced]) == ["FORBIDDEN"]
    assert reader.get(f"/panels/{priced}/data").status == 403
    stranger = member(stage, may(orders))
    assert stranger.get(f"/dashboards/{dashboard}/data").status == 403
    assert stranger.get(f"/panels/{counted}/data").status == 403


@pytest.mark.parametrize(
    ("type", "options"),
    [
        ("table", {"fields": ["NAME"]}),
        ("table", {"fields": ["seller.NAME"]}),
        ("list", {"displayTemplate": "{{id}} {{NAME}}"}),
        ("list", {"displayTemplate": "{{seller.NAME}}"}),
        ("list", {"displayTemplate": "{{id}}", "sortField": "NAME"}),
        ("metric", {"function": "count", "filter": {"NAME": {"_null": True}}}),
        ("metric", {"function": "count", "filter": {"id": {"_eq": "$CURRENT_USER.NAME"}}}),
        ("metric", {"function": "max", "field": "NAME"}),
        ("metric", {"function": "first", "field": "id", "sortField": "NAME"}),
        ("bar-chart", {"xAxis": "NAME"}),
        ("time-series", {"dateField": "NAME"}),
        ("table", {"collection": "system_NAME"}),
    ],
    ids=str,
)
def test_a_panel_reveals_no_hidden_names(
    stage: Stage, orders: str, dashboard: str, type: str, options: dict[str, object]
) -> None:
    writer = member(
        stage,
        may("system_dashboards"),
        may("system_panels"),
        may("system_panels", action="create"),
        may(orders, "id", "seller"),
    )
    refusals = []
    # Hidden fields and collections, and those that do not exist.
    for name in ("price", "email", "users", "nothing"):
        written = json.loads(json.dumps(options).replace("NAME", name))
        payload = {
            "dashboard": dashboard,
            "type": type,
            "options": {"collection": orders, **written},
        }
        refusals += [{**error, "key": None} for error in writer.post("/panels", payload).errors]
    assert refusals == [refusals[0]] * 4


@pytest.mark.parametrize(
    ("type", "options", "path"),
    [
        ("metric", {"collection": "orders", "function": "median"}, "options.function"),
        ("metric", {"collection": "nowhere", "function": "count"}, "options"),
        ("metric", {"collection": "orders", "function": "sum", "field": "name"}, "options"),
        ("metric", {"collection": "orders", "function": "count", "filter": {"no": 1}}, "options"),
        ("list", {"collection": "orders", "limit": 0}, "options.limit"),
        ("table", {"collection": "orders", "fields": [1]}, "options.fields.0"),
        ("table", {"collection": "orders", "fields": ["name", " price"]}, "options.fields.1"),
        ("table", {"collection": "orders", "fields": ["name,price"]}, "options.fields.0"),
        ("time-series", {"collection": "orders", "dateField": "name"}, "options"),
        (
            "time-series",
            {"collection": "orders", "dateField": "sold", "range": "1 blue"},
            "options.range",
        ),
        ("bar-chart", {"collection": "orders", "xAxis": "name,price"}, "options.xAxis"),
        ("bar-chart", {"collection": "orders", "xAxis": " name"}, "options.xAxis"),
        (
            "metric",
            {"collection": "orders", "function": "sum", "field": "price "},
            "options.field",
        ),
        ("label", {"text": 5}, "options.text"),
        ("markdown", {"text": "![" * 10_001}, "options.text"),
        (
            "list",
            {"collection": "orders", "displayTemplate": "x" * 2_001},
            "options.displayTemplate",
        ),
        (
            "metric",
            {"collection": "orders", "function": "count", "prefix": "x" * 2_001},
            "options.prefix",
        ),
        ("label", [], "options"),
    ],
)
def test_options_that_show_nothing_are_refused_with_their_place(
    admin: Client, orders: str, dashboard: str, type: str, options: object, path: str
) -> None:
    answer = admin.post("/panels", {"dashboard": dashboard, "type": type, "options": options})
    assert path in [reported for reported, _ in reasons(answer)]


def test_a_change_of_the_type_alone_is_checked_with_the_options(
    admin: Client, orders: str, dashboard: str
) -> None:
    key = panel(admin, dashboard, "label", text="Hello", color="red")
    answer = admin.patch(f"/panels/{key}", {"type": "list", "options": {"limit": 0}})
    assert [path for path, _ in reasons(answer)] == ["options.limit"]
    assert admin.get(f"/panels/{key}").data["type"] == "label"


@pytest.mark.parametrize(
    "values",
    [{"width": 0}, {"height": 10_001}, {"position_x": 0}, {"position_y": -3}, {"type": "pie"}],
)
def test_a_panel_lies_on_the_grid(admin: Client, dashboard: str, values: dict[str, object]) -> None:
    key = panel(admin, dashboard, "label", text="Hello")
    (name,) = values
    assert [path for path, _ in reasons(admin.patch(f"/panels/{key}", values))] == [name]


def test_a_panel_of_a_deleted_collection_has_an_error_and_others_have_data(
    admin: Client, orders: str, dashboard: str
) -> None:
    admin.post("/collections", {"collection": "briefly", "schema": {}})
    gone = panel(admin, dashboard, "metric", collection="briefly", function="count")
    stays = panel(admin, dashboard, "metric", collection=orders, function="count")
    admin.delete("/collections/briefly")
    data = admin.get(f"/dashboards/{dashboard}/data").data
    assert codes(data[gone]) == ["NOT_FOUND"]
    assert data[stays] == {"data": {"value": 4}}


NAME = "Sales & <script>"


class DrawnPanel(NamedTuple):
    """A panel, and a text that its picture shows."""

    type: str
    options: dict[str, object]
    text: str
    key: str = ""


NOTHING = {"id": {"_lt": 0}}
PICTURES = (
    DrawnPanel(
        "metric", {"function": "sum", "field": "price", "decimals": 2, "suffix": " €"}, "12.00 €"
    ),
    DrawnPanel(
        "metric", {"function": "max", "field": "price", "filter": {"id": {"_lt": 0}}}, "No data"
    ),
    DrawnPanel("list", {"displayTemplate": "{{name}}: {{price}}", "sortField": "id"}, "Figs: –"),
    DrawnPanel("table", {"fields": ["name", "price"]}, "price"),
    DrawnPanel("time-series", {"dateField": "sold", "precision": "month"}, "2024-12"),
    DrawnPanel("bar-chart", {"xAxis": "name"}, "Plums"),
    DrawnPanel(
        "line-chart", {"xAxis": "name", "yAxis": "price", "function": "avg"}, "avg of price"
    ),
    DrawnPanel("bar-chart", {"xAxis": "name", "filter": NOTHING}, "No data"),
    DrawnPanel("line-chart", {"xAxis": "name", "filter": NOTHING}, "No data"),
    DrawnPanel("time-series", {"dateField": "sold", "filter": NOTHING}, "No data"),
    DrawnPanel("list", {"displayTemplate": "{{name}}", "filter": NOTHING}, "No data"),
    DrawnPanel("table", {"fields": ["*"], "filter": NOTHING}, "No data"),
    DrawnPanel("label", {"text": "One\nTwo <b>"}, "Two <b>"),
    DrawnPanel("markdown", {"text": "**Bold**"}, "**Bold**"),
)


def texts_of(svg: bytes) -> list[str]:
    return [" ".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter()]


@pytest.fixture(params=PICTURES, ids=lambda picture: picture.type)
def picture(
    request: pytest.FixtureRequest, admin: Client, orders: str, dashboard: str
) -> DrawnPanel:
    drawn: DrawnPanel = request.param
    key = panel(admin, dashboard, drawn.type, collection=orders, **drawn.options)
    admin.patch(f"/panels/{key}", {"name": NAME, "color": "#123456"})
    return drawn._replace(key=key)


@pytest.mark.quick(8)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_panel_is_drawn_in_both_themes_with_its_title(
    admin: Client, picture: DrawnPanel, theme: str
) -> None:
    key = picture.key
    answer = admin.get(f"/panels/{key}/data", format="svg", theme=theme)
    assert answer.headers["content-type"] == "image/svg+xml"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    texts = texts_of(answer.content)
    assert any(picture.text in each for each in texts)
    assert any(NAME in each for each in texts)
    # Nothing is loaded from elsewhere, and the same data make the same picture.
    assert b"<script" not in answer.content
    assert b"://" not in answer.content.replace(b"http://www.w3.org/", b"")
    assert admin.get(f"/panels/{key}/data", format="svg", theme=theme).content == answer.content


def test_texts_of_users_make_no_picture_invalid(admin: Client, dashboard: str) -> None:
    hostile = "\x01\x08\ufffe\u202e]]><svg onload='x'>&amp;{{a}}" + "long " * 2000
    for type in ("label", "markdown"):
        key = panel(admin, dashboard, type, text=hostile)
        admin.patch(f"/panels/{key}", {"name": hostile})
        ElementTree.fromstring(admin.get(f"/panels/{key}/data", format="svg").content)


def test_the_picture_of_a_table_has_a_column_for_each_field_of_a_wildcard(
    admin: Client, dashboard: str
) -> None:
    options = {
        "collection": "system_users",
        "filter": {"id": {"_eq": "$CURRENT_USER"}},
        "fields": ["email", "role.id", "role.*", "*"],
    }
    me = admin.get("/users/me?fields=email,role.id,role.name").data
    key = panel(admin, dashboard, "table", **options)
    texts = texts_of(admin.get(f"/panels/{key}/data", format="svg", width=4000).content)
    for text in ("role.name", me["role"]["name"], me["email"]):
        assert text in texts
    for name in ("email", "role.id"):
        assert texts.count(name) == 1


@pytest.mark.parametrize(
    "params",
    [
        {"format": "png"},
        {"format": "svg", "theme": "blue"},
        {"format": "svg", "width": "99"},
        {"format": "svg", "height": "9" * 5000},
        {"format": "svg", "width": "١٠٠"},
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(
    admin: Client, dashboard: str, params: dict[str, str]
) -> None:
    key = panel(admin, dashboard, "label", text="Hello")
    answer = admin.get(f"/panels/{key}/data", **params)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


@pytest.mark.quick(3)
@pytest.mark.parametrize("values", [[1e308, -1e308], [5e-324], [-0.0], [10**300, 1]], ids=str)
@pytest.mark.parametrize("type", ["bar-chart", "line-chart"])
def test_the_largest_and_smallest_numbers_are_drawn_or_left_out(
    admin: Client, dashboard: str, type: str, values: list[float]
) -> None:
    numbers = table(admin, field("value", "float"))
    numbers.add(*({"value": value} for value in values))
    key = panel(
        admin, dashboard, type, collection=numbers.name, xAxis="id", yAxis="value", function="max"
    )
    answer = admin.get(f"/panels/{key}/data", format="svg")
    assert answer.status == 200, answer
    ElementTree.fromstring(answer.content)


@pytest.mark.release
def test_long_values_and_many_lines_are_drawn_as_far_as_there_is_room(
    admin: Client, dashboard: str
) -> None:
    texts = table(admin, field("body", "text"))
    for _ in range(3):
        texts.add({"body": "x" * 900_000})
    template = "{{body}}" * 200
    formatted = panel(admin, dashboard, "list", collection=texts.name, displayTemplate=template)
    lines = panel(admin, dashboard, "label", text="a\n" * 10_000)
    for key in (formatted, lines):
        answer = admin.get(f"/panels/{key}/data", format="svg", height=4_000)
        assert answer.status == 200
        assert len(answer.content) < 100_000
