import asyncio
import json
import subprocess
import sys

import pytest

from apps.gym.verifiers.instructions.ifeval_checks import CONSTRAINTS, count_sentences
from apps.gym.verifiers.registry import find_problems, read_verifier
from apps.gym.verifiers.verification import verify_attempt
from tests.deadlines import cpu_deadline
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import attempt, calls, response, says

ENGLISH = "The weather in the mountains is cold and it often rains in the afternoon."
GERMAN = "Das Wetter in den Bergen ist kalt und am Nachmittag regnet es oft."

CASES = [
    ("keywords:existence", {"keywords": ["cold", "rains"]}, ENGLISH, 1.0),
    ("keywords:existence", {"keywords": ["cold", "snow"]}, ENGLISH, 0.0),
    ("keywords:frequency", {"keyword": "in", "frequency": 4}, ENGLISH, 1.0),
    ("keywords:frequency", {"keyword": "in", "frequency": 2, "relation": "less than"}, ENGLISH, 0.0),
    ("keywords:forbidden_words", {"forbidden_words": ["snow"]}, ENGLISH, 1.0),
    ("keywords:forbidden_words", {"forbidden_words": ["COLD"]}, ENGLISH, 0.0),
    ("keywords:forbidden_words", {"forbidden_words": ["rain"]}, ENGLISH, 1.0),
    ("keywords:letter_frequency", {"letter": "x", "let_frequency": 1, "let_relation": "less than"}, ENGLISH, 1.0),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 99}, ENGLISH, 0.0),
    ("language:response_language", {"language": "de"}, GERMAN, 1.0),
    ("language:response_language", {"language": "de"}, ENGLISH, 0.0),
    ("language:response_language", {"language": "de"}, "12345", 1.0),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, ENGLISH, 1.0),
    ("length_constraints:number_sentences", {"num_sentences": 2}, ENGLISH, 0.0),
    ("length_constraints:number_words", {"num_words": 14, "relation": "exactly"}, ENGLISH, 1.0),
    ("length_constraints:number_words", {"num_words": 20}, ENGLISH, 0.0),
    ("length_constraints:number_characters", {"num_characters": 9, "relation": "at most"}, " 123456789 ", 1.0),
    ("length_constraints:number_characters", {"num_characters": 9}, "12345678", 0.0),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", 1.0),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\n***\ntwo", 0.0),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Second"},
        "First.\n\n“second, then”",
        1.0,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 5, "first_word": "x"},
        "First.\n\nSecond.",
        0.0,
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "Dear [name] of [town]", 1.0),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[[a] b] []", 1.0),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}, "Dear [name] of [town]", 0.0),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye. P. S. Write soon.", 1.0),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.", 0.0),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "  * one\n- two\n**bold**", 1.0),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "- one\n---", 1.0),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n* two\n* three", 0.0),
    ("detectable_format:constrained_response", {}, "Well. My answer is maybe.", 1.0),
    ("detectable_format:constrained_response", {}, "Perhaps.", 0.0),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", 1.0),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "***three***", 1.0),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "** **", 0.0),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\nSECTION 2",
        1.0,
    ),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 2}, "SECTION 1", 0.0),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', 1.0),
    ("detectable_format:json_format", {}, 'So: {"a": 1}', 0.0),
    ("detectable_format:title", {}, "<<On rain>>\nIt rains.", 1.0),
    ("detectable_format:title", {}, "<< a < b >>", 1.0),
    ("detectable_format:title", {}, "<< >>", 0.0),
    ("combination:two_responses", {}, "one ****** two", 1.0),
    ("combination:two_responses", {}, "one ****** one", 0.0),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. It.", 1.0),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "It.", 0.0),
    ("startend:start_checker", {"start_phrase": "the"}, ENGLISH, 1.0),
    ("startend:start_checker", {"start_phrase": "a"}, ENGLISH, 0.0),
    ("startend:end_checker", {"end_phrase": "Any more?"}, 'Yes. "Any more?"', 1.0),
    ("startend:end_checker", {"end_phrase": "Any more?"}, "No.", 0.0),
    ("startend:quotation", {}, '"All of it."', 1.0),
    ("startend:quotation", {}, '"', 0.0),
    ("startend:quotation", {}, "“All of it.”", 1.0),
    ("startend:quotation", {}, '“All of it."', 0.0),
    ("startend:quotation", {}, "‘All of it.’", 0.0),
    ("startend:start_checker", {"start_phrase": "To begin"}, "**To begin**, it rains.", 1.0),
    ("startend:start_checker", {"start_phrase": "To begin"}, "“_To begin_ with.”", 1.0),
    ("startend:start_checker", {"start_phrase": "* one"}, "* one\n* two", 1.0),
    ("startend:end_checker", {"end_phrase": "Any more?"}, "“So. **Any more?**”", 1.0),
    ("startend:end_checker", {"end_phrase": "_fin_"}, "The end. _fin_", 1.0),
    ("change_case:capital_word_frequency", {"capital_frequency": 2}, "It is VERY COLD.", 1.0),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "less than"}, "COLD", 0.0),
    ("change_case:english_capital", {}, ENGLISH.upper(), 1.0),
    ("change_case:english_capital", {}, GERMAN.upper(), 0.0),
    ("change_case:english_lowercase", {}, ENGLISH.lower(), 1.0),
    ("change_case:english_lowercase", {}, ENGLISH, 0.0),
    ("punctuation:no_comma", {}, ENGLISH, 1.0),
    ("punctuation:no_comma", {}, "Well, no.", 0.0),
]


