"""Write data/sample: made-up documents with facts planted at known places, and questions.

The output is committed and the same byte for byte under its seed: python scripts/make_sample.py
The prose comes from scripts/sample_grammar/. Each question asks for facts whose sentences are
known, so its evidence is exact; which route finds them is for the pipeline to measure.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from prerouter.retrieval.chunking import count_words

VERSION = 1
SEED = 13
DOCUMENTS = 72
SHORTEST, LONGEST = 650, 13_500  # tokens
LENGTH_SKEW = 0.55  # 1 spreads the lengths evenly on a logarithmic scale; below, more are long
PERIODS = 3
GRAMMARS = Path(__file__).parent / "sample_grammar"
TARGET = Path(__file__).parents[1] / "data" / "sample"
TYPES = ("report", "novel", "paper")
SMALL_NUMBERS = ("two", "three", "four", "five", "six", "seven", "nine", "eleven", "twelve")
# A document has one question of each level and a fifth whose level goes round.
LEVELS = ("location", "reasoning", "comparison", "hallucination")
FIFTH = ("comparison", "location", "reasoning")
# Forms, as often as they stand here.
LOOKUPS = ("direct", "direct", "direct", "oblique")
COMPARISONS = (
    *("superlative", "superlative", "superlative", "total", "total", "count", "count"),
    *("contrast", "contrast", "years", "pair"),
)

Item = TypeVar("Item")
Row = dict[str, Any]


class Dice:
    """Draws from `random.random()` alone, the one stream that Python promises to keep."""

    def __init__(self, seed: str) -> None:
        self.share = random.Random(seed).random  # noqa: S311

    def below(self, bound: int) -> int:
        return int(self.share() * bound)

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def some(self, items: Sequence[Item], count: int) -> list[Item]:
        """`count` of the items, each at most once, in random order."""
        order = sorted((self.share(), place) for place in range(len(items)))
        return [items[place] for _, place in order[:count]]


@dataclass
class Fact:
    """One planted sentence, where it goes (a share of the document), and its place once written."""

    sentence: str
    place: float
    value: int = 0
    variant: int = 0
    start: int = 0


@dataclass
class Story:
    """What one document fixes before it is written. `facts` go by (attribute, entity, period)."""

    grammar: dict[str, Any]
    dice: Dice
    once: dict[str, str]
    entities: list[str]
    strangers: list[str]
    bystanders: list[str]
    periods: list[str]
    missing_period: str
    attributes: list[str]
    missing_attribute: str
    facts: dict[tuple[str, str, str], Fact] = field(default_factory=dict)
    chains: dict[str, tuple[str, list[Fact]]] = field(default_factory=dict)

    def expand(self, template: str, **given: str) -> str:
        """`template` with each slot filled from what is given, else fixed, else from the lists."""

        def fill(slot: re.Match[str]) -> str:
            name = slot[1]
            known = given.get(name) or self.once.get(name)
            return known or self.expand(self.dice.pick(self.grammar["lists"][name]), **given)

        return re.sub(r"\{(\w+)\}", fill, template)

    def sentence(self, templates: Sequence[str], **given: str) -> str:
        text = self.expand(self.dice.pick(templates), **given)
        text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
        return text[0].upper() + text[1:]

    def shown(self, attribute: str, value: float) -> str:
        scale = self.grammar["attributes"][attribute].get("scale", 1)
        return f"{value / scale:.1f}" if scale > 1 else str(round(value))


def names(grammar: dict[str, Any], kind: str, dice: Dice, count: int) -> list[str]:
    parts = grammar["names"][kind]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(dice.pick(parts[part]) for part in ("starts", "middles", "ends"))] = None
    return list(found)


def new_story(grammar: dict[str, Any], dice: Dice, tokens: int) -> Story:
    """Choose who and what a document of that length is about, and all its facts."""
    once = {slot: dice.pick(options) for slot, options in grammar["once"].items()}
    once["units"] = once["unit"] + ("es" if once["unit"].endswith("ch") else "s")
    size = 5 + (tokens > 2_000) + (tokens > 4_500) + (tokens > 8_000)
    everyone = names(grammar, "entity", dice, size + 3)
    people = names(grammar, "helper", dice, 3 + 8)
    periods = dice.some(grammar["periods"], PERIODS + 1)
    attributes = dice.some(list(grammar["attributes"]), 4)
    story = Story(
        grammar=grammar,
        dice=dice,
        once=once,
        entities=everyone[:size],
        strangers=everyone[size:],
        bystanders=people[3:],
        periods=sorted(periods[:PERIODS], key=grammar["periods"].index),
        missing_period=periods[PERIODS],
        attributes=attributes[:3],
        missing_attribute=attributes[3],
    )
    # The first attribute is told for every period, the others for one.
    for attribute in story.attributes:
        told = story.periods if attribute == story.attributes[0] else [dice.pick(story.periods)]
        for period in told:
            _plant(story, attribute, period)
    careers = dice.some(grammar["chain"]["careers"], 3)
    for entity, helper, career in zip(
        dice.some(story.entities, 3), people[:3], careers, strict=True
    ):
        given = {"entity": entity, "helper": helper, "career": career}
        links = [
            Fact(story.sentence(grammar["chain"][link], **given), dice.share())
            for link in ("first", "second")
        ]
        story.chains[entity] = (career, links)
    return story


def _plant(story: Story, attribute: str, period: str) -> None:
    """One fact for every entity, scattered over the whole document."""
    about = story.grammar["attributes"][attribute]
    low, high = about["low"], about["high"]
    size = len(story.entities)
    strata = story.dice.some(range(size), size)
    values: dict[int, None] = {}
    while len(values) < size:
        values[low + story.dice.below(high - low)] = None
    for entity, stratum, value in zip(story.entities, strata, values, strict=True):
        given = {"entity": entity, "period": period, "value": story.shown(attribute, value)}
        place = (stratum + story.dice.share()) / size
        variant = story.dice.below(len(about["facts"]))
        sentence = story.sentence([about["facts"][variant]], **given)
        story.facts[attribute, entity, period] = Fact(sentence, place, value, variant)


def write_body(story: Story, title: str, tokens: int) -> str:
    """The document's text of about that many tokens; every fact learns where it starts."""
    dice, grammar = story.dice, story.grammar
    facts = [*story.facts.values(), *(fact for _, links in story.chains.values() for fact in links)]
    facts.sort(key=lambda fact: fact.place)
    room = tokens - sum(count_words(fact.sentence) for fact in facts)
    filler: list[str] = []
    focus: list[str] = []
    while room > 0:
        # A section dwells on one of the entities, whatever facts stand in it.
        focus.append(dice.pick(story.entities))
        others = [name for name in story.entities if name != focus[-1]]
        for _ in range(14 + dice.below(20)):
            entity = focus[-1] if dice.share() < 0.4 else dice.pick(others)
            bystander, bystander2 = dice.some(story.bystanders, 2)
            sentence = story.sentence(
                grammar["filler"],
                entity=entity,
                entity2=dice.pick([name for name in story.entities if name != entity]),
                bystander=bystander,
                bystander2=bystander2,
                small=dice.pick(SMALL_NUMBERS),
            )
            filler.append(sentence)
            room -= count_words(sentence)
    return _assemble(story, title, filler, facts)


