"""One id for each pair of question and answering model, whatever characters their names hold."""

from __future__ import annotations

from prerouter.core.records import AnswerModel

_THINKING = "+thinking"


def case_id_of(question_id: str, model: AnswerModel) -> str:
    """`question/model`, with `+thinking` behind a model that thinks.

    What would make two cases one id (a slash in the question's id, a model whose very name ends in
    `+thinking`) is percent-encoded, and so is the percent sign; other ids stay as they are. The
    first slash then ends the question's id: a model's name may hold more of them, as on the Hub.
    """
    question = question_id.replace("%", "%25").replace("/", "%2F")
    name = model.name.replace("%", "%25")
    if name.endswith(_THINKING):
        name = name.removesuffix(_THINKING) + _THINKING.replace("+", "%2B")
    return f"{question}/{name}{_THINKING if model.thinking else ''}"
