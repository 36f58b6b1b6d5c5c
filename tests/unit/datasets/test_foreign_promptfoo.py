"""promptfoo's tests are read as cases, and nothing runs what is code in them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset, records_dataset
from assay.datasets.foreign.promptfoo import convert
from assay.datasets.foreign.promptfoo_checks import check_of_cell
from assay.datasets.records import BadRecordError
from assay.errors import DatasetError
from assay.model.case import Assertion, Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

CONFIG = """
description: about books
prompts: [file://prompt.txt]
providers: [some:model]
tests:
  - description: first
    vars: {question: "Who wrote {{book}}?", book: Emma}
    assert:
      - {type: equals, value: Jane Austen}
      - {type: not-contains, value: "{{ book }}", weight: 2, metric: exact}
      - $ref: "#/assertionTemplates/polite"
    metadata: {team: a}
    threshold: 0.5
  - vars: {question: Q2, book: B}
    options: {disableDefaultAsserts: true, prefix: "Say: "}
defaultTest:
  vars: {lang: en}
  assert:
    - {type: icontains, value: austen}
  metadata: {owner: me}
  threshold: 0
assertionTemplates:
  polite: {type: icontains, value: please}
"""


def test_a_config_file(write: Write, read: Read) -> None:
    """Tests with what the default test adds, wherever it stands; templates of checks and of texts are filled in."""
    first, second = read(write("x.yaml", CONFIG))
    assert (first.input, first.references) == ("Who wrote Emma?", ("Jane Austen",))
    assert first.variables == {"lang": "en", "question": "Who wrote Emma?", "book": "Emma"}
    assert first.assertions == (
        Assertion("icontains", "austen"),
        Assertion("equals", "Jane Austen"),
        Assertion("contains", "Emma", group="exact", weight=2.0, negate=True),
        Assertion("icontains", "please"),
    )
    assert first.thresholds == {"assertions": 0.5}
    assert first.metadata == {"owner": "me", "team": "a", "description": "first"}
    assert (second.input, second.assertions) == ("Say: Q2", ())


def test_a_threshold_of_zero_counts(write: Write, read: Read) -> None:
    """A threshold of 0 is a threshold, in a config file and in a table.

    Pitfall: a threshold of 0.
    """
    assert read(write("x.yaml", CONFIG))[1].thresholds == {"assertions": 0.0}
    assert read(write("x.csv", "q,__expected,__threshold\nQ,A,0\n"))[0].thresholds == {"assertions": 0.0}


def test_what_is_not_read_of_a_config_is_told(write: Write, refusal: Refusal) -> None:
    """Prompts and providers are named in a warning; scenarios, whose tests would be lost, are refused."""
    info = open_dataset(write("x.yaml", CONFIG)).check()
    assert info.format == "promptfoo/yaml"
    (warning,) = info.warnings
    assert "ignores `prompts`, `providers` of a promptfoo config: only its tests are imported" in str(warning)
    content = {"scenarios": [{"config": []}], "tests": [{"vars": {"q": "Q"}}]}
    assert "holds `scenarios`" in refusal(write("x.json", content))[0]
    content = {"defaultTest": "file://d.yaml", "tests": [{"vars": {"q": "Q"}}]}
    assert 'holds a defaultTest that is "file://d.yaml"' in refusal(write("x.json", content))[0]


@pytest.mark.parametrize(("text", "message"), [("a\0b", "the character NUL"), ("\ud800", "half a character")])
def test_what_no_wire_takes_in_the_default_test(write: Write, refusal: Refusal, text: str, message: str) -> None:
    """What all tests share is looked at like a test itself: nothing gets into cases that no wire takes."""
    content = json.dumps({"tests": [{"vars": {"q": "Q"}}], "defaultTest": {"vars": {"x": text}}})
    (problem,) = refusal(write("x.json", content))
    assert message in problem
    assert "in the data beside its cases" in problem


TESTS: list[dict[str, Any]] = [
    {"vars": {"q": "one"}, "assert": [{"type": "equals", "value": 4}], "providerOutput": {"a": 1}},
    {"vars": {"question": "two", "lang": "en"}, "assert": [], "providerOutput": "said"},
    {"vars": {"a": "x", "b": 2}, "description": "d", "expected_facts": ["f"]},
]


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.yaml"])
def test_lists_of_tests(write: Write, read: Read, name: str) -> None:
    """A bare list and JSON Lines are read; one variable, or the one called question, is the input."""
    content = TESTS if name != "x.yaml" else json.dumps(TESTS)
    labels, two, three = read(write(name, content))
    assert (labels.input, labels.references, labels.variables) == ("one", ("4",), {"q": "one"})
    assert labels.recorded is not None
    assert labels.recorded.text == '{"a": 1}'
    assert two.recorded is not None
    assert (two.input, two.recorded.text) == ("two", "said")
    assert (three.input, three.variables) == ("", {"a": "x", "b": 2})
    assert three.expected == {"expected_facts": ["f"]}
    assert three.metadata == {"description": "d"}


def test_the_variable_that_is_the_question(write: Write, read: Read, refusal: Refusal) -> None:
    """`map: {input: NAME}` names the variable that is the question; other fields may be variables too."""
    name = write("x.json", [{"vars": {"text": "Q", "lang": "en"}}])
    (case,) = read(name, field_map={"input": "Text", "category": "lang"})
    assert (case.input, case.category) == ("Q", "en")
    assert refusal(name, field_map={"category": "zz"}) == ['x.json: map: category: no record has a field "zz"']
    (problem,) = refusal(name, field_map={"input": "txt"})
    assert problem.startswith('x.json:1: record 1, vars: has no variable "txt", the question; it has "text", "lang"')


TABLE = (
    "question,__expected,__expected2,__threshold,__metric,__metadata:team,__metadata:tags[],"
    "__config:__expected2:threshold,__providerOutput,__description,__prefix,__suffix\n"
    'Who?,Jane,"similar(0.8):Jane Austen",0.25,acc,a,"x, y\\,z",0.5,She,desc,"Say: ",!\n'
    'What?,,"not-contains-any:a, ""b, c""",,,,,,,,,\n'
)


