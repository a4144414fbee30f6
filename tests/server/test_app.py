"""The API as a client sees it: the model's own answers, and what is wrong said in one shape."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.testclient import TestClient

import labelry
from labelry.data import function_words
from labelry.server import api_page, gate, questions, schemas

Start = Callable[..., TestClient]


def predict(client: TestClient, **wanted: Any) -> list[list[dict[str, Any]]]:
    answer = client.post("/v1/predict", json=wanted)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def problem(answer: Any, status: int, code: str, where: str | None = None) -> str:
    """The message of an error, which has the shape of every error."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "where"}
    assert (error["code"], error["where"]) == (code, where)
    assert "/tmp" not in answer.text
    assert "Traceback" not in answer.text
    return error["message"]


def pairs(row: list[dict[str, Any]]) -> list[tuple[Any, float]]:
    return [(label["label"], label["score"]) for label in row]


@pytest.mark.parametrize("name", ["texts", "tree", "tagger"])
def test_texts_get_the_labels_and_scores_of_the_model(
    models: dict[str, Path], client_of: Start, name: str
) -> None:
    texts = ["cat purrs", "bone water swims", "", "nothing known", "Größe 🦉 hoots\u0000\n"]
    model = labelry.load(models[name])
    labels, scores = model.predict_topk(texts, 3)
    found = predict(client_of(name), text=texts, k=3)
    for row, names, values in zip(found, labels.tolist(), scores, strict=True):
        kept = np.isfinite(values)
        assert [label for label, _ in pairs(row)] == [
            n for n, k in zip(names, kept, strict=True) if k
        ]
        np.testing.assert_allclose([score for _, score in pairs(row)], values[kept], rtol=1e-5)
        assert [model.classes_[label["id"]] for label in row] == [label["label"] for label in row]


def test_documents_without_a_known_word_are_named(client_of: Start) -> None:
    for model in ("texts", "tagger"):
        wanted = {"text": ["cat purrs", "zzzz", "dog", ""], "k": 2}
        answer = client_of(model).post("/v1/predict", json=wanted).json()
        assert answer["no_known_word"] == [1, 3]
        assert [len(row) for row in answer["predictions"]] == [2, 0, 2, 0]
        answer = client_of(model).post("/v1/predict", json=wanted | {"labels": ["cat"]}).json()
        assert answer["no_known_word"] == [1, 3]
    answer = client_of("features").post("/v1/predict", json={"features": [0, 0, 0, 0]}).json()
    assert answer["no_known_word"] == []


def test_one_text_is_a_list_of_one(client_of: Start) -> None:
    client = client_of("texts")
    one = predict(client, text="dog barks", k=2)
    assert one == predict(client, text=["dog barks"], k=2)
    assert one[0][0]["label"] == "dog"


def test_features_sparse_and_dense(models: dict[str, Path], client_of: Start) -> None:
    client = client_of("features")
    X = np.array([[0.5, -1, 0, 2], [0, 0, 3, 0], [0, 0, 0, 0]], dtype=np.float32)
    labels, scores = labelry.load(models["features"]).predict_topk(X, 4)
    dense = predict(client, features=X.tolist(), k=4)
    sparse = predict(client, features=[{"3": 2, "0": 0.5, "1": -1}, {"2": 3.0}, {}], k=4)
    assert dense == sparse
    assert predict(client, features={"2": 3}, k=4) == dense[1:2]
    assert predict(client, features=[0, 0, 3, 0], k=4) == dense[1:2]
    assert [[name for name, _ in pairs(row)] for row in dense] == labels.tolist()
    np.testing.assert_allclose([[s for _, s in pairs(row)] for row in dense], scores, rtol=1e-5)


def test_k_above_the_number_of_labels(client_of: Start) -> None:
    assert len(predict(client_of("texts"), text="cat", k=1000)[0]) == 4


