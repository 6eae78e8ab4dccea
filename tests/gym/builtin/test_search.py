import json

import pytest

from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.search.environment import Search, find_documents, find_problem
from apps.gym.environments.search.kit import list_questions
from apps.gym.environments.search.world import write_documents
from tests.gym.verifiers.replies import attempt, calls, returns, says

QUESTION = list_questions()[2][0]
ROW = {
    "responses_create_params": {"input": QUESTION.text},
    "expected_answer": QUESTION.answer,
    "expected_sources": list(QUESTION.sources),
}


def test_the_encyclopaedia_is_always_the_same():
    documents = write_documents()
    assert len(documents) == 316
    assert len({document.title for document in documents.values()}) == 316
    write_documents.cache_clear()
    assert write_documents() == documents


def test_every_question_has_one_answer_that_its_last_source_tells():
    documents = write_documents()
    assert {level: len(questions) for level, questions in list_questions().items()} == {1: 842, 2: 1374, 3: 1318}
    for questions in list_questions().values():
        assert len({question.text for question in questions}) == len(questions)
        assert [one for one in questions if one.answer not in documents[one.sources[-1]].text] == []


def test_every_entry_is_found_by_its_title():
    for document in write_documents().values():
        assert document.id in [found.id for found, _ in find_documents(document.title, limit=3)]


@pytest.mark.parametrize(
    "query", ['"', "AND OR NOT", "title:x", "* ( ) ^ -", "", "the of", "a" * 10_000, "\ud800", "\0"]
)
def test_any_text_can_be_searched_for(query):
    assert find_documents(query, limit=5) == []
    assert find_problem() == ""


def test_more_words_than_a_question_has_are_not_looked_for():
    assert find_documents(f"{'nothing ' * 16}", limit=5) == []
    words = " ".join(f"nothing{at}" for at in range(16))
    assert find_documents(f"{words} festival", limit=5) == []


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("search", {}, "bad_arguments"),
        ("search", {"query": "x", "page": 2}, "bad_arguments"),
        ("search", {"query": "x", "limit": 11}, "bad_arguments"),
        ("search", {"query": "x", "limit": True}, "bad_arguments"),
        ("read_document", {"id": 12}, "bad_arguments"),
        ("read_document", {"id": "t999"}, "not_found"),
        ("browse", {}, "unknown_tool"),
    ],
)
def test_wrong_calls_are_refused(name, arguments, error):
    with pytest.raises(ToolRefused) as refusal:
        Search(ROW).call_tool(name, arguments)
    assert refusal.value.error == error


def test_the_tools_give_json():
    search = Search(ROW)
    [first, *_] = json.loads(search.call_tool("search", {"query": "Yarerdale", "limit": 2}))
    assert sorted(first) == ["excerpt", "id", "title"]
    assert json.loads(search.call_tool("read_document", {"id": "t0"}))["title"] == "Yarerdale"


@pytest.mark.parametrize(
    ("opened", "named", "reward"),
    [
        (QUESTION.sources, QUESTION.sources, 1.0),
        (QUESTION.sources, QUESTION.sources[:1], 0.75 + 0.25 * 2 / 3),
        (QUESTION.sources[:1], QUESTION.sources, 0.75 + 0.25 * 0.5),
        ((), QUESTION.sources, 0.75),
    ],
)
def test_sources_count_where_they_are_wanted_named_and_opened(opened, named, reward):
    items = []
    for at, place in enumerate(opened):
        items += [calls("read_document", {"id": place}, f"c{at}"), returns("…", f"c{at}")]
    told = says(f"**Answer:** {QUESTION.answer}\n**Sources:** {', '.join(named)}")
    assert Search(ROW).verify(attempt(*items, told)).value == pytest.approx(reward)


def test_a_call_that_was_never_answered_opened_nothing():
    items = [calls("read_document", {"id": place}, place) for place in QUESTION.sources]
    told = says(f"Answer: {QUESTION.answer}\nSources: {', '.join(QUESTION.sources)}")
    assert Search(ROW).verify(attempt(*items, told)).value == 0.75


@pytest.mark.parametrize("more", [{"x": 1}, {"id": 12}, {"limit": None}])
def test_a_call_that_the_tool_refuses_opened_nothing(more):
    items = []
    for place in QUESTION.sources:
        arguments = {"id": place, **more}
        with pytest.raises(ToolRefused):
            Search(ROW).call_tool("read_document", arguments)
        items += [calls("read_document", arguments, place), returns("{}", place)]
    told = says(f"Answer: {QUESTION.answer}\nSources: {', '.join(QUESTION.sources)}")
    assert Search(ROW).verify(attempt(*items, told)).value == 0.75
