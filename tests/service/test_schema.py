from __future__ import annotations

import json
from typing import Any

import pytest

from mmsbgen.service.http.problem_details import MEDIA_TYPE
from tests.service.running import Service

METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def schema(sqlite_service: Service) -> dict[str, Any]:
    with sqlite_service.client() as client:
        found: dict[str, Any] = client.get("/api/v1/openapi.json").json()
        return found


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, one) for path, ones in schema["paths"].items() for method, one in ones.items()]


def test_every_operation_says_what_it_does_and_how_it_fails(schema: dict[str, Any]) -> None:
    found = operations(schema)
    assert len(found) >= 20
    for path, method, one in found:
        assert method in METHODS
        assert one["description"], path
        assert path in ("/health", "/ready", "/metrics") or path.startswith("/api/v1/"), path
        errors = {code: answer for code, answer in one["responses"].items() if code[0] in "45"}
        assert "429" in errors, path
        for code, answer in errors.items():
            if (path, code) != ("/ready", "503"):
                assert list(answer["content"]) == [MEDIA_TYPE], (path, code)
        for parameter in one.get("parameters", []):
            assert parameter["schema"], (path, parameter["name"])


def test_what_changes_something_is_marked_as_needing_the_token(schema: dict[str, Any]) -> None:
    for path, method, one in operations(schema):
        assert ("security" in one) == (method != "get"), (path, method)
    assert schema["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}


def test_texts_and_numbers_of_requests_are_bounded(schema: dict[str, Any]) -> None:
    def check(where: str, value: dict[str, Any]) -> None:
        for one in value.get("anyOf", [value]):
            if "$ref" in one or "enum" in one or "const" in one:
                continue
            kind = one.get("type")
            if kind == "string":
                assert one.get("format") == "binary" or "pattern" in one or "maxLength" in one, where
            elif kind in ("integer", "number"):
                assert "maximum" in one, where
                assert "minimum" in one or "exclusiveMinimum" in one, where
            elif kind == "array":
                assert "maxItems" in one, where
                check(where, one["items"])

    for path, _, one in operations(schema):
        for parameter in one.get("parameters", []):
            check(f"{path} {parameter['name']}", parameter["schema"])
    tune = schema["components"]["schemas"]["TuneRequest"]
    assert tune["additionalProperties"] is False
    for name, value in tune["properties"].items():
        check(f"TuneRequest {name}", value)


def test_examples_are_of_their_own_schema(schema: dict[str, Any]) -> None:
    import jsonschema

    for name, model in schema["components"]["schemas"].items():
        for example in model.get("examples", []):
            whole = {**model, "components": schema["components"]}
            jsonschema.validate(example, json.loads(json.dumps(whole)))
        for value in model.get("properties", {}).values():
            for example in value.get("examples", []):
                jsonschema.validate(example, {**value, "components": schema["components"]}, None)
        assert model.get("description") or "enum" in model, name