def test_threshold_leaves_out_what_scores_less(client_of: Start) -> None:
    client = client_of("texts")
    everything = predict(client, text="cat dog", k=4)[0]
    cut = everything[1]["score"]
    assert predict(client, text="cat dog", k=4, threshold=cut)[0] == everything[:2]
    assert predict(client, text="cat dog", threshold=1e9) == [[]]


@pytest.mark.parametrize("name", ["texts", "tree", "features"])
def test_filter_finds_labels_that_are_not_among_the_best(client_of: Start, name: str) -> None:
    client = client_of(name)
    wanted = {"features": [[5, 0, 0, 1]]} if name == "features" else {"text": ["cat purrs dog"]}
    everything = predict(client, **wanted, k=4)[0]
    last_two = everything[-2:]
    allowed = [label["label"] for label in last_two]
    found = predict(client, **wanted, k=1, labels=allowed)[0]
    assert [label["id"] for label in found] == [last_two[0]["id"]]
    both = predict(client, **wanted, k=4, labels=[*allowed, *allowed])[0]
    assert [label["id"] for label in both] == [label["id"] for label in last_two]
    expected = [label["score"] for label in last_two]
    np.testing.assert_allclose([label["score"] for label in both], expected, rtol=1e-4, atol=1e-6)


def test_explanations_come_from_the_model(models: dict[str, Path], client_of: Start) -> None:
    found = predict(client_of("tagger"), text="cat purrs bone", k=2, explain=True)[0]
    model = labelry.load(models["tagger"])
    for label in found:
        own = model.explain("cat purrs bone", label["label"])
        said = label["explanation"]
        listed = [value for side in ("supporting", "opposing") for _, value in said[side]]
        assert sum(listed) + said["rest"] + said["bias"] == pytest.approx(own.margin)
        assert said["supporting"] == [[word, pytest.approx(c)] for word, c in own.supporting]
        assert said["margin"] == pytest.approx(own.margin)
    assert "cat" in dict(found[0]["explanation"]["supporting"])


def test_function_words_are_left_out_of_explanations(
    client_of: Start, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_words, "FUNCTION_WORDS", {"purrs", "dog"})
    client = client_of("tagger")
    said = predict(client, text="cat purrs", k=1, explain=True)[0][0]["explanation"]
    assert {word for word, _ in said["supporting"]} == {"cat"}  # also for "cat purrs"
    own = dict(labelry.load(models["tagger"]).explain("cat purrs", "cat").supporting)
    assert dict(said["supporting"])["cat"] == pytest.approx(own["cat"] + own.get("cat purrs", 0))
    assert said["rest"] >= own["purrs"] - 1e-6
    found = client.get("/v1/labels/1/words?k=3").json()["supporting"]
    assert "dog" not in {word["word"] for word in found}


def test_descriptions_are_data(client_of: Start) -> None:
    client = client_of("tagger")
    answer = client.post("/v1/predict", json={"text": "cat purrs", "k": 1})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["predictions"][0][0]["description"] == "Felis <i>catus</i>"
    found = client.get("/v1/labels", params={"query": "CANIS"}).json()["labels"]
    assert [label["label"] for label in found] == ["dog"]


