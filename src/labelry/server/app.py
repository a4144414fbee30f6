"""The routes of the server."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from labelry._version import __version__
from labelry.server import schemas
from labelry.server.api_page import ANSWERS, api_page
from labelry.server.batching import Batcher
from labelry.server.drawing import Drawer
from labelry.server.gate import Gate
from labelry.server.holder import Holder
from labelry.server.metrics import Metrics
from labelry.server.page_routes import POLICY, page_routes, tagged
from labelry.server.problems import AsciiJSON, Problem
from labelry.server.questions import Answer, count_rows, question_of, read_json
from labelry.server.served import Served
from labelry.server.settings import ServerSettings

_HTTP = {
    404: ("not_found", "there is no such path; /docs lists them"),
    405: ("method_not_allowed", "this path does not take this method; see /docs"),
}
_IDS = "^[0-9]{1,9}(,[0-9]{1,9})*$"
_LARGE = 1 << 16  # bytes of a body; a smaller one is parsed in some milliseconds
LabelId = Annotated[int, Path(ge=0, description="Number of the label, from /v1/labels.")]


class Service:
    """The handlers of the routes, and the parts that they share."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.holder = Holder(settings.model, self.metrics)
        self.batcher = Batcher(settings.max_batch, settings.max_waiting, self.metrics)
        self.drawer = Drawer(settings.model)
        self._large = asyncio.Lock()  # one large body is parsed at a time

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self.holder.watch(self.settings.poll))
        yield
        watcher.cancel()
        await self.drawer.close()
        self.batcher.close()

    async def predict(self, request: Request) -> Response:
        """Return the best labels of each document or row."""
        wanted = await self._parsed(await read_json(request, self.settings))
        served = self.holder.current
        question = question_of(wanted, served, self.settings)
        answer: Answer = await self._in_time(self.batcher.ask(question))
        return AsciiJSON({"model": served.fingerprint} | answer._asdict())

    async def labels(
        self,
        query: Annotated[
            str,
            Query(
                max_length=1000,
                description="Part of the label or its description, in upper or lower case.",
            ),
        ] = "",
        limit: Annotated[int, Query(ge=1, le=1000, description="Number of labels.")] = 20,
        after: Annotated[int, Query(ge=-1, description="Only ids above this one.")] = -1,
        label: Annotated[
            str | None, Query(max_length=10_000, description="Only the label of exactly this name.")
        ] = None,
        ids: Annotated[
            str | None,
            Query(
                pattern=_IDS, max_length=5000, description="Only these labels: numbers, as 3,17,4."
            ),
        ] = None,
    ) -> Response:
        """Return the labels that match a query, one label by its name, or labels by their ids."""
        served = self.holder.current
        if label is not None:
            one = served.find(label)
            found = [] if one is None else [one]
        elif ids is None:
            found = served.search.find(query, limit + 1, after)
        else:
            found = [_known(int(number), served, "ids") for number in ids.split(",")]
            limit = len(found)
        shown = [served.counted(number) for number in found[:limit]]
        return AsciiJSON({"labels": shown, "more": len(found) > limit})

    async def similar(
        self,
        label_id: LabelId,
        k: Annotated[int, Query(ge=1, le=1000, description="Number of labels.")] = 10,
    ) -> Response:
        """Return the labels most similar to one, by the vectors of labels in the model."""
        served = self.holder.current
        _known(label_id, served, "label_id")
        _check_vectors(served)
        similar = await self._in_time(self.batcher.call(served.similar, label_id, k))
        return AsciiJSON({"label": served.describe(label_id), "similar": similar})

    async def words(
        self,
        label_id: LabelId,
        k: Annotated[int, Query(ge=1, le=1000, description="Number of words of each kind.")] = 20,
    ) -> Response:
        """Return the words (or columns) with the largest weights for a label, and against it."""
        served = self.holder.current
        _known(label_id, served, "label_id")
        if not served.can_explain:
            what = "has no weights of words; taggers and linear trees have"
            raise Problem(409, "no_words", f"a {served.model.system} model {what}")
        found = await self._in_time(self.batcher.call(served.words, label_id, k))
        return AsciiJSON({"label": served.counted(label_id)} | found)

    async def map(self, request: Request) -> Response:
        """Return the map of all labels, as the bytes that docs/server.md describes.

        While it is drawn the answer is 202 with JSON: ask again in a second.
        """
        served = self.holder.current
        _check_vectors(served)
        drawing = self.drawer.drawn(served)
        if drawing is None:
            seconds, n = round(self.drawer.seconds, 1), len(served.labels)
            said = f"Drawing the map of {n:,} labels: {seconds:.0f} s so far."
            state = {"status": "drawing", "seconds": seconds, "message": said}
            return AsciiJSON(state, 202, {"retry-after": "1"})
        kind = "application/octet-stream"
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
            return tagged(request, drawing.content, kind, headers, f"{drawing.model}-gzip")
        return tagged(request, gzip.decompress(drawing.content), kind, {"vary": "accept-encoding"})

    def front(self) -> str:
        """Return the file of the page for the current model."""
        served = self.holder.current
        if not served.takes_text:
            return "features.html"
        self.drawer.begin(served)  # the page will ask for it
        return "index.html"

    async def model(self) -> Response:
        """Return what the model is and can do, the limits, and a reload that failed."""
        served, failed = self.holder.current, self.holder.failed
        names = ("max_batch", "max_body", "timeout")
        limits = {name: getattr(self.settings, name) for name in names}
        return AsciiJSON(
            {
                "name": served.name,
                "title": served.title,
                "description": served.about.card.description,
                "examples": served.about.card.examples,
                "trained_at": served.about.trained,
                "trained_on": served.about.source.file,
                "trained_with": served.about.labelry_version,
                "model": served.fingerprint,
                "system": served.model.system,
                "labelry_version": __version__,
                "input": "text" if served.takes_text else "features",
                "features": served.n_features,
                "labels": len(served.labels),
                "rows": served.model.n_rows_,
                "frequent_labels": served.frequent(),
                "scores": "probabilities" if served.model.probabilities else "scores",
                "threshold": float(served.model.threshold),
                "explains": served.can_explain,
                "compares_labels": served.can_compare,
                "has_words": served.can_explain,
                "filters_all_labels": served.scores_all,
                "loaded_at": served.loaded_at,
                "limits": limits | {"max_k": schemas.MOST_LABELS},
                "failed_reload": failed and failed.model_dump(),
            }
        )

    async def live(self) -> Response:
        """Answer 200 while the process works."""
        return AsciiJSON({"status": "live"})

    async def ready(self) -> Response:
        """Answer 200 while a model answers, also an old one because a newer one is broken."""
        known = {"model": self.holder.current.fingerprint}
        return AsciiJSON(
            {"status": "ready", "needs_key": self.settings.api_key is not None} | known
        )

    async def figures(self) -> Response:
        """Return the metrics for Prometheus."""
        text = await asyncio.to_thread(self.metrics.render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _parsed(self, body: bytes) -> schemas.PredictRequest:
        if len(body) < _LARGE:
            return schemas.parse_predict(body)
        return await self._in_time(self._parsed_in_turn(body))

    async def _parsed_in_turn(self, body: bytes) -> schemas.PredictRequest:
        """Parse a large body, which may take 0.1 s, and give others as much time after it."""
        async with self._large:
            start = time.perf_counter()
            try:
                count_rows(body, self.settings.max_batch)
                return schemas.parse_predict(body)
            finally:
                await asyncio.sleep(time.perf_counter() - start)

    async def _in_time(self, work: Any) -> Any:
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await work
        except TimeoutError:
            message = (
                f"no answer within {self.settings.timeout:g} seconds; send fewer rows at a time"
            )
            raise Problem(503, "timeout", message) from None


def _known(label: int, served: Served, where: str) -> int:
    if label >= len(served.labels):
        message = f"the model has labels 0 to {len(served.labels) - 1}, got {label}"
        raise Problem(404, "unknown_label", message, where)
    return label


def _check_vectors(served: Served) -> None:
    if not served.can_compare:
        what = "has no label vectors to compare; taggers, trees and label embeddings have"
        raise Problem(409, "no_label_vectors", f"a {served.model.system} model {what}")


def create_app(settings: ServerSettings) -> FastAPI:
    """Return the application; raises `ModelError` if the model cannot be loaded."""
    service = Service(settings)
    app = FastAPI(
        title="labelry",
        version=__version__,
        docs_url=None,  # FastAPI's page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,  # a redirection goes to whatever host the client named
        lifespan=service.lifespan,
        responses={"default": {"model": schemas.ErrorResponse, "description": "Any error."}},
        # This comes before FastAPI's route of the same path, which only serves the description:
        # its handling of a request took 50 microseconds and is not needed here.
        routes=[Route("/v1/predict", service.predict, methods=["POST"])],
    )
    _add_routes(app, service)
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_middleware(
        Gate, api_key=settings.api_key, metrics=service.metrics, access_log=settings.access_log
    )
    app.state.service = service
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    body = {"application/json": {"schema": schemas.PredictRequest.model_json_schema()}}
    app.add_api_route(
        "/v1/predict",
        service.predict,
        methods=["POST"],
        responses={200: _answer("/v1/predict", schemas.PredictResponse)},
        openapi_extra={"requestBody": {"content": body, "required": True}},
    )
    for path, handler, model in (
        ("/v1/labels", service.labels, schemas.LabelsResponse),
        ("/v1/labels/{label_id}/similar", service.similar, schemas.SimilarResponse),
        ("/v1/labels/{label_id}/words", service.words, schemas.WordsResponse),
        ("/v1/model", service.model, schemas.ModelResponse),
        ("/health/live", service.live, schemas.HealthResponse),
        ("/health/ready", service.ready, schemas.HealthResponse),
    ):
        app.add_api_route(path, handler, responses={200: _answer(path, model)})
    for path, plain, kind in (
        ("/v1/map", service.map, "application/octet-stream"),
        ("/metrics", service.figures, "text/plain"),
    ):
        content: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
        if path == "/v1/map":
            content[202] = {"description": "The map is being drawn."}
        app.add_api_route(path, plain, response_class=Response, responses=content)
    page, headers = api_page(app.openapi()), {"content-security-policy": POLICY}
    app.add_api_route("/docs", lambda: HTMLResponse(page, headers=headers), include_in_schema=False)
    app.routes.extend(page_routes(service.front))


def _answer(path: str, model: Any) -> dict[str, Any]:
    return {"model": model, "content": {"application/json": {"example": ANSWERS[path]}}}


async def _answer_problem(_: Request, problem: Any) -> AsciiJSON:
    return problem.response()


async def _answer_validation(_: Request, error: Any) -> AsciiJSON:
    return schemas.problem_of(error.errors()[0]).response()


async def _answer_http(_: Request, error: Any) -> AsciiJSON:
    code, message = _HTTP.get(error.status_code, ("http", str(error.detail)))
    response = Problem(error.status_code, code, message).response()
    response.headers.update(error.headers or {})  # which methods are allowed
    return response
