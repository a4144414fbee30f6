"""The data that clients send and receive; the OpenAPI description is made from them."""

from __future__ import annotations

import reprlib
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from labelry.server.problems import Problem

MOST_LABELS = 1000  # labels that a request may ask for per row

_FLOAT32 = 3.4028234e38
_TAGS = ("one", "many", "dense", "sparse", "[key]")  # how an error says which kind of input it read

# Reading ends at the first error of a list or an object, the only one that is reported. To collect
# the errors of a megabyte of items took seconds and 800 MB.
_FIRST = Field(fail_fast=True)

Number = Annotated[float, Field(ge=-_FLOAT32, le=_FLOAT32, allow_inf_nan=False)]
Dense = Annotated[list[Number], _FIRST, Tag("dense")]
Sparse = Annotated[dict[Annotated[int, Field(ge=0)], Number], _FIRST, Tag("sparse")]


def _text_kind(value: Any) -> str | None:
    return "one" if isinstance(value, str) else "many" if isinstance(value, list) else None


def _row_kind(value: Any) -> str | None:
    return "dense" if isinstance(value, list) else "sparse" if isinstance(value, dict) else None


def _features_kind(value: Any) -> str | None:
    rows = isinstance(value, list) and value and isinstance(value[0], (list, dict))
    return "many" if rows else _row_kind(value)


def _kinds(function: Any, message: str) -> Discriminator:
    return Discriminator(function, custom_error_type="kind", custom_error_message=message)


Row = Annotated[
    Dense | Sparse,
    _kinds(_row_kind, 'must be a list of numbers or an object such as {"3": 0.5} of columns'),
]


class PredictRequest(BaseModel):
    """Rows to label: texts or features, whichever the model was trained on, one or many."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"example": {"text": "pain in the left knee", "k": 3}},
    )

    text: (
        Annotated[
            Annotated[str, Tag("one")] | Annotated[list[str], _FIRST, Tag("many")],
            _kinds(_text_kind, "must be a string or a list of strings"),
        ]
        | None
    ) = Field(None, description="A document, or a list of documents.")
    features: (
        Annotated[
            Dense | Sparse | Annotated[list[Row], _FIRST, Tag("many")],
            _kinds(_features_kind, "must be a row of features or a list of rows"),
        ]
        | None
    ) = Field(
        None,
        description="A row, or a list of rows. A row is a list of all its values, or an object "
        'of those that are not zero, by column: {"3": 0.5}.',
    )
    k: int = Field(5, ge=1, le=MOST_LABELS, description="Number of labels per document or row.")
    threshold: float | None = Field(
        None, allow_inf_nan=False, description="Leave out labels with a lower score."
    )
    labels: Annotated[list[str | int], _FIRST] | None = Field(
        None, min_length=1, description="Rank only these labels."
    )
    explain: bool = Field(
        False, description="Also return the words, or the features, for and against each label."
    )

    @model_validator(mode="after")
    def _one_input(self) -> PredictRequest:
        if (self.text is None) == (self.features is None):
            raise ValueError("give either text or features")
        return self


class Label(BaseModel):
    """A label of the model."""

    id: int = Field(description="Number of the label; it may differ in another model.")
    label: str | int | float | bool
    description: str | None = Field(None, description="Description of the label, if it has one.")


class ScoredLabel(Label):
    """A label and its score for a row; higher is better."""

    score: float
    explanation: dict[str, Any] | None = None


class SimilarLabel(Label):
    """A label and its similarity to another: the cosine of their vectors."""

    similarity: float


class CountedLabel(Label):
    """A label and the number of its training rows."""

    rows: int = Field(description="Training rows that have the label.")


class Word(BaseModel):
    """A word, or the number of a column, and its weight for a label."""

    word: str | int
    weight: float


class PredictResponse(BaseModel):
    """For each row its labels, best first."""

    model: str = Field(description="Fingerprint of the model that answered.")
    predictions: list[list[ScoredLabel]]
    no_known_word: list[int] = Field(
        description="Numbers of the documents without a word that the model knows. They get no "
        "labels."
    )


class LabelsResponse(BaseModel):
    """Labels that match, in the order of their ids."""

    labels: list[CountedLabel]
    more: bool = Field(description="Whether there are more labels: ask with after=last id.")


class SimilarResponse(BaseModel):
    """The labels most similar to one, most similar first."""

    label: Label
    similar: list[SimilarLabel]


class WordsResponse(BaseModel):
    """The words with the largest weights for a label and against it, strongest first."""

    label: CountedLabel
    supporting: list[Word]
    opposing: list[Word]


class Limits(BaseModel):
    max_batch: int = Field(description="Rows of a request.")
    max_body: int = Field(description="Bytes of a request.")
    timeout: float = Field(description="Seconds for an answer.")
    max_k: int = Field(description="Labels per row.")


class FailedReload(BaseModel):
    """The reason why the model in the directory is not the one that answers."""

    message: str
    at: float = Field(description="Seconds since 1970.")


class ModelResponse(BaseModel):
    """The model that is served, and what it can do."""

    name: str = Field(description="Name of the directory.")
    title: str = Field(description="What the page calls the model.")
    description: str = Field(description="What the model is for; empty if nobody said.")
    examples: list[str] = Field(description="Documents to try.")
    trained_at: str = Field(description="When the training ended, in ISO 8601.")
    trained_on: str | None = Field(description="Name of the training file, if there was one.")
    trained_with: str = Field(description="labelry version that trained it.")
    model: str = Field(description="Fingerprint.")
    system: str
    labelry_version: str = Field(description="labelry version of the server.")
    input: Literal["text", "features"]
    features: int | None = Field(description="Features of a row; null if rows are texts.")
    labels: int
    rows: int = Field(description="Training rows.")
    frequent_labels: list[CountedLabel] = Field(description="The most frequent labels.")
    scores: Literal["probabilities", "scores"]
    threshold: float = Field(description="Score from which the model predicts a label.")
    explains: bool
    compares_labels: bool
    has_words: bool
    filters_all_labels: bool
    loaded_at: float = Field(description="Seconds since 1970.")
    limits: Limits
    failed_reload: FailedReload | None


class HealthResponse(BaseModel):
    """The state of the process."""

    status: str
    needs_key: bool | None = Field(None, description="Whether the API asks for a key.")
    model: str | None = Field(None, description="Fingerprint of the model that answers.")


class ErrorDetail(BaseModel):
    code: str = Field(description="Name of the error, for programs.")
    message: str = Field(description="Sentence for people.")
    where: str | None = Field(description="Part of the request that is wrong.")


class ErrorResponse(BaseModel):
    """The format of every error."""

    error: ErrorDetail


def parse_predict(body: bytes) -> PredictRequest:
    """Read a request from a body; raises a `Problem` that says what is wrong with it."""
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        raise problem_of(error.errors(include_url=False, include_context=False)[0]) from None


def problem_of(error: Any) -> Problem:
    """Return the first error of pydantic as a problem."""
    if error["type"] == "json_invalid":
        return Problem(
            400, "invalid_json", f"the body is not JSON: {error['msg'].partition(': ')[2]}"
        )
    where = ".".join(str(part) for part in error["loc"] if part not in _TAGS) or None
    message = error["msg"].removeprefix("Value error, ")
    if where is not None and isinstance(error.get("input"), (str, int, float)):
        message += f", got {reprlib.repr(error['input'])}"
    return Problem(422, "invalid_request", message, where)
