"""What a tagger can learn, it learns: names that it has never seen, by the words around them; tags by characters."""

from pathlib import Path

import saccade
from saccade.recipe import load_recipe
from tests.support.tagging import tag_recipe


def test_the_shipped_notices_are_learnt(tmp_path: Path) -> None:
    """Names are put together anew, so that many test names are unknown: the context tells what they are."""
    recipe = saccade.recipe(
        "ner-notices", "data.train=1200", "data.valid=100", "data.test=150", "train.updates=120",
        "train.validate_every=120", "train.workers=0", "model.encoder.width=48",
    )  # fmt: skip
    run = saccade.train(recipe, tmp_path / "run", device="cpu").path
    scores = load_recipe(str(run / "train.yaml"))[0].scores(saccade.load(run, "cpu").loaded, (), "test", tmp_path)
    assert scores["f1"].value > 90
    assert scores["unseen_accuracy"].value > 80
    found = saccade.load(run, "cpu").tag("Shares of Velzemar AG fell , said Ada Dunkora .")
    assert [(span.type, span.text) for span in found.spans] == [("ORG", "Velzemar AG"), ("PER", "Ada Dunkora")]


def endings(folder: Path) -> Path:
    """The tag of a word is its last letter, and no two words are the same: words by themselves say nothing."""
    folder.mkdir()
    letters = "abcdefgh"
    words = [f"{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in "xyz"]
    words = words[::7] + words[1::7] + words[2::7] + words[3::7]
    for split, some in (("train", words[:700]), ("valid", words[700:760]), ("test", words[760:860])):
        rows = [f"{word} {word[-1].upper()}\n" + "\n" * (i % 5 == 4) for i, word in enumerate(some)]
        (folder / f"{split}.conll").write_text("".join(rows))
    return folder


def test_characters_tell_what_words_cannot(tmp_path: Path) -> None:
    corpus = endings(tmp_path / "corpus")
    encoder = {"kind": "lstm", "width": 16, "embedding": 8}
    for characters, learns in (({"kind": "cnn"}, True), ({"kind": "lstm"}, True), (None, False)):
        model = {"encoder": encoder, "characters": characters}
        recipe = tag_recipe(corpus, model, "train.updates=60", "train.batch_tokens=600", "train.validate_every=60")
        run = saccade.train(recipe, tmp_path / str(characters and characters["kind"]), device="cpu").path
        scores = recipe.scores(saccade.load(run, "cpu").loaded, (), "test", corpus)
        assert (scores["accuracy"].value > 95) == learns, (characters, scores["accuracy"].value)
