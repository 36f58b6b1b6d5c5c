"""Tables as people export them, under the names that people give to columns."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from assay.datasets import open_dataset, records_dataset
from assay.datasets.fields.aliases import names_of
from assay.datasets.fields.languages import LANGUAGES
from assay.datasets.values.separated_names import split_sources, split_tools
from assay.errors import DatasetError
from assay.model.case import Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]


def warnings_of(path: str) -> list[str]:
    return [str(warning) for warning in open_dataset(path).check().warnings]


def csv_of(**cells: str) -> str:
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells.values()]
    return ",".join(["question", *cells]) + "\nQ," + ",".join(quoted) + "\n"


@pytest.mark.parametrize("listed", [
    "['a', 'b']", '["a", "b"]', " ['a',\n 'b'] ", "['a' 'b']", "('a', 'b')", "{'a', 'b'}",
    "array(['a', 'b'], dtype=object)", "[np.str_('a'), np.str_('b')]",
])  # fmt: skip
@pytest.mark.parametrize("field", ["references", "expected_sources", "expected_tools", "contexts", "choices", "tags"])
def test_lists_in_cells(write: Write, read: Read, listed: str, field: str) -> None:
    """A cell that holds a list, as JSON, Python or numpy write it, is read as the list."""
    (case,) = read(write("x.csv", csv_of(**{field: listed})))
    turn = case.turns[0]
    lists = {
        "references": turn.references,
        "expected_sources": turn.expected_sources,
        "expected_tools": tuple(tool.name for tool in turn.expected_tools),
    }
    assert lists.get(field, getattr(case, field, None)) == ("a", "b")


def test_objects_in_cells(write: Write, read: Read) -> None:
    """A cell that is an object as Python writes it is read where an object is due, and one with calls of tools."""
    cells = csv_of(
        metadata="{'a': 1}",
        parameters="{'b': None}",
        recorded="{'text': 'said', 'tool_calls': []}",
        expected_tools="[{'name': 'find', 'arguments': {'q': 'x'}}]",
        history="[{'role': 'user', 'content': 'Hello'}]",
    )
    (case,) = read(write("x.csv", cells))
    assert (case.metadata, case.parameters) == ({"a": 1}, {"b": None})
    assert case.recorded is not None
    assert (case.recorded.text, case.recorded.tool_calls) == ("said", ())
    assert case.turns[0].expected_tools[0].arguments == {"q": "x"}
    assert case.turns[0].history[0].content == "Hello"
    (case,) = read(write("y.csv", csv_of(recorded="['one', 'two']")))
    assert case.recorded is not None
    assert [answer.text for (answer,) in case.recordings] == ["one", "two"]
    (case,) = read(write("z.csv", csv_of(recorded='["an answer", "as JSON"]')))
    assert case.recorded is not None
    assert case.recorded.text == '["an answer", "as JSON"]'
    (case,) = read(write("z.jsonl", [{"question": "Q", "metadata": '{"a": 1}'}]))
    assert case.metadata == {"a": 1}


def test_a_list_in_a_column_of_one_answer_is_warned_of(write: Write, read: Read) -> None:
    """A list in a column of answers stays text, with one warning that counts the rows."""
    name = write("x.csv", "question,answer\nQ,\"['a', 'b']\"\nR,\"['c']\"\nS,d\n")
    assert [case.references for case in read(name)][:2] == [("['a', 'b']",), ("['c']",)]
    (warning,) = warnings_of(name)
    assert '"answer" looks like a list and is read as one text' in warning
    assert warning.endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("text", "names", "is_doubtful"),
    [
        ("a.pdf;b.pdf", ["a.pdf", "b.pdf"], False),
        ("Opening hours; Prices", ["Opening hours", "Prices"], False),
        ("a.pdf | b.pdf", ["a.pdf", "b.pdf"], False),
        ("Opening hours | City Museum", ["Opening hours", "City Museum"], True),
        ("a.pdf, b.pdf", ["a.pdf", "b.pdf"], False),
        ("a.pdf\nb.pdf\n", ["a.pdf", "b.pdf"], False),
        ("Paris, France", ["Paris, France"], True),
        ("Q&amp;A", ["Q&amp;A"], True),
        ("https://x/a;v=1", ["https://x/a;v=1"], True),
        ("https://x/a;https://x/b", ["https://x/a", "https://x/b"], False),
        ("https://x/a, https://x/b https://x/c", ["https://x/a", "https://x/b", "https://x/c"], False),
        ("https://x/a;faq.pdf", ["https://x/a;faq.pdf"], True),
        ("hall.pdf", ["hall.pdf"], False),
        ("a.pdf；b.pdf", ["a.pdf", "b.pdf"], False),
        ("a.pdf، b.pdf", ["a.pdf", "b.pdf"], False),
        ("- a.pdf\n- b.pdf", ["a.pdf", "b.pdf"], False),
        ("a.pdf<br>b.pdf", ["a.pdf", "b.pdf"], False),
        ('"a.pdf";"b.pdf"', ["a.pdf", "b.pdf"], False),
        ("a.pdf and b.pdf", ["a.pdf and b.pdf"], True),
    ],
)
def test_sources_in_one_text(text: str, names: list[str], is_doubtful: bool) -> None:
    """Names are split only at unambiguous separators; other texts cause a warning."""
    found, doubt = split_sources(text)
    assert (found, bool(doubt)) == (names, is_doubtful)


@pytest.mark.parametrize(
    ("text", "names", "is_doubtful"),
    [
        ("find;book", ["find", "book"], False),
        ("find, book", ["find", "book"], False),
        ("find|book\npay", ["find", "book", "pay"], False),
        ("find", ["find"], False),
        ("find、book", ["find", "book"], False),
        ("1. find\n2. book", ["find", "book"], False),
        ("find book", ["find book"], True),
        ("find(q='a, b')", ["find(q='a, b')"], True),
    ],
)
def test_tools_in_one_text(text: str, names: list[str], is_doubtful: bool) -> None:
    """The same of tools, whose names have no commas."""
    found, doubt = split_tools(text)
    assert (found, bool(doubt)) == (names, is_doubtful)


def test_separated_names_in_files(write: Write, read: Read) -> None:
    """They are split in tables and in JSON, and a doubt is one warning with the number of rows."""
    (case,) = read(write("x.csv", csv_of(expected_sources="a.pdf;b.pdf", expected_tools="find, book", choices="x|y")))
    assert case.turns[0].expected_sources == ("a.pdf", "b.pdf")
    assert [tool.name for tool in case.turns[0].expected_tools] == ["find", "book"]
    assert case.choices == ("x", "y")
    records = [{"question": name, "expected_sources": "Paris, France", "expected_tools": "a;b"} for name in "QRS"]
    name = write("x.jsonl", records)
    assert [len(case.turns[0].expected_tools) for case in read(name)] == [2, 2, 2]
    (warning,) = warnings_of(name)
    assert '"Paris, France" is read as one name' in warning
    assert warning.endswith("(and 2 more)")


def test_sources_that_are_objects(write: Write, read: Read, refusal: Callable[..., list[str]]) -> None:
    """A source as answers have it stands for its title, address or id, in a cell too; one without any is refused."""
    sources = [{"title": "Tides", "url": "https://x/t"}, {"link": "https://x/a"}, {"document_id": "d7"}, "b.pdf"]
    names = ("Tides", "https://x/a", "d7", "b.pdf")
    (case,) = read(write("x.jsonl", [{"question": "Q", "expected_sources": sources}]))
    assert case.turns[0].expected_sources == names
    (case,) = read(write("x.csv", csv_of(expected_sources=str(sources))))
    assert case.turns[0].expected_sources == names
    (problem,) = refusal(write("y.jsonl", [{"question": "Q", "expected_sources": [{"page": 3}]}]))
    assert "expected_sources[0]: must name a source" in problem


def test_columns_without_a_name(write: Write, read: Read) -> None:
    """An index of pandas, with and without its own name, is left out; another nameless column is kept and named."""
    for header in ("", "Unnamed: 0", "Unnamed: 0.1,Unnamed: 0"):
        rows = "".join(f"{(',' + str(n)) * (header.count(',') + 1)},Q{n},A\n".removeprefix(",") for n in (0, 1))
        assert [dict(case.metadata) for case in read(write("x.csv", f"{header},question,answer\n{rows}"))] == [{}, {}]
    name = write("y.csv", "question,,answer\nQ,note,A\n")
    assert read(name)[0].metadata == {"Unnamed: 1": "note"}
    assert warnings_of(name) == ["y.csv: has a column without a name, which is kept as metadata: Unnamed: 1"]


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "\ufeffSEP=;", "sep=;;;"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_that_tells_excel_the_separator(write: Write, read: Read, first: str, end: str) -> None:
    """It is no row, and what it says is the separator; lines are counted with it."""
    name = write("x.csv", end.join([first, "question;answer", "Q1;1,5", "Q2;2,5", ""]))
    assert [case.references for case in read(name)] == [("1,5",), ("2,5",)]
    with pytest.raises(DatasetError, match=r"x\.csv:4: record 2: has 3 cells"):
        open_dataset(write("x.csv", end.join([first, "question;answer", "Q1;1", "Q2;2;3", ""]))).check()


def test_values_of_python() -> None:
    """What is missing is absent, numpy's numbers are numbers, dates and exact numbers are texts."""
    odd = {
        "question": np.str_("Q"), "answer": np.int64(5), "a": np.float32(1.5), "b": np.bool_(True), "c": float("nan"),
        "d": pd.NaT, "e": pd.NA, "f": None, "g": pd.Timestamp("2024-01-05 10:00"), "h": datetime.date(2024, 1, 5),
        "i": decimal.Decimal("1.50"), "j": np.array([1, 2]), "k": np.datetime64("2024-01-05"), "l": ("x", {"y"}),
        "m": {"n": float("nan")}, 1: "named by a number",
    }  # fmt: skip
    (case,) = records_dataset([odd]).cases()
    assert case.references == ("5",)
    assert case.metadata == {
        "a": 1.5, "b": True, "g": "2024-01-05T10:00:00", "h": "2024-01-05", "i": "1.50", "j": [1, 2],
        "k": "2024-01-05", "l": ["x", ["y"]], "m": {"n": None}, "1": "named by a number",
    }  # fmt: skip


