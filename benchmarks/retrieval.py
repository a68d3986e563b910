"""How fast retrieval indexes and answers, in memory and in Milvus Lite, beside numpy and faiss.

    python benchmarks/retrieval.py [--chunks 1000 10000 100000] [--queries 200]

The sentences and questions of the sample are embedded once by all-MiniLM-L6-v2. A chunk's text is
three sentences drawn at random and its vector their mean at length 1, so that 100,000 vectors have
the directions that a real model's have, without hours of embedding. All ways search the same
vectors in one run, one query after the other. Printed are seconds to index, milliseconds a query
(the question's own embedding is timed apart), milliseconds of processor time, all threads added up,
which other work on the machine disturbs less, and recall@5 against sorting all scores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from prerouter.recipe.retrieval import MilvusSection
from prerouter.retrieval.chunking import chunk_document
from prerouter.retrieval.embedding import SentenceEmbedder
from prerouter.retrieval.hybrid import HybridSearch
from prerouter.retrieval.index import ExactVectors
from prerouter.retrieval.milvus import MilvusStore

TOP_K = 5
SEED = 13
SAMPLE = Path(__file__).parents[1] / "data" / "sample"
Vectors = NDArray[np.float32]
Search = Callable[[int], Sequence[int]]


class Corpus:
    """Texts and vectors of chunks, and questions with their vectors."""

    def __init__(self, queries: int) -> None:
        embedder = SentenceEmbedder("embedded:all-MiniLM-L6-v2")
        lines = (SAMPLE / "questions.jsonl").read_text("utf-8").splitlines()
        questions = dict.fromkeys(json.loads(line)["question"] for line in lines)
        self.questions = list(questions)[:queries]
        self.sentences = [
            text[chunk.start : chunk.end]
            for path in sorted(SAMPLE.glob("documents/*.txt"))
            for text in [path.read_text("utf-8-sig")]
            for chunk in chunk_document(text, 24, 0)
        ][:4000]
        began = time.perf_counter()
        self.question_vectors = np.stack([embedder.question(it) for it in self.questions])
        each = (time.perf_counter() - began) / len(self.questions)
        began = time.perf_counter()
        self.sentence_vectors = embedder.documents(self.sentences)
        rate = len(self.sentences) / (time.perf_counter() - began)
        print(
            f"embedding by all-MiniLM-L6-v2: {1000 * each:.0f} ms a question, "
            f"{rate:.0f} of {len(self.sentences):,} sentences a second"
        )

    def chunks(self, count: int) -> tuple[list[str], Vectors]:
        random = np.random.default_rng(SEED)
        drawn = random.integers(len(self.sentences), size=(count, 3))
        texts = ["".join(self.sentences[place] for place in row) for row in drawn]
        vectors = self.sentence_vectors[drawn].mean(axis=1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return texts, np.ascontiguousarray(vectors, dtype=np.float32)


def measure(name: str, build: Callable[[], Search], truth: list[set[int]]) -> None:
    began = time.perf_counter()
    search = build()
    seconds = time.perf_counter() - began
    search(0)
    taken, busy, hits = [], [], 0
    for number, wanted in enumerate(truth):
        began, worked = time.perf_counter(), time.process_time()
        found = search(number)
        taken.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - worked))
        hits += len(wanted & set(found))
    median, high, cpu = *np.percentile(taken, [50, 95]), np.percentile(busy, 95)
    recall = f"{hits / TOP_K / len(truth):>10.3f}" if truth[0] else "         -"
    print(f"  {name:<26}{seconds:>9.2f}{median:>11.2f}{high:>9.2f}{cpu:>9.2f}{recall}")


def run(corpus: Corpus, count: int, folder: Path) -> None:
    texts, vectors = corpus.chunks(count)
    queries = corpus.question_vectors
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    truth = [set(np.argsort(-row, kind="stable")[:TOP_K].tolist()) for row in scores]
    print(f"\n{count:,} chunks, {vectors.shape[1]} dimensions, {len(queries)} queries")
    print(f"  {'':<26}{'index s':>9}{'median ms':>11}{'p95 ms':>9}{'p95 CPU':>9}{'recall@5':>10}")

    def numpy_alone() -> Search:
        def search(number: int) -> Sequence[int]:
            found = vectors @ queries[number]
            best: list[int] = np.argpartition(found, -TOP_K)[-TOP_K:].tolist()
            return best

        return search

    def faiss_alone(index: faiss.Index) -> Callable[[], Search]:
        def build() -> Search:
            index.add(vectors)

            def search(number: int) -> Sequence[int]:
                best: list[int] = index.search(queries[number : number + 1], TOP_K)[1][0].tolist()
                return best

            return search

        return build

    def in_memory() -> Search:
        index = ExactVectors(vectors)
        return lambda number: [place for place, _ in index.nearest(queries[number], TOP_K)]

    def in_milvus(kind: str) -> Callable[[], Search]:
        def build() -> Search:
            section = MilvusSection.model_validate(
                {"uri": str(folder / f"{kind}-{count}.db"), "kind": kind}
            )
            index = MilvusStore(section).open("benchmark", count, lambda: vectors)
            return lambda number: [place for place, _ in index.nearest(queries[number], TOP_K)]

        return build

    def hybrid() -> Search:
        known = dict(zip(corpus.questions, queries, strict=True))
        search = HybridSearch(texts, ExactVectors(vectors), known.__getitem__, None, 0.5)
        return lambda number: [
            each.place for each in search.search(corpus.questions[number], TOP_K)
        ]

    hnsw = faiss.IndexHNSWFlat(vectors.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    hnsw.hnsw.efConstruction, hnsw.hnsw.efSearch = 200, 64
    measure("numpy, all scores", numpy_alone, truth)
    measure("faiss flat", faiss_alone(faiss.IndexFlatIP(vectors.shape[1])), truth)
    measure("prerouter in memory", in_memory, truth)
    measure("prerouter with BM25", hybrid, [set() for _ in truth])
    measure("faiss HNSW 16/200/64", faiss_alone(hnsw), truth)
    measure("Milvus Lite FLAT", in_milvus("FLAT"), truth)
    measure("Milvus Lite HNSW 16/200/64", in_milvus("HNSW"), truth)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"threads: {threads}; load before: {os.getloadavg()[0]:.1f}")
    corpus = Corpus(arguments.queries)
    with tempfile.TemporaryDirectory() as folder:
        for count in arguments.chunks:
            run(corpus, count, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
