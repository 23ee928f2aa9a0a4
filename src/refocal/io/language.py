"""Answers of language models: options of varying number, confidences of whole answers, and the files that hold them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from refocal._arrays import Vector, to_numpy
from refocal._validation import check_option
from refocal.errors import DataError, FormatError, LabelError
from refocal.io.predictions import Predictions
from refocal.io.tables import JsonTable

T = TypeVar("T")

CONFIDENCES = ("product", "mean", "least")


def multiple_choice(scores: Sequence[Any], labels: Any) -> Predictions:
    """Questions with options of varying number: the score of each option, and which one is right.

    Scores are log-probabilities up to a constant for each question. Missing options are filled with -inf, which means
    impossible to every calibrator and metric.

    >>> rows = multiple_choice([[-1.2, -0.3], [-2.0, -0.1, -3.0, -2.5]], [1, 1])
    >>> rows, np.exp(rows.values[0]).round(2)
    (Predictions(2 rows, 4 classes, logits, float64), array([0.3 , 0.74, 0.  , 0.  ]))
    """
    counts = [len(row) for row in scores]
    if min(counts, default=0) < 2:
        raise DataError("scores", "multiple_choice", expected="at least two options a question", got=str(counts[:5]))
    values = np.full((len(counts), max(counts)), -np.inf)
    for i, row in enumerate(scores):
        values[i, : counts[i]] = to_numpy(np.asarray(row, dtype=np.float64))
    right = np.asarray(to_numpy(labels))
    outside = (right < 0) | (right >= counts) if right.shape == (len(counts),) else np.zeros(1, dtype=np.bool_)
    if outside.any():
        row = int(np.argmax(outside))
        raise LabelError("labels", "multiple_choice", expected=f"one of the {counts[row]} options of question {row}",
                         got=str(right[row]))  # fmt: skip
    return Predictions.from_logits(values, right)


def answer_confidence(token_log_p: Iterable[Any], kind: str = "product") -> Vector:
    """The confidence of whole answers from the log-probabilities of their tokens, a number from 0 to 1 for each.

    `"product"` is the probability of the answer, `"mean"` the geometric mean of its tokens' probabilities, which does
    not fall with the length, `"least"` that of the least likely token. Calibrating it is a two-class problem, with the
    label 1 for correct answers: fit a calibrator with `input="probabilities"` on these numbers and labels 0 and 1.

    >>> answer_confidence([np.log([0.9, 0.8]), np.log([0.5])], kind="mean").round(3)
    array([0.849, 0.5  ])
    """
    check_option(kind, CONFIDENCES, "kind", "answer_confidence")
    reduce: Any = {"product": np.sum, "mean": np.mean, "least": np.min}[kind]
    answers = [np.asarray(to_numpy(row), dtype=np.float64) for row in token_log_p]
    for i, row in enumerate(answers):
        if row.ndim != 1 or len(row) == 0 or not (row <= 1e-3).all():
            expected = "one or more logarithms of probabilities for each answer"
            raise DataError("token_log_p", "answer_confidence", expected=expected, got=f"{row.tolist()} in answer {i}")
    return np.exp(np.minimum([reduce(row) for row in answers], 0.0))


def generated_log_p(scores: Sequence[Any], sequences: Any, *, pad_token_id: int | None = None) -> list[Vector]:
    """Log-probabilities of the tokens that Hugging Face's `generate` chose, one vector for each answer.

    `scores` and `sequences` are those of `generate(output_scores=True, return_dict_in_generate=True)`. An answer ends
    with the first padding token.

    >>> scores = (np.log([[0.7, 0.2, 0.1]]), np.log([[0.1, 0.6, 0.3]]))
    >>> [row.round(2) for row in generated_log_p(scores, np.array([[9, 9, 0, 1]]))]
    [array([-0.36, -0.51])]
    """
    from refocal.maps import log_softmax

    tokens = np.asarray(to_numpy(sequences))[:, -len(scores) :]
    chosen = [
        np.take_along_axis(np.asarray(to_numpy(log_softmax(to_numpy(step)))), tokens[:, [t]], axis=1)[:, 0]
        for t, step in enumerate(scores)
    ]
    table = np.stack(chosen, axis=1).astype(np.float64)
    is_end = np.zeros(tokens.shape, dtype=np.bool_) if pad_token_id is None else tokens == pad_token_id
    ends = np.where(is_end.any(axis=1), is_end.argmax(axis=1), tokens.shape[1])
    return [row[: max(end, 1)] for row, end in zip(table, ends, strict=True)]


def read_lm_eval(path: str | os.PathLike[str]) -> Predictions:
    r"""Multiple-choice samples of lm-evaluation-harness (`samples_<task>_<time>.jsonl`, written with --log_samples).

    Each line has the log-likelihoods of the options under `filtered_resps` or `resps` and the right one as `target`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> line = '{"target": 1, "filtered_resps": [[-4.2, false], [-1.3, true]]}\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "samples.jsonl").write_text(line)
    ...     read_lm_eval(Path(folder, "samples.jsonl"))
    Predictions(1 rows, 2 classes, logits, float64)
    """

    def options(row: dict[str, Any]) -> tuple[list[float], int]:
        answers = row.get("filtered_resps") or row["resps"]
        return [float(_first(answer)) for answer in answers], int(row["target"])

    expected = "log-likelihoods of options under 'resps' and the number of the right one as 'target'"
    found = _read_lines(path, options, expected)
    return multiple_choice([scores for scores, _ in found], [label for _, label in found])


def read_token_log_p(path: str | os.PathLike[str]) -> list[Vector]:
    r"""Log-probabilities of the tokens of answers, from JSON lines as vLLM's and OpenAI's servers return them.

    A line is a response with `choices`, whose first one has `logprobs` with `token_logprobs` (completions) or `content`
    (chats).

    >>> import tempfile
    >>> from pathlib import Path
    >>> line = '{"choices": [{"text": "42", "logprobs": {"token_logprobs": [-0.1, -0.4]}}]}\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "answers.jsonl").write_text(line)
    ...     read_token_log_p(Path(folder, "answers.jsonl"))
    [array([-0.1, -0.4])]
    """

    def tokens(row: dict[str, Any]) -> Vector:
        log_p = row.get("response", {}).get("body", row)["choices"][0]["logprobs"]  # batches wrap the response
        each = log_p.get("token_logprobs") or [token["logprob"] for token in log_p["content"]]
        return np.array([token for token in each if token is not None], dtype=np.float64)

    return _read_lines(path, tokens, "'choices' with 'logprobs'; ask the server for them")


def _read_lines(path: str | os.PathLike[str], extract: Callable[[dict[str, Any]], T], expected: str) -> list[T]:
    """The results of a function for each line, which is a JSON object."""
    found = []
    for i, row in enumerate(JsonTable(os.fspath(path)).rows()):
        try:
            found.append(extract(row))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise FormatError(f"{path}: row {i} must have {expected}. Got {str(row)[:80]} instead.") from error
    return found


def _first(answer: Any) -> Any:
    """The log-likelihood of an option: a number, or the first of a pair, which some versions put into another list."""
    while isinstance(answer, list):
        answer = answer[0]
    return answer