class _Polars:
    """What a data frame of polars has; polars is not among the packages of the tests."""

    columns = ("question", "answer")

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"question": "Q1", "answer": 1}, {"question": "Q2", "answer": None}]


def test_data_frames() -> None:
    """Data frames of any package are read: integers stay integers beside missing values, a named index counts."""
    frame = pd.DataFrame({"question": ["Q1", "Q2"], "answer": [1, None], "expected_tools": ["a;b", "['c']"]})
    frames: list[Any] = [frame, pa.Table.from_pylist([{"question": "Q1", "answer": 1}, {"question": "Q2"}]), _Polars()]
    for data in frames:
        assert [case.references for case in records_dataset(data).cases()] == [("1",), ()]
    cases = list(records_dataset(frame.set_index(pd.Index(["x", "y"], name="id"))).cases())
    assert [(case.case_id, len(case.turns[0].expected_tools)) for case in cases] == [("x", 2), ("y", 1)]


@pytest.mark.parametrize("other", ["truth", "gold", "golden_answer", "goldenAnswer", "Correct Answer", "solution"])
def test_a_right_answer_beside_answer(write: Write, read: Read, other: str) -> None:
    """The other one is the reference, `answer` is recorded, and one warning says so."""
    name = write("x.jsonl", [{"question": f"Q{n}", other: "right", "answer": "said"} for n in range(3)])
    for case in read(name):
        assert case.references == ("right",)
        assert case.recorded is not None
        assert case.recorded.text == "said"
    (warning,) = warnings_of(name)
    assert f'"answer" is read as an answer that an agent once gave, because "{other}" holds' in warning
    assert warning.endswith("(and 2 more)")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"answer": "A", "gold_text": "B"},
            'gold_text: is not read, and may be the right answer, which is read from "a',
        ),
        ({"answer": "A", "bot_response": "B"}, "bot_response: is not read, and may be an answer that an agent gave"),
        ({"answer": "A", "answer_2": "B"}, "answer_2: is not read, and may be an answer that an agent gave"),
        ({"ground_truth": "A", "modelAnswer": "B"}, 'set `map: {recorded: "modelAnswer"}`'),
        ({"Modellantwort": "B"}, 'no field is read as it: set `map: {reference: "Modellantwort"}`'),
        ({"answer": "A", "y_true": "B"}, 'y_true: is not read, and may be the right answer, which is read from "a'),
        ({"answer": "A", "output_expected": "B"}, "output_expected: is not read, and may be the right answer"),
        ({"answer": "A", "label": "B"}, "label: is not read"),
        ({"answer": "B", "options": ["a", "b"]}, "answer: may name one of the choices in"),
        ({"answer": "A", "answer_2": 2}, ""),
        ({"answer": "A", "answer_type": "short", "correct": "yes"}, ""),
    ],
)
def test_fields_that_may_be_answers_and_are_not_read(write: Write, record: dict[str, Any], message: str) -> None:
    """A second answer, or what may be the right one, is warned of by its name; nothing else is."""
    warnings = warnings_of(write("x.jsonl", [{"question": "Q", **record}]))
    assert [message in warning for warning in warnings] == ([True] if message else [])


