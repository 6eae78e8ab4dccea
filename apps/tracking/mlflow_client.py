"""Send runs to an MLflow server through its REST API.

A batch can be sent again: the run is found by its tag `gymweb.key`, and MLflow stores a metric with equal key, step,
timestamp and value once.
"""

import base64
import re
from typing import Any
from urllib.parse import quote

import orjson

from apps.gym.calls.outbound import Outbound, OutboundFailed, OutboundReply
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.redaction.header_secrets import header_secrets, mask_secrets
from apps.gym.redaction.shortening import cut_clean
from apps.tracking.run_batches import Point, RunBatch, SampleTable, SentRun, TrackerFailed

CALL_SECONDS = 30.0
MAX_SHOWN_BYTES = 64 * 1024
MAX_METRICS = 1_000
"""Maximum metrics of one call. Limits are those of MLflow."""
MAX_PARAMS = 100
MAX_PARAM_CHARACTERS = 6_000
MAX_TAG_CHARACTERS = 5_000
SAMPLES_FILE = "samples.json"
_NOT_IN_KEYS = re.compile(r"[^\w./ \-]", re.ASCII)
_RETRIED = {408, 425, 429}


class MlflowClient:
    """A connection to the server at `address`.

    `secret` is a bearer token, or `user:password` for basic authentication.
    """

    rewrites = False

    def __init__(self, outbound: Outbound, address: str, secret: str) -> None:
        self._outbound = outbound
        self._address = address.rstrip("/")
        authorization = _authorize(secret)
        self._headers = {"Content-Type": "application/json", **authorization}
        self._secrets = header_secrets(authorization.values())

    async def send(self, batch: RunBatch) -> SentRun:
        experiment = await self._find_experiment(batch.project)
        run = await self._find_run(experiment, batch)
        run_id = run["info"]["run_id"]
        await self._log(run_id, batch)
        if batch.samples is not None:
            await self._store_samples(run, batch.samples)
        if batch.state:
            await self._finish(run_id, batch)
        return SentRun(run_id, f"{self._address}/#/experiments/{experiment}/runs/{run_id}")

    async def _find_experiment(self, name: str) -> str:
        query = f"experiments/get-by-name?experiment_name={quote(name, safe='')}"
        reply = await self._request("GET", f"api/2.0/mlflow/{query}")
        if reply.status == 404:
            made = await self._request("POST", "api/2.0/mlflow/experiments/create", {"name": name})
            if made.status == 400 and b"RESOURCE_ALREADY_EXISTS" in made.body:
                # Another worker created it meanwhile.
                made = await self._request("GET", f"api/2.0/mlflow/{query}")
            found = self._content(made)
            return str(found.get("experiment_id") or found["experiment"]["experiment_id"])
        found = self._content(reply)["experiment"]
        if found.get("lifecycle_stage") == "deleted":
            raise TrackerFailed(f"The experiment “{name}” is deleted in MLflow. Restore it.", is_final=True)
        return str(found["experiment_id"])

    async def _find_run(self, experiment: str, batch: RunBatch) -> dict[str, Any]:
        """Return the run of this key, creating it if needed."""
        search = {
            "experiment_ids": [experiment],
            "filter": f"tags.`gymweb.key` = '{batch.key}'",
            "run_view_type": "ACTIVE_ONLY",
            "max_results": 1,
        }
        found: list[dict[str, Any]] = (await self._call("runs/search", search)).get("runs", [])
        if found:
            return found[0]
        tags = {
            "gymweb.key": batch.key,
            "gymweb.collection": batch.link,
            "mlflow.source.name": "GymWeb",
            "mlflow.note.content": f"Rollouts of the GymWeb collection {batch.link}",
        }
        body = {
            "experiment_id": experiment,
            "run_name": batch.name,
            "start_time": _milliseconds(batch.started_at),
            "tags": _pairs(tags, MAX_TAG_CHARACTERS),
        }
        made: dict[str, Any] = (await self._call("runs/create", body))["run"]
        return made

    async def _log(self, run_id: str, batch: RunBatch) -> None:
        versions = {f"model_version.{point.step}": point.version for point in batch.points if point.of_version}
        params = _pairs({**batch.settings, **versions}, MAX_PARAM_CHARACTERS)
        metrics = [one for point in batch.points for one in _metrics(point)]
        for first in range(0, len(params), MAX_PARAMS):
            await self._call("runs/log-batch", {"run_id": run_id, "params": params[first : first + MAX_PARAMS]})
        for first in range(0, len(metrics), MAX_METRICS):
            await self._call("runs/log-batch", {"run_id": run_id, "metrics": metrics[first : first + MAX_METRICS]})

    async def _store_samples(self, run: dict[str, Any], samples: SampleTable) -> None:
        """Store the table as an artifact that MLflow shows under Evaluation and Artifacts."""
        root = run["info"]["artifact_uri"]
        if not root.startswith("mlflow-artifacts:"):
            raise TrackerFailed(
                f"The artifacts of this experiment are in {root.partition(':')[0]}, where GymWeb cannot write. Start "
                "the MLflow server with --serve-artifacts, use a new experiment, or set the samples to 0.",
                is_final=True,
            )
        path = re.sub(r"^mlflow-artifacts:(//[^/]*)?/*", "", root)
        body = {"columns": samples.columns, "data": samples.rows}
        stored = await self._request("PUT", f"api/2.0/mlflow-artifacts/artifacts/{quote(path)}/{SAMPLES_FILE}", body)
        self._check(stored)
        tag = orjson.dumps([{"path": SAMPLES_FILE, "type": "table"}]).decode()
        await self._call(
            "runs/set-tag", {"run_id": run["info"]["run_id"], "key": "mlflow.loggedArtifacts", "value": tag}
        )

    async def _finish(self, run_id: str, batch: RunBatch) -> None:
        status = "FINISHED" if batch.state == "completed" else "KILLED"
        await self._call("runs/update", {"run_id": run_id, "status": status, "end_time": _milliseconds(batch.last_at)})

    async def _call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._content(await self._request("POST", f"api/2.0/mlflow/{name}", body))

    async def _request(self, method: str, path: str, body: Any = None) -> OutboundReply:
        try:
            return await self._outbound.request(
                method,
                f"{self._address}/{path}",
                body=None if body is None else orjson.dumps(body),
                headers=self._headers,
                timeout=CALL_SECONDS,
            )
        except (OutboundFailed, OutboundRefused) as error:
            message = mask_secrets(str(error), self._secrets)
            raise TrackerFailed(message, is_final=isinstance(error, OutboundRefused)) from None

    def _content(self, reply: OutboundReply) -> dict[str, Any]:
        self._check(reply)
        try:
            content = orjson.loads(reply.body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            message = "The server at this URL did not reply like MLflow. Check the URL of the tracker."
            raise TrackerFailed(message, is_final=True)
        return content

    def _check(self, reply: OutboundReply) -> None:
        if 200 <= reply.status < 300:
            return
        if reply.status in (401, 403):
            raise TrackerFailed(f"MLflow returned {reply.status}. Enter a valid token for the tracker.", is_final=True)
        if reply.headers.get("Content-Type", "").startswith("text/html"):
            message = f"The server at this URL returned {reply.status} with a page, unlike MLflow. Check the URL."
            raise TrackerFailed(message, is_final=400 <= reply.status < 500 and reply.status not in _RETRIED)
        text = mask_secrets(reply.body[:MAX_SHOWN_BYTES].decode(errors="replace"), self._secrets)
        is_final = 400 <= reply.status < 500 and reply.status not in _RETRIED
        raise TrackerFailed(f"MLflow returned {reply.status}: {cut_clean(text, 300)}", is_final=is_final)


def _authorize(secret: str) -> dict[str, str]:
    if not secret:
        return {}
    if ":" in secret:
        return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
    return {"Authorization": f"Bearer {secret}"}


def _metrics(point: Point) -> list[dict[str, Any]]:
    at = _milliseconds(point.at)
    return [
        {"key": _key(name), "value": value, "timestamp": at, "step": point.step} for name, value in point.values.items()
    ]


def _pairs(values: dict[str, Any], limit: int) -> list[dict[str, str]]:
    return [{"key": _key(key), "value": str(value)[:limit]} for key, value in values.items()]


def _key(name: str) -> str:
    return _NOT_IN_KEYS.sub("_", name)[:250]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