SIMPLIFIED = "山里的天气很冷，下午经常下雨，所以我们决定留在家里看书。"
TRADITIONAL = "山裡的天氣很冷，下午經常下雨，所以我們決定留在家裡看書。"
JAPANESE, KOREAN = "山の天気は寒くて、午後はよく雨が降ります。", "산의 날씨는 춥고 오후에는 자주 비가 옵니다."
PORTUGUESE = "O tempo nas montanhas é frio e chove frequentemente à tarde."
NORWEGIAN = "Været i fjellene er kaldt, og det regner ofte om ettermiddagen, så vi blir hjemme."
LANGUAGE = [
    *((code, text, 1.0) for code in ("zh", "ZH", "zh_Hani") for text in (SIMPLIFIED, TRADITIONAL)),
    *((code, SIMPLIFIED, 1.0) for code in ("zh-cn", "zh-CN", "zh_CN", "zh-Hans", "zh-Hans-CN", "zh-SG")),
    *((code, TRADITIONAL, 1.0) for code in ("zh-tw", "zh-Hant", "zh-HK")),
    ("zh", JAPANESE, 0.0),
    ("zh", KOREAN, 0.0),
    ("zh", ENGLISH, 0.0),
    ("zh-tw", SIMPLIFIED, 0.0),
    ("ko", TRADITIONAL, 0.0),
    ("ko", KOREAN, 1.0),
    ("ja", JAPANESE, 1.0),
    ("pt-BR", PORTUGUESE, 1.0),
    ("pt_PT", PORTUGUESE, 1.0),
    ("pt-BR", ENGLISH, 0.0),
    ("en-US", ENGLISH, 1.0),
    ("de-CH", GERMAN, 1.0),
    ("nb", NORWEGIAN, 1.0),
    ("nn-NO", NORWEGIAN, 1.0),
    # Of shorter texts, only the script counts.
    ("de", "The weather is good.", 1.0),
    ("de", "The weather here is good.", 0.0),
    ("de", "下午经常下", 0.0),
    ("de", "下午经常下雨，我们", 0.0),
]
CASES += [("language:response_language", {"language": code}, reply, reward) for code, reply, reward in LANGUAGE]
CASES += [
    ("change_case:english_capital", {}, "HELLO THERE, HOW ARE YOU TODAY?", 1.0),
    ("change_case:english_capital", {}, "I LIKE CATS AND DOGS VERY MUCH.", 1.0),
    ("change_case:english_capital", {}, PORTUGUESE.upper(), 0.0),
]