def test_a_table(write: Write, read: Read) -> None:
    """Columns that begin with __ are read as promptfoo reads them; all others are variables."""
    name = write("x.csv", TABLE)
    first, second = read(name)
    assert open_dataset(name).check().format == "promptfoo/csv"
    assert (first.input, first.variables, first.references) == ("Say: Who?!", {"question": "Who?"}, ("Jane",))
    assert first.assertions == (
        Assertion("equals", "Jane", group="acc"),
        Assertion("similar", "Jane Austen", 0.5, "acc"),
    )
    assert first.thresholds == {"assertions": 0.25}
    assert first.metadata == {"team": "a", "tags": ["x", "y,z"], "description": "desc"}
    assert first.recorded is not None
    assert first.recorded.text == "She"
    assert second.assertions == (Assertion("contains-any", ["a", "b, c"], negate=True),)


def test_columns_of_a_table_are_variables_whatever_they_are_called(write: Write, read: Read) -> None:
    """A column called description or vars is a variable where a row's checks are empty too."""
    cases = read(write("x.csv", "description,vars,__expected\na,b,c\nd,e,\n"))
    assert [case.variables for case in cases] == [{"description": "a", "vars": "b"}, {"description": "d", "vars": "e"}]


@pytest.mark.parametrize(
    ("cell", "check"),
    [
        ("Paris", {"type": "equals", "value": "Paris"}),
        ("equals:Paris", {"type": "equals", "value": "Paris"}),
        ("not-equals: Paris ", {"type": "not-equals", "value": "Paris"}),
        ("contains:a:b", {"type": "contains", "value": "a:b"}),
        ("contains:foo(x)", {"type": "contains", "value": "foo(x)"}),
        ("icontains-all:a,b", {"type": "icontains-all", "value": ["a", "b"]}),
        ('contains-any:"a,b", c', {"type": "contains-any", "value": ["a,b", "c"]}),
        ("similar(0.9):a\nb", {"type": "similar", "value": "a\nb", "threshold": 0.9}),
        ("similar(0):a", {"type": "similar", "value": "a", "threshold": 0.0}),
        ("similar:cosine(0.5):a", {"type": "similar:cosine", "value": "a", "threshold": 0.5}),
        ("latency(1000)", {"type": "latency", "threshold": 1000.0}),
        ("is-json", {"type": "is-json"}),
        ('is-json:{"a": 1}', {"type": "is-json", "value": {"a": 1}}),
        ("grade: is kind", {"type": "llm-rubric", "value": "is kind"}),
        ("llm-rubric:is kind", {"type": "llm-rubric", "value": "is kind"}),
        ("regex:^a+$", {"type": "regex", "value": "^a+$"}),
        ("latency", {"type": "equals", "value": "latency"}),
        ("similar", {"type": "equals", "value": "similar"}),
        ("Note: open at 9", {"type": "equals", "value": "Note: open at 9"}),
        ("open:9", {"type": "equals", "value": "open:9"}),
        ("=1+1", {"type": "equals", "value": "=1+1"}),
    ],
)
def test_the_grammar_of_cells(cell: str, check: dict[str, Any]) -> None:
    """`[not-]type(threshold):value`; what begins with no type is a text that the answer must equal."""
    assert check_of_cell(cell, "__expected") == check


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("similar(high):a", 'must be a number, not "high"'),
        ("similar(nan):a", "must be a number"),
        ("is-json:{", "must hold a JSON schema"),
        ("contians:a", "unknown check 'contians'; did you mean 'contains'?"),
    ],
)
def test_cells_that_are_refused(write: Write, refusal: Refusal, cell: str, message: str) -> None:
    """What is meant as a check but is none is refused with line and column."""
    (problem,) = refusal(write("x.csv", f"q,__expected1\nok,ok\nQ,{cell}\n"))
    assert problem.startswith("x.csv:3: record 2, __expected1: ")
    assert message in problem


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("javascript: output.length > {{n}}", "javascript"),
        ("fn:output", "javascript"),
        ("python: len(output)", "python"),
        ("python(0.5):len(output)", "python"),
        ("not-javascript:x", "not-javascript"),
        ("file://check.py", "python"),
        ("file://check.js:name", "javascript"),
        ("package:mine:check", "javascript"),
    ],
)
def test_code_in_a_cell_is_a_check_that_nothing_makes(cell: str, kind: str) -> None:
    """It is kept as text under the type that promptfoo has for it.

    Pitfall: code in data.
    """
    assert check_of_cell(cell, "__expected") == {"type": kind, "value": cell}