def _assemble(story: Story, title: str, filler: Sequence[str], facts: Sequence[Fact]) -> str:
    """Sections of paragraphs of sentences; the facts, in order, go between the filler."""
    dice = story.dice
    headings = dice.some(story.grammar["headings"], len(story.grammar["headings"]))
    opening = [story.sentence([line]) for line in dice.some(story.grammar["opening"], 2)]
    pieces = [f"{title}\n\n{' '.join(opening)}"]
    length = len(pieces[0])
    section = left_in_section = left_in_paragraph = 0

    def add(piece: str) -> None:
        nonlocal length
        pieces.append(piece)
        length += len(piece)

    def add_sentence(sentence: str) -> int:
        nonlocal left_in_paragraph
        if left_in_paragraph == 0:
            left_in_paragraph = 4 + dice.below(4)
            add("\n\n")
        else:
            add(" ")
        left_in_paragraph -= 1
        start = length
        add(sentence)
        return start

    waiting = list(reversed(facts))
    for place in range(len(filler) + 1):
        if left_in_section == 0:
            add(f"\n\n{section + 1}. {headings[section % len(headings)]}")
            section, left_in_section, left_in_paragraph = section + 1, 16 + dice.below(24), 0
        while waiting and round(waiting[-1].place * len(filler)) <= place:
            fact = waiting.pop()
            fact.start = add_sentence(fact.sentence)
        if place < len(filler):
            add_sentence(filler[place])
            left_in_section -= 1
    add("\n")
    return "".join(pieces)