@pytest.mark.parametrize("code", ["German", "xx", "la", "", "d e", ["de"]])
def test_a_language_that_cannot_be_detected_is_refused(code):
    ids = [{"id": "language:response_language", "arguments": {"language": code}}]
    [(pointer, problem)] = find_problems({"type": "instructions", "instructions": ids})
    assert pointer == "/instructions/0/arguments/language"
    assert "zh, zh-cn, zh-tw" in problem


def test_languages_are_the_same_in_every_process():
    code = "import json, sys; from apps.gym.verifiers.instructions.ifeval_checks import detect_language as detect\n"
    code += "print(json.dumps([detect(text) for text in json.load(sys.stdin)]))"
    words = f"{ENGLISH} {GERMAN} {PORTUGUESE} {NORWEGIAN}".split()
    given = json.dumps([" ".join(words[start : start + 5]) for start in range(len(words))])
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            input=given,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


@pytest.mark.parametrize(("name", "arguments", "reply", "reward"), CASES)
def test_instructions(name, arguments, reply, reward):
    given = {"type": "instructions", "instructions": [{"id": name, "arguments": arguments}]}
    assert reward_of(given, {}, reply) == reward
    assert reward_of(given, {}, "") == 0.0


def test_every_constraint_has_a_good_and_a_bad_example():
    told = {(name, reward) for name, _, _, reward in CASES}
    assert told == {(name, reward) for name in CONSTRAINTS for reward in (0.0, 1.0)}


WORDS, LETTER = "length_constraints:number_words", "keywords:letter_frequency"
NO_COMMA, TITLE = "punctuation:no_comma", "detectable_format:title"
ROWS = [
    ({}, {"instruction_id_list": [NO_COMMA, TITLE], "kwargs": [{}, {}]}, "<<A>> b", 1.0),
    ({}, {"instruction_id_list": [NO_COMMA, TITLE], "kwargs": [{}, {}]}, "<<A>> b, c", 0.0),
    ({"score": "fraction"}, {"instruction_id_list": [NO_COMMA, TITLE], "kwargs": [{}, {}]}, "<<A>> b, c", 0.5),
    ({}, {"verifier_metadata": {"instruction_id_list": [NO_COMMA], "grading_mode": "fraction"}}, "b", 1.0),
    ({}, {"instruction_id_list": [NO_COMMA, TITLE], "grading_mode": "fraction"}, "a, b", 0.0),
    ({}, {"instruction_id_list": [NO_COMMA], "kwargs": [{"num_words": None, "keyword": None}]}, "b", 1.0),
    ({}, {"instruction_id_list": [NO_COMMA], "kwargs": [None]}, "b", 1.0),
    ({}, {"instruction_id_list": [NO_COMMA], "kwargs": []}, "b", REFUSED),
    ({}, {"instruction_id_list": ["keywords:existence"], "kwargs": [{}]}, "b", REFUSED),
    ({}, {"instruction_id_list": ["length:magic"]}, "b", REFUSED),
    ({}, {"instruction_id_list": []}, "b", REFUSED),
    ({}, {"instruction_id_list": [NO_COMMA], "kwargs": ["x"]}, "b", REFUSED),
    ({}, {"instruction_id_list": [WORDS], "kwargs": [{"num_words": 2.0}]}, "a b", 1.0),
    ({}, {"instruction_id_list": [WORDS], "kwargs": [{"num_words": "2"}]}, "a", 0.0),
    ({}, {"instruction_id_list": [WORDS], "kwargs": [{"num_words": 2.5}]}, "a b", REFUSED),
    ({}, {"instruction_id_list": [WORDS], "kwargs": [{"num_words": True}]}, "a b", REFUSED),
    ({}, {"instruction_id_list": ["startend:end_checker"], "kwargs": [{"end_phrase": ""}]}, "b", REFUSED),
    ({}, {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": []}]}, "b", REFUSED),
    ({}, {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["b", " "]}]}, "b", REFUSED),
    ({}, {"instruction_id_list": [LETTER], "kwargs": [{"letter": "", "let_frequency": 1}]}, "b", REFUSED),
    ({}, {}, "b", REFUSED),
    ({}, {"instruction_id_list": [NO_COMMA]}, attempt(says("a, b"), calls("f"), says("b")), 1.0),
    ({}, {"instruction_id_list": [NO_COMMA]}, attempt(calls("f")), 0.0),
    ({"score": "fraction"}, {"instruction_id_list": [NO_COMMA, TITLE]}, "<<" * 50_000 + ">>", 0.5),
    ({}, {"instruction_id_list": [NO_COMMA]}, "," * 100_000, 0.0),
]