def test_checks_that_are_code_are_kept_and_counted(write: Write) -> None:
    """Templates in them are left as they are, files are not read, and the other checks are read on."""
    checks = [
        {"type": "javascript", "value": "output.includes(`${x}`) && {% raw %}", "weight": 2, "config": {"a": 1}},
        {"type": "not-python", "value": "file://check.py", "metric": "tone"},
        {"type": "contains", "value": "a"},
    ]
    dataset = open_dataset(write("x.jsonl", [{"vars": {"q": "Q"}, "assert": checks}]))
    assert dataset.check().checks == {"contains": 1, "javascript": 1, "python": 1}
    (case,) = dataset.cases()
    assert [(check.type, check.weight, check.negate, check.group) for check in case.assertions] == [
        ("javascript", 2.0, False, ""),
        ("python", 1.0, True, "tone"),
        ("contains", 1.0, False, ""),
    ]
    assert case.assertions[1].value == "file://check.py"


@pytest.mark.parametrize(
    ("test", "field", "message"),
    [
        ({"assert": [{"type": "equals", "value": "file://a.txt"}]}, "assert[0].value", "names a file"),
        ({"assert": [{"type": "contains-any", "value": ["a", "file://b"]}]}, "assert[0].value", "names a file"),
        ({"assert": [{"type": "equals", "value": "a", "transform": "x"}]}, "assert[0].transform", "is code"),
        ({"assert": [{"type": "assert-set", "assert": []}]}, "assert[0]", "is a set of checks"),
        ({"assert": [{"type": "equals", "valeu": "a"}]}, "assert[0].valeu", "did you mean 'value'?"),
        ({"assert": [{"$ref": "#/assertionTemplates/x"}]}, "assert[0].$ref", "which the file does not have"),
        ({"assert": ["equals"]}, "assert[0]", "must be a check"),
        ({"assert": {"type": "equals"}}, "assert", "must be a list of checks"),
        ({"assert": [{"type": "equals", "value": "{{nope}}"}]}, "assert[0].value", "names the variable 'nope'"),
        (
            {"assert": [{"type": "equals", "value": "{{q | upper}}"}]},
            "assert[0].value",
            "more of a template than {{name}}",
        ),
        ({"assert": [{"type": "equals", "value": ["a", "{% if q %}"]}]}, "assert[0].value[1]", "more of a template"),
        (
            {"assert": [{"type": "equals", "value": "{{o}}"}], "vars": {"q": "Q", "o": {}}},
            "assert[0].value",
            "it is {}",
        ),
        ({"vars": {"q": ["a", "b"]}}, "vars.q", "means one test per item"),
        ({"vars": {"q": "file://q.txt"}}, "vars.q", "names a file"),
        ({"vars": "file://vars.yaml"}, "vars", "must be an object"),
        ({"options": {"transform": "output.trim()"}}, "options.transform", "is code"),
        ({"options": {"prefix": "x"}, "vars": {"a": "1", "b": "2"}}, "options.prefix", "no variable is one"),
        ({"threshold": True}, "threshold", "must be a number, not true"),
        ({"threshold": "high"}, "threshold", 'must be a number, not "high"'),
        ({"threshold": 10**400}, "threshold", "must be a number"),
    ],
)
def test_tests_that_are_refused(write: Write, refusal: Refusal, test: dict[str, Any], field: str, message: str) -> None:
    """Code around a check, files and templates are refused with line and field, the other tests read on.

    Pitfall: code in data.
    """
    good = {"vars": {"q": "Q"}, "assert": []}
    (problem,) = refusal(write("x.jsonl", [good, {"vars": {"q": "Q"}, **test}]))
    assert problem.startswith(f"x.jsonl:2: record 2, {field}: "), problem
    assert message in problem


