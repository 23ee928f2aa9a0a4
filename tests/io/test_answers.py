"""Letters of options and stated confidences, as servers and models write them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from refocal import AutoCalibration, TemperatureScaling
from refocal.errors import DataError, InputWarning, ParameterError
from refocal.io import multiple_choice, option_log_p, stated_confidence

TOKENS = {" A": math.log(0.5), "A.": math.log(0.1), "(B": math.log(0.25), "The": math.log(0.05)}


def test_responses_of_every_form_give_the_same_options():
    entries = [{"token": token, "logprob": value, "bytes": None} for token, value in TOKENS.items()]
    chat = {"choices": [{"logprobs": {"content": [{"token": " A", "top_logprobs": entries}]}}]}
    completion = {"choices": [{"logprobs": {"token_logprobs": [-0.7], "top_logprobs": [TOKENS]}}]}
    batch = {"custom_id": "1", "response": {"body": chat}}
    rows = option_log_p([TOKENS, entries, chat, completion, batch], ["A", "B", "C", "D"])
    assert rows.shape == (5, 4)
    np.testing.assert_allclose(np.exp(rows), np.tile([0.6, 0.25, 0.05, 0.05], (5, 1)), rtol=1e-12)


def test_responses_of_other_interfaces_give_the_same_options():
    entries = [{"token": token, "logprob": value, "bytes": []} for token, value in TOKENS.items()]
    message = {"type": "message", "content": [{"type": "output_text", "logprobs": [{"top_logprobs": entries}]}]}
    of_responses_api = {"id": "resp_1", "output": [{"type": "reasoning", "summary": []}, message]}
    chat = {"choices": [{"logprobs": {"content": [{"token": " A", "top_logprobs": entries}], "refusal": None}}]}
    of_openai_package = SimpleNamespace(model_dump=lambda: chat)
    of_vllm = {
        number: SimpleNamespace(logprob=value, rank=number, decoded_token=token)
        for number, (token, value) in enumerate(TOKENS.items())
    }
    rows = option_log_p([of_responses_api, of_openai_package, of_vllm], "ABCD")
    np.testing.assert_allclose(np.exp(rows), np.tile([0.6, 0.25, 0.05, 0.05], (3, 1)), rtol=1e-12)
    # A token may be called as a part of a response is.
    p = np.exp(option_log_p([{"A": math.log(0.6), "output": math.log(0.3), "choices": math.log(0.1)}], "AB"))
    np.testing.assert_allclose(p, [[0.6, 1e-9]])


def test_an_option_outside_the_top_k_gets_what_it_can_have_at_most():
    # 0.4 is left: less than twice the least token, which has 0.3, would hold.
    p = np.exp(option_log_p([{"A": math.log(0.3), "B": math.log(0.3)}], "ABCD"))
    np.testing.assert_allclose(p, [[0.3, 0.3, 0.2, 0.2]])
    # The tokens sum to 1: what is left is rounding, but not 0.
    p = np.exp(option_log_p([{"A": math.log(0.6), "B": math.log(0.4)}], "ABC"))
    assert 0.0 < p[0, 2] < 1e-8
    # No option at all: nothing is known.
    p = np.exp(option_log_p([{"Well": -0.1, "So": -3.0}], "AB"))
    assert p[0, 0] == p[0, 1]


def test_tokens_of_the_same_text_add():
    entries = [("A", 0.5), ("A", 0.2), (" A", 0.1), ("B", 0.05)]
    answer = [{"token": token, "logprob": math.log(p)} for token, p in entries]
    # 0.15 is left for C and D: no more than the least token for each.
    np.testing.assert_allclose(np.exp(option_log_p([answer], "ABCD")), [[0.8, 0.05, 0.05, 0.05]])
    full = [{"token": token, "logprob": math.log(p)} for token, p in [("A", 0.5), ("A", 0.3), ("B", 0.18)]]
    np.testing.assert_allclose(np.exp(option_log_p([full], "ABCD")), [[0.8, 0.18, 0.01, 0.01]])


def test_tokens_that_join_quotes_or_brackets_to_a_letter_are_its_option():
    """Tokenizers have such tokens, and models write them in JSON and LaTeX."""
    for before, after in ('""', "''", "“”", "‘’", "``", "()", "[]", "{}", "<>", ("**", "**")):
        answer = {f"{before}A": math.log(0.4), f"B{after}": math.log(0.3), f" {before}C{after}.": math.log(0.2)}
        p = np.exp(option_log_p([answer], "ABCD"))
        np.testing.assert_allclose(p, [[0.4, 0.3, 0.2, 0.1]])  # what is left, 0.1, is less than the least token


@pytest.mark.filterwarnings("error")
def test_log_probabilities_of_next_to_nothing_stay_finite():
    rows = option_log_p([{"A": -0.1, "B": -9999.0, " B": -9999.0, "C": -3.0}], "ABCD")
    np.testing.assert_allclose(rows, [[-0.1, math.log(2.0) - 9999.0, -3.0, -9999.0]], rtol=1e-15)
    assert option_log_p([{"A": -0.1, "B": -math.inf}], "AB").tolist() == [[-0.1, -math.inf]]


def test_case_counts_for_letters_alone():
    tokens = {"Yes": math.log(0.5), " yes": math.log(0.2), "NO": math.log(0.2), "a": math.log(0.05)}
    np.testing.assert_allclose(np.exp(option_log_p([tokens], ["yes", "No"])), [[0.7, 0.2]])
    p = np.exp(option_log_p([{"A": math.log(0.6), "a": math.log(0.3), "B": math.log(0.05)}], "AB"))
    np.testing.assert_allclose(p, [[0.6, 0.05]])


def test_a_calibrator_of_letters_takes_out_their_bias():
    """Columns are positions: an intercept for each removes what a model prefers by position alone."""
    rng = np.random.default_rng(0)
    truth = 1.5 * rng.normal(size=(3000, 4))
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    said = 2.0 * truth + np.array([2.0, 0.0, 0.0, -1.0])
    said -= np.log(np.exp(said).sum(axis=1, keepdims=True))
    answers = [{letter: float(value) for letter, value in zip("ABCD", row, strict=True)} for row in said]
    rows = multiple_choice(option_log_p(answers, "ABCD"), labels)
    fitted = AutoCalibration().fit(rows.take(slice(0, 1500)))
    test = rows.take(slice(1500, None))
    share_of_a = fitted.predict_proba(test)[:, 0].mean()
    assert abs(share_of_a - np.mean(test.labels == 0)) < 0.05  # three standard errors of both halves
    by_temperature = TemperatureScaling().fit(rows.take(slice(0, 1500))).predict_proba(test)[:, 0].mean()
    assert by_temperature - np.mean(test.labels == 0) > 0.1


def test_what_is_no_answer_is_refused():
    for wrong in ({}, [], {"choices": []}, {"choices": [{"logprobs": None}]}, {"A": 0.5}, {"A": "x"}, 3, [{"a": 1}]):
        with pytest.raises(DataError, match=r"'answers' of option_log_p must be tokens .* for answer 1"):
            option_log_p([TOKENS, wrong], "AB")
    with pytest.raises(DataError, match="at least one answer"):
        option_log_p([], "AB")
    for options in ("A", "AA", [1, 2]):
        with pytest.raises(ParameterError, match="'options' of option_log_p"):
            option_log_p([TOKENS], options)
    with pytest.raises(ParameterError, match="'token' of option_log_p"):
        option_log_p([TOKENS], "AB", token=-1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("85%", 0.85),
        ("85 percent", 0.85),
        ("Confidence: 85/100", 0.85),
        ("8 out of 10", 0.8),
        ("The answer is 1984. Confidence: 70%", 0.7),
        ("Confidence: 70%. The answer is 1984", 0.7),
        ("I give it a probability of .25", 0.25),
        ("0.9", 0.9),
        ("Very likely", 0.9),
        ("It is highly unlikely.", 0.05),
        ("unlikely", 0.2),
        ("I am almost certain", 0.95),
        ("not likely", math.nan),
        ("not very likely", math.nan),
        ("I am not 100% sure", math.nan),
        ("I'm not entirely 100% sure", math.nan),
        ("I do not know, but 60%", 0.6),
        ("I am not very confident", math.nan),
        ("I'm not entirely certain", math.nan),
        ("not at all certain", math.nan),
        ("I can't be certain", math.nan),
        ("I can’t be certain", math.nan),
        ("I cannot be certain", math.nan),
        ("I don't think that it is very likely", math.nan),
        ("It is not Lyon, very likely Paris", 0.9),
        ("not proven but likely", 0.7),
        ("not certain; unlikely", 0.2),
        ("I'm not sure", 0.4),
        ("probably not", 0.25),
        ("as likely as not", 0.5),
        ("Confidence (0-100): 85", 0.85),
        ("Confidence (0–100%): 85", 0.85),
        ("Confidence (0-1): 0.85", 0.85),
        ("Confidence in [0, 1]: 0.85", 0.85),
        ("Confidence [1-10]: 8/10", 0.8),
        ("Confidence level on a scale of 0 to 100: 85%", 0.85),
        ("On a scale from 1 to 100, I would say 85", 0.85),
        ("A number between 0 and 1: 0.85", 0.85),
        ("Confidence (0-100): high", 0.85),
        ("Confidence: 0-100%", math.nan),
        ("80-90", 0.8),
        ("80–90 %", 0.8),
        ("80-90%", 0.8),
        ("60% to 70%", 0.6),
        ("60 to 70 percent", 0.6),
        ("7 to 8 out of 10", 0.7),
        ("Score: 4 stars out of 5", 0.8),
        ("Rating: 7. There are 3 mistakes.", 0.07),
        ("The score was 3-1; I am 90% sure", 0.9),
        ("50/50", 0.5),
        ("It is 50-50", 0.5),
        ("Confidence: 50/100", 0.5),
        ("0,95", 0.95),
        ("Confidence: 85,5 %", 0.855),
        ("1,000 people; confidence 70%", 0.7),
        ("1,000", math.nan),
        ("Confidence: 8 of 10", 0.8),
        ("about 3 in 4", 0.75),
        ("1 in 100", 0.01),
        ("I saw 3 in 1990. Confidence: 70", 0.7),
        ("Confidence: 7 (out of 10)", 0.7),
        ("On a scale of 1 to 10: 7", 0.7),
        ("Confidence (1-5): 4", 0.8),
        ("Rated 1-5. Confidence: 80", 0.8),
        ("Between 0 and 100: 1", 0.01),
        ("I'm 95% confident that it is 7", 0.95),
        ("95% certain. It happened in 44 BC", 0.95),
        ("I am 90% sure; probability theory, chapter 3", 0.9),
        ("I'm 95% confident that sales grew by 20%", 0.95),
        ("The tax is 20%. Confidence: 0.9", 0.9),
        ("Confidence: **90**. The tax is 20%", 0.9),
        ('{"confidence_score": 0.9, "tax": "20%"}', 0.9),
        ("The probability that it is 7 is 85%", 0.85),
        (1e-5, 1e-5),
        (np.float32(0.5), 0.5),
        (np.int64(70), 0.7),
        (-0.5, math.nan),
        (math.inf, math.nan),
        (math.nan, math.nan),
        ("high", 0.85),
        ("150%", math.nan),
        ("12/0", math.nan),
        ("", math.nan),
        ("I do not know", math.nan),
        (None, math.nan),
        (0.5, 0.5),
    ],
)
def test_stated_confidences_are_read(text, expected):
    (value,) = stated_confidence([text])
    assert value == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "rising",
    [
        ["extremely unlikely", "very unlikely", "unlikely", "likely", "very likely", "extremely likely"],
        ["slightly confident", "somewhat confident", "confident", "very confident", "extremely confident"],
        ["somewhat confident", "fairly confident", "confident"],
        ["moderately confident", "confident", "highly confident"],
        ["extremely low", "very low", "low", "medium", "high", "very high", "extremely high"],
        # The scale of Tian et al. (2023), "Just Ask for Calibration", without "probably", which is as much as "likely".
        ["almost no chance", "chances are slight", "unlikely", "probably not", "about even", "better than even",
         "likely", "very good chance", "highly likely", "almost certain"],
    ],
    ids=lambda rising: rising[0],
)  # fmt: skip
def test_words_of_a_scale_rise(rising):
    assert (np.diff(stated_confidence(rising)) > 0.0).all()
    assert (np.diff(stated_confidence([f"Confidence: {words.title()}." for words in rising])) > 0.0).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There's a 20% chance that I'm wrong.", np.nan),
        ("I think there is a 10% probability that this is incorrect.", np.nan),
        ("Uncertainty: 20%", np.nan),
        ("Probability of error: 10%", np.nan),
        ("I have 10% doubt", np.nan),
        ("Confidence: 80%. Uncertainty: 20%", 0.8),
        ("No doubt: 95%", 0.95),
        ("I am 90% sure that the claim is wrong", 0.9),
        ("Confidence: 85, since the student is wrong", 0.85),
        ("Confidence level: 8 on a scale of 10", 0.8),
        ("Confidence: 3, out of 5", 0.6),
        ("between 60% and 70%", 0.6),
    ],
)
def test_the_chance_of_being_wrong_is_no_confidence(text, expected):
    np.testing.assert_allclose(stated_confidence([text]), [expected], rtol=1e-12)


def test_the_scale_is_that_of_all_answers():
    assert stated_confidence(["1", "85", "0"]).tolist() == [0.01, 0.85, 0.0]
    assert stated_confidence(["1", "0.85", "0"]).tolist() == [1.0, 0.85, 0.0]
    assert stated_confidence(["7", "10"], scale=10.0).tolist() == [0.7, 1.0]
    assert stated_confidence(["1", "0.5"], scale=100.0).tolist() == [0.01, 0.005]
    with pytest.raises(ParameterError, match="'scale' of stated_confidence"):
        stated_confidence(["1"], scale=0.0)
    assert len(stated_confidence([])) == 0
    assert stated_confidence([1e-5, 0.5, math.inf]).tolist()[:2] == [1e-5, 0.5]


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [
        ("Rating: 7. There are 3 mistakes.", 10, 0.7),
        ("7/10 because 2 of 3 hold", 10, 0.7),
        ("2 of 3 hold: 7 out of 10", 10, 0.7),
        ("Of 3 claims 2 hold: 7.5/10", 10, 0.75),
        ("Confidence: 80%. Rating: 7/10", 10, 0.7),
        ("Score: 4\nThe answer has 3 errors", 5, 0.8),
        ("Rating: 4 – good, but 2 typos", 5, 0.8),
        ("4 stars out of 5", 5, 0.8),
        ("I would grade this answer 8, as 2 claims fail", 10, 0.8),
        ("**Grade**: 8; 2 claims fail", 10, 0.8),
        ("60-70%", 10, 0.6),
        ("On a scale of 1 to 10: 7", 10, 0.7),
        ("7", 10, 0.7),
        ("7, I repeat 7", 10, 0.7),
        ("7 (1 = worst, 10 = best)", 10, math.nan),
        ("High quality with 3 errors: 7", 10, math.nan),
        ("3/10 or 7/10", 10, math.nan),
    ],
)
def test_grades_are_those_that_a_word_or_the_scale_names(text, scale, expected):
    (value,) = stated_confidence([text], scale=scale)
    assert value == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "wrong", ["Confidence: 85", b"85", {"a": "85%"}, pd.DataFrame({"said": ["85%"]}), 85, None, np.array([["85%"]])]
)
def test_answers_are_a_list_of_them(wrong):
    with pytest.raises(DataError, match="'answers' of stated_confidence must be a list of answers"):
        stated_confidence(wrong)
    for truth in (True, np.bool_(False)):
        with pytest.raises(DataError, match=f"'answers' of stated_confidence .* Got {truth} for answer 1"):
            stated_confidence(["85%", truth])
    assert stated_confidence(pd.Series(["85%", None])).tolist() == pytest.approx([0.85, math.nan], nan_ok=True)
    assert stated_confidence(text for text in ["85%"]).tolist() == [0.85]


def test_stated_confidences_can_be_calibrated():
    """Few distinct values, ties and many of 1: a curve brings the mean to the rate."""
    rng = np.random.default_rng(0)
    said = rng.choice([70, 80, 90, 95, 100], size=2000, p=[0.1, 0.2, 0.3, 0.2, 0.2])
    right = rng.random(2000) < 0.2 + 0.5 * (said / 100.0)
    confidence = stated_confidence([f"Confidence: {value}%" for value in said])
    fitted = AutoCalibration(input="probabilities").fit(confidence, right.astype(int))
    calibrated = fitted.predict_proba(confidence)[:, 1]
    for value in (70, 90, 100):
        assert abs(calibrated[said == value].mean() - (0.2 + 0.5 * value / 100.0)) < 0.05


def test_shares_among_percentages_are_what_they_say_with_a_warning():
    answers = ["0.9", "Confidence: 95", 0.25, "1", "0", "0.5%"]
    with pytest.warns(InputWarning, match="2 of 5 numbers lie between 0 and 1, and others above"):
        found = stated_confidence(answers)
    assert found.tolist() == pytest.approx([0.9, 0.95, 0.25, 0.01, 0.0, 0.005])
    assert stated_confidence(answers, scale=100).tolist() == pytest.approx([0.009, 0.95, 0.0025, 0.01, 0.0, 0.005])