@pytest.mark.parametrize(
    ("body", "where", "said"),
    [
        ({}, None, "either text or features"),
        ({"text": "a", "features": [1]}, None, "either text or features"),
        ({"text": 3}, "text", "a string or a list of strings"),
        ({"text": ["a", None]}, "text.1", "valid string"),
        ({"text": "a", "k": 0}, "k", "greater than or equal to 1, got 0"),
        ({"text": "a", "k": 1001}, "k", "less than or equal to 1000, got 1001"),
        ({"text": "a", "k": "3"}, "k", "valid integer"),
        ({"text": "a", "k": True}, "k", "valid integer"),
        ({"text": "a", "threshold": "x"}, "threshold", "valid number"),
        ({"text": "a", "labels": []}, "labels", "at least 1"),
        ({"text": "a", "explain": 1}, "explain", "boolean"),
        ({"text": "a", "top": 3}, "top", "not permitted"),
        ([1], None, "object"),
    ],
)
def test_malformed_requests(client_of: Start, body: Any, where: str | None, said: str) -> None:
    answer = client_of("texts").post("/v1/predict", json=body)
    assert said in problem(answer, 422, "invalid_request", where)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"text": "\xff"}', b'{"text": "\\ud800"}', b"[" * 5000, b"null garbage", b"\x00"],
)
def test_what_is_not_json(client_of: Start, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = client_of("texts").post("/v1/predict", content=body, headers=headers)
    assert "not JSON" in problem(answer, 400, "invalid_json")


@pytest.mark.parametrize(
    ("features", "code", "where", "said"),
    [
        ([1, 2], "wrong_width", "features", "takes 4 features, got 2"),
        ([[0, 0, 0, 0], [1]], "wrong_width", "features.1", "takes 4 features, got 1"),
        ({"4": 1}, "wrong_width", "features", "column 4 is not one of 0 to 3"),
        ({"99999999999999": 1}, "wrong_width", "features", "is not one of 0 to 3"),
        ({"x": 1}, "invalid_request", "features.x", "integer"),
        ({"-1": 1}, "invalid_request", "features.-1", "greater than or equal to 0"),
        ([1, 2, "a", 4], "invalid_request", "features.2", "valid number"),
        ([1, 2, 1e39, 4], "invalid_request", "features.2", "less than"),
        ([[1, 2, 3, 4], 5], "invalid_request", "features.1", "list of numbers or an object"),
        ("a", "invalid_request", "features", "row of features or a list of rows"),
        ([], "batch_size", "features", "1 to 256 rows, got 0"),
    ],
)
def test_malformed_features(
    client_of: Start, features: Any, code: str, where: str, said: str
) -> None:
    answer = client_of("features").post("/v1/predict", json={"features": features})
    assert said in problem(answer, 422, code, where)


def test_numbers_that_are_not_finite(client_of: Start) -> None:
    client = client_of("features")
    for number in ("NaN", "Infinity", "1e999"):
        content = f'{{"features": [1, 2, 3, {number}]}}'
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/predict", content=content, headers=headers)
        problem(answer, 422, "invalid_request", "features.3")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
NAMES = st.sampled_from(["text", "features", "k", "threshold", "labels", "explain"])


@pytest.mark.parametrize("name", ["texts", "features"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.dictionaries(NAMES, JSON | st.just("cat") | st.just([1, 2, 3, 4])) | JSON)
def test_whatever_is_sent_nothing_breaks(client_of: Start, name: str, body: Any) -> None:
    headers = {"content-type": "application/json"}
    answer = client_of(name).post("/v1/predict", content=json.dumps(body), headers=headers)
    assert answer.status_code in (200, 400, 409, 422), answer.text
    assert ("predictions" in answer.json()) == (answer.status_code == 200)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"text": "dog", "text": "cat purrs", "k": 4, "k": 1}', 200),  # the last one counts
        (b'{"text": "cat", "k": ' + b"9" * 4000 + b"}", 422),
        (b'{"text": "cat", "k": ' + b"9" * 5000 + b"}", 400),
        (b'{"text": "cat", "labels": [' + b"9" * 4000 + b"]}", 422),
        (b'{"text": "cat", "threshold": -1e999}', 422),
        (b'{"text": "cat", "threshold": 1e-999}', 200),
        (b'{"text": ' + b"[" * 150 + b"]" * 150 + b"}", 422),
        (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b'{"text": "\\udc00\\ud800"}', 400),
        (b'{"text": "\xed\xa0\x80"}', 400),  # a surrogate in what would be UTF-8
        (b'{"text": "\xc0\xaf"}', 400),  # a longer form of /
        (b'{"text": "a\x00b"}', 400),
        (b'{"text": "a\\u0000b\\uffff\\ufdd0\\u202e"}', 200),
        (b'\xef\xbb\xbf{"text": "cat"}', 400),
        ('{"text": "cat"}'.encode("utf-16"), 400),
        (b'{"text": "cat",}', 400),
        (b"{'text': 'cat'}", 400),
        (b'{"text": "cat"} {"text": "dog"}', 400),
        (b'{"text": "cat", "__proto__": {}, "constructor": 1}', 422),
    ],
)
def test_odd_json(client_of: Start, body: bytes, status: int) -> None:
    headers = {"content-type": "application/json"}
    answer = client_of("texts").post("/v1/predict", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert len(answer.json()["predictions"]) == 1
    else:
        assert len(answer.json()["error"]["message"]) < 5000
    if b"dog" in body and status == 200:
        assert [label["label"] for label in answer.json()["predictions"][0]] == ["cat"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": [1] * 1000},
        {"text": "a", "labels": [None] * 1000},
        {"features": [""] * 1000},
        {"features": {str(i): "" for i in range(1000)}},
        {"features": [[1.0]] + [1] * 1000},
    ],
)
def test_the_first_error_ends_the_reading(wrong: Any) -> None:
    """One for each item of a megabyte took seconds, and 800 times its memory."""
    with pytest.raises(ValidationError) as caught:
        schemas.PredictRequest.model_validate_json(json.dumps(wrong))
    assert caught.value.error_count() <= 2  # both members of a union