def test_a_list_that_is_one_value(write: Write, read: Read) -> None:
    """A list of values is kept where the test says that it is not to be multiplied."""
    test = {"vars": {"q": "Q", "docs": ["a", "b"]}, "options": {"disableVarExpansion": True}}
    assert read(write("x.json", [test]))[0].variables["docs"] == ["a", "b"]


def test_slips_in_columns(write: Write, refusal: Refusal) -> None:
    """A column that is nearly one of promptfoo's is refused; another one with __ is kept as metadata."""
    (problem,) = refusal(write("x.csv", "q,__expected,__treshold\nQ,A,1\n"))
    assert "record 1, __treshold: is not a promptfoo column; did you mean '__threshold'?" in problem
    (problem,) = refusal(write("x.csv", "q,__expected,__config:__expected:colour\nQ,A,1\n"))
    assert "only a threshold can be set" in problem
    (case,) = open_dataset(write("x.csv", "q,__expected,__zz\nQ,A,1\n")).cases()
    assert case.metadata == {"__zz": "1"}


def _look_at(problem: BadRecordError, *, field: str = "") -> None:
    assert problem.message
    assert problem.field == field or not field


@given(st.text())
def test_any_cell_is_a_check_or_a_sentence(cell: str) -> None:
    """Whatever a cell holds, it is read or refused with its column."""
    try:
        check = check_of_cell(cell, "__expected")
    except BadRecordError as problem:
        _look_at(problem, field="__expected")
    else:
        assert check["type"]
        json.dumps(check, allow_nan=False)


_KINDS = st.sampled_from(["equals", "contains", "starts-with", "regex", "similar", "icontains", "not-contains"])


