"""Whatever names a hidden field or collection is answered as what names a
missing one: 403, in the same words.
"""

from __future__ import annotations

import pytest

from tests.client import with_other_status
from tests.members import may, member
from tests.security.conftest import Shop

REFUSED = (
    '{"errors":[{"message":"You don\'t have permission to access '
    'this.","extensions":{"code":"FORBIDDEN"}}]}'
)

AT_A_FIELD = (
    "fields={}",
    "fields=*,{}",
    "fields=*.*,{}",
    "fields={}.id",
    "fields={}.*",
    "fields=year({})",
    "fields=count({})",
    "fields=author.books.{}",
    "fields=author.books.count({})",
    "alias[a]={}&fields=a",
    "alias[a]={}&fields=id",
    "alias[a]={}&aggregate[count]=*",
    "aggregate[count]=*&fields={}",
    "deep[{}][_limit]=1&fields=id",
    "deep[{}][_limit]=1",
    "deep[author][{}][_limit]=1&fields=author.id",
    "alias[a]=count({})&fields=a",
    "alias[id]={}&fields=id",
    "filter[{}]=1",
    "filter[{}][_null]=true",
    "filter[{}][_empty]=true",
    "filter[{}][_starts_with]=n",
    "filter[{}][_in]=1,2",
    "filter[{}][_between]=1,2",
    "filter[{}][_intersects]=1",
    "filter[{}][_and][0][_eq]=1",
    "filter[{}][id]=1",
    "filter[{}][_some][id]=1",
    "filter[{}][_none][id]=1",
    "filter[_or][0][{}]=1",
    "filter[_or][0][id]=1&filter[_or][1][_and][0][{}]=1",
    "filter[count({})][_gt]=0",
    "filter[year({})][_gt]=0",
    "filter[author][books][{}]=1",
    "filter[author][books][_none][{}]=1",
    "filter[author][books][count({})]=1",
    "filter[author][_or][0][books][{}]=1",
    "sort={}",
    "sort=-{}",
    "sort=id,{}",
    "sort=count({})",
    "sort=year({})",
    "sort={}.id",
    "groupBy={}",
    "groupBy=year({})",
    "groupBy=price&aggregate[min]={}",
    "groupBy=price&sort=-sum.{}",
    "groupBy=price&sort={}",
    "groupBy=price&filter[{}]=1",
    "aggregate[count]={}",
    "aggregate[countDistinct]={}",
    "aggregate[sum]={}",
    "aggregate[max]=price,{}",
    "groupBy=id&aggregate[count]=*&sort=count.{}",
    "aggregate[count]=*&filter[{}]=1",
    "deep[{}][_limit]=1&fields={}",
    "deep[{}][_filter][id]=1&fields={}.id",
    "deep[author][_filter][books][{}]=1&fields=author.name",
    "deep[author][books][_filter][{}]=1&fields=author.books.id",
    "deep[author][books][_sort]={}&fields=author.books.id",
    "deep[author][books][_groupBy]={}&fields=author.books",
    "deep[author][books][_aggregate][max]={}&fields=author.books",
    "deep[author][books][_alias][a]={}&fields=author.books.a",
    "search=One&filter[{}]=1",
    "meta=*&filter[{}]=1",
    "export=csv&fields={}",
    "export=jsonl&filter[{}]=1",
    "filter[title]=$CURRENT_USER.{}",
    "filter[title][_in]=$CURRENT_USER.{}",
    "filter[title]=$CURRENT_ROLE.{}",
    "filter[title:{}]=1",
    "fields=title:{}.id",
)


def test_a_list_without_keys_may_be_shaped_where_it_is_not_shown(shop: Shop) -> None:
    caller = member(shop.stage, may("books", "id", "reviews"), may("reviews", "text", "book"))
    assert caller.get("/items/books?deep[reviews][_limit]=1&limit=1").data == [{"id": 1}]
    assert caller.get("/items/books?deep[reviews][_filter][id]=1&limit=1").codes == ["FORBIDDEN"]


@pytest.mark.parametrize("operand", AT_A_FIELD)
def test_no_operand_distinguishes_a_hidden_field_from_a_missing_one(
    shop: Shop, operand: str
) -> None:
    for name in ("note", "status", "nowhere"):
        answer = shop.member.get(f"/items/books?{operand.replace('{}', name)}")
        assert (answer.status, answer.text) == (403, REFUSED), answer