def test_fields_that_may_be_answers_are_not_shown_to_agents(write: Write, read: Read) -> None:
    """A name that speaks of the right answer is kept where agents do not see it, known or not."""
    (case,) = read(write("x.jsonl", [{"question": "Q", "answer": "A", "gold_text": "B", "groundTruth2": "C"}]))
    assert (dict(case.metadata), sorted(case.expected)) == ({}, ["gold_text", "groundTruth2"])


@pytest.mark.parametrize(
    "names",
    [
        "Frage Antwort Kategorie Nr.", "Question Réponse Catégorie Identifiant", "Pregunta RESPUESTA Categoría",
        "Pergunta Resposta Categoria", "Domanda Risposta Categoria", "Vraag Antwoord Categorie", "Soru YANIT Kategori",
        "Вопрос Ответ Категория", "Pytanie Odpowiedź Kategoria", "السؤال الإجابة الفئة", "سؤال جواب التصنيف",
        "问题 答案 类别", "問題 答案 分類", "質問 回答 カテゴリ", "질문 답변 카테고리", "प्रश्न उत्तर श्रेणी",
    ],
)  # fmt: skip
def test_names_in_other_languages(write: Write, read: Read, names: str) -> None:
    """Question, answer, category and id are recognised in any case, with and without accents."""
    columns = names.split()
    (case,) = read(write("x.csv", ",".join(columns) + "\n" + ",".join(["Q", "A", "c", "7"][: len(columns)]) + "\n"))
    assert (case.input, case.references, case.category, case.metadata) == ("Q", ("A",), "c", {})
    assert len(columns) < 4 or case.case_id == "7"