@pytest.mark.parametrize(("given", "row", "reply", "reward"), ROWS)
def test_a_row_brings_its_instructions(given, row, reply, reward):
    assert reward_of({"type": "instructions", **given}, row, reply) == reward


def test_each_instruction_is_a_component_and_twice_the_same_is_kept_only_if_both_are():
    ids = [{"id": "keywords:existence", "arguments": {"keywords": [word]}} for word in ("a", "z")]
    verifier = read_verifier({"type": "instructions", "instructions": ids, "score": "fraction"})
    reward = verifier.verify({}, response("a b"))
    assert reward.components == {"instructions": 0.5, "keywords:existence": 0.0}
    assert reward.explanation == "follows 1 of 2; not keywords:existence"


def test_wrong_instructions_are_named_with_their_place():
    ids = [
        {"id": "length_constraints:number_words", "arguments": {"num_words": "many"}},
        {"id": "length_constraints:number_words", "arguments": {"num_words": 3, "relation": "about"}},
        {"id": "keywords:frequency", "arguments": {"keyword": "x"}},
    ]
    assert list(find_problems({"type": "instructions", "instructions": ids})) == [
        ("/instructions/0/arguments/num_words", "is 'many': give a whole number"),
        ("/instructions/1/arguments/relation", "is 'about': give at least, less than, at most or exactly"),
        ("/instructions/2/arguments/frequency", "is missing: keywords:frequency needs it"),
    ]


def test_a_language_is_looked_at_in_a_process():
    ids = [{"id": "language:response_language", "arguments": {"language": "de"}}]
    verifier = read_verifier({"type": "instructions", "instructions": ids})
    assert not verifier.runs_on_loop({})
    assert asyncio.run(verify_attempt(verifier, {}, response(GERMAN))).value == 1.0


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", 3),
        ("It costs 3.50 in all.", 1),
        ("No end", 1),
        ("He said “Yes.” Then he left…", 2),
        ("", 0),
        ("一。二。", 2),
    ],
)
def test_sentences_are_counted_by_their_ends(text, sentences):
    assert count_sentences(text) == sentences


@pytest.mark.parametrize("hostile", ["*", "\n \n", "[", "-", "<<", ". ", "\"'", "a ", "P.", "******"])
def test_no_constraint_takes_long_over_a_long_text(hostile):
    text = hostile * (300_000 // len(hostile))
    for name, constraint in CONSTRAINTS.items():
        if not constraint.slow:
            arguments = {need: 3 if need.startswith("n") or "freq" in need else "P.S." for need in constraint.needs}
            with cpu_deadline():
                assert constraint.follows(text, arguments) in (True, False), name


@pytest.mark.parametrize(
    ("language", "reply", "followed"),
    [
        ("de", "Hello there my friend", 1.0),
        ("ru", "No I cannot do it", 0.0),
        ("hi", "Yes.", 0.0),
        ("zh", "The weather", 0.0),
        ("ru", "Да", 1.0),
        ("en", "好", 0.0),
        ("en", "42", 1.0),
    ],
)
def test_the_script_of_a_short_text_must_be_that_of_the_language(language, reply, followed):
    row = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": language}]}
    assert reward_of({"type": "instructions"}, row, reply) == followed
