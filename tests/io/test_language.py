"""Answers of language models: ragged options, whole answers, and files as three programs write them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from refocal import FocalTemperatureScaling, LogisticCalibration, TemperatureScaling
from refocal.errors import DataError, FormatError, InputError, LabelError, ShapeError
from refocal.io import (
    answer_confidence,
    blocks,
    generated_log_p,
    multiple_choice,
    option_log_p,
    read_lm_eval,
    read_token_log_p,
    stated_confidence,
)
from refocal.metrics import expected_calibration_error, log_loss

pytestmark = pytest.mark.core

RNG = np.random.default_rng(0)
COUNTS = RNG.integers(2, 6, size=600)
SCORES = [2.0 * RNG.normal(size=n) for n in COUNTS]
LABELS = np.array([RNG.choice(len(s), p=softmax(s / 1.6)) for s in SCORES])


def test_questions_with_options_of_varying_number():
    rows = multiple_choice(SCORES, LABELS)
    assert rows.values.shape == (600, 5)
    fitted = TemperatureScaling().fit(rows.values, rows.labels)

    def loss(temperature):
        return -np.mean([log_softmax(s / temperature)[y] for s, y in zip(SCORES, LABELS, strict=True)])

    assert log_loss(rows.labels, fitted.predict_log_proba(rows.values)) == pytest.approx(loss(fitted.temperature_))
    assert all(loss(fitted.temperature_) <= loss(fitted.temperature_ + step) for step in (-0.02, 0.02))
    p = FocalTemperatureScaling(objective="nll").fit(rows.values, rows.labels).predict_proba(rows.values)
    assert (p[np.isneginf(rows.values)] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    with pytest.raises(LabelError, match=r"one of the 2 options of question 0. Got 2"):
        multiple_choice([[0.1, 0.2], [1, 2, 3]], [2, 2])
    with pytest.raises(DataError, match="at least two options"):
        multiple_choice([[0.1]], [0])


def test_confidence_of_answers_and_its_calibration():
    tokens = [np.log(RNG.uniform(0.3, 1.0, size=n)) for n in COUNTS]
    for kind, by_hand in (("product", np.prod), ("least", np.min)):
        expected = [by_hand(np.exp(row)) for row in tokens]
        np.testing.assert_allclose(answer_confidence(tokens, kind), expected)
    mean = answer_confidence(tokens, "mean")
    np.testing.assert_allclose(mean, [np.prod(np.exp(row)) ** (1 / len(row)) for row in tokens])
    right = (RNG.random(600) < mean**3).astype(int)
    fitted = LogisticCalibration(input="probabilities").fit(mean, right)
    after = expected_calibration_error(right, fitted.predict_proba(mean)[:, 1])
    assert after < expected_calibration_error(right, mean) / 3
    for bad in ([[]], [[0.5]]):
        with pytest.raises(DataError, match="in answer 0"):
            answer_confidence(bad)


def test_scores_of_generate():
    steps = [torch.randn(2, 7, generator=torch.Generator().manual_seed(t)) for t in range(3)]
    sequences = torch.tensor([[5, 5, 1, 2, 3], [5, 5, 4, 0, 0]])
    first, second = generated_log_p(steps, sequences, pad_token_id=0)
    expected = [steps[t][0].log_softmax(-1)[token] for t, token in enumerate([1, 2, 3])]
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    np.testing.assert_allclose(second, [steps[0][1].log_softmax(-1)[4]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_log_probabilities_of_half_precision_scores_are_not_rounded_again(dtype):
    """A logarithm of -12 in half precision is off by up to 0.004, which adds up over the tokens of an answer."""
    rng = np.random.default_rng(0)
    steps = [torch.tensor(3.0 * rng.normal(size=(1, 5000))).to(dtype) for _ in range(20)]
    tokens = rng.integers(5000, size=(1, 20))
    (found,) = generated_log_p(steps, tokens)
    wanted = [steps[t].double().log_softmax(-1)[0, token].item() for t, token in enumerate(tokens[0])]
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_samples_of_the_evaluation_harness(tmp_path):
    kinds = [
        lambda s: {"filtered_resps": [[float(each), False] for each in s]},
        lambda s: {"resps": [[[str(each), "False"]] for each in s]},
    ]
    for kind in kinds:
        lines = [json.dumps({"doc_id": i, "target": int(LABELS[i]), **kind(SCORES[i])}) for i in range(50)]
        (tmp_path / "samples.jsonl").write_text("\n".join(lines))
        found = read_lm_eval(tmp_path / "samples.jsonl")
        np.testing.assert_allclose(found.values, multiple_choice(SCORES[:50], LABELS[:50]).values)
        np.testing.assert_array_equal(found.labels, LABELS[:50])
    (tmp_path / "samples.jsonl").write_text(lines[0] + '\n{"target": "a", "resps": []}')
    with pytest.raises(FormatError, match=r"samples\.jsonl: row 1 must have log-likelihoods"):
        read_lm_eval(tmp_path / "samples.jsonl")


def test_samples_of_the_evaluation_harness_with_texts_and_likelihoods_without_the_question(tmp_path):
    """As version 0.4 writes them: numbers as text, the options in the arguments, a line for each filter."""

    def sample(i, target, scores, **more):
        answers = [[str(score), "False"] for score in scores]
        texts = [" True", " Neither", " False", " True", " Neither", " False"]
        options = {f"gen_args_{j}": {"arg_0": "Is it?", "arg_1": text} for j, text in enumerate(texts)}
        return {"doc_id": i, "target": target, "arguments": options, "filtered_resps": answers, **more}

    def read_samples(*samples):
        (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)))
        return read_lm_eval(tmp_path / "samples.jsonl")

    named = [sample(0, "False", [-1, -2, -3]), sample(1, "True", [-4, -5, -6])]
    found = read_samples(*named, sample(2, "1", [-7, -8, -9]))
    assert found.labels.tolist() == [2, 0, 1]
    assert found.values[1].tolist() == [-4.0, -5.0, -6.0]
    found = read_samples(sample(0, "0", [-1, -2, -3, -7, -8, -9], acc=1.0, acc_mutual_info=0.0))
    assert found.values.tolist() == [[-1.0, -2.0, -3.0]]
    twice = [sample(i, "1", [-1, -2, -i], filter=used) for used in ("none", "flipped") for i in (3, 4)]
    assert read_samples(*twice).values[:, 2].tolist() == [-3.0, -4.0]
    # A text that no option has, or each has, does not say which is right.
    for options in ([-1, -2, -3], [-1, -2, -3, -4]):
        target = "Maybe" if len(options) == 3 else "True"
        with pytest.raises(FormatError, match="the right one, its number or its text, as 'target'"):
            read_samples(sample(0, target, options))


def test_targets_of_the_evaluation_harness_that_are_numbers_and_texts(tmp_path):
    """Options that are numbers: a target of 2 is the third option, or the one of that text, as the others tell."""

    def read_samples(*samples):
        lines = [
            {
                "target": target,
                "resps": [[-1.0, False]] * len(texts),
                "arguments": {
                    f"gen_args_{j}": {"arg_0": "1 + 1 =", "arg_1": f" {text}"} for j, text in enumerate(texts)
                },
            }
            for target, texts in samples
        ]
        (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return read_lm_eval(tmp_path / "samples.jsonl").labels.tolist()

    twofold = ("2", ["4", "2", "3"])
    assert read_samples(twofold, ("0", ["7", "8", "9"])) == [2, 0]
    assert read_samples(twofold, ("7", ["7", "8", "9"])) == [1, 0]
    assert read_samples(twofold, ("2.5", ["1", "2", "2.5"])) == [1, 2]
    assert read_samples((2, twofold[1]), (0, ["0", "8", "9"])) == [2, 0]
    assert read_samples(("1", ["0", "1", "2"])) == [1]
    with pytest.raises(FormatError, match="sample 1 may be option 2 by its number, or option 1 by its text"):
        read_samples(("1", ["0", "1", "2"]), twofold)
    with pytest.raises(FormatError, match="the right one, its number or its text"):
        read_samples((0.5, ["0", "1", "2"]))


def test_answers_of_servers(tmp_path):
    completion = {"choices": [{"logprobs": {"token_logprobs": [None, -0.5, -1.0]}}]}
    chat = {"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -0.2}]}}]}
    message = {"type": "message", "content": [{"type": "output_text", "logprobs": [{"token": "a", "logprob": -0.3}]}]}
    of_responses_api = {"output": [{"type": "reasoning"}, message]}
    lines = [completion, chat, {"custom_id": "1", "response": {"body": chat}}, of_responses_api]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read_token_log_p(tmp_path / "a.jsonl")
    assert [row.tolist() for row in found] == [[-0.5, -1.0], [-0.2], [-0.2], [-0.3]]
    for line, message in (("{}", "row 0 must have 'choices'"), ("x", "row 0 is not a JSON object")):
        (tmp_path / "a.jsonl").write_text(line)
        with pytest.raises(FormatError, match=message):
            read_token_log_p(tmp_path / "a.jsonl")


def test_masked_tokens_are_refused():
    padded = np.ma.array(np.log([[0.9, 0.8], [0.5, 0.1]]), mask=[[False, False], [False, True]])
    with pytest.raises(DataError, match="'token_log_p' of answer_confidence must be an array without masked entries"):
        answer_confidence(padded)


@pytest.mark.parametrize("wrong", [[1, 2], [[1.0, 2.0], None], ["ab", "cd"], [[[1.0], [2.0]]]], ids=str)
def test_scores_of_options_are_numbers_for_each_question(wrong):
    with pytest.raises((DataError, ShapeError), match="'scores' of multiple_choice must be"):
        multiple_choice(wrong, [0] * len(wrong))


@pytest.mark.parametrize("wrong", [None, 3, "abc", np.array(0.5), {"A": -0.1}], ids=repr)
def test_what_is_no_list_is_refused_by_what_reads_one(wrong):
    for argument, refused in (
        ("scores", lambda: multiple_choice(wrong, [0, 1])),
        ("token_log_p", lambda: answer_confidence(wrong)),
        ("scores", lambda: generated_log_p(wrong, np.ones((1, 3)))),
        ("answers", lambda: option_log_p(wrong, "AB")),
        ("answers", lambda: stated_confidence(wrong)),
        ("pairs", lambda: blocks(wrong)),
    ):
        with pytest.raises(DataError, match=f"^The '{argument}' of "):
            refused()


def test_options_and_pairs_that_are_none_are_refused():
    for wrong in (None, 3):
        with pytest.raises(InputError, match="'options' of option_log_p must be two or more different names"):
            option_log_p([{"A": -0.1}], wrong)
    with pytest.raises(DataError, match=r"'pairs' of blocks must be pairs .* Got a float64 in place of a pair"):
        blocks(np.ones(3))


def test_blocks_may_be_a_data_set_of_torch():
    logits = torch.tensor(RNG.normal(size=(5, 40, 3)))
    labels = torch.tensor(RNG.integers(0, 3, (5, 40)))
    fitted = TemperatureScaling().fit(blocks(torch.utils.data.TensorDataset(logits, labels)))
    wanted = TemperatureScaling().fit(logits.reshape(-1, 3), labels.reshape(-1))
    assert fitted.temperature_ == pytest.approx(wanted.temperature_)
