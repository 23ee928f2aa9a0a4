"""The first page of the explorer, in a headless Chromium: its numbers beside Python's, files, surface, address."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from helpers import draw_logits, wait_until
from refocal.explore import N_ROWS
from refocal.io import load_sample, read
from refocal.maps import focal_temperature
from refocal.maps.chain import Chain
from refocal.maps.curves import Confidence, Pieces
from refocal.maps.steps import Focal, Temperature
from refocal.metrics import METRICS

pytestmark = pytest.mark.slow

KNOTS = np.log([0.5 / 0.5, 0.7 / 0.3, 0.9 / 0.1, 0.97 / 0.03, 0.995 / 0.005])


def measured(driver):
    return driver.execute_script("return window.explorer.measure()")


def expected(log_p, labels):
    p = np.exp(log_p)
    return {
        "ece": METRICS["ece"].function(labels, p),
        "logLoss": METRICS["log_loss"].function(labels, log_p),
        "accuracy": METRICS["accuracy"].function(labels, p),
    }


def assert_measured(driver, log_p, labels, tolerance=1e-9):
    found = measured(driver)
    for name, value in expected(log_p, labels).items():
        assert found[name] == pytest.approx(value, abs=tolerance), name


def point(driver):
    return driver.execute_script("return [window.explorer.state.gamma, window.explorer.state.temperature]")


def settle(driver):
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def test_the_embedded_network_is_the_sample(browser, explorer):
    driver = browser(explorer)
    rows = load_sample("cifar10-cross-entropy")[0]
    logits, labels = np.asarray(rows.values[:N_ROWS], dtype=np.float64), rows.labels[:N_ROWS]
    # Logits are rounded to 1/512.
    assert_measured(driver, focal_temperature(logits, 0.0, 1.0), labels, tolerance=2e-3)


@pytest.mark.parametrize("shifts", [[0.0] * 5, [0.5, -0.25, 0.1, -1.0, 2.0], [-3.0, -3.0, -3.0, -3.0, -3.0]])
def test_the_map_is_the_chain_of_python(browser, explorer, shifts):
    """The curve is a `Confidence` step whose pieces are lines between the knots."""
    driver = browser(explorer)
    logits, _ = draw_logits(60, 4, scale=3.0)
    steps = np.diff(shifts) / np.diff(KNOTS)
    values = [KNOTS[0] + shifts[0], *(KNOTS + shifts)]
    slopes = [1.0, *(1.0 + steps), 1.0]
    curve = Pieces.of((KNOTS.tolist(), (values, slopes)))
    chain = Chain((Temperature(1.3), Focal(0.8), Confidence(curve)))
    found = driver.execute_script(
        "return arguments[0].map((row) => window.explorer.logits.calibrate(row, 0.8, 1.3, arguments[1]))",
        logits.tolist(),
        shifts,
    )
    np.testing.assert_allclose(found, chain.log_probabilities(logits), rtol=1e-9, atol=1e-9)


def send(driver, path):
    settle(driver)
    driver.find_element(By.ID, "file").send_keys(str(path))
    wait_until(
        lambda: (
            path.name in driver.find_element(By.ID, "data-about").text or driver.find_element(By.ID, "data-error").text
        )
    )
    settle(driver)
    return driver.find_element(By.ID, "data-error").text


@pytest.mark.parametrize("kind", ["npz", "compressed", "half", "fortran", "text", "csv", "names", "probabilities"])
def test_files_are_read_in_the_page(browser, explorer, tmp_path, kind):
    logits, labels = draw_logits(400, 3)
    logits = logits.astype(np.float32)
    path = tmp_path / f"mine.{'csv' if kind in ('csv', 'names') else 'npz'}"
    if kind in ("csv", "names"):
        heads = ["cat", "dog", "owl"]
        last = [heads[i] for i in labels] if kind == "names" else labels
        lines = [",".join(map(repr, map(float, row))) + f",{label}" for row, label in zip(logits, last, strict=True)]
        path.write_text("\n".join([",".join([*heads, "label"]), *lines]))
    elif kind == "compressed":
        np.savez_compressed(path, logits=logits, labels=labels, class_names=np.array(["a", "b", "c"]))
    elif kind == "half":
        logits = logits.astype(np.float16)
        np.savez(path, logits=logits, labels=labels.astype(np.uint8))
    elif kind == "text":
        names = np.array(["a", "b", "c"])
        np.savez(path, logits=logits, labels=names[labels], y=labels[::-1], class_names=names)  # y is no label
    elif kind == "fortran":
        np.savez(path, logits=np.asfortranarray(logits.astype(np.float64)), labels=labels)
    elif kind == "probabilities":
        np.savez(path, probabilities=np.exp(focal_temperature(logits.astype(np.float64), 0.0, 1.0)), labels=labels)
    else:
        np.savez(path, logits=logits, labels=labels)
    driver = browser(explorer)
    assert send(driver, path) == ""
    assert "400 rows, 3 classes" in driver.find_element(By.ID, "data-about").text
    assert_measured(driver, focal_temperature(logits.astype(np.float64), 0.0, 1.0), labels)


def test_columns_and_labels_of_a_table_are_those_that_python_reads(browser, explorer, tmp_path):
    logits, labels = draw_logits(200, 3)
    p = np.exp(focal_temperature(logits, 0.0, 1.0))
    names = np.array(["cat", "dog", "owl"])
    by_name = names[labels]
    some = labels < 2
    masked = np.where(np.arange(3) == (labels[:, None] + 1) % 3, -np.inf, logits)
    frames = {
        "ids": pd.DataFrame(logits, columns=names).assign(label=by_name, id=range(200), text="x"),
        "shuffled": pd.DataFrame(logits, columns=["logit_2", "logit_0", "logit_1"]).assign(label=(labels + 2) % 3),
        "numbered": pd.DataFrame(logits, columns=["1", "2", "3"])[some].assign(label=labels[some] + 1),
        "beginning": pd.DataFrame(logits, columns=["class_1", "class_2", "class_3"])[some].assign(
            label=labels[some] + 1
        ),
        "p": pd.DataFrame(p, columns=["p_cat", "p_dog", "p_owl"]).assign(age=30.5, label=by_name),
        "prob": pd.DataFrame(p, columns=["prob_cat", "prob_dog", "prob_owl"]).assign(label=labels.astype(float)),
        "impossible": pd.DataFrame(masked, columns=["logit_cat", "logit_dog", "logit_owl"]).assign(label=by_name),
    }
    driver = browser(explorer)
    for kind, frame in frames.items():
        path = tmp_path / f"{kind}.csv"
        frame[frame.columns[::-1]].to_csv(path, index=False)
        rows = read(path)
        log_p = np.log(rows.values) if rows.input == "probabilities" else focal_temperature(rows.values, 0.0, 1.0)
        assert send(driver, path) == ""
        assert f"{len(frame)} rows, 3 classes" in driver.find_element(By.ID, "data-about").text
        assert_measured(driver, log_p, rows.labels)


def test_names_in_an_archive_and_one_column_of_two_classes_are_those_that_python_reads(browser, explorer, tmp_path):
    logits, labels = draw_logits(60, 3)
    some = labels < 2
    two = labels[some]
    log_odds = logits[some, 1] - logits[some, 0]
    p = 1.0 / (1.0 + np.exp(-log_odds))
    arrays = {
        "order": {"logits": logits, "labels": labels, "class_names": np.array(["2", "0", "1"])},
        "one": {"logits": logits[some], "labels": two + 1, "class_names": np.array(["1", "2", "3"])},
        "numbers": {"logits": logits[some], "labels": two + 1, "class_names": np.array([1, 2, 3])},
        "truths": {"logits": logits[some, :2], "labels": two == 1, "class_names": np.array(["True", "False"])},
    }
    frames = {
        "logit": pd.DataFrame({"id": range(100, 100 + len(two)), "logit": log_odds, "label": two}),
        "p": pd.DataFrame({"id": range(len(two)), "p": p, "label": two == 1}),
        "letters": pd.DataFrame({"p": p, "w": 1.5, "label": two}),
    }
    for kind, members in arrays.items():
        np.savez(tmp_path / f"{kind}.npz", **members)
    for kind, frame in frames.items():
        frame.to_csv(tmp_path / f"{kind}.csv", index=False)
    driver = browser(explorer)
    for path in sorted(tmp_path.glob("*.[nc]*")):
        assert send(driver, path) == ""
        about = driver.find_element(By.ID, "data-about").text
        assert ("of two classes refocal measures that of class 1" in about) == ("2 classes" in about)
        mine = driver.execute_script("return explorer.data()")
        rows = read(path)
        of_label = np.arange(len(rows)), rows.labels
        scores = rows.values if rows.values.ndim == 2 else np.stack([np.zeros(len(rows)), rows.values], axis=1)
        expected = np.log(scores) if rows.input == "probabilities" else focal_temperature(scores, 0.0, 1.0)
        shown = focal_temperature(np.array(mine["rows"], dtype=np.float64), 0.0, 1.0)
        np.testing.assert_allclose(shown[of_label[0], mine["labels"]], expected[of_label], atol=1e-12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("logit_a,logit_b,label\n1,2,0\n1,x,1\n", "Line 3 does not hold 2 numbers and a label"),
        ("score,age,label\n0.3,41,0\n0.8,35,1\n", "Which of the columns score, age are classes?"),
        ("pd,ead,label\n0.3,41.5,0\n0.8,35.5,1\n", "Which of the columns pd, ead are classes?"),
        ("p,label,labels\n0.3,0,1\n0.8,1,0\n", "The labels may be labels or label; leave one of them in the file."),
        ("logit_a,logit_b,label\n1,2,0\n1,2,5\n", "The label of row 1 must be a class from 0 to 1. Got 5 instead."),
        ("logit_c1,logit_c2,logit_c3,label\n1,2,5,1\n1,2,5,2\n", "The label 1 may be a name of c1, c2, c3 or a column"),
        ("p_1_x,p_0_x,label\n.9,.1,1\n.2,.8,0\n", "The label 1 may be a name of 1_x, 0_x or a column"),
        ("logit_xTrue,logit_xFalse,label\n1,2,True\n1,2,false\n", "The label 1 may be a name of xTrue, xFalse or a"),
        ("a,label\n1,0\n", "a column for each class"),
        ("id,p,label\n7,0.5,yes\n8,0.5,no\n", "a number p and a label 0 or 1"),
        ("a2,a0,a1,label\n1.5,2,3.5,0\n0.3,0.7,2.5,1\n1,1,1,2\n", "Which of the columns a2, a0, a1 are classes?"),
        ("1,01,02,label\n1.5,2,3.5,1\n0.3,0.7,2.5,02\n", "have the same name"),
        ("a,b,c\n1.5,2,1\n0.3,0.7,0\n", "a column label"),
        ("a,b,label\n1.5,,a\n0.3,0.7,b\n", "Line 2 does not hold 2 numbers and a label"),
        ("a,b,label\n1.5,2,a,3\n0.3,0.7,b\n", "Line 2 has 4 of 3 cells"),
        ("a,a,label\n1.5,2,a\n0.3,0.7,a\n", "Two columns have the same name"),
        ("a,b,age,label\n1.5,2,3.5,a\n0.3,0.7,2.5,b\n", "Which of the columns a, b, age are classes?"),
        ("1,2,3,label\n1.5,2,3.5,1\n0.3,0.7,2.5,0\n", "The label of row 1 must be one of 1, 2, 3. Got 0 instead."),
        ("a,b,label\n0.9,0.1,a\n0.3,0.7,b\n", "look like probabilities"),
        ("p_a,p_b,label\n0.9,0.2,a\n0.3,0.7,b\n", "The probabilities of row 0 must be at least 0 and sum to 1"),
        ("p_a,p_b,logit_a,logit_b,label\n0.9,0.1,1,2,a\n", "leave one kind of scores"),
        ("a,b,y,target\n1.5,2.5,a,b\n2.5,1.5,b,b\n", "The labels may be y or target; leave one of them in the file."),
    ],
)
def test_a_wrong_file_is_explained(browser, explorer, tmp_path, content, message):
    path = tmp_path / "mine.csv"
    path.write_text(content)
    driver = browser(explorer)
    before = measured(driver)
    assert message in send(driver, path)
    assert measured(driver) == before
    path = tmp_path / "mine.npz"
    path.write_bytes(b"no archive at all, but long enough to be looked at")
    assert "not a .npz file" in send(driver, path)


def test_the_guide_and_its_buttons(browser, explorer):
    driver = browser(explorer)
    settle(driver)
    assert driver.find_element(By.ID, "advice").text.startswith("Overconfident by")
    driver.find_element(By.ID, "fit-t").click()
    settle(driver)
    after_t = measured(driver)
    assert "Raise T" not in driver.find_element(By.ID, "advice").text
    driver.find_element(By.ID, "fit-both").click()
    settle(driver)
    assert measured(driver)["logLoss"] < after_t["logLoss"] + 2e-3
    driver.find_element(By.ID, "logits-reset").click()
    settle(driver)
    assert point(driver) == [0, 1]


def test_the_point_on_the_surface_is_dragged_and_moved_by_keys(browser, explorer):
    driver = browser(explorer)
    wait_until(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#fig-surface rect.cell")) == 180)
    surface = driver.find_element(By.CSS_SELECTOR, "#fig-surface svg")
    ActionChains(driver).drag_and_drop_by_offset(surface, 60, -40).perform()
    settle(driver)
    gamma, temperature = driver.execute_script(
        "return [window.explorer.state.gamma, window.explorer.state.temperature]"
    )
    assert gamma > 0.5
    assert temperature > 1.2
    driver.execute_script("arguments[0].focus()", surface)
    surface.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP)
    settle(driver)
    assert point(driver) == pytest.approx([gamma + 0.1, temperature * 1.03])


def test_marks_say_their_numbers(browser, explorer):
    driver = browser(explorer)
    settle(driver)
    chart, first = driver.find_element(By.CSS_SELECTOR, "#fig-reliability svg"), measured(driver)["curve"][0]
    driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME)
    said = (
        f"{first['count']} rows: confidence {100 * first['confidence']:.2f} %, accuracy {100 * first['accuracy']:.2f} %"
    )
    assert driver.find_element(By.ID, "tip").text == said
    assert driver.find_element(By.ID, "status").get_attribute("textContent") == said


def test_the_address_holds_the_state(browser, explorer):
    driver = browser(explorer)
    driver.get(f"{explorer.as_uri()}#logits?g=0.5&t=1.75&k=0,0.5,0,0,-1&d=1")
    driver.refresh()
    settle(driver)
    state = driver.execute_script("return window.explorer.state")
    assert (state["gamma"], state["temperature"], state["network"]) == (0.5, 1.75, 1)
    assert state["shifts"] == [0, 0.5, 0, 0, -1]
    slider = driver.find_element(By.ID, "logits-temperature")
    slider.send_keys(Keys.ARROW_RIGHT)
    settle(driver)
    assert "t=1.76" in driver.current_url
    driver.find_element(By.ID, "to-maps").click()
    wait_until(lambda: driver.find_element(By.ID, "fig-binary").is_displayed())
    assert not driver.find_element(By.ID, "fig-reliability").is_displayed()


def test_on_a_telephone_the_sliders_stay_in_sight(browser, explorer):
    driver = browser(explorer, 400)
    settle(driver)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 400
    driver.execute_script("document.getElementById('fig-surface').scrollIntoView()")
    top = driver.execute_script("return document.getElementById('logits-temperature').getBoundingClientRect().top")
    assert 0 <= top < 300


@pytest.mark.long
@pytest.mark.parametrize("page", ["logits", "maps"])
def test_axe_finds_no_barrier_and_nothing_is_requested(browser, explorer, axe, page):
    driver = browser(explorer, 1200, "dark")
    driver.get(f"{explorer.as_uri()}?{page}#{page}")
    settle(driver)
    assert axe(driver) == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert all(re.match(r"data:|file:", url) for url in sent)
