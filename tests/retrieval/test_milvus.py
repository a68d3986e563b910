from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from prerouter.core.errors import InputError
from prerouter.recipe.retrieval import MilvusSection
from prerouter.retrieval.index import ExactVectors
from prerouter.retrieval.milvus import MilvusStore

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.standard_normal((1_500, 24)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


def given() -> NDArray[np.float32]:
    return VECTORS


def never() -> NDArray[np.float32]:
    raise AssertionError("the vectors were there already")


@pytest.fixture
def section(tmp_path: Path) -> MilvusSection:
    return MilvusSection(uri=str(tmp_path / "folder" / "vectors.db"))


@pytest.fixture
def store(section: MilvusSection) -> Iterator[MilvusStore]:
    store = MilvusStore(section)
    yield store
    store.close()


@pytest.mark.parametrize(("kind", "recall"), [("FLAT", 1.0), ("HNSW", 0.9)])
def test_it_finds_what_exact_search_finds(section: MilvusSection, kind: str, recall: float) -> None:
    store = MilvusStore(section.model_copy(update={"kind": kind}))
    index, exact = store.open("a", 1_500, given), ExactVectors(VECTORS)
    hits = 0
    for query in VECTORS[:40] + 0.05:
        found, wanted = index.nearest(query, 5), exact.nearest(query, 5)
        hits += len({place for place, _ in found} & {place for place, _ in wanted})
        assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))
        assert found[0][1] == pytest.approx(wanted[0][1], abs=1e-4)
    store.close()
    assert hits / 200 >= recall


def test_the_parameters_of_hnsw_reach_the_index(section: MilvusSection) -> None:
    from pymilvus import MilvusClient

    store = MilvusStore(section.model_copy(update={"m": 4, "ef_construction": 33}))
    store.open("a", 1_500, given)
    store.close()
    client = MilvusClient(uri=section.uri)
    described = client.describe_index("prerouter_HNSW_4_33_a", "vector")
    client.close()
    assert described["params"] == {"M": 4, "efConstruction": 33}
    import faiss

    written = next(Path(section.uri).rglob("*.idx"))
    assert faiss.downcast_index(faiss.read_index(str(written))).hnsw.efConstruction == 33


def test_more_than_ef_can_be_asked_for(store: MilvusStore) -> None:
    assert len(store.open("a", 1_500, given).nearest(VECTORS[0], 300)) == 300
    assert len(store.open("a", 1_500, never).nearest(VECTORS[0], 20_000)) == 1_500
    assert store.open("a", 1_500, never).nearest(VECTORS[0], 0) == []


def test_a_collection_outlives_its_process_and_half_a_one_is_built_anew(
    section: MilvusSection,
) -> None:
    first = MilvusStore(section)
    before = first.open("a", 1_500, given).nearest(VECTORS[3], 5)
    first.open("torn", 700, lambda: VECTORS[:700])
    first.close()
    second = MilvusStore(section)
    assert second.open("a", 1_500, never).nearest(VECTORS[3], 5) == before
    # What a run leaves that was killed between two inserts.
    assert second.open("torn", 1_500, given).nearest(VECTORS[1_400], 1)[0][0] == 1_400
    second.close()


def test_ef_reaches_the_search(section: MilvusSection) -> None:
    # A graph this sparse finds little with few candidates: brute force would find all.
    found = {}
    for ef in (1, 1_500):
        store = MilvusStore(section.model_copy(update={"m": 2, "ef": ef}))
        index = store.open("a", 1_500, given)
        found[ef] = sum(
            index.nearest(query, 1)[0][0] == row for row, query in enumerate(VECTORS[:100])
        )
        store.close()
    assert found[1] < 0.9 * found[1_500]


def test_an_index_with_other_parameters_is_told(section: MilvusSection) -> None:
    from pymilvus import MilvusClient

    store = MilvusStore(section)
    store.open("a", 1_500, given)
    store.close()
    name = "prerouter_HNSW_16_200_a"
    client = MilvusClient(uri=section.uri)
    client.release_collection(name)
    client.drop_index(name, "vector")
    index = client.prepare_index_params()
    index.add_index(field_name="vector", index_type="HNSW", metric_type="IP", params={"M": 16})
    client.create_index(name, index)
    client.close()
    store = MilvusStore(section)
    with pytest.raises(InputError, match=r"another index: M None, .*; M 16, .*; drop"):
        store.open("a", 1_500, never)
    store.close()


def test_a_file_in_use_is_refused_in_one_line(section: MilvusSection, store: MilvusStore) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from prerouter.retrieval.milvus import *\n"
        "try: MilvusStore(MilvusSection(uri=sys.argv[1]))\n"
        "except InputError as error: print(error.line)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, section.uri], capture_output=True, text=True, check=True
    )
    assert "one process at a time" in done.stdout


def test_a_server_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="Milvus refuses"):
        MilvusStore(MilvusSection(uri="http://127.0.0.1:9"))
