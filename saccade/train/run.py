"""One run from recipe sections to a finished run folder: listens to the loop, logs, validates, saves, publishes."""

import json
import math
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from saccade import checkpoint
from saccade.checkpoint import Checkpoint, RunFolder
from saccade.config import plain, to_yaml
from saccade.data.batching import Cursor, Encode, Plan, batches
from saccade.data.splits import DataConfig
from saccade.errors import SaccadeError
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.text import BpeDropout, BpeText, TextConfig, TextPair
from saccade.train.card import card
from saccade.train.environment import environment
from saccade.train.events import Event, Finished, Prepared, Saved, SaveDue, Stopped, Updated, Validated
from saccade.train.loop import Progress, Trainer, fingerprint, is_better, numerics, seed_everything
from saccade.train.optimizer import make_optimizer, named_state, restore_state
from saccade.train.prepare import Prepared as Data
from saccade.train.prepare import learn_text, prepare, reopen
from saccade.train.settings import TrainConfig
from saccade.train.validation import validation_loss
from saccade.train.window import Window
from saccade.types import Batch

Decoded = Callable[[Translator, TextPair, list[str], list[str]], dict[str, float]]
"""(model, tokenizers, sources, references) → metrics of the decoded outputs; training itself does not decode."""


@dataclass(frozen=True)
class Job:
    """What is to be trained."""

    task: str
    data: DataConfig
    text: TextConfig
    model: TranslatorConfig
    train: TrainConfig
    seed: int
    decode: dict[str, Any]
    """Kept with the model for those who use it; training does not read it."""
    recipe: dict[str, Any]
    """The whole resolved recipe, as it is saved."""
    base: Path
    """Where relative paths are seen from."""


def run(
    job: Job, folder: RunFolder, *, device: torch.device, stop: Callable[[], bool], decoded: Decoded
) -> Iterator[Event]:
    """Train, or go on training where the folder holds a checkpoint."""
    with folder.locked():
        try:
            data, model = _made_ready(job, folder)
        except Exception:
            folder.abandon()
            raise
        run = _Run(job, folder, data, model.to(device), device, decoded)
        yield run.prepared()
        yield from run.events(stop)


def _made_ready(job: Job, folder: RunFolder) -> tuple[Data, Translator]:
    """Data and model. A new run begins, and an older one in its place goes, once nothing in the recipe can fail."""
    folder.clean()
    data = _reopen(job, folder) if folder.begun else _prepared(job, folder)
    seed_everything(job.seed, 0)
    model = build_translator(job.model, data.text.source.size, data.text.target.size)
    if not folder.begun:
        vocabulary = {"source": data.text.source.size, "target": data.text.target.size}
        facts = {"format": checkpoint.FORMAT, "task": job.task, "model": plain(job.model), "text": plain(job.text)}
        folder.begin(facts | {"decode": job.decode, "vocabulary": vocabulary})
    return data, model


def _prepared(job: Job, folder: RunFolder) -> Data:
    checkpoint.write_file(folder.path / checkpoint.RECIPE, to_yaml(job.recipe))
    facts = environment() | {"base": str(job.base)}
    checkpoint.write_file(folder.path / checkpoint.ENVIRONMENT, checkpoint.to_json(facts))
    pair = learn_text(job.data, job.text, base=job.base, folder=folder.path, seed=job.seed)
    return prepare(job.data, job.text, pair, base=job.base, folder=folder.path)


def _reopen(job: Job, folder: RunFolder) -> Data:
    """What the run read before. Its tokenizers stay as they are even where the tokens must be made again."""
    folder.verify()
    checkpoint.write_file(folder.path / checkpoint.RECIPE, to_yaml(job.recipe))
    found = reopen(folder.path)
    return found or prepare(job.data, job.text, TextPair.load(folder.path), base=job.base, folder=folder.path)


