"""What language models say in words and tokens, as numbers: letters of options, stated confidences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_integer, check_number
from refocal.errors import DataError, ParameterError

# What words of probability mean to readers: round numbers near the medians of published surveys of such words. A
# calibrator behind them needs their order alone. Longer phrases are looked for first.
WORDS = {
    "almost no chance": 0.02,
    "very unlikely": 0.05,
    "highly unlikely": 0.05,
    "little chance": 0.10,
    "improbable": 0.10,
    "very doubtful": 0.10,
    "very uncertain": 0.20,
    "unlikely": 0.20,
    "doubtful": 0.20,
    "probably not": 0.25,
    "not sure": 0.40,
    "unsure": 0.40,
    "uncertain": 0.40,
    "low": 0.20,
    "about even": 0.50,
    "even chance": 0.50,
    "as likely as not": 0.50,
    "medium": 0.50,
    "moderate": 0.50,
    "possible": 0.50,
    "better than even": 0.60,
    "fairly likely": 0.65,
    "likely": 0.70,
    "probable": 0.70,
    "probably": 0.70,
    "good chance": 0.80,
    "high": 0.85,
    "confident": 0.85,
    "very likely": 0.90,
    "highly likely": 0.90,
    "very high": 0.95,
    "very confident": 0.95,
    "almost certain": 0.95,
    "nearly certain": 0.95,
    "certain": 0.99,
}


def option_log_p(answers: Iterable[Any], options: Sequence[str], *, token: int = 0) -> Vector:
    """Log-probabilities of the options of multiple-choice questions (N, K), from the `top_logprobs` of an answer.

    Tokens that differ from an option by spaces, brackets or a full stop alone, such as " A", "(A" and "A.", are that
    option, and their probabilities add. What is known of an option outside the top k is a bound: it has at most the
    probability of the least token given, and all such options together at most what the tokens leave. It gets that
    bound, shared evenly. Pass the result to `multiple_choice(scores, labels)`.

    Parameters
    ----------
    answers : iterable
        For each question a mapping of tokens to log-probabilities, a list of {"token": …, "logprob": …}, or a whole
        response with `choices`, as servers of vLLM and OpenAI return them, of chats or of completions.
    options : sequence of str
        What the options are called: "ABCD", or ["yes", "no"]; letter case counts.
    token : int
        Which token of a response is the answer; 0 is the first.

    Examples
    --------
    >>> answers = [{"A": -0.4, " B": -1.6, "B": -2.3, "The": -4.0}, {"C": -0.1, "D": -3.0, "A": -3.5}]
    >>> np.exp(option_log_p(answers, "ABCD")).round(3)
    array([[0.67 , 0.302, 0.005, 0.005],
           [0.03 , 0.015, 0.905, 0.05 ]])
    """
    name = "option_log_p"
    wanted = list(options)
    place = check_integer(token, "token", name, least=0)
    if len(wanted) < 2 or len({*wanted}) < len(wanted) or not all(isinstance(option, str) for option in wanted):
        raise ParameterError("options", name, expected="two or more different names", got=repr(options))
    rows = []
    for i, answer in enumerate(answers):
        tokens = _tokens_of(answer, place, i)
        p = np.zeros(len(wanted))
        for text, log_p in tokens.items():
            stripped = text.strip(" \t\n()[].:*▁Ġ")
            if stripped in wanted:
                p[wanted.index(stripped)] += math.exp(log_p)
        outside = p == 0.0
        if outside.any():
            given = np.exp(list(tokens.values()))
            left = max(1.0 - float(given.sum()), 1e-9)  # rounding leaves less than nothing
            p[outside] = min(float(given.min()), left / int(outside.sum()))
        rows.append(np.log(p))
    if not rows:
        raise DataError("answers", name, expected="at least one answer", got="none")
    return np.array(rows)


def _tokens_of(answer: Any, place: int, i: int) -> dict[str, float]:
    """The tokens of an answer with their log-probabilities."""
    try:
        if isinstance(answer, Mapping) and ("choices" in answer or "response" in answer):
            body = answer.get("response", {}).get("body", answer)  # batches wrap the response
            log_p = body["choices"][0]["logprobs"]
            answer = log_p["content"][place]["top_logprobs"] if "content" in log_p else log_p["top_logprobs"][place]
        if isinstance(answer, Mapping):
            tokens = {str(text): float(value) for text, value in answer.items()}
        else:
            tokens = {str(entry["token"]): float(entry["logprob"]) for entry in answer}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        tokens = {}
        got = f"{answer!r:.80} for answer {i} ({type(error).__name__}: {error})"
    else:
        got = f"{answer!r:.80} for answer {i}"
    if not tokens or not all(value <= 1e-3 for value in tokens.values()):
        expected = "tokens with their log-probabilities, or responses with 'choices' that have 'logprobs'"
        raise DataError("answers", "option_log_p", expected=expected, got=got)
    return tokens


def stated_confidence(answers: Iterable[Any], *, scale: float | None = None) -> Vector:
    """Confidences that language models state in their answers, as numbers from 0 to 1; NaN where none is stated.

    Percentages and fractions ("85 %", "8/10") are what they say. Other numbers are divided by `scale`, the number that
    means certain: by default 1 if no answer has a larger one, else 100. Without a number, words count ("very likely" is
    0.9). Of several numbers the first after "confidence", "probability" or "certainty" counts, else the last; words
    after "not" are not read. Models state few distinct values, too high ones, and often 1: calibrate them with
    `AutoCalibration(input="probabilities")` against whether the answers were right.

    >>> stated_confidence(["Paris. Confidence: 85", "I am 90% sure", "very likely", "9/10", "no idea", 70])
    array([0.85, 0.9 , 0.9 , 0.9 ,  nan, 0.7 ])
    """
    texts = [answer if isinstance(answer, str) else f"{answer!r}" for answer in answers]
    if scale is not None:
        check_number(scale, "scale", "stated_confidence", above=0.0)
    stated = [_number_in(text) for text in texts]
    bare = [value for value, whole in stated if whole is None and not math.isnan(value)]
    usual = 100.0 if any(value > 1.0 for value in bare) else 1.0
    confidences = []
    for text, (value, whole) in zip(texts, stated, strict=True):
        confidence = value / (whole or scale or usual)
        if math.isnan(value):
            confidence = _word_in(text)
        confidences.append(confidence if 0.0 <= confidence <= 1.0 else math.nan)
    return np.array(confidences)


def _number_in(text: str) -> tuple[float, float | None]:
    """The number that states a confidence, and what it is a part of, where the text says so; NaN if there is none."""
    pattern = r"(?<![\w.,-])(\d+(?:\.\d+)?|\.\d+)(?:\s*(%|percent\b)|\s*(?:/|out of)\s*(\d+))?(?![\w])"
    numbers = list(re.finditer(pattern, text, re.IGNORECASE))
    if not numbers:
        return math.nan, None
    named = re.search(r"confiden\w*|probabilit\w*|certain\w*", text, re.IGNORECASE)
    after = [number for number in numbers if named is not None and number.start() >= named.end()]
    number = after[0] if after else numbers[-1]
    whole = 100.0 if number[2] else float(number[3]) if number[3] else None
    if whole == 0.0:
        return math.nan, None
    return float(number[1]), whole


def _word_in(text: str) -> float:
    """What the longest phrase of probability in a text means; NaN if there is none."""
    known = sorted(WORDS, key=len, reverse=True)
    lowered = text.lower()
    for phrase in known:
        if re.search(rf"(?<!not )(?<!n't )\b{phrase}\b", lowered):
            return WORDS[phrase]
    return math.nan
