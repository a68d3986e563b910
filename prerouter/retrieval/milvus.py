"""Vectors in Milvus, through pymilvus: a Milvus Lite file, or a server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prerouter.core.errors import InputError, MissingDependencyError
from prerouter.recipe.retrieval import MilvusSection
from prerouter.retrieval.index import Hits

if TYPE_CHECKING:
    from pymilvus import MilvusClient

_ROWS_AT_ONCE = 1000
# The most that one Milvus search gives.
_MOST = 16_384


class MilvusStore:
    """One Milvus, with a collection for each document under its settings."""

    def __init__(self, section: MilvusSection) -> None:
        try:
            from pymilvus import MilvusClient, MilvusException
        except ImportError:
            raise MissingDependencyError("pymilvus", "milvus") from None
        self._section = section
        uri = section.uri
        options = {}
        if not section.is_server:
            # Milvus Lite hangs up on the pings that pymilvus sends every ten seconds, loudly.
            options = {"grpc.keepalive_time_ms": 2**31 - 1}
            # Made absolute, since pymilvus takes a bare name for a database of a server's.
            file = Path(uri).absolute()
            file.parent.mkdir(parents=True, exist_ok=True)
            uri = str(file)
        token = os.environ.get(section.token_variable, "") if section.token_variable else ""
        try:
            self._client = MilvusClient(uri=uri, token=token, grpc_options=options)
        except (MilvusException, OSError) as error:
            raise _refused(section, error) from None

    def open(self, key: str, rows: int, make: Callable[[], NDArray[np.float32]]) -> MilvusVectors:
        """The collection of `key` with its `rows` vectors; built, or built anew, where they aren't
        all there. Raises InputError where Milvus refuses, or has another index than asked for."""
        from pymilvus import MilvusException

        section = self._section
        sizes = f"_{section.m}_{section.ef_construction}" if section.kind == "HNSW" else ""
        name = f"prerouter_{section.kind}{sizes}_{key}"
        try:
            if not self._holds(name, rows):
                self._build(name, make())
            self._client.load_collection(name)
            self._check_index(name)
        except MilvusException as error:
            raise _refused(section, error) from None
        return MilvusVectors(self._client, name, rows, section)

    def close(self) -> None:
        """Give the file or the connection free."""
        self._client.close()

    def _holds(self, name: str, rows: int) -> bool:
        if not self._client.has_collection(name):
            return False
        self._client.load_collection(name)
        counted = self._client.query(name, output_fields=["count(*)"], consistency_level="Strong")
        # Fewer are what a killed run left.
        return bool(counted[0]["count(*)"] == rows)

    def _build(self, name: str, vectors: NDArray[np.float32]) -> None:
        from pymilvus import DataType

        client = self._client
        if client.has_collection(name):
            client.drop_collection(name)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        client.create_collection(name, schema=schema, consistency_level="Strong")
        for first in range(0, len(vectors), _ROWS_AT_ONCE):
            some = vectors[first : first + _ROWS_AT_ONCE]
            client.insert(
                name, [{"id": first + row, "vector": vector} for row, vector in enumerate(some)]
            )
        client.flush(name)
        # Made after the rows: Milvus Lite builds an index that was there before in the background
        # and searches without it meanwhile.
        index = client.prepare_index_params()
        index.add_index(
            field_name="vector",
            index_type=self._section.kind,
            metric_type="IP",
            # Nested twice, since pymilvus flattens the outer one and Milvus Lite overlooks what
            # was flattened.
            params={"params": self._index_parameters()},
        )
        client.create_index(name, index)

    def _index_parameters(self) -> dict[str, int]:
        section = self._section
        if section.kind == "FLAT":
            return {}
        return {"M": section.m, "efConstruction": section.ef_construction}

    def _check_index(self, name: str) -> None:
        """A Milvus that overlooks a parameter says nothing, and searches by its own."""
        told = self._client.describe_index(name, "vector")
        told = {**told, **(told.get("params") or {})}
        asked = {"index_type": self._section.kind, "metric_type": "IP", **self._index_parameters()}
        other = [key for key, value in asked.items() if str(told.get(key)) != str(value)]
        if other:
            raise InputError(
                self._section.uri,
                f"has another index: {', '.join(f'{key} {told.get(key)}' for key in other)}",
                ", ".join(f"{key} {asked[key]}" for key in other),
                f"drop the collection {name}",
            )


class MilvusVectors:
    """One collection, searched by inner product."""

    def __init__(self, client: MilvusClient, name: str, rows: int, section: MilvusSection) -> None:
        self._client = client
        self._name = name
        self._rows = rows
        self._section = section

    def nearest(self, vector: NDArray[np.float32], top_k: int) -> Hits:
        """The `top_k` chunks with the largest inner product, as far as the index finds them."""
        from pymilvus import MilvusException

        top_k = min(top_k, self._rows, _MOST)
        if top_k <= 0:
            return []
        search: dict[str, Any] = {"metric_type": "IP"}
        if self._section.kind == "HNSW":
            search["params"] = {"ef": max(self._section.ef, top_k)}
        try:
            hits = self._client.search(
                self._name,
                data=[vector],
                limit=top_k,
                search_params=search,
                output_fields=["id"],
            )[0]
        except MilvusException as error:
            raise _refused(self._section, error) from None
        found = [(int(hit["id"]), round(float(hit["distance"]), 5)) for hit in hits]
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))


def _refused(section: MilvusSection, error: Exception) -> InputError:
    advice = "" if section.is_server else "one process at a time may use a Milvus Lite file"
    return InputError(section.uri, f"Milvus refuses: {error}", advice)