@dataclass
class Question:
    """What is asked, and the facts that all have to be seen to answer it."""

    level: str
    form: str
    text: str
    answer: str | None
    facts: list[Fact]


def ask(story: Story, level: str) -> Question:
    """A question of that level over the story's facts."""
    dice, grammar = story.dice, story.grammar
    if level == "hallucination":
        return _ask_absent(story)
    if level == "location":
        form = dice.pick(LOOKUPS)
        attribute, entity, period = dice.pick(list(story.facts))
        fact = story.facts[attribute, entity, period]
        text = _look_up(story, attribute, form, fact.variant, entity=entity, period=period)
        return Question(level, form, text, story.shown(attribute, fact.value), [fact])
    if level == "reasoning" and dice.share() < 0.6:
        entity = dice.pick(list(story.chains))
        career, links = story.chains[entity]
        text = story.sentence(grammar["chain"]["question"], entity=entity)
        return Question(level, "chain", text, career, links)
    if level == "reasoning":
        return _ask_change(story)
    return _ask_comparison(story, dice.pick(COMPARISONS))


def _put(story: Story, attribute: str, form: str, **given: str) -> str:
    return story.sentence(story.grammar["attributes"][attribute][form], **given)


def _look_up(story: Story, attribute: str, form: str, variant: int, **given: str) -> str:
    """Asks for one fact: `direct` in the words of the sentence that tells it, else in others."""
    templates = story.grammar["attributes"][attribute][form]
    return story.sentence([templates[variant]] if form == "direct" else templates, **given)


def _ask_absent(story: Story) -> Question:
    """Asks for a fact that is nowhere: another attribute, another name, or another period."""
    dice = story.dice
    attribute, entity, period = dice.pick(list(story.facts))
    lacking = dice.pick(("attribute", "entity", "period"))
    if lacking == "attribute":
        attribute = story.missing_attribute
    elif lacking == "entity":
        entity = dice.pick(story.strangers)
    else:
        period = story.missing_period
    form, variant = dice.pick(LOOKUPS), dice.below(3)
    text = _look_up(story, attribute, form, variant, entity=entity, period=period)
    return Question("hallucination", f"absent_{lacking}", text, None, [])


def _ask_change(story: Story) -> Question:
    dice, attribute = story.dice, story.attributes[0]
    entity = dice.pick(story.entities)
    first, second = dice.some(story.periods, 2)
    facts = [story.facts[attribute, entity, period] for period in (first, second)]
    text = _put(story, attribute, "change", entity=entity, period=first, period2=second)
    values = [fact.value for fact in facts]
    told = [f"{first}: {story.shown(attribute, values[0])}"]
    told.append(f"{second}: {story.shown(attribute, values[1])}")
    told.append(f"difference: {story.shown(attribute, abs(values[1] - values[0]))}")
    return Question("reasoning", "change", text, "; ".join(told), facts)


def _ask_comparison(story: Story, form: str) -> Question:
    dice = story.dice
    attribute, entity, period = dice.pick(list(story.facts))
    about = story.grammar["attributes"][attribute]
    everyone = {name: story.facts[attribute, name, period] for name in story.entities}
    if form == "years":
        attribute = story.attributes[0]
        series = {when: story.facts[attribute, entity, when] for when in story.periods}
        answer = "; ".join(
            f"{when}: {story.shown(attribute, fact.value)}" for when, fact in series.items()
        )
        text = _put(story, attribute, form, entity=entity)
        return Question("comparison", form, text, answer, list(series.values()))
    if form in ("pair", "contrast"):
        two = dice.some(story.entities, 2)
        if form == "contrast":
            attribute = story.attributes[0]
        told = [period] if form == "pair" else story.periods
        facts = {(name, when): story.facts[attribute, name, when] for name in two for when in told}
        text = _put(story, attribute, form, entity=two[0], entity2=two[1], period=period)
        answer = "; ".join(
            f"{name}, {when}: {story.shown(attribute, fact.value)}"
            for (name, when), fact in facts.items()
        )
        return Question("comparison", form, text, answer, list(facts.values()))
    if form == "superlative":
        place = dice.below(len(about[form]))
        choose = min if about["least"][place] else max
        text = story.sentence([about[form][place]], period=period)
        answer = choose(everyone, key=lambda name: everyone[name].value)
        return Question("comparison", form, text, answer, list(everyone.values()))
    values = sorted(fact.value for fact in everyone.values())
    if form == "total":
        total = sum(values) / (len(values) if about.get("mean") else 1)
        text = _put(story, attribute, form, period=period)
        return Question(
            "comparison", form, text, story.shown(attribute, total), list(everyone.values())
        )
    bound = values[dice.below(len(values) - 1)]
    text = _put(story, attribute, form, period=period, bound=story.shown(attribute, bound))
    answer = str(sum(value > bound for value in values))
    return Question("comparison", form, text, answer, list(everyone.values()))