@pytest.mark.parametrize(
    "names", ["Frage Musterantwort Antwort", "问题 标准答案 回答", "السؤال الإجابة_الصحيحة الإجابة", "質問 正解 回答"]
)
def test_right_and_given_answers_in_other_languages(write: Write, read: Read, names: str) -> None:
    """The word for `answer` beside the word for the right answer is the recorded one."""
    (case,) = read(write("x.csv", ",".join(names.split()) + "\nQ,right,said\n"))
    assert case.references == ("right",)
    assert case.recorded is not None
    assert case.recorded.text == "said"


def test_an_answer_in_another_language_is_not_taken_where_the_question_is_mapped(write: Write) -> None:
    """A warning names the field; where only the id is mapped, it is the reference."""
    path = write("x.csv", "Nr,Frage,Antwort\n1,Q,A\n")
    by_hand = open_dataset(path, field_map={"input": "Frage"}).check()
    assert (by_hand.reference_count, list(by_hand.mapping)) == (0, ["id", "input"])
    assert [str(warning) for warning in by_hand.warnings if 'set `map: {reference: "Antwort"}`' in str(warning)]
    assert open_dataset(path, field_map={"id": "Nr"}).check().mapping["references"] == "Antwort"


def test_names_mean_one_thing() -> None:
    """No name is known for two fields, and the guide names the languages."""
    fields = ("input", "answer", "references", "category", "id")
    names = [name for field in fields for name in names_of(field)]
    assert sorted(names) == sorted(set(names))
    assert len(LANGUAGES) == 30


