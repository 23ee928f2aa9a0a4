"""What language models say in words and tokens, as numbers: letters of options, stated confidences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_integer, check_iterable, check_number
from refocal.errors import DataError, InputWarning, ParameterError, warn

# What words of probability mean to readers: round numbers near the medians of published surveys of such words. A
# calibrator behind them needs their order alone. Longer phrases are looked for first.
WORDS = {
    "almost no chance": 0.02,
    "extremely unlikely": 0.02,
    "very unlikely": 0.05,
    "highly unlikely": 0.05,
    "extremely low": 0.05,
    "very low": 0.10,
    "chances are slight": 0.10,
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
    "slightly confident": 0.40,
    "low": 0.20,
    "about even": 0.50,
    "even chance": 0.50,
    "as likely as not": 0.50,
    "medium": 0.50,
    "moderate": 0.50,
    "possible": 0.50,
    "better than even": 0.60,
    "somewhat confident": 0.60,
    "fairly likely": 0.65,
    "likely": 0.70,
    "probable": 0.70,
    "probably": 0.70,
    "moderately confident": 0.70,
    "fairly confident": 0.75,
    "good chance": 0.80,
    "very good chance": 0.85,
    "high": 0.85,
    "confident": 0.85,
    "very likely": 0.90,
    "highly likely": 0.90,
    "very high": 0.95,
    "extremely likely": 0.95,
    "very confident": 0.95,
    "highly confident": 0.95,
    "almost certain": 0.95,
    "nearly certain": 0.95,
    "extremely high": 0.98,
    "extremely confident": 0.98,
    "certain": 0.99,
}


NUMBER = r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+(?:[.,]\d+)?|\.\d+)"
"""A number in a text: 1,000 is a thousand, 0,95 is below 1."""


def option_log_p(answers: Iterable[Any], options: Sequence[str], *, token: int = 0) -> Vector:
    """Log-probabilities of the options of multiple-choice questions (N, K), from the `top_logprobs` of an answer.

    Tokens that differ from an option by spaces, brackets, quotes, asterisks, a colon or a full stop alone, such as
    " A", "(A" and "A.", are that option, and their probabilities add. What is known of an option outside the top k is
    a bound: it has at most the probability of the least token given, and all such options together at most what the
    tokens leave. It gets that bound, shared evenly. Pass the result to `multiple_choice(scores, labels)`.

    Parameters
    ----------
    answers : iterable
        For each question a mapping of tokens to log-probabilities, a list of {"token": …, "logprob": …}, an entry of
        `logprobs` of vLLM in Python, or a whole response, as servers of vLLM and OpenAI return them and OpenAI's
        package has them: of chats, completions or the Responses API.
    options : sequence of str
        What the options are called: "ABCD", or ["yes", "no"]. Case counts for single letters ("a" is a word) alone.
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
    check_iterable(answers, "answers", name, "a list of answers; of one answer a list of one")
    if not isinstance(options, Iterable):
        raise ParameterError("options", name, expected="two or more different names", got=repr(options))
    wanted = [_key(option) if isinstance(option, str) else option for option in options]
    place = check_integer(token, "token", name, least=0)
    if len(wanted) < 2 or len({*wanted}) < len(wanted) or not all(isinstance(option, str) for option in wanted):
        raise ParameterError("options", name, expected="two or more different names", got=repr(options))
    rows = []
    for i, answer in enumerate(answers):
        tokens = _tokens_of(answer, place, i)
        # Sums of probabilities are taken in logarithms: servers write -9999 for next to nothing, which exp makes 0.
        log_p = np.full(len(wanted), -np.inf)
        outside = np.ones(len(wanted), dtype=bool)
        for text, log_p_token in tokens:
            key = _key(text)
            if key in wanted:
                option = wanted.index(key)
                log_p[option] = np.logaddexp(log_p[option], log_p_token)
                outside[option] = False
        if outside.any():
            given = np.array([log_p_token for _, log_p_token in tokens])
            left = max(1.0 - float(np.exp(given).sum()), 1e-9)  # rounding leaves less than nothing
            log_p[outside] = min(float(given.min()), math.log(left / int(outside.sum())))
        rows.append(log_p)
    if not rows:
        raise DataError("answers", name, expected="at least one answer", got="none")
    return np.array(rows)


def _key(text: str) -> str:
    """What a token has in common with others that mean the same option."""
    stripped = text.strip(" \t\n()[]{}<>\"'“”‘’`.:*▁Ġ")
    return stripped if len(stripped) == 1 else stripped.casefold()