@given(_KINDS, st.none() | st.floats(0, 1), st.text(min_size=1).filter(lambda text: text.strip() == text))
def test_what_is_written_by_the_grammar_is_read_back(kind: str, threshold: float | None, value: str) -> None:
    """A cell in the form `type(threshold):value` gives back all three."""
    mark = "" if threshold is None else f"({threshold!r})"
    check = check_of_cell(f"{kind}{mark}:{value}", "__expected")
    expected = {"type": kind, "value": value} | ({} if threshold is None else {"threshold": threshold})
    assert check == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["{{a}}", "{%", "file://x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "value", "a"]), inner),
    max_leaves=8,
)
_FIELDS = ["vars", "assert", "options", "metadata", "threshold", "__expected", "__threshold", "__metadata:a[]", "x"]


@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON, min_size=1))
def test_any_record_is_a_case_or_a_sentence(record: dict[str, Any]) -> None:
    """Whatever a test holds, it is converted or refused; never anything else."""
    try:
        convert(record)
    except BadRecordError as problem:
        _look_at(problem)
    with contextlib.suppress(DatasetError):
        list(records_dataset([record, {"vars": {"q": "Q"}}]).cases())


def test_the_mapping_names_what_the_file_has(write: Write) -> None:
    """What is shown and stored as the mapping are promptfoo's names, not those that tests are turned into."""
    mapping = open_dataset(write("x.yaml", CONFIG)).check().mapping
    assert mapping["assertions"] == "assert | __expected"
    assert mapping["input"] == "one of vars | a column"
    assert open_dataset(write("x.yaml", CONFIG), field_map={"input": "book"}).check().mapping["input"] == "book"


def test_flags_in_a_text_and_options_of_a_test(write: Write, read: Read) -> None:
    """A false variable is written as false; options that are not read are kept with the case."""
    config = {"prompts": ["p"], "tests": [{"vars": {"question": "Is it {{flag}}?", "flag": False}, "assert": [],
              "options": {"provider": "other", "prefix": "Say: "}}]}  # fmt: skip
    (case,) = read(write("x.json", config))
    assert case.input == "Say: Is it false?"
    assert case.metadata["options"] == {"provider": "other"}


TYPES = """
answer-relevance assert-set bleu classifier conversation-relevance contains contains-all contains-any
contains-html contains-json contains-sql contains-xml context-faithfulness context-recall context-relevance cost
equals factuality finish-reason g-eval gleu guardrails icontains icontains-all icontains-any is-html is-json
is-refusal is-sql is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call is-xml latency
levenshtein llm-rubric max-score meteor model-graded-closedqa model-graded-factuality moderation perplexity
perplexity-score pi regex rouge-n search-rubric select-best similar similar:cosine similar:dot similar:euclidean
starts-with tool-call-f1 trace-error-spans trace-span-count trace-span-duration trajectory:goal-success word-count
trajectory:tool-sequence trajectory:tool-used
"""


@pytest.mark.parametrize("kind", TYPES.split())
def test_every_kind_of_check_begins_a_cell(kind: str) -> None:
    """A cell `kind: value` is that check: no kind that promptfoo has is taken for a part of the text, or for a slip."""
    assert check_of_cell(f"{kind}: {{}}", "__expected")["type"] == kind


def test_a_check_without_a_value(write: Write, read: Read) -> None:
    """Some kinds of checks need none."""
    config = {"prompts": ["p"], "tests": [{"vars": {"question": "q"}, "assert": [{"type": "is-json"}]}]}
    (case,) = read(write("x.json", config))
    assert case.assertions == (Assertion("is-json"),)


@pytest.mark.parametrize("text", ["type: object\nrequired: [a]", '{"type": "object", "required": ["a"]}'])
def test_a_schema_as_text(write: Write, read: Read, text: str) -> None:
    """A schema may be a text that holds it as YAML or JSON, in a check and in a cell."""
    schema = {"type": "object", "required": ["a"]}
    (case,) = read(write("x.json", [{"vars": {"q": "Q"}, "assert": [{"type": "not-is-json", "value": text}]}]))
    assert case.assertions[0].value == schema
    cell = "is-json:" + text
    (case,) = read(write("x.csv", 'q,__expected\nQ,"' + cell.replace('"', '""') + '"\n'))
    assert case.assertions[0].value == schema