def test_numbers_that_repeat_are_no_ids(write: Write, read: Read) -> None:
    """A column `Nr` is the id only if its first values differ."""
    assert [case.case_id for case in read(write("x.csv", "Nr,Frage\n1,Q\n2,R\n"))] == ["1", "2"]
    assert len(read(write("x.csv", "Nr,Frage\n1,Q\n1,R\n"))) == 2


@pytest.mark.parametrize(
    ("record", "mapping"),
    [
        ({"schema_version": 1, "id": "a", "text": "Two seats tonight", "expected": {"a": 1}}, 'input: "text"'),
        ({"Nr": "1", "Kundenanfrage": "Wo ist mein Paket?", "Sollantwort": "Im Lager"}, 'input: "Kundenanfrage"'),
        ({"ref": "1", "subject": "Hi", "body": "Where is my parcel, please?", "gold_text": "Lost"},
         'input: "body", reference: "gold_text"'),
        ({"date": "2024-01-05 morning", "user_id": "someone long", "utterance": "Hi"}, 'input: "utterance"'),
    ],
)  # fmt: skip
def test_the_likely_question_is_proposed(
    write: Write, refusal: Callable[..., list[str]], record: dict[str, Any], mapping: str
) -> None:
    """By names first, then by the longest texts; the reference is proposed too where none is read."""
    (problem,) = refusal(write("x.jsonl", [record]))
    assert f"for example `map: {{{mapping}}}`" in problem


def test_passages_are_no_names_of_sources(write: Write, read: Read) -> None:
    """`reference_contexts` that are passages are kept under `expected`; others are warned of."""
    passage = "The kiosk opens at seven every day but Friday. " * 6
    (case,) = read(write("x.jsonl", [{"question": "Q", "reference_contexts": [passage]}]))
    assert (case.turns[0].expected_sources, case.expected) == ((), {"reference_contexts": [passage]})
    (case,) = read(write("x.jsonl", [{"question": "Q", "reference_contexts": ["Short passage here."]}]))
    assert case.turns[0].expected_sources == ()
    (case,) = read(write("y.jsonl", [{"question": "Q", "reference_contexts": ["faq.pdf"]}]))
    assert case.turns[0].expected_sources == ("faq.pdf",)
    (warning,) = warnings_of(write("z.jsonl", [{"question": q, "expected_sources": [passage]} for q in "QR"]))
    assert "holds a passage of 282 characters" in warning
    assert warning.endswith("(and 1 more)")