BEHIND_A_LIST = (
    "fields={}",
    "fields={}.id",
    "fields={}.*",
    "fields=count({})",
    "fields=author.books.{}",
    "alias[a]={}&fields=a.id",
    "filter[{}][text]=Good",
    "filter[{}][_some][id]=1",
    "filter[{}][_none][id]=1",
    "filter[_or][0][{}][id]=1",
    "filter[count({})][_gt]=0",
    "filter[author][books][count({})][_gt]=0",
    "sort=count({})",
    "sort={}.text",
    "deep[{}][_limit]=1&fields={}",
    "deep[{}][_aggregate][count]=*&fields={}",
    "deep[{}][_search]=Good&fields={}",
)


@pytest.mark.parametrize("operand", BEHIND_A_LIST)
def test_a_list_of_a_hidden_collection_is_as_good_as_missing(shop: Shop, operand: str) -> None:
    for name in ("reviews", "nowhere"):
        answer = shop.member.get(f"/items/books?{operand.replace('{}', name)}")
        assert (answer.status, answer.text) == (403, REFUSED), answer


BEHIND_AN_AUTHOR = (
    "fields=author.{}",
    "fields=author.*,author.{}",
    "filter[author][{}]=AT",
    "filter[author][_or][0][{}]=AT",
    "filter[author][{}][_starts_with]=A",
    "sort=author.{}",
    "sort=-author.books.author.{}",
    "fields=item:authors.{}",
    "fields=item.{}",
    "filter[item:authors][{}]=AT",
    "sort=item:authors.{}",
    "deep[author][_filter][{}]=AT&fields=author.id",
    "deep[item:authors][_filter][{}]=AT&fields=item:authors.id",
)


@pytest.mark.parametrize("operand", BEHIND_AN_AUTHOR)
def test_no_path_reveals_a_hidden_field_of_another_collection(shop: Shop, operand: str) -> None:
    for name in ("country", "nowhere"):
        answer = shop.member.get(f"/items/books?{operand.replace('{}', name)}")
        assert (answer.status, answer.text) == (403, REFUSED), answer


@pytest.mark.parametrize(
    "operand",
    [
        "fields=item:{}.id",
        "fields=item:{}.*",
        "filter[item:{}][id]=1",
        "filter[item:{}]=1",
        "filter[_or][0][item:{}][text]=1",
        "sort=item:{}.id",
        "alias[a]=item&fields=a:{}.id",
        "deep[item:{}][_filter][id]=1&fields=item:{}.id",
    ],
)
def test_a_scope_of_a_hidden_collection_is_as_good_as_missing(shop: Shop, operand: str) -> None:
    for name in ("reviews", "nowhere", "system_users"):
        answer = shop.member.get(f"/items/books?{operand.replace('{}', name)}")
        assert (answer.status, answer.text) == (403, REFUSED), answer


@pytest.mark.parametrize(
    "path", ["{}", "{}/1", "{}?fields=id", "{}?aggregate[count]=*", "{}?export=csv", "{}?search=a"]
)
def test_a_hidden_collection_is_as_good_as_missing(shop: Shop, path: str) -> None:
    for name in ("reviews", "nowhere", "system_roles", "system_sessions", "system_presets"):
        methods = ["GET", "SEARCH", "PATCH", "POST", "DELETE"]
        if "/1" in path:
            methods = ["GET", "PATCH", "DELETE"]
        if "search" in path:
            methods = ["GET", "SEARCH"]
        for method in methods:
            body: object = [{"id": 1}]
            if method == "GET" or (method == "DELETE" and "/1" in path):
                body = None
            elif method == "SEARCH":
                body = {"query": {}}
            answer = shop.member.send(method, f"/items/{path.replace('{}', name)}", body)
            assert (answer.status, answer.text) == (403, REFUSED), method


def test_a_field_that_leads_to_a_hidden_collection_looks_like_one_that_leads_nowhere(
    shop: Shop,
) -> None:
    caller = member(shop.stage, may("books", "title", "author"))
    for operand in (
        "fields={}.id",
        "filter[{}][id]=1",
        "filter[_or][0][{}][id][_null]=true",
        "sort={}.id",
    ):
        for name in ("title", "author"):
            answer = caller.get(f"/items/books?{operand.replace('{}', name)}")
            assert (answer.status, answer.text) == (403, REFUSED), operand


def test_an_administrator_may_ask_all_of_it(shop: Shop) -> None:
    """Otherwise the questions above could be refused for something else."""
    answers = [
        shop.admin.get(f"/items/books?{operand.replace('{}', 'note')}") for operand in AT_A_FIELD
    ]
    answers += [
        shop.admin.get(f"/items/books?{operand.replace('{}', 'reviews')}")
        for operand in BEHIND_A_LIST
    ]
    answers += [
        shop.admin.get(f"/items/books?{operand.replace('{}', 'country')}")
        for operand in BEHIND_AN_AUTHOR
    ]
    assert with_other_status(answers, 200, 400) == []
    assert sum(answer.status == 200 for answer in answers) > 60
