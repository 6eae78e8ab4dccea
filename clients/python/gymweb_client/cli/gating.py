"""Compare a collection with a baseline in CI: an exit code, and a JUnit report."""

from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import aiohttp
import typer
from typer import Option

from gymweb_client.cli.calls import FAILED, USAGE, Call, explain
from gymweb_client.errors import ApiError, GymWebError


def gate(
    call: Call,
    *,
    baseline: Annotated[int, Option(help="The collection to compare with.", show_default=False)],
    candidate: Annotated[int, Option(help="The collection to check.", show_default=False)],
    junit: Annotated[Path | None, Option(help="File for a JUnit report.", show_default=False)] = None,
) -> None:
    """Check that a collection is not significantly worse than a baseline of the same dataset. Exit code 0: not
    worse. 1: worse. 2: no verdict."""
    try:
        found = call.gym.request("GET", f"collections/{candidate}/gate/", baseline=baseline, **call.query)
    except (GymWebError, OSError, aiohttp.ClientError) as problem:
        found = {"verdict": "undecided", "reason": explain(problem) if isinstance(problem, ApiError) else str(problem)}
    if junit:
        report = _report(found, f"collection {candidate} against baseline {baseline}")
        junit.write_bytes(ElementTree.tostring(report, encoding="utf-8", xml_declaration=True))
    if "tasks" in found:
        call.out.one(found)
    for side, key in (("candidate", "notices"), ("baseline", "baseline_notices")):
        for notice in found.get(key, []):
            call.out.say(
                f"Set-up notice of the {side}: {notice['title']} ({notice['rollouts']:,} rollouts, for example "
                f"{notice['example']}). {notice['remedy']}"
            )
    call.out.say(found["reason"])
    if found["verdict"] != "pass":
        raise typer.Exit(FAILED if found["verdict"] == "fail" else USAGE)


def _report(found: dict[str, Any], name: str) -> ElementTree.Element:
    """Return a JUnit test suite with one test case."""
    failures, errors = (str(int(found["verdict"] == verdict)) for verdict in ("fail", "undecided"))
    suite = ElementTree.Element("testsuite", name="gymweb gate", tests="1", failures=failures, errors=errors)
    case = ElementTree.SubElement(suite, "testcase", classname="gymweb.gate", name=name)
    if found["verdict"] != "pass":
        kind = "failure" if found["verdict"] == "fail" else "error"
        ElementTree.SubElement(case, kind, message=found["reason"]).text = str(found)
    return suite