def test_turns_take_the_names_of_records(write: Write, read: Read) -> None:
    """Also in other languages, with names in one text, and with what an agent answered to each turn."""
    turns = [
        {"question": "Q1", "answer": "A1", "expected_sources": "a.pdf;b.pdf"},
        {"frage": "Q2", "antwort": "A2", "messages": [{"role": "human", "content": [{"type": "text", "text": "Hi"}]}]},
    ]
    (case,) = read(write("x.jsonl", [{"turns": turns}]))
    assert [(turn.input, turn.references) for turn in case.turns] == [("Q1", ("A1",)), ("Q2", ("A2",))]
    assert case.turns[0].expected_sources == ("a.pdf", "b.pdf")
    assert (case.turns[1].history[0].role, case.turns[1].history[0].content) == ("user", "Hi")
    turns = [{"question": f"Q{n}", "ground_truth": f"A{n}", "answer": f"said {n}"} for n in (1, 2)]
    (case,) = read(write("x.jsonl", [{"turns": turns}]))
    assert [turn.references for turn in case.turns] == [("A1",), ("A2",)]
    assert [answer.text for answer in case.recordings[0]] == ["said 1", "said 2"]


def test_messages_in_parts(write: Write, read: Read) -> None:
    """Text parts are read in messages, questions and answers; calls of tools in earlier messages are warned of."""
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    calls = [{"id": "1", "function": {"name": "find", "arguments": "{}"}}]
    talk = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": [parts[0], {"type": "tool_use", "name": "find", "input": {}}]},
    ]
    name = write("x.jsonl", [{"question": parts, "messages": talk, "answer": parts}])
    (case,) = read(name)
    assert (case.input, case.references) == ("Hello", ("Hello",))
    assert [message.content for message in case.turns[0].history] == ["Hello", "", "Hel"]
    (warning,) = warnings_of(name)
    assert "messages: holds messages with tool calls: the agent is given their texts, not the calls" in warning
    history = [{"role": "user", "parts": [{"text": "Hello"}]}, {"role": "model", "content": ["Hel", "lo"]}]
    (case,) = read(write("z.jsonl", [{"question": "Q", "history": history}]))
    assert [message.content for message in case.turns[0].history] == ["Hello", "Hello"]
    with pytest.raises(DatasetError, match="must be a message with role and content"):
        read(write("z.jsonl", [{"question": "Q", "history": [{"role": "user", "utterance": "Hello"}]}]))
    (warning,) = warnings_of(write("y.jsonl", [{"input": [*talk, {"role": "user", "content": "Q"}], "ideal": "A"}]))
    assert "holds messages with tool calls" in warning


@pytest.mark.parametrize(
    ("answers", "references", "message"),
    [
        ([0, 1], [("two", "A"), ("three", "B")], "0 is read as the number of a choice, counted from 0"),
        ([1, 3], [("two", "A"), ("nine", "C")], "1 is read as the number of a choice, counted from 1"),
        ([1, 2], [("1",), ("2",)], "1 is compared as text, though it may be the number of a choice"),
        (["B", "A"], [("B", "three"), ("A", "two")], ""),
        (["(B)", "a."], [("(B)", "B", "three"), ("a.", "A", "two")], ""),
        ([0.0, 2.0], [("two", "A"), ("nine", "C")], "0 is read as the number of a choice, counted from 0"),
        (["two", "nine"], [("two",), ("nine",)], ""),
    ],
)
def test_answers_that_name_a_choice(
    write: Write, read: Read, answers: list[Any], references: list[tuple[str, ...]], message: str
) -> None:
    """A letter has its choice's text beside it; a number is a choice's where the file shows from where they count."""
    choices = ["two", "three", "nine"]
    name = write("x.jsonl", [{"question": f"Q{answer}", "choices": choices, "answer": answer} for answer in answers])
    assert [case.references for case in read(name)] == references
    assert [message in warning for warning in warnings_of(name)] == ([True] if message else [])


def test_a_letter_that_is_another_choices_text(write: Write) -> None:
    """Letter and text are of two choices: which one is right cannot be known."""
    (warning,) = warnings_of(write("x.jsonl", [{"input": "Q", "target": "B", "choices": ["B", "A"]}]))
    assert '"B" is read as the letter of "A", and is the text of another choice too' in warning