def make(documents: int) -> Iterator[tuple[Row, str, list[Row]]]:
    """Each document's row, its body and its questions' rows. Any first few are a fair mixture."""
    grammars = {
        name: yaml.safe_load((GRAMMARS / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in TYPES
    }
    titles: set[str] = set()
    for number in range(documents):
        kind = TYPES[number % len(TYPES)]
        dice = Dice(f"{SEED}/{kind}/{number}")
        # Golden-ratio steps spread the lengths evenly, on a logarithmic scale, from the start.
        step = (number // len(TYPES) * 0.618034 + number % len(TYPES) / 3) % 1
        tokens = round(
            math.exp(math.log(SHORTEST) + step**LENGTH_SKEW * math.log(LONGEST / SHORTEST))
        )
        story = new_story(grammars[kind], dice, tokens)
        title = story.sentence(grammars[kind]["titles"])
        while title in titles:
            story = new_story(grammars[kind], dice, tokens)
            title = story.sentence(grammars[kind]["titles"])
        titles.add(title)
        body = write_body(story, title, tokens)
        document_id = f"{kind}-{number // len(TYPES) + 1:02d}"
        profile = {
            "document_id": document_id,
            "title": title,
            "type": kind,
            "tokens": count_words(body),
            "characters": len(body),
            "sha256": hashlib.sha256(body.encode()).hexdigest(),
        }
        yield profile, body, list(_question_rows(story, document_id, number))


def _question_rows(story: Story, document_id: str, number: int) -> Iterator[Row]:
    asked: dict[str, Question] = {}
    for level in [*LEVELS, FIFTH[number // len(TYPES) % len(FIFTH)]]:
        question = ask(story, level)
        while question.text in asked:
            question = ask(story, level)
        asked[question.text] = question
    for place, question in enumerate(story.dice.some(list(asked.values()), len(asked))):
        facts = sorted(question.facts, key=lambda fact: fact.start)
        yield {
            "question_id": f"{document_id}-q{place + 1}",
            "document_id": document_id,
            "question": question.text,
            "answer": question.answer,
            "answerable": question.answer is not None,
            "level": question.level,
            "form": question.form,
            "evidence": [
                {
                    "text": fact.sentence,
                    "start": fact.start,
                    "end": fact.start + len(fact.sentence),
                }
                for fact in facts
            ],
        }


def write_sample(target: Path, documents: int = DOCUMENTS) -> dict[str, Any]:
    """Write the sample into `target`, in place of what is there, and return its sample.json."""
    bodies = target / "documents"
    if bodies.exists():
        shutil.rmtree(bodies)
    bodies.mkdir(parents=True)
    profiles: list[Row] = []
    questions: list[Row] = []
    for profile, body, rows in make(documents):
        (bodies / f"{profile['document_id']}.txt").write_bytes(body.encode())
        profiles.append(profile)
        questions += rows
    summary = {
        "version": VERSION,
        "seed": SEED,
        "licence": "Apache-2.0",
        "documents": len(profiles),
        "questions": len(questions),
        "tokens": sum(profile["tokens"] for profile in profiles),
        "by_type": dict(sorted(Counter(row["type"] for row in profiles).items())),
        "by_level": dict(sorted(Counter(row["level"] for row in questions).items())),
        "by_form": dict(sorted(Counter(row["form"] for row in questions).items())),
    }
    _write_lines(target / "documents.jsonl", profiles)
    _write_lines(target / "questions.jsonl", questions)
    text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    (target / "sample.json").write_bytes(text.encode())
    return summary


def _write_lines(path: Path, rows: Sequence[Row]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(text.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the sample of made-up documents.")
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args()
    print(json.dumps(write_sample(options.target, options.documents), indent=1))


if __name__ == "__main__":
    main()