def _tokens_of(answer: Any, place: int, i: int) -> list[tuple[str, float]]:
    """The tokens of an answer with their log-probabilities; different tokens may have the same text."""
    try:
        if hasattr(answer, "model_dump"):
            answer = answer.model_dump()
        of_responses = ("choices", "output", "response")
        # A token may have such a name too, but its value is a number.
        if isinstance(answer, Mapping) and any(isinstance(answer.get(key), (list, Mapping)) for key in of_responses):
            answer = response_tokens(answer)[place]["top_logprobs"]
        if not isinstance(answer, Mapping):
            tokens = [(str(entry["token"]), float(entry["logprob"])) for entry in answer]
        elif all(hasattr(value, "decoded_token") for value in answer.values()):
            # vLLM in Python has numbers of tokens as keys.
            tokens = [(str(value.decoded_token), float(value.logprob)) for value in answer.values()]
        else:
            tokens = [(str(text), float(value)) for text, value in answer.items()]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        tokens = []
    if not tokens or not all(value <= 1e-3 for _, value in tokens):
        expected = "tokens with their log-probabilities, or responses to requests with 'logprobs' and 'top_logprobs'"
        got = f"{answer!r:.80} for answer {i}"
        raise DataError("answers", "option_log_p", expected=expected, got=got)
    return tokens