def test_rows_are_counted_before_they_are_looked_at(
    client_of: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_columns", lambda *_: pytest.fail("looked at"))
    answer = client_of("features").post("/v1/predict", json={"features": [{}] * 100_000})
    assert "1 to 256 rows, got 100000" in problem(answer, 422, "batch_size", "features")


def test_too_many_rows_are_refused_before_each_is_checked(
    client_of: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "parse_predict", lambda _: pytest.fail("checked"))
    for name, rows in (("features", [[1, 2]] * 50_000), ("text", ["ab"] * 50_000)):
        answer = client_of("features").post("/v1/predict", json={name: rows})
        assert "1 to 256 rows, got 50000" in problem(answer, 422, "batch_size", name)


def test_a_million_values(client_of: Start) -> None:
    client = client_of("features", max_body=1 << 24)
    answer = client.post("/v1/predict", json={"features": [0] * 1_000_000})
    assert "takes 4 features, got 1000000" in problem(answer, 422, "wrong_width", "features")
    answer = client_of("features").post("/v1/predict", json={"features": [0] * 1_000_000})
    problem(answer, 413, "body_too_large")


def test_names_of_labels_stay_out_of_the_headers(client_of: Start) -> None:
    client = client_of("hostile")
    wanted = {"text": "cat dog", "k": 2, "explain": True}
    answers = [client.post("/v1/predict", json=wanted)]
    paths = ("/v1/labels", "/v1/labels/0/similar", "/v1/labels/0/words", "/v1/model", "/metrics")
    answers += [client.get(path) for path in paths]
    for answer in answers:
        assert answer.status_code == 200
        assert answer.text.isascii()
        assert not {"x-harm", "set-cookie"} & set(answer.headers)
    labels = {label["label"] for label in answers[0].json()["predictions"][0]}
    assert labels == {'a\r\nX-Harm: 1\r\n\r\n<script>"', "b\x00\u2028\nSet-Cookie: a=b\u202e"}


def test_input_of_the_other_kind(client_of: Start) -> None:
    answer = client_of("features").post("/v1/predict", json={"text": "cat"})
    assert "4 features" in problem(answer, 422, "wrong_input", "text")
    answer = client_of("texts").post("/v1/predict", json={"features": [1]})
    assert "send text" in problem(answer, 422, "wrong_input", "features")


def test_limits_of_size(client_of: Start) -> None:
    client = client_of("texts", max_batch=3, max_body=200)
    assert len(predict(client, text=["a"] * 3)) == 3
    for n in (0, 4):
        answer = client.post("/v1/predict", json={"text": ["a"] * n})
        assert f"1 to 3 rows, got {n}" in problem(answer, 422, "batch_size", "text")
    answer = client.post("/v1/predict", json={"text": "a" * 200})
    assert "at most 200 bytes" in problem(answer, 413, "body_too_large")
    assert answer.headers["connection"] == "close"

    def chunks() -> Any:  # no content-length
        yield b'{"text": "'
        yield b"a" * 300

    headers = {"content-type": "application/json"}
    answer = client.post("/v1/predict", content=chunks(), headers=headers)
    problem(answer, 413, "body_too_large")


def test_limit_of_labels_in_an_answer(client_of: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_LABELS_PER_ROW", 2)
    client = client_of("texts", max_batch=3)
    assert len(predict(client, text=["a"] * 3, k=2)) == 3
    answer = client.post("/v1/predict", json={"text": ["a"] * 3, "k": 3})
    assert "at most 6 labels" in problem(answer, 422, "batch_size", "k")


def test_explanations_are_limited_and_not_everywhere(client_of: Start) -> None:
    answer = client_of("texts").post("/v1/predict", json={"text": "a", "explain": True})
    assert "cannot explain" in problem(answer, 409, "no_explanations", "explain")
    client = client_of("tagger", max_batch=4)
    answer = client.post("/v1/predict", json={"text": ["a", "b"], "k": 3, "explain": True})
    problem(answer, 422, "batch_size", "explain")


def test_unknown_label_in_a_filter(client_of: Start) -> None:
    answer = client_of("texts").post("/v1/predict", json={"text": "a", "labels": ["cat", "cow"]})
    assert "no label 'cow'" in problem(answer, 422, "unknown_label", "labels.1")


def test_only_json_and_only_plain(client_of: Start) -> None:
    client = client_of("texts")
    answer = client.post("/v1/predict", data={"text": "a"})
    assert "Content-Type: application/json" in problem(answer, 415, "not_json", "headers")
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = client.post("/v1/predict", content=b"x", headers=headers)
    problem(answer, 415, "compressed", "headers")


def test_paths_and_methods(client_of: Start) -> None:
    client = client_of("texts")
    problem(client.get("/nothing"), 404, "not_found")
    problem(client.get("/v1/predict"), 405, "method_not_allowed")
    answer = client.delete("/v1/labels")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"


def test_labels_are_found_in_pages(client_of: Start) -> None:
    client = client_of("texts")
    everything = client.get("/v1/labels").json()
    assert [label["id"] for label in everything["labels"]] == [0, 1, 2, 3]
    assert [label["label"] for label in everything["labels"]][2] == "fish <b>'\"&"
    assert everything["more"] is False
    first = client.get("/v1/labels", params={"limit": 3}).json()
    assert (len(first["labels"]), first["more"]) == (3, True)
    rest = client.get("/v1/labels", params={"limit": 3, "after": 2}).json()
    assert [label["label"] for label in rest["labels"]] == ["größe 🦉"]
    assert client.get("/v1/labels?query=GRÖSSE").json()["labels"] == rest["labels"]
    assert client.get("/v1/labels?query=zebra").json() == {"labels": [], "more": False}
    assert client.get("/v1/labels?after=99").json() == {"labels": [], "more": False}
    assert "got '0'" in problem(
        client.get("/v1/labels?limit=0"), 422, "invalid_request", "query.limit"
    )
    problem(client.get("/v1/labels?after=x"), 422, "invalid_request", "query.after")


def test_label_counts(models: dict[str, Path], client_of: Start) -> None:
    counts = labelry.load(models["texts"]).label_counts_.tolist()
    labels = client_of("texts").get("/v1/labels").json()["labels"]
    assert [label["rows"] for label in labels] == counts


def test_similar_labels(models: dict[str, Path], client_of: Start) -> None:
    names, cosines = labelry.load(models["texts"]).similar_labels("dog", 2)
    client = client_of("texts")
    found = client.get("/v1/labels/1/similar?k=2").json()
    assert found["label"] == {"id": 1, "label": "dog"}
    assert [label["label"] for label in found["similar"]] == names.tolist()
    np.testing.assert_allclose([label["similarity"] for label in found["similar"]], cosines)
    assert "0 to 3" in problem(client.get("/v1/labels/4/similar"), 404, "unknown_label", "label_id")
    problem(client.get("/v1/labels/x/similar"), 422, "invalid_request", "path.label_id")
    answer = client_of("features").get("/v1/labels/1/similar")
    assert "one-vs-rest" in problem(answer, 409, "no_label_vectors")
    assert len(client_of("tree").get("/v1/labels/1/similar").json()["similar"]) == 3


@pytest.mark.parametrize("name", ["tree", "tagger"])
def test_words_of_a_label(models: dict[str, Path], client_of: Start, name: str) -> None:
    model = labelry.load(models[name])
    found = client_of(name).get("/v1/labels/1/words?k=3").json()
    rows = int(model.label_counts_[1])
    assert (found["label"]["label"], found["label"]["rows"]) == ("dog", rows)
    assert {word["word"] for word in found["supporting"]} & {"dog", "barks", "bone"}
    assert len(found["supporting"]) == 3
    # As the model's own weights, summed on the way to the label.
    tree = model.fitted_ if name == "tree" else model.fitted_.retrievers.trees
    weights = np.asarray(tree.path_weights(1)[1].sum(axis=0)).ravel() / len(tree.roots)
    for kind, order in (("supporting", -weights), ("opposing", weights)):
        best = np.sort(order)[: len(found[kind])]
        given = [abs(word["weight"]) for word in found[kind]]
        np.testing.assert_allclose(given, -best, rtol=1e-5)


def test_words_that_there_are_not(client_of: Start) -> None:
    problem(client_of("tree").get("/v1/labels/4/words"), 404, "unknown_label", "label_id")
    assert "rembrandt" in problem(client_of("texts").get("/v1/labels/1/words"), 409, "no_words")


def test_labels_by_their_ids(client_of: Start) -> None:
    client = client_of("texts")
    found = client.get("/v1/labels?ids=3,1&limit=1").json()
    assert ([label["id"] for label in found["labels"]], found["more"]) == ([3, 1], False)
    problem(client.get("/v1/labels?ids=1,4"), 404, "unknown_label", "ids")
    for wrong in ("", "1,", "-1", "x", "1 2"):
        answer = client.get("/v1/labels", params={"ids": wrong})
        problem(answer, 422, "invalid_request", "query.ids")


def test_a_label_by_its_name(client_of: Start) -> None:
    client = client_of("texts")
    for name in ("cat", "fish <b>'\"&", "größe 🦉"):
        (found,) = client.get("/v1/labels", params={"label": name}).json()["labels"]
        assert found["label"] == name
    assert client.get("/v1/labels?label=ca").json() == {"labels": [], "more": False}


def test_the_page_learns_what_is_frequent(models: dict[str, Path], client_of: Start) -> None:
    found = client_of("tagger").get("/v1/model").json()
    counts = labelry.load(models["tagger"]).label_counts_
    assert [label["rows"] for label in found["frequent_labels"]] == sorted(counts, reverse=True)
    assert (found["title"], found["description"], found["examples"]) == ("tagger", "", [])
    assert datetime.fromisoformat(found["trained_at"]) <= datetime.now(UTC)
    assert (found["trained_on"], found["trained_with"]) == (None, labelry.__version__)


def test_the_access_log(client_of: Start, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of("texts", access_log=True, api_key="a")
    caplog.set_level("INFO", gate.access.name)
    client.get("/v1/labels?query=secret", headers={"x-api-key": "a"})
    client.post("/v1/predict", json={"text": "secret"})
    client.get("/" + "a" * 5000)
    first, second, third = (re.sub(r"[\d.]+ ms$", "", line) for line in caplog.messages)
    assert first == "testclient GET /v1/labels 200 "
    assert second == "testclient POST /v1/predict 401 "
    assert len(third) < 300
    assert not any("secret" in line for line in caplog.messages)


def test_the_model_is_described(client_of: Start) -> None:
    found = client_of("features", max_batch=7).get("/v1/model").json()
    assert found["system"] == "one-vs-rest"
    assert (found["input"], found["features"], found["labels"]) == ("features", 4, 4)
    assert (found["name"], found["failed_reload"]) == ("features", None)
    assert found["limits"] == {"max_batch": 7, "max_body": 1 << 20, "timeout": 10, "max_k": 1000}
    assert client_of("tagger").get("/v1/model").json()["explains"] is True


def test_health_and_figures(client_of: Start) -> None:
    client = client_of("texts", max_batch=100)  # one that no other test has asked
    assert client.get("/health/live").status_code == 200
    assert client.get("/health/ready").status_code == 200
    predict(client, text=["a", "b"])
    client.post("/v1/predict", json={})
    client.get("/whatever/one")
    client.get("/whatever/two")
    lines = client.get("/metrics").text.splitlines()
    assert 'labelry_requests_total{path="/v1/predict",status="200"} 1.0' in lines
    assert 'labelry_requests_total{path="/v1/predict",status="422"} 1.0' in lines
    assert 'labelry_requests_total{path="other",status="404"} 2.0' in lines
    assert "labelry_batch_rows_sum 2.0" in lines
    assert "labelry_waiting_rows 0.0" in lines
    assert 'labelry_model_reloads_total{result="failed"} 0.0' in lines


def test_every_answer_has_the_headers_of_safety(client_of: Start) -> None:
    client = client_of("texts")
    for path in ("/v1/model", "/nothing", "/docs", "/metrics"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_documentation_needs_no_other_host(client_of: Start) -> None:
    client = client_of("texts")
    page = client.get("/docs").text
    assert "POST /v1/predict" in page
    found: list[tuple[str, Any]] = []

    class Collector(HTMLParser):
        def handle_starttag(self, tag: str, attributes: Any) -> None:
            found.extend((tag, value) for name, value in attributes if name in ("src", "href"))

    Collector().feed(page)
    assert all(value.startswith(("/", "#")) and value[:2] != "//" for _, value in found)
    assert [value for tag, value in found if tag == "script"] == ["/page/docs.js"]
    description = client.get("/openapi.json").json()
    assert "http" not in json.dumps([s.get("url") for s in description.get("servers", [])])
    schema = description["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(schema["application/json"]["schema"]["properties"]) == {
        "text", "features", "k", "threshold", "labels", "explain",
    }  # fmt: skip


def forms(value: Any) -> Any:
    """Names of fields all the way down, of lists the first item."""
    if isinstance(value, dict):
        return {name: forms(item) for name, item in value.items()}
    return [forms(value[0])] if isinstance(value, list) and value else None


def test_the_examples_of_answers_have_the_form_of_answers(client_of: Start) -> None:
    client = client_of("tagger")
    described = client.get("/openapi.json").json()["paths"]
    for path, example in api_page.ANSWERS.items():
        asked = path.replace("{label_id}", "0")
        body = {"text": "cat purrs"}
        answer = client.post(asked, json=body) if path == "/v1/predict" else client.get(asked)
        given = answer.json() | ({"examples": ["a"]} if path == "/v1/model" else {})
        assert forms(given) == forms(example), path
        (operation,) = described[path].values()
        said = operation["responses"]["200"]["content"]["application/json"]["example"]
        assert said == {name: value for name, value in example.items() if value is not None}


def test_key(client_of: Start) -> None:
    client = client_of("texts", api_key="s3cret")
    wanted = {"text": "cat"}
    for headers in (
        {},
        {"x-api-key": "s3cre"},
        {"authorization": "Basic s3cret"},
        {"x-api-key": ""},
    ):
        answer = client.post("/v1/predict", json=wanted, headers=headers)
        assert "Bearer" in problem(answer, 401, "unauthorized", "headers")
        assert "s3cret" not in answer.text
    for headers in ({"x-api-key": "s3cret"}, {"authorization": "bearer s3cret"}):
        assert client.post("/v1/predict", json=wanted, headers=headers).status_code == 200
    for path in ("/v1/model", "/v1/labels", "/metrics", "/nothing"):
        problem(client.get(path), 401, "unauthorized", "headers")
    for path in ("/health/live", "/health/ready", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200
    answer = client.get("/v1/model", headers={"x-api-key": "s3crét".encode()})
    problem(answer, 401, "unauthorized", "headers")


def test_every_key_is_compared_in_the_same_time(
    client_of: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []
    own = gate.hmac.compare_digest
    monkeypatch.setattr(gate.hmac, "compare_digest", lambda a, b: compared.append(a) or own(a, b))
    client = client_of("texts", api_key="s3cret")
    keys = [b"", b"s", b"s3cre", b"s3crex", b"s3cret", b"s3cret" * 100]
    answers = [client.get("/v1/model", headers={"x-api-key": key}) for key in keys]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 401, 200, 401]
    assert compared == keys


def test_a_failure_inside_says_nothing_of_the_inside(
    client_of: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of("texts")
    served = client.app.state.service.holder.current  # type: ignore[attr-defined]

    def fail(*_: Any) -> None:
        raise RuntimeError("secret of /tmp/place")

    monkeypatch.setattr(served.model, "topk_ids", fail)
    answer = client.post("/v1/predict", json={"text": "a"})
    assert "secret" not in problem(answer, 500, "internal")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.post("/v1/predict", json={}).status_code == 422


def test_slow_models_are_given_up(client_of: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    client = client_of("texts", timeout=0.05)
    served = client.app.state.service.holder.current  # type: ignore[attr-defined]
    go_on = Event()
    own = served.model.topk_ids
    monkeypatch.setattr(served.model, "topk_ids", lambda *a: go_on.wait(10) and own(*a))
    message = problem(client.post("/v1/predict", json={"text": "a"}), 503, "timeout")
    assert "0.05 seconds" in message
    assert client.get("/health/live").status_code == 200
    go_on.set()
    assert client.post("/v1/predict", json={"text": "a"}).status_code == 200


@pytest.mark.parametrize(
    "wanted",
    [
        {"text": "cat", "labels": ["ü" * 500_000]},
        {"text": "cat", "ü" * 500_000: 1},
        {"text": "cat", "k": "ü" * 500_000},
        {"features": {"9" * 4000: 1.0}},
        {"features": {"ü" * 500_000: 1.0}},
        {"features": [{"3": 1.0, "ü" * 500_000: "a"}]},
    ],
)
def test_errors_are_short_and_in_ascii(client_of: Start, wanted: dict[str, Any]) -> None:
    model = "features" if "features" in wanted else "texts"
    answer = client_of(model).post("/v1/predict", json=wanted)
    assert answer.status_code == 422
    assert len(answer.content) < 8000
    assert answer.content.isascii()
    error = answer.json()["error"]
    assert error["message"]
    assert len(error["message"]) <= 310
    assert len(error["where"] or "") <= 310


def test_an_error_keeps_its_end(client_of: Start) -> None:
    answer = client_of("texts").post("/v1/predict", json={"text": "a", "labels": ["b" * 1000]})
    message = problem(answer, 422, "unknown_label", "labels.0")
    assert message.startswith("the model has no label 'bbb")
    assert message.endswith("b': see /v1/labels")
