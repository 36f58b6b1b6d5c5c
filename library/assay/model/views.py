"""Views: which fields of runs and rows a request returns."""

from enum import StrEnum


class RunView(StrEnum):
    """The fields of a run.

    BASIC has no summary, and a spec without the fields that grow: approvals, parameters of metrics, text of the rubric,
    cases of the selection, and most of the dataset's reading and the agent's options. FIGURES adds the verdict, pass
    rate, gates and metric values of the final summary. FULL has the whole spec and summary.
    """

    BASIC = "basic"
    FIGURES = "figures"
    FULL = "full"


class RowView(StrEnum):
    """The fields of a row.

    BASIC has ids, status, verdict, scores and times. FULL also has question, answer, references and expectations.
    """

    BASIC = "basic"
    FULL = "full"
