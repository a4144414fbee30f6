"""What every system shares: input forms, names, prediction, saving, scikit-learn's contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import labelry
from labelry.data import Dataset
from labelry.errors import MemoryBudgetError, ModelError
from labelry.estimators import SYSTEMS, system_class
from labelry.linalg.rows import Rows
from labelry.ranking.ranker import ScoresAll, supports
from labelry.storage import modelfile

X = np.array([[2, 0], [1, 0], [0, 1], [0, 2]], dtype=np.float32)
TEXTS = ["a red cat", "the cat sat", "the blue dog", "a dog"]
FORMS = {
    "classes": (["cat", "cat", "dog", "dog"], ["cat", "dog"]),
    "numbers": ([7, 7, 3, 3], [3, 7]),
    "lists": ([["cat"], ["cat"], ["dog"], ["dog", "big"]], ["big", "cat", "dog"]),
    "dense": (np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), [0, 1]),
    "sparse": (csr_matrix([[1, 0], [1, 0], [0, 1], [0, 1]]), [0, 1]),
}

# A list of lists is a list of labels here, never a dense indicator written out.
NOT_OURS = {
    "check_classifiers_multilabel_representation_invariance": "a list of lists holds label names"
}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> type[labelry.OneVsRest]:
    return system_class(request.param)


@parametrize_with_checks(
    [system_class(name)() for name in SYSTEMS],
    expected_failed_checks=lambda _: NOT_OURS,
    xfail_strict=True,
)
def test_scikit_learn_contract(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("form", FORMS)
def test_labels_come_back_in_the_form_they_came(system, form: str) -> None:
    Y, classes = FORMS[form]
    model = system().fit(X, Y)
    assert model.classes_.tolist() == classes
    labels, scores = model.predict_topk(X, k=1)
    assert labels.shape == scores.shape == (4, 1)
    first = "cat" if form in ("classes", "lists") else 7 if form == "numbers" else 0
    assert labels[0, 0] == first
    predicted = model.predict(X)
    if form in ("classes", "numbers"):
        assert predicted.tolist() == Y
    elif form == "lists":
        assert "cat" in predicted[0]
    else:
        assert issparse(predicted) == (form == "sparse")
        expected = Y.toarray() if issparse(Y) else Y
        assert_array_equal(predicted.toarray() if issparse(predicted) else predicted, expected)
    assert model.score(X, Y) == 1.0


def test_the_docstring_says_parameters_attributes_and_an_example(system) -> None:
    doc = system.__doc__
    assert "\n    random_state : int or None, default 0\n" in doc
    assert "\n    fitted_ : labelry." in doc
    assert f"    >>> {system.__name__}(" in doc or f"= {system.__name__}(" in doc


def test_texts(system) -> None:
    model = system().fit(TEXTS, FORMS["lists"][0])
    assert model.predict_topk(["my cat"], k=1)[0].tolist() == [["cat"]]
    with pytest.raises(ValueError, match="fitted on texts, but got feature vectors"):
        model.predict_topk(X)
    with pytest.raises(ValueError, match="fitted on feature vectors, but got texts"):
        system().fit(X, FORMS["lists"][0]).predict_topk(TEXTS)


@pytest.mark.parametrize("form", ["classes", "numbers", "lists", "dense", "sparse"])
def test_a_document_without_a_known_word_gets_no_label(system, form: str) -> None:
    model = system().fit(TEXTS, FORMS[form][0])
    texts = ["zzzz", "my cat", "", "?!"]
    assert model.known_words(texts).tolist() == [False, True, False, False]
    labels, scores = model.predict_topk(texts, k=2)
    nothing = None if form in ("classes", "lists") else -1
    assert labels[[0, 2, 3]].tolist() == [[nothing] * 2] * 3
    assert (scores[[0, 2, 3]] == -np.inf).all()
    assert labels[1, 0] != nothing
    assert scores[1, 0] > -np.inf
    predicted = model.predict(texts)
    if form in ("classes", "numbers"):
        assert predicted.tolist() == [nothing, labels[1, 0], nothing, nothing]
    elif form == "lists":
        assert predicted[::2] == [[], []]
    else:
        assert predicted[[0, 2, 3]].sum() == 0
    if supports(model, ScoresAll):
        found = model.score_all(texts)
        assert (found[[0, 2, 3]] == -np.inf).all()
        assert np.isfinite(found[1]).all()


def test_rows_of_features_are_the_callers(system) -> None:
    model = system().fit(X, FORMS["lists"][0])
    assert model.known_words(csr_array(X[:2] * 0)).tolist() == [True, True]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("texts", [False, True])
def test_a_saved_model_predicts_the_same(system, form: str, texts: bool, tmp_path: Path) -> None:
    rows = TEXTS if texts else X
    model = system().fit(rows, FORMS[form][0])
    model.save(tmp_path / "model")
    loaded = labelry.load(tmp_path / "model")
    assert type(loaded) is system
    assert loaded.get_params() == model.get_params()
    assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.classes_.dtype.kind == model.classes_.dtype.kind
    for ours, theirs in zip(loaded.predict_topk(rows), model.predict_topk(rows), strict=True):
        assert_array_equal(ours, theirs)
    first, second = loaded.predict(rows), model.predict(rows)
    if issparse(first):
        first, second = first.toarray(), second.toarray()
    assert_array_equal(np.array(first, dtype=object), np.array(second, dtype=object))


def test_same_data_and_seed_give_the_same_bytes(system, tmp_path: Path) -> None:
    for name in ("a", "b"):
        system(random_state=3).fit(TEXTS, FORMS["lists"][0]).save(tmp_path / name)
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_saving_needs_force_to_replace(system, tmp_path: Path) -> None:
    model = system().fit(X, FORMS["classes"][0])
    model.save(tmp_path / "model")
    with pytest.raises(ModelError, match="already exists"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", force=True)


def test_a_model_of_an_unknown_system_is_refused(tmp_path: Path) -> None:
    modelfile.save(
        tmp_path / "m", system="psychic", parameters={}, state={}, arrays={}, label_names=["a"]
    )
    with pytest.raises(ModelError, match=r"holds a 'psychic' model.*it has: one-vs-rest"):
        labelry.load(tmp_path / "m")


def test_a_model_with_the_wrong_state_is_refused(tmp_path: Path) -> None:
    modelfile.save(
        tmp_path / "m",
        system="one-vs-rest",
        parameters={"no_such_parameter": 1},
        state={},
        arrays={},
        label_names=["a"],
    )
    with pytest.raises(ModelError, match="does not hold a valid one-vs-rest"):
        labelry.load(tmp_path / "m")


def test_pipelines_and_grid_search(system) -> None:
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(size=(20, 3)) + 4 * offset for offset in np.eye(3)])
    y = np.repeat(["a", "b", "c"], 20)
    pipeline = make_pipeline(StandardScaler(), system())
    assert pipeline.fit(rows, y).score(rows, y) > 0.9
    grid = {f"{pipeline.steps[-1][0]}__random_state": [0, 1]}
    search = GridSearchCV(clone(pipeline), grid, cv=3).fit(rows, y)
    assert search.best_score_ > 0.9


def test_score_counts_unknown_labels_as_wrong(system) -> None:
    model = system().fit(X, FORMS["classes"][0])
    assert model.score(X, ["cat", "cat", "dog", "fish"]) == 0.75
    assert model.score(X, ["cat", "cat", "dog", "fish"], sample_weight=[0, 0, 0, 1]) == 0.0


def test_score_of_an_indicator_in_the_order_of_the_labels() -> None:
    model = labelry.OneVsRest().fit(X, FORMS["classes"][0])
    best = model.topk_ids(X, 1)[0][:, 0]
    assert model.score(X, csr_array(np.eye(len(model.classes_))[best])) == 1.0
    with pytest.raises(ValueError, match="y must have 2 columns, one for each label; got 3"):
        model.score(X, csr_array(np.eye(3)[[0, 1, 2, 0]]))


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, np.nan])
def test_a_label_is_there_or_not(system, value: float) -> None:
    Y = np.array([[1, 0], [1, 0], [0, 1], [0, value]])
    expected = rf"labels must be 0 or 1 .* Y\[3, 1\] is {value}"
    for y in (Y, csr_array(Y)):
        with pytest.raises(ValueError, match=expected):
            system().fit(X, y)
    with pytest.raises(ValueError, match=expected):
        system().fit(Dataset(csr_array(Y, dtype=np.float32), csr_array(X)))
    with pytest.raises(ValueError, match=expected):
        system().fit(Rows(X, csr_array(Y), block_rows=3))


def test_errors(system) -> None:
    with pytest.raises(ValueError, match="X has 4 rows but Y has 3"):
        system().fit(X, csr_array(np.eye(3)))
    model = system().fit(X, FORMS["classes"][0])
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        model.predict_topk(X, k=0)


def test_a_job_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.eye(40, dtype=np.float32)
    monkeypatch.setattr("labelry.memory.available", lambda: 5000)
    with pytest.raises(MemoryBudgetError, match=r"about 6\.2 KiB .* only 4\.9 KiB .*prune=0\.01"):
        labelry.OneVsRest().fit(rows, rows)
    monkeypatch.setattr("labelry.memory.available", lambda: 10)
    with pytest.raises(MemoryBudgetError, match=r"of 40 features and 40 labels .* only 10 B"):
        labelry.OneVsRest().fit(rows, rows)