def response_tokens(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tokens of the first answer of a server's response, each with its `logprob` and `top_logprobs`.

    A response has `choices`, whose `logprobs` have `content` (chats) or lists of each (completions), or it has `output`
    (the Responses API), where reasoning comes before the message. Batches wrap it.
    """
    body = response.get("response", {}).get("body", response)
    if "output" in body:
        parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        return [token for part in parts for token in part["logprobs"]]
    log_p = body["choices"][0]["logprobs"]
    if log_p.get("content") is not None:
        return list(log_p["content"])
    n_tokens = len(log_p.get("token_logprobs") or log_p["top_logprobs"])
    log_p_tokens = log_p.get("token_logprobs") or [None] * n_tokens
    top = log_p.get("top_logprobs") or [None] * n_tokens
    return [{"logprob": log_p_tokens[i], "top_logprobs": top[i]} for i in range(n_tokens)]


def stated_confidence(answers: Iterable[Any], *, scale: float | None = None) -> Vector:
    """Confidences that language models state in their answers, as numbers from 0 to 1; NaN where none is stated.

    Percentages and fractions ("85 %", "8/10", "8 of 10", "4 stars out of 5") are what they say, and "50/50" is 0.5.
    Other numbers are divided by the end of the scale that the answer names ("on a scale of 1 to 10"), else by `scale`,
    the number that means certain: by default 1 if no answer has a larger one, else 100, except that a number between 0
    and 1 is what it says even there, with a warning. Of "80-90" or "80% to 90%" the lower end counts, and a comma may
    be that of decimals ("0,85"). Without a number, words count ("very likely" is 0.9); those after "not" in the same
    clause ("not very likely", "not 100% sure") are not read, nor are numbers of being wrong ("a 20% chance that I'm
    wrong", "uncertainty: 20%").

    Of several numbers the one right after "confidence", "probability" or "certainty" counts; else a percentage right
    before such a word or "sure"; else the number right after "rating", "score" or "grade"; else percentages before
    other numbers, of these the first after any such word, or the last. With `scale`, numbers out of it ("7/10", where
    it is 10) count before all others, and where the last of different numbers would be taken, the answer is NaN.

    Models state few distinct values, too high ones, and often 1: calibrate them with
    `AutoCalibration(input="probabilities")` against whether the answers were right.

    >>> stated_confidence(["Paris. Confidence: 85", "I am 90% sure", "very likely", "9/10", "no idea", 70])
    array([0.85, 0.9 , 0.9 , 0.9 ,  nan, 0.7 ])
    """
    if scale is not None:
        check_number(scale, "scale", "stated_confidence", above=0.0)
    expected = "a list of answers, texts or numbers; of one answer a list of one"
    check_iterable(answers, "answers", "stated_confidence", expected)
    if len(getattr(answers, "shape", (1,))) != 1:
        raise DataError("answers", "stated_confidence", expected=expected, got=f"{answers!r:.80}")
    texts = []
    stated: list[tuple[float, float | None]] = []
    for i, answer in enumerate(answers):
        if isinstance(answer, (bool, np.bool_)):
            expected = "texts or numbers that state a confidence"
            raise DataError("answers", "stated_confidence", expected=expected, got=f"{answer} for answer {i}")
        texts.append(str(answer))
        if isinstance(answer, Real):
            # The text of a small number, 1e-05, is none that answers have.
            number = float(answer)
            stated.append((number if math.isfinite(number) else math.nan, None))
        else:
            stated.append(_number_in(texts[-1], scale))
    bare = [value for value, whole in stated if whole is None and not math.isnan(value)]
    usual = 100.0 if any(value > 1.0 for value in bare) else 1.0
    n_shares = sum(0.0 < value < 1.0 for value in bare)
    if scale is None and usual > 1.0 and n_shares:
        text = f"{n_shares:,} of {len(bare):,} numbers lie between 0 and 1, and others above: the former are taken for"
        warn(f"stated_confidence: {text} shares, the latter for percentages; scale= says otherwise.", InputWarning)
    confidences = []
    for text, (value, whole) in zip(texts, stated, strict=True):
        is_share = scale is None and 0.0 < value < 1.0
        confidence = value / (whole or scale or (1.0 if is_share else usual))
        if math.isnan(value):
            confidence = _word_in(text)
        confidences.append(confidence if 0.0 <= confidence <= 1.0 else math.nan)
    return np.array(confidences)


def _number_in(text: str, scale: float | None) -> tuple[float, float | None]:
    """The number that states a confidence, and what it is a part of, where the text says so; NaN if there is none.

    Infinity, which is no confidence, stands for several numbers of which none is named: words are then not read either.
    """
    text, end_of_scale = _without_scales(text)
    text = re.sub(r"(?<![\w.,])50\s*[/–-]\s*50(?![\w%])", "50%", text)  # even odds, and no fraction
    text = _with_lower_ends(text)
    out_of = r"(?:,|\s+\w+)?\s+out of\b"  # also "4 stars out of 5" and "4, out of 5"
    part = rf"(?:{out_of}|\s*\(?(?:/|out of\b|of\b|in\b(?=\s*(?:2|3|4|5|10|20|100|1000)\b)))\s*(\d+)"
    pattern = rf"(?<![\w.,–—-])({NUMBER})(?:\s*(%|percent\b)|{part})?(?![\w])"
    denied = re.compile(r"(?:\b(?:not|never|cannot)|n't)\s+(?:\w+\s+)?$", re.IGNORECASE)  # "not 100% sure"
    numbers = [
        number
        for number in re.finditer(pattern, text, re.IGNORECASE)
        if not denied.search(text[: number.start()]) and not _is_of_error(number, text)
    ]
    if not numbers:
        return math.nan, None
    stating = _stating(numbers, text, scale)
    if stating is None:
        return math.inf, None
    whole = 100.0 if stating[2] else float(stating[3]) if stating[3] else None
    if whole == 0.0:
        return math.nan, None
    value = _value(stating[1])
    if whole is None and end_of_scale is not None and value <= end_of_scale:
        whole = end_of_scale
    return value, whole


def _is_of_error(number: re.Match[str], text: str) -> bool:
    """Whether a number is that of being wrong: "a 20% chance that I'm wrong", "uncertainty: 20%", "10% doubt"."""
    chance = r"(?:chance|probability|likelihood|possibility|risk)"
    wrong = r"(?:wrong|incorrect|mistaken|error|doubt\w*|unsure|uncertain\w*)"
    if re.match(rf"\s*(?:{chance}\b[^.,;!?]{{0,30}}\b)?{wrong}\b", text[number.end() :], re.IGNORECASE):
        return True
    of_error = rf"{chance}\s+of\s+(?:an?\s+)?(?:error|being\s+{wrong})"
    before = rf"(?:\buncertainty|(?<!\bno )\bdoubt|{of_error})\b[^\w.,;!?]*(?:(?:is|of|was|at)\b[^\w.,;!?]*)?$"
    return re.search(before, text[: number.start()], re.IGNORECASE) is not None


def _value(number: str) -> float:
    """What a number of a text is: with commas of thousands, or one of decimals."""
    is_thousands = re.fullmatch(r"[1-9]\d{0,2}(?:,\d{3})+", number)
    return float(number.replace(",", "" if is_thousands else "."))


def _with_lower_ends(text: str) -> str:
    """A text with the lower end in the place of each range.

    >>> _with_lower_ends("60-70% or 60% to 70%"), _with_lower_ends("7 to 8 of 10, in 2020-01-15, 3-1")
    ('60% or 60%', '7 of 10, in 2020-01-15, 3-1')
    """
    end = rf"({NUMBER})(\s*(?:%|percent\b))?"

    def lower_end(found: re.Match[str]) -> str:
        if _value(found[1]) > _value(found[3]):
            return found[0]
        return found[1] + ("%" if found[2] or found[4] else "")

    behind = r"(?![\w–—-]|[.,]\d)"
    text = re.sub(rf"\bbetween\s+{end}\s+and\s+{end}{behind}", lower_end, text, flags=re.IGNORECASE)
    pattern = rf"(?<![\w.,–—-]){end}\s*(?:-|–|—|to\b)\s*{end}{behind}"
    return re.sub(pattern, lower_end, text, flags=re.IGNORECASE)


def _without_scales(text: str) -> tuple[str, float | None]:
    """A text without the scales it names, whose ends are no answers: "(0-100)", "on a scale of 1 to 10".

    With the upper end of the scale, where all that it names have the same.
    """
    number = r"\d+(?:\.\d+)?"
    to = r"\s*%?\s*(?:-|–|—|to\b)\s*"
    least = r"(?<![\w.,-])[01](?:\.0+)?"
    largest = r"(?:1(?:\.0+)?|5|7|10|100)(?:\s*%|\s*percent\b)?"
    end = r"(?!\w|\.\d)"
    scales = [
        rf"\bscale\s*(?:of|from|:)?\s*{number}{to}{number}\s*%?{end}",
        rf"\bscale\s+of\s+{number}{end}",
        rf"[(\[]\s*{least}(?:{to}|\s*,\s*){number}\s*[)\]]",
        rf"{least}{to}{largest}{end}",
        rf"\bbetween\s+{least}\s*%?\s+and\s+{largest}{end}",
    ]
    pattern = re.compile("|".join(scales), re.IGNORECASE)
    ends = {float(re.findall(number, scale)[-1]) for scale in pattern.findall(text)}
    return pattern.sub(" ", text), ends.pop() if len(ends) == 1 else None


def _stating(numbers: list[re.Match[str]], text: str, scale: float | None) -> re.Match[str] | None:
    """Which of the numbers of a text states the confidence; None if a scale is given and it is not known which."""
    numbers = [number for number in numbers if number[3] and float(number[3]) == scale] or numbers
    signs = r"[^\w.,;!?]*"  # as in "Confidence: **85**" and {"confidence": 85}
    kind = r"(?:[\s_]+(?:level|score|rating|estimate))?"

    def right_after(words: str) -> re.Match[str] | None:
        pattern = re.compile(rf"(?:{words}){kind}{signs}(?:(?:is|of|was|at)\b{signs})?$", re.IGNORECASE)
        return next((number for number in numbers if pattern.search(text[: number.start()])), None)

    after_noun = right_after("confidence|probability|certainty")
    if after_noun is not None:
        return after_noun
    percentages = [number for number in numbers if number[2]]
    for number in percentages:
        if re.match(r"\s*(?:confiden|probab|certain|sure\b|chance\b|likel)", text[number.end() :], re.IGNORECASE):
            return number
    after_grade = right_after(r"\brating|\bscore|\bgrade")
    if after_grade is not None:
        return after_grade
    candidates = percentages or numbers
    named = re.search(r"confiden\w*|probab\w*|certain\w*|\b(?:rating|score|grade)\b", text, re.IGNORECASE)
    after = [number for number in candidates if named is not None and number.start() >= named.end()]
    if after:
        return after[0]
    are_equal = len({_value(number[1]) for number in candidates}) == 1
    return candidates[-1] if scale is None or are_equal else None


def _word_in(text: str) -> float:
    """What the longest phrase of probability in a text means; NaN if there is none."""
    known = sorted(WORDS, key=len, reverse=True)
    lowered = text.lower().replace("’", "'")
    # Up to five words may stand between: "I don't think that it is very likely". A comma or "but" ends the clause.
    negation = re.compile(r"(?:\bnot|\bcannot|\bnever|n't)\s+(?:(?!(?:but|although|though|yet)\b)[\w']+\s+){0,5}$")
    for phrase in known:
        for match in re.finditer(rf"\b{phrase}\b", lowered):
            if not negation.search(lowered[: match.start()]):
                return WORDS[phrase]
    return math.nan
