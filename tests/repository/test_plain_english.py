"""Pages, helps and messages have short sentences and the field's words; the check finds planted problems."""

import pytest

from tests.plain_english import LONGEST, WORDS, Passage, everything, passages, problems, sentences

PAGE = """# A title

A paragraph with `code.that(counts, once)` in
[two lines](target.md). It has two sentences.

| a cell | another. With two |
|---|---|

- an item

```python
no = "prose, however long it is"
```
"""


def test_pages_helps_and_messages_are_plain():
    found = everything()
    assert found == [], "\n" + "\n".join(found)


def test_a_page_is_read_by_paragraph_item_and_cell():
    texts = [passage.text for passage in passages("docs/x.md", PAGE) if passage.text.strip("-")]
    paragraph = "A paragraph with CODE in two lines. It has two sentences."
    assert texts == ["A title", paragraph, "a cell", "another. With two", "an item"]
    assert sentences(paragraph) == ["A paragraph with CODE in two lines.", "It has two sentences."]


@pytest.mark.parametrize(
    "text",
    ["The result is the same to the bit.", "A buffer of its own.", "It stays as it was.", "word " * (LONGEST + 1)],
)
def test_a_planted_problem_is_found(text):
    assert len(problems(Passage("docs/x.md", 1, text))) == 1


def test_plain_text_has_no_problem():
    assert problems(Passage("docs/x.md", 1, " ".join(["word"] * LONGEST) + ". Another sentence, with `code`.")) == []
    assert len(WORDS) > 20