class _Run:
    def __init__(
        self, job: Job, folder: RunFolder, data: Data, model: Translator, device: torch.device, decoded: Decoded
    ) -> None:
        self.job, self.folder, self.data, self.model, self.device = job, folder, data, model, device
        self.decoded = decoded
        self.optimizer = make_optimizer(job.train.optimizer, model)
        self.progress = Progress()
        self.remarks = list(data.remarks)
        self.late_remarks: list[str] = []
        self.saved_at = -1
        self._restore()
        self.window = Window()

    def _restore(self) -> None:
        found, remarks = self.folder.latest()
        self.remarks += remarks
        size = 0
        if found is not None:
            self._restore_from(found)
            size, self.saved_at = found.state["metrics_bytes"], found.update
        with self._metrics() as file:  # what was logged behind the checkpoint will be logged again
            file.truncate(min(size, file.tell()))

    def _restore_from(self, found: Checkpoint) -> None:
        for store in (self.data.train, self.data.valid):
            if found.state["data"][store.folder.name] != store.fingerprint:
                raise SaccadeError(f"{found.path}: was trained with other data than {store.folder} holds.")
        checkpoint.restore_model(self.model, found.tensors("model"), str(found.path))
        restore_state(self.optimizer, self.model, found.tensors("optimizer"))
        self.progress = Progress.from_dict(found.state["progress"])
        published = self.folder.path / checkpoint.MODEL
        if self.progress.best and not published.exists():
            raise SaccadeError(f"{published}: is missing: the best model so far. Put it back, or begin anew in --out.")

    def prepared(self) -> Prepared:
        train = self.job.train
        return Prepared(
            pairs=len(self.data.train),
            parameters=sum(p.numel() for p in self.model.parameters()),
            vocabularies=(self.data.text.source.size, self.data.text.target.size),
            updates=train.updates,
            done=self.progress.update,
            device=str(self.device),
            remarks=tuple(self.remarks),
        )

    def events(self, stop: Callable[[], bool]) -> Iterator[Event]:
        trainer = Trainer(
            self.model,
            self.optimizer,
            self.job.train,
            self.progress,
            self.job.seed,
            self.job.model.decoder.width,
            self.device,
        )
        with closing(self._stream()) as stream:  # its threads end with the training, however that ends
            for event in trainer.run(stream, self._validate, stop):
                match event:
                    case Updated():
                        yield from self._on_update(event)
                    case Validated():
                        yield from self._on_validated(event)
                    case SaveDue():
                        yield from self._flush()
                        yield self._save()
                        self.window.restart()
                    case Stopped():
                        yield from self._finish(event)

    def _stream(self) -> Generator[tuple[Cursor, Batch], None, None]:
        train = self.job.train
        plan = Plan(self.data.train.lengths, train.batch_tokens, self.job.seed, train.batch_sentences)
        return batches(self.data.train, plan, cursor=self.progress.cursor, workers=train.workers, encode=self._encode())

    def _encode(self) -> Encode | None:
        text = self.job.text
        if not isinstance(text, BpeText) or text.dropout == 0:
            return None
        source = BpeDropout(self.data.text.source, text.dropout)
        target = BpeDropout(self.data.text.target, text.dropout)

        def encode(one: str, other: str, random: np.random.Generator) -> tuple[list[int], list[int]]:
            return source.encode(one, random), target.encode(other, random)

        return encode

    def _on_update(self, event: Updated) -> Iterator[Event]:
        self.window.add(event)
        if self.job.train.fingerprint:
            loss = event.nll.item() / event.tokens
            self._must_be_finite(event.update, loss, event.gradient_norm.item())
            self._note(kind="update", update=event.update, loss=loss, fingerprint=fingerprint(self.model))
        if event.update % self.job.train.log_every == 0:
            yield from self._flush()

    def _flush(self) -> Iterator[Event]:
        logged = self.window.close(self.progress.seconds)
        if logged is None:
            return
        self._must_be_finite(logged.update, logged.loss, logged.gradient_norm)
        self._note(
            kind="trained",
            update=logged.update,
            epoch=logged.epoch,
            loss=logged.loss,
            gradient_norm=logged.gradient_norm,
            rate=logged.rate,
            tokens_per_second=round(logged.tokens_per_second, 1),
            seconds=round(logged.seconds, 3),
        )
        yield logged

    def _must_be_finite(self, update: int, loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._diverged(update, f"the loss is {loss}, the norm of its gradient {norm}")

    def _diverged(self, update: int, what: str) -> SaccadeError:
        return SaccadeError(
            f"training has gone astray by update {update}: {what}. Begin anew with a lower train.optimizer.rate, "
            f"a longer warm-up or a smaller train.clip; what was saved before stands in {self.folder.path}."
        )

    def _on_validated(self, event: Validated) -> Iterator[Event]:
        yield from self._flush()
        if not math.isfinite(event.values["loss"]):
            raise self._diverged(event.update, f"the loss on the validation data is {event.values['loss']}")
        self._note(kind="validated", update=event.update, best=event.best, **event.values)
        if event.best:
            self.folder.publish(checkpoint.model_tensors(self.model))
        yield event
        self.window.restart()

    @contextmanager
    def _metrics(self) -> Iterator[IO[bytes]]:
        """The log, open to be written on."""
        path = self.folder.path / checkpoint.METRICS
        try:
            with path.open("ab") as file:
                yield file
        except OSError as error:
            raise SaccadeError(
                f"{path}: cannot be written: {error.strerror or error}. Earlier checkpoints are intact; free some "
                "space and continue with --resume."
            ) from None

    def _note(self, **values: Any) -> None:
        with self._metrics() as file:
            file.write((json.dumps(values) + "\n").encode())

    def _validate(self) -> dict[str, float]:
        self.model.eval()
        with numerics(self.job.train.precision, self.device):
            values = validation_loss(self.model, self.data.valid, self.job.train, self.device)
            if self.job.train.metric != "loss":
                texts = [self.data.valid.text(i) for i in range(len(self.data.valid))]
                sources, references = [source for source, _ in texts], [target for _, target in texts]
                values |= self.decoded(self.model, self.data.text, sources, references)
        return values

    def _save(self) -> Saved:
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            raise self._diverged(self.progress.update, "some weights are no longer numbers")
        with self._metrics() as file:
            os.fsync(file.fileno())
            size = file.tell()
        state = {
            "progress": self.progress.to_dict(),
            "metrics_bytes": size,
            "data": {store.folder.name: store.fingerprint for store in (self.data.train, self.data.valid)},
        }
        path = self.folder.save_checkpoint(
            self.progress.update,
            checkpoint.model_tensors(self.model),
            named_state(self.optimizer, self.model),
            state,
        )
        self.folder.prune(self.job.train.keep, spare=self._to_average())
        self.saved_at = self.progress.update
        return Saved(self.progress.update, path)

    def _finish(self, stopped: Stopped) -> Iterator[Event]:
        yield from self._flush()
        if self.saved_at != self.progress.update and self.progress.update > 0:
            yield self._save()
        if not (self.folder.path / checkpoint.MODEL).exists():
            self.folder.publish(checkpoint.model_tensors(self.model))
        to_average = self.job.train.average > 1 and self.progress.averaged_at != self.progress.update
        if stopped.reason != "interrupted" and to_average:
            yield from self._try_average()
        finished = Finished(
            stopped.reason,
            self.progress.update,
            self.progress.best_update,
            self.progress.best,
            self.progress.seconds,
            self.progress.tokens,
            self.folder.path,
            self.progress.averaged,
            tuple(self.late_remarks),
        )
        checkpoint.write_file(self.folder.path / checkpoint.CARD, card(self.job.recipe, self.prepared(), finished))
        yield finished

    def _to_average(self) -> list[Path]:
        """The last checkpoints of the regular ones: one saved at an interruption must not change the mean."""
        if not self.job.train.average:
            return []
        at = {int(path.name[5:]): path for path in self.folder.steps()}
        regular = [k for k in at if k % self.job.train.saves_every == 0 or k == self.progress.update]
        return [at[k] for k in regular[-self.job.train.average :]]

    def _is_whole(self, step: Path) -> bool:
        try:
            self.folder.verify_checkpoint(step)
        except SaccadeError as error:
            self.late_remarks.append(f"{error} The checkpoint is left out of the mean.")
            return False
        return True

    def _try_average(self) -> Iterator[Event]:
        steps = [path for path in self._to_average() if self._is_whole(path)]
        if len(steps) < 2:
            return
        trained = {name: tensor.clone() for name, tensor in checkpoint.model_tensors(self.model).items()}
        checkpoint.restore_model(self.model, checkpoint.average(steps), "the mean of the last checkpoints")
        values = self._validate()
        better = is_better(values, self.progress.best, self.job.train.metric)
        if better:
            self.progress.best, self.progress.averaged = values, len(steps)
            self.folder.publish(checkpoint.model_tensors(self.model))
        self._note(kind="averaged", update=self.progress.update, checkpoints=len(steps), best=better, **values)
        yield Validated(self.progress.update, values, better, averaged=len(steps))
        # Saved once more, with the trained weights: whoever goes on from here knows that the mean is the best so far.
        checkpoint.restore_model(self.model, trained, "the last weights")
        self.progress.averaged_at = self.progress.update
        yield self._save()
