"""What the OpenAPI document promises, held against the service by Schemathesis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from prerouter.routers.guideline import GuidelineRouter

from .running import running

KEY = "a-key-of-the-tests"
BEARER = {"Authorization": f"Bearer {KEY}"}
OPERATIONS = [
    ("/v1/route", "post"),
    ("/healthz", "get"),
    ("/healthz/live", "get"),
    ("/metrics", "get"),
]


@pytest.fixture(scope="module")
def described() -> Iterator[schemathesis.BaseSchema]:
    with running(GuidelineRouter(), api_key=KEY) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json", headers=BEARER)


def test_every_operation_is_tried(described: schemathesis.BaseSchema) -> None:
    found = {(each.ok().path, each.ok().method) for each in described.get_all_operations()}
    assert found == set(OPERATIONS)


# A request without parameters and body can't be wrong.
@pytest.mark.parametrize(
    ("path", "method", "mode", "status"),
    [
        *((path, method, GenerationMode.POSITIVE, 200) for path, method in OPERATIONS),
        ("/v1/route", "post", GenerationMode.NEGATIVE, 422),
    ],
)
def test_the_service_is_what_its_document_says(
    path: str,
    method: str,
    mode: GenerationMode,
    status: int,
    described: schemathesis.BaseSchema,
) -> None:
    operation = described[path][method]
    found = set()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=60 if method == "post" else 3,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: schemathesis.Case) -> None:
        # That chunks overlap by less than their size is a rule over two fields: no schema tells it.
        response = case.call_and_validate(
            headers=BEARER, excluded_checks=[positive_data_acceptance], timeout=20
        )
        found.add(response.status_code)

    holds()
    assert status in found
