"""What language models return: the k best of many classes, scores of options, whole answers, and files of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector, as_array, as_floating, row_blocks, to_numpy
from refocal._validation import (
    SUM_TOLERANCE,
    check_integer,
    check_iterable,
    check_label_range,
    check_option,
    check_path,
    check_shape,
    whole_numbers,
)
from refocal.calibrators import Calibrator
from refocal.errors import DataError, FormatError, LabelError, ParameterError, ShapeError
from refocal.io.answers import response_tokens
from refocal.io.tables import JsonTable
from refocal.maps import Chain, Temperature
from refocal.rows import Predictions
from refocal.rows.scores import as_scores, column_names

LineT = TypeVar("LineT")

# What rounding leaves of the mass where the given probabilities sum to 1 or a little more.
LEAST_MASS = 1e-9
# The number of entries of the rows that are made at a time.
ENTRIES = 1 << 22
NAME = "TopK"


class PowerLaws(NamedTuple):
    """Tails that fall as a power of the rank, by rising exponent."""

    exponent: Vector
    log_sum: Vector
    """The logarithm of the sum of all others relative to the last one given."""


class TopK:
    """Rows of which only the k best classes are known, completed by an approximation of the others.

    The remaining probability is spread over the classes that are not given: evenly (`"uniform"`), or falling as a
    power of the rank from the least that is given (`"power law"`), with the exponent of each row that makes the sum 1.
    What depends on the top class alone (accuracy, its confidence, the ECE) is exact before calibration. A label that
    is not among the k best has the probability given by `label_log_p`, or else the tail's geometric mean, weighted by
    probability: what a label drawn from the tail has on average.

    Temperatures fitted to these rows are too low where much of the probability lies in the tail: fit to `within()`.

    Iterating gives blocks of (log-probabilities, labels), so that `refocal.io.blocks(top_k)` takes any number of
    rows; `Predictions.from_top_k` holds all of them.

    Parameters
    ----------
    log_p : array (N, k)
        Log-probabilities of the best classes, in any order.
    indices : array (N, k)
        Which classes these are.
    labels : array (N,) or None
        The true classes, 0 to n_classes - 1; None where rows are only to be calibrated.
    n_classes : int
        Number of all classes, such as the size of the vocabulary.
    tail : "power law" or "uniform"
        How the other classes share the remaining probability.
    label_log_p : array (N,), optional
        Log-probability of each label, if the interface returns it.

    Examples
    --------
    >>> rows = TopK(np.log([[0.5, 0.2], [0.7, 0.2]]), [[3, 0], [1, 2]], [3, 1], n_classes=4, tail="uniform")
    >>> rows
    TopK(2 rows, the best 2 of 4 classes)
    >>> np.exp(next(iter(rows))[0]).round(3)
    array([[0.2 , 0.15, 0.15, 0.5 ],
           [0.05, 0.7 , 0.2 , 0.05]], dtype=float32)
    """

    def __init__(
        self, log_p: Any, indices: Any, labels: Any, n_classes: int, *, tail: str = "power law", label_log_p: Any = None
    ) -> None:
        check_option(tail, ("power law", "uniform"), "tail", NAME)
        self.tail = tail
        self.log_p = np.asarray(to_numpy(as_array(log_p, "log_p", NAME)), dtype=np.float64)
        self.indices: Indices = to_numpy(whole_numbers(as_array(indices, "indices", NAME), "indices", NAME))
        self.labels: Indices | None = None
        if labels is not None:
            self.labels = to_numpy(whole_numbers(as_array(labels, "labels", NAME), "labels", NAME))
        self.n_classes = check_integer(n_classes, "n_classes", NAME, least=2)
        self.label_log_p: Vector | None = None
        if label_log_p is not None:
            self.label_log_p = np.asarray(to_numpy(as_array(label_log_p, "label_log_p", NAME)), dtype=np.float64)
        if self.log_p.ndim != 2 or len(self) == 0 or not 1 <= self.log_p.shape[1] < self.n_classes:
            expected = f"of shape (N, k) with at least one row and k from 1 to {self.n_classes - 1}"
            raise ShapeError("log_p", NAME, expected=expected, got=f"shape {self.log_p.shape}")
        check_shape(self.indices, self.log_p.shape, "indices", NAME)
        check_shape(self.labels, (len(self),), "labels", NAME)
        check_shape(self.label_log_p, (len(self),), "label_log_p", NAME)
        sums = np.exp(self.log_p).sum(axis=1)
        good = np.isfinite(self.log_p).all(axis=1) & (sums <= 1.0 + SUM_TOLERANCE)
        if not good.all():
            row = int(np.argmin(good))
            expected = "finite logarithms of probabilities that sum to at most 1 in each row"
            raise DataError("log_p", NAME, expected=expected, got=f"a sum of {sums[row]:.6g} in row {row}")
        if self.label_log_p is not None and not (np.isfinite(self.label_log_p) & (self.label_log_p <= 0.0)).all():
            row = int(np.argmin(np.isfinite(self.label_log_p) & (self.label_log_p <= 0.0)))
            expected = "finite logarithms of probabilities, at most 0"
            raise DataError("label_log_p", NAME, expected=expected, got=f"{self.label_log_p[row]:g} in row {row}")
        ordered = np.sort(self.indices, axis=1)
        if ordered.min() < 0 or ordered.max() >= self.n_classes or (ordered[:, 1:] == ordered[:, :-1]).any():
            expected = f"different classes from 0 to {self.n_classes - 1} in each row"
            raise DataError("indices", NAME, expected=expected, got=f"{ordered.min()} to {ordered.max()}, or one twice")
        if self.labels is not None:
            check_label_range(int(self.labels.min()), int(self.labels.max()), self.n_classes, "labels", NAME)
        self._check_room(sums)
        ranks = np.arange(1, self.n_classes - self.log_p.shape[1] + 1)
        self._log_ranks: Vector = np.log1p(ranks / self.log_p.shape[1])

    def _check_room(self, sums: Vector) -> None:
        """The probability of a label that is not among the best must fit beside theirs."""
        if self.labels is None or self.label_log_p is None:
            return
        is_beyond = (self.indices != self.labels[:, None]).all(axis=1)
        too_much = is_beyond & (sums + np.exp(self.label_log_p) > 1.0 + SUM_TOLERANCE)
        if too_much.any():
            row = int(np.argmax(too_much))
            left = max(1.0 - sums[row], 0.0)
            expected = f"of probabilities that the classes of 'log_p' leave, at most {left:.6g} in row {row}"
            raise DataError("label_log_p", NAME, expected=expected, got=f"{np.exp(self.label_log_p[row]):.6g}")

    def __repr__(self) -> str:
        return f"TopK({len(self):,} rows, the best {self.log_p.shape[1]} of {self.n_classes:,} classes)"

    def __len__(self) -> int:
        return len(self.log_p)

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], Indices]]:
        if self.labels is None:
            raise LabelError("labels", NAME, expected="given, to fit or to measure", got="None")
        for rows in row_blocks(len(self), self.n_classes, entries=ENTRIES):
            yield self.whole(rows), self.labels[rows]

    def within(self) -> Predictions:
        """The rows whose label is among the k best, as k classes: what a temperature is fitted on without the tail.

        A temperature leaves the proportions of the classes within the k best as a softmax of these alone has them,
        whatever the others are. So T fitted to these rows is that of all classes, where `TopK` itself depends on how
        the tail is approximated: where much of the probability lies in it, T comes out too low.

        >>> rows = TopK(np.log([[0.5, 0.2], [0.7, 0.2]]), [[3, 0], [1, 2]], [0, 3], n_classes=4)
        >>> rows.within().labels  # of the first row, whose label is its second best
        array([1])
        """
        if self.labels is None:
            raise LabelError("labels", NAME, expected="given, to fit or to measure", got="None")
        is_label = self.indices == self.labels[:, None]
        known = is_label.any(axis=1)
        if self.log_p.shape[1] < 2 or not known.any():
            expected = "two or more classes a row, with the label among them in at least one row"
            got = f"k = {self.log_p.shape[1]} and {int(known.sum())} such rows"
            raise DataError("indices", f"{NAME}.within", expected=expected, got=got)
        return Predictions.from_logits(self.log_p[known], is_label[known].argmax(axis=1))

    def predict_log_proba(self, calibrator: Calibrator) -> Vector:
        """The calibrated log-probabilities of the classes that were given, (N, k).

        Labels are not used, since those of new rows are not known. A temperature that was fitted to `within()`, whose
        rows have k classes, is applied to all classes.
        """
        unlabelled = TopK(self.log_p, self.indices, None, self.n_classes, tail=self.tail)
        predict: Callable[[Any], Any] = calibrator.predict_log_proba
        is_fitted_within = getattr(calibrator, "n_features_in_", None) == self.log_p.shape[1]
        if is_fitted_within:
            predict = _temperature_of(calibrator, self.n_classes).log_probabilities
        parts = []
        for rows in row_blocks(len(self), self.n_classes, entries=ENTRIES):
            log_p = np.asarray(predict(unlabelled.whole(rows)))
            parts.append(np.take_along_axis(log_p, self.indices[rows], axis=1).astype(np.float64))
        return np.concatenate(parts)

    def whole(self, rows: slice) -> NDArray[np.float32]:
        """Log-probabilities of all classes for some of the rows."""
        log_p = self.log_p[rows]
        indices = self.indices[rows]
        at = np.arange(len(log_p))
        mass = np.maximum(1.0 - np.exp(log_p).sum(axis=1), LEAST_MASS)
        tail = self._tail(log_p.min(axis=1), mass)
        is_given = np.zeros((len(log_p), self.n_classes), dtype=np.bool_)
        is_given[at[:, None], indices] = True
        whole_rows = np.full(is_given.shape, np.inf)
        whole_rows[~is_given] = tail.reshape(-1)
        if self.labels is not None:
            labels = self.labels[rows]
            self._place_labels(whole_rows, tail, mass, at[~is_given[at, labels]], labels, rows)
        whole_rows[at[:, None], indices] = log_p
        return whole_rows.astype(np.float32)

    def _tail(self, last: Vector, mass: Vector) -> Vector:
        """Log-probabilities of the others by falling rank, which sum to the mass that is left."""
        exponent = np.zeros(len(mass))
        if self.tail == "power law":
            # Sums fall with the exponent; a mass of more than all others at the last one's height is rounding.
            power_laws = self._power_laws
            exponent = np.interp(last - np.log(mass), -power_laws.log_sum, power_laws.exponent)
        shape = -exponent[:, None] * self._log_ranks
        return np.asarray(shape - np.log(np.exp(shape).sum(axis=1, keepdims=True)) + np.log(mass)[:, None])

    @cached_property
    def _power_laws(self) -> PowerLaws:
        """The power laws that are tried; far more than enough for k = 1, where p falls as j^-a."""
        exponents = 40.0 * np.linspace(0.0, 1.0, 801) ** 2
        log_sums = np.log([np.exp(-a * self._log_ranks).sum() for a in exponents])
        return PowerLaws(exponents, log_sums)

    def _place_labels(
        self, found: Vector, tail: Vector, mass: Vector, beyond: Indices, labels: Indices, rows: slice
    ) -> None:
        """Give labels that are not among the best their known probability, or else the average one."""
        for i in beyond.tolist():
            if self.label_log_p is None:  # the class of that probability and the label change places
                typical = float(np.exp(tail[i]) @ tail[i]) / mass[i]
                other = np.argmin(np.abs(found[i] - typical))
                found[i, [labels[i], other]] = found[i, [other, labels[i]]]
            else:
                given = self.label_log_p[rows][i]
                others = mass[i] - np.exp(found[i, labels[i]])
                if others > 0.0:  # as long as the label is not the only class of the tail
                    found[i] += np.log(max(mass[i] - np.exp(given), LEAST_MASS) / others)
                found[i, labels[i]] = given


def _temperature_of(calibrator: Calibrator, n_classes: int) -> Chain:
    """The chain of a calibrator that was fitted within the k best classes, which may be of a temperature alone."""
    chain = calibrator.chain_
    if all(isinstance(step, Temperature) for step in chain.steps):
        return chain
    expected = f"fitted to all {n_classes} classes, or a temperature fitted to within()"
    got = f"{type(calibrator).__name__} of {calibrator.n_features_in_} classes"
    raise ParameterError("calibrator", f"{NAME}.predict_log_proba", expected=expected, got=got)


def _numbers_of(row: Any, argument: str, function: str) -> Vector:
    """The numbers of one question or answer, of any array library."""
    numbers: Vector = to_numpy(as_floating(row, argument, function)[0]).astype(np.float64)
    if numbers.ndim != 1:
        raise ShapeError(argument, function, expected="one number for each option", got=f"shape {numbers.shape}")
    return numbers


def multiple_choice(scores: Sequence[Any], labels: Any) -> Predictions:
    """Questions with options of varying number: the score of each option, and which one is right.

    Scores are log-probabilities up to a constant for each question. Missing options are filled with -inf, which means
    impossible to every calibrator and metric.

    >>> rows = multiple_choice([[-1.2, -0.3], [-2.0, -0.1, -3.0, -2.5]], [1, 1])
    >>> rows, np.exp(rows.values[0]).round(2)
    (Predictions(2 rows, 4 classes, logits, float64), array([0.3 , 0.74, 0.  , 0.  ]))
    """
    if column_names(scores) is not None:  # a data frame gives its columns one by one, and not its rows
        scores = as_array(as_scores(scores), "scores", "multiple_choice")
    check_iterable(scores, "scores", "multiple_choice", "the scores of the options of each question")
    questions = [_numbers_of(row, "scores", "multiple_choice") for row in scores]
    counts = [len(row) for row in questions]
    if min(counts, default=0) < 2:
        raise DataError("scores", "multiple_choice", expected="at least two options a question", got=str(counts[:5]))
    values = np.full((len(counts), max(counts)), -np.inf)
    for i, question in enumerate(questions):
        values[i, : counts[i]] = question
    right = to_numpy(whole_numbers(as_array(labels, "labels", "multiple_choice"), "labels", "multiple_choice"))
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
    confidences = ("product", "mean", "least")
    check_option(kind, confidences, "kind", "answer_confidence")
    expected = "the logarithms of the probabilities of the tokens of each answer"
    check_iterable(token_log_p, "token_log_p", "answer_confidence", expected)
    reduce: Any = {"product": np.sum, "mean": np.mean, "least": np.min}[kind]
    rows = [as_array(row, "token_log_p", "answer_confidence") for row in token_log_p]
    answers = [np.asarray(to_numpy(row), dtype=np.float64) for row in rows]
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

    check_iterable(scores, "scores", "generated_log_p", "the scores of each step of generate")
    tokens = np.asarray(to_numpy(sequences))[:, -len(scores) :]
    chosen = []
    for t, step in enumerate(scores):
        logits = as_floating(to_numpy(step), "scores", "generated_log_p")[0]  # half precision as single
        chosen.append(np.take_along_axis(np.asarray(log_softmax(logits)), tokens[:, [t]], axis=1)[:, 0])
    table = np.stack(chosen, axis=1).astype(np.float64)
    is_end = np.zeros(tokens.shape, dtype=np.bool_) if pad_token_id is None else tokens == pad_token_id
    ends = np.where(is_end.any(axis=1), is_end.argmax(axis=1), tokens.shape[1])
    return [row[: max(end, 1)] for row, end in zip(table, ends, strict=True)]


def read_lm_eval(path: str | os.PathLike[str]) -> Predictions:
    r"""Multiple-choice samples of lm-evaluation-harness (`samples_<task>_<time>.jsonl`, written with --log_samples).

    Each line has the log-likelihoods of the options under `filtered_resps` or `resps` and the right one as `target`:
    its number, or its text among the `arguments`, as fits all lines. Likelihoods without the question, as
    `acc_mutual_info` needs them, are left out; of several filters the first counts.

    >>> import tempfile
    >>> from pathlib import Path
    >>> line = '{"target": 1, "filtered_resps": [[-4.2, false], [-1.3, true]]}\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "samples.jsonl").write_text(line)
    ...     read_lm_eval(Path(folder, "samples.jsonl"))
    Predictions(1 rows, 2 classes, logits, float64)
    """

    def sample(row: dict[str, Any]) -> tuple[str, list[float], _Target]:
        answers = row.get("filtered_resps") or row["resps"]
        scores = [float(_first(answer)) for answer in answers]
        if "acc_mutual_info" in row:
            scores = scores[: len(scores) // 2]  # the second half is without the question
        return row.get("filter", ""), scores, _target(row, len(scores))

    expected = "log-likelihoods of options under 'resps' and the right one, its number or its text, as 'target'"
    questions = _read_lines(path, sample, expected, "read_lm_eval")
    first = [(scores, target) for used, scores, target in questions if used == questions[0][0]]
    return multiple_choice([scores for scores, _ in first], _right_options([target for _, target in first], path))


class _Target(NamedTuple):
    """The right option of a sample by what its target may be: the number of the option, or its text."""

    by_number: int | None
    by_text: int | None


def _target(row: dict[str, Any], n_options: int) -> _Target:
    """The right option of a sample of lm-evaluation-harness."""
    target = row["target"]
    if isinstance(target, (int, float)):
        if not float(target).is_integer():
            raise ValueError(target)
        return _Target(int(target), None)
    text = target.strip()
    number = int(text) if text.isdigit() and int(text) < n_options else None
    # The second argument of each request is an option, behind a space. Tasks that put the options into the question
    # have the same one more than once.
    arguments = row.get("arguments", {})
    texts = [arguments.get(f"gen_args_{i}", {}).get("arg_1", "").strip() for i in range(n_options)]
    place = texts.index(text) if texts.count(text) == 1 else None
    if number is None and place is None:
        raise ValueError(target)
    return _Target(number, place)


def _right_options(targets: list[_Target], path: str | os.PathLike[str]) -> list[int | None]:
    """The right options by the one reading that fits all samples: 2 may be the third option, or one of that text."""
    numbers = [target.by_number for target in targets]
    texts = [target.by_text for target in targets]
    if (None in numbers) != (None in texts):
        return texts if None in numbers else numbers
    for i, (number, text) in enumerate(zip(numbers, texts, strict=True)):
        if number is not None and text is not None and number != text:
            raise FormatError(
                f"{path}: the target of sample {i} may be option {number} by its number, or option {text} by its text."
            )
    return [text if number is None else number for number, text in zip(numbers, texts, strict=True)]


def read_token_log_p(path: str | os.PathLike[str]) -> list[Vector]:
    r"""Log-probabilities of the tokens of answers, from JSON lines as vLLM's and OpenAI's servers return them.

    A line is a response of chats, completions or the Responses API that has `logprobs`; of several `choices` the first
    counts.

    >>> import tempfile
    >>> from pathlib import Path
    >>> line = '{"choices": [{"text": "42", "logprobs": {"token_logprobs": [-0.1, -0.4]}}]}\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "answers.jsonl").write_text(line)
    ...     read_token_log_p(Path(folder, "answers.jsonl"))
    [array([-0.1, -0.4])]
    """

    def tokens(row: dict[str, Any]) -> Vector:
        log_p = [token["logprob"] for token in response_tokens(row)]
        return np.array([value for value in log_p if value is not None], dtype=np.float64)

    expected = "'choices' or 'output' with 'logprobs'; ask the server for them"
    return _read_lines(path, tokens, expected, "read_token_log_p")


def _read_lines(
    path: str | os.PathLike[str], extract: Callable[[dict[str, Any]], LineT], expected: str, function: str
) -> list[LineT]:
    """The results of a function for each line, which is a JSON object."""
    items = []
    for i, row in enumerate(JsonTable(check_path(path, "path", function)).rows()):
        try:
            items.append(extract(row))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise FormatError(f"{path}: row {i} must have {expected}. Got {str(row)[:80]} instead.") from error
    return items


def _first(answer: Any) -> Any:
    """The log-likelihood of an option: a number, or the first of a pair, which some versions put into another list."""
    while isinstance(answer, list):
        answer = answer[0]
    return answer
