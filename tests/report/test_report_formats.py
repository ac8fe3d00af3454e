"""Reports of a stored experiment, in every format."""

import csv
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.experiment_records import Environment, ExperimentRecord, PhaseTime, Startup
from eaglemon.core.stats import Interval
from eaglemon.core.verdict import findings_of
from eaglemon.errors import UsageError
from eaglemon.report.charts import Series, forest, lines, positions, timelines
from eaglemon.report.render import render
from tests.experiments.arms import arm
from tests.stats.trials import trial


def record(kind: str = "ab") -> ExperimentRecord:
    arms = (arm("base"), arm("right", steps=3), arm("<broken> | arm", steps=5))
    return ExperimentRecord(
        plan=ExperimentPlan(id="ab-20261129-101500-ab12", kind=kind, arms=arms),
        created_at=1_796_000_000.0,
        ended_at=1_796_000_300.0,
        outcome="done",
        failures={2: "oom: CUDA out of memory"},
        environments={
            index: Environment(
                host="gpu-a",
                engine="sglang",
                engine_version="0.5.16",
                driver_version="580.1",
                gpus=("H200",),
                digest="abc",
                resolved={"max_running_requests": value},
            )
            for index, value in ((0, "none"), (1, "48"))
        },
        trials=tuple(
            replace(
                trial(index, number, [speed + i for i in range(9)], accepted=accepted), notes=()
            )
            for index, speed, accepted in ((0, 90.0, None), (1, 140.0, 180))
            for number in range(2)
        ),
        startups=(
            Startup(
                server_id="s1",
                host="gpu-a",
                profile="base",
                digest="abc",
                engine="sglang",
                launched_at=1.0,
                ready_s=40.0,
                phases=(PhaseTime(phase="load-target", started_s=2.0, elapsed_s=30.0),),
            ),
        ),
    )


def rendered(suffix: str, kind: str = "ab") -> str:
    found = record(kind)
    findings = findings_of(found.trials, (False, True, True), draws=500)
    return render(
        found, replace(findings, confounders=("max_running_requests: none for base",)), suffix
    )


@pytest.mark.parametrize("kind", ["ab", "sweep"])
def test_html_is_one_file_with_its_charts_inside(kind: str) -> None:
    text = rendered(".html", kind)
    assert "right is faster than base" in text
    assert "1.5" in text
    assert "&lt;broken&gt;" in text
    assert "<broken>" not in text
    assert "max_running_requests" in text
    svgs = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(svgs) == (3 if kind == "ab" else 4)
    for svg in svgs:
        ET.fromstring(svg)  # noqa: S314 - our own output
    # Nothing is loaded from anywhere.
    assert not re.search(r"<(script|link|img|iframe)|src=|url\(|@import", text)


def test_markdown_says_the_same() -> None:
    text = rendered(".md")
    assert text.startswith("# ab-20261129-101500-ab12\n")
    assert "**right is faster than base" in text
    assert "| <broken> \\| arm |" in text
    assert "load-target 30 s" in text


def test_csv_has_every_request() -> None:
    rows = list(csv.DictReader(io.StringIO(rendered(".csv"))))
    assert len(rows) == 36
    assert rows[-1]["arm"] == "right"
    assert rows[-1]["verify_steps"] == "100"
    assert rows[0]["accepted"] == ""


def test_json_has_raw_records_and_findings() -> None:
    document = json.loads(rendered(".json"))
    assert document["schema_version"] == 1
    assert document["findings"]["comparisons"][0]["verdict"] == "faster"
    assert len(document["record"]["trials"][0]["records"]) == 9


def test_an_empty_experiment_is_reported_too() -> None:
    found = replace(record(), trials=(), startups=(), environments={}, outcome="")
    for suffix in (".html", ".md", ".csv", ".json"):
        text = render(found, findings_of((), (False, True, True)), suffix)
        assert "nan" not in text.lower().replace("nonce", "")


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"\*\.html, \*\.md"):
        render(record(), findings_of((), (False, True, True)), ".pdf")


@pytest.mark.parametrize(
    "svg",
    [
        forest([]),
        forest([("a & b", Interval(value=1.0, low=1.0, high=1.0)), ("c", None)]),
        forest([("x", Interval(value=40.0, low=0.01, high=900.0))]),
        lines([], x_name="x", y_name="y"),
        lines([Series(name="<one>", points=((1.0, 0.0),))], x_name="x", y_name="y"),
        lines([Series(name="s", points=((1.0, 5.0), (7.0, 12345.6)))], x_name="x", y_name="y"),
        positions([("a", (0.9, 0.5)), ("b", ())]),
        timelines([]),
    ],
)
def test_charts_are_well_formed_whatever_they_show(svg: str) -> None:
    root = ET.fromstring(svg)  # noqa: S314 - our own output
    width = float(root.attrib["width"])
    for element in root.iter():
        for name in ("x", "cx", "x1", "x2"):
            if name in element.attrib:
                assert -1 <= float(element.attrib[name]) <= width + 1
