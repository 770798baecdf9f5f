"""One run from recipe sections to a finished run folder: listens to the loop, logs, validates, saves, publishes."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from saccade import checkpoint, disk
from saccade.checkpoint import AVERAGE, Checkpoint, RunFolder
from saccade.errors import SaccadeError
from saccade.models.trainable import Trainable
from saccade.run_paths import update_of
from saccade.train.allocator import memory_kept
from saccade.train.card import card
from saccade.train.ema import MovingAverage, swapped
from saccade.train.events import Event, Finished, Prepared, SaveDue, Shrunk, Stopped, Updated, Validated
from saccade.train.layer_rates import rate_factors
from saccade.train.log import Log
from saccade.train.loop import Progress, Trainer, is_better
from saccade.train.numerics import fingerprint, numerics
from saccade.train.optimizer import make_optimizer, mean_weights, named_state, note_validation, restore_state
from saccade.train.profile import Profile, profiled
from saccade.train.ready import Job as Job
from saccade.train.ready import made_ready
from saccade.train.restoring import check_optimizer, read_progress
from saccade.train.saving import Order, Saver
from saccade.train.task import Ready
from saccade.train.validation import AT_ONCE
from saccade.train.window import Window

CARRIED = "/carried"
"""Behind the name of what is carried on from a batch to the next, saved there, too."""
CPU_PIECE = 8192
"""Rows × longest side that a CPU works off at once with `batch_tokens: auto`."""


def run(
    job: Job,
    folder: RunFolder,
    *,
    device: torch.device,
    stop: Callable[[], bool],
    profile: bool = False,
) -> Iterator[Event]:
    """Train, or go on training where the folder holds a checkpoint; with `profile`, tell where the time went."""
    with folder.locked():
        try:
            data, model, remarks = made_ready(job, folder)
        except Exception:
            folder.abandon()
            raise
        run = _Run(job, folder, data, model.to(device), device, remarks)
        yield run.prepared()
        with memory_kept(device):
            yield from run.events(stop, Profile(device) if profile else None)


def _slow_parts(model: Trainable, device: torch.device) -> list[str]:
    """One remark at most."""
    parts = model.without_twin(device)
    return [f"no fast kernel on {device.type} for all of it: {'; '.join(parts)}"] if parts else []


class _Run:
    def __init__(
        self, job: Job, folder: RunFolder, data: Ready, model: Trainable, device: torch.device, remarks: list[str]
    ) -> None:
        self.job, self.folder, self.data, self.model, self.device = job, folder, data, model, device
        self.optimizer = make_optimizer(job.train.optimizer, model, rate_factors(model, job.train.layer_decay))
        self.average = None if job.train.ema is None else MovingAverage(model, job.train.ema)
        self.progress = Progress()
        self.remarks = [*data.remarks, *remarks, *_slow_parts(model, device)]
        self.late_remarks: list[str] = []
        self.saved_at = -1
        self.log = Log(folder.path / checkpoint.METRICS)
        self.saver = Saver(folder, self.log)
        self._restore()
        self.window = Window()

    def _restore(self) -> None:
        found, remarks = self.folder.latest()
        self.remarks += remarks
        size = 0
        if found is not None:
            size, self.saved_at = self._restore_from(found), found.update
        self.remarks += self.log.cut(size)  # what was logged behind the checkpoint will be logged again

    def _restore_from(self, found: Checkpoint) -> int:
        """Go on from the checkpoint; the length of the log when it was saved."""
        saved = read_progress(found.path / checkpoint.STATE, found.state)
        for store in self.data.stores.values():
            if saved.data.get(store.folder.name) != store.fingerprint:
                raise SaccadeError(
                    f"{found.path}: was trained with other data than {store.folder} holds. Put those back, "
                    "or begin anew in --out."
                )
        checkpoint.restore_model(self.model, found.tensors("model"), str(found.path / checkpoint.MODEL))
        memory = found.tensors("optimizer")
        self.model.carry({k.removesuffix(CARRIED): memory.pop(k) for k in [*memory] if k.endswith(CARRIED)})
        check_optimizer(self.model, memory, str(found.path / checkpoint.OPTIMIZER))
        restore_state(self.optimizer, self.model, {k: v for k, v in memory.items() if not k.endswith(AVERAGE)})
        if self.average is not None:
            self.average.restore({k.removesuffix(AVERAGE): v for k, v in memory.items() if k.endswith(AVERAGE)})
        self.progress = saved.progress
        published = self.folder.path / checkpoint.MODEL
        if self.progress.best and not published.exists():
            raise SaccadeError(f"{published}: is missing: the best model so far. Put it back, or begin anew in --out.")
        return saved.metrics_bytes

    def prepared(self) -> Prepared:
        train, (examples, unit) = self.job.train, self.data.examples
        return Prepared(
            examples=examples,
            unit=unit,
            parameters=sum(p.numel() for p in self.model.parameters()),
            vocabularies=dict(self.data.told),
            updates=train.updates,
            done=self.progress.update,
            device=str(self.device),
            remarks=tuple(self.remarks),
        )

    def events(self, stop: Callable[[], bool], profile: Profile | None) -> Iterator[Event]:
        if self.job.train.batch_tokens == "auto" and self.progress.fits is None and self.device.type == "cpu":
            self.progress.fits = CPU_PIECE  # a CPU gains nothing by more; a GPU is tried with all of it
        trainer = Trainer(
            self.model,
            self.optimizer,
            self.job.train,
            self.progress,
            seed=self.job.seed,
            width=self.data.width,
            device=self.device,
            average=self.average,
            profile=profile,
            worked=self.data.worked,
        )
        if self.device.type == "cuda" and self.progress.update == 0:  # a resumed run knows what fits
            with self._numerics():
                trainer.gradient.rehearse(self.data.largest())
        # Threads end with the training, however that ends; a save under way is finished.
        with closing(self.saver), closing(self.data.batches(self.progress.cursor)) as stream:
            for event in trainer.run(stream, self._validate, stop):
                match event:
                    case Updated():
                        yield from self._on_update(event)
                    case Shrunk():
                        self.log.note(kind="shrunk", update=event.update, fits=event.fits)
                        yield event
                    case Validated():
                        yield from self._on_validated(event)
                    case SaveDue():
                        yield from self._flush()
                        yield from self._save()
                        self.window.restart()
                    case Stopped():
                        yield from self._finish(event, profile)

    def _on_update(self, event: Updated) -> Iterator[Event]:
        self.window.add(event)
        if self.job.train.fingerprint:
            loss = None if event.not_finite.item() else event.nll.item() / event.tokens
            self.log.note(kind="update", update=event.update, loss=loss, fingerprint=fingerprint(self.model))
        if event.update % self.job.train.log_every == 0:
            yield from self._flush()
        yield from self.saver.finished()

    def _flush(self) -> Iterator[Event]:
        logged = self.window.close(self.progress.seconds)
        if logged is None:
            return
        self.log.note(
            kind="trained",
            update=logged.update,
            epoch=logged.epoch,
            loss=None if math.isnan(logged.loss) else logged.loss,
            gradient_norm=None if math.isnan(logged.gradient_norm) else logged.gradient_norm,
            rate=logged.rate,
            tokens_per_second=round(logged.tokens_per_second, 1),
            seconds=round(logged.seconds, 3),
            skipped=logged.skipped,
        )
        yield logged

    def _diverged(self, update: int, what: str) -> SaccadeError:
        stands = f"the last good state stands in {self.folder.path}" if self.folder.steps() else "nothing was saved yet"
        return SaccadeError(
            f"training has gone astray by update {update}: {what}. Begin anew with a lower train.optimizer.rate, "
            f"a longer warm-up or a smaller train.clip; {stands}."
        )

    def _on_validated(self, event: Validated) -> Iterator[Event]:
        yield from self._flush()
        if not math.isfinite(event.values["loss"]):
            yield from self.saver.wait()  # what is still on its way to the disk will stand there
            raise self._diverged(event.update, f"the loss on the validation data is {event.values['loss']}")
        self.log.note(kind="validated", update=event.update, best=event.best, **event.values)
        if event.best:
            yield from self.saver.publish(self._to_publish())
        note_validation(self.optimizer, event.values["loss"])
        yield event
        self.window.restart()

    def _to_publish(self) -> dict[str, Tensor]:
        """The weights that were validated."""
        return checkpoint.model_tensors(self.model) | self._in_place()

    def _in_place(self) -> dict[str, Tensor]:
        """Means that are validated and published in place of the weights of the last update; often none."""
        return mean_weights(self.optimizer, self.model) if self.average is None else self.average.tensors()

    def _numerics(self) -> AbstractContextManager[None]:
        return numerics(self.job.train.precision, self.device, deterministic=self.job.train.deterministic)

    def _validate(self) -> dict[str, float]:
        self.model.eval()
        means = self._in_place()
        averaged = swapped(self.model, means) if means else nullcontext()
        with averaged, self._numerics():
            at_once = min(self.job.train.planned_tokens, self.progress.fits or AT_ONCE, AT_ONCE)
            return self.data.validate(self.model, at_once, self.device)

    def _save(self) -> Iterator[Event]:
        """Ask for a checkpoint of this moment; tells of earlier ones that are written."""
        update = self.progress.update
        state = {
            "progress": self.progress.to_dict(),
            "metrics_bytes": self.log.size(),
            "data": {store.folder.name: store.fingerprint for store in self.data.stores.values()},
        }
        order = Order(
            update,
            state,
            keep=self.job.train.keep,
            spare=lambda: self._to_average(update),
            not_finite=lambda: self._diverged(update, "some weights are no longer numbers"),
        )
        memory = named_state(self.optimizer, self.model)
        if self.average is not None:
            memory |= {name + AVERAGE: tensor for name, tensor in self.average.tensors().items()}
        memory |= {name + CARRIED: tensor for name, tensor in self.model.carried().items()}
        yield from self.saver.save(order, checkpoint.model_tensors(self.model), memory)
        self.saved_at = update

    def _finish(self, stopped: Stopped, profile: Profile | None) -> Iterator[Event]:
        yield from self._flush()
        if self.saved_at != self.progress.update and self.progress.update > 0:
            yield from self._save()
        yield from self.saver.wait()
        if stopped.reason == "not finite":
            in_a_row = self.progress.skipped_in_a_row
            raise self._diverged(stopped.update, f"loss or gradient of the last {in_a_row} updates were not finite")
        if not (self.folder.path / checkpoint.MODEL).exists():
            yield from self.saver.publish(self._to_publish())
        to_average = self.job.train.average > 1 and self.progress.averaged_at != self.progress.update
        if stopped.reason != "interrupted" and to_average:
            yield from self._try_average()
        yield from self.saver.wait()
        if profile is not None and profile.updates:
            some = self.data.example()
            with self._numerics():
                yield profiled(profile, self.model, some, self.data.worked(some), self.job.train.precision)
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
        disk.write_file(self.folder.path / checkpoint.CARD, card(self.job.recipe, self.prepared(), finished))
        yield finished

    def _to_average(self, update: int) -> list[Path]:
        """The last checkpoints of the regular ones: one saved at an interruption must not change the mean."""
        if not self.job.train.average:
            return []
        at = {update_of(path) or 0: path for path in self.folder.steps()}
        regular = [k for k in at if k % self.job.train.saves_every == 0 or k == update]
        return [at[k] for k in regular[-self.job.train.average :]]

    def _is_whole(self, step: Path) -> bool:
        try:
            self.folder.verify_checkpoint(step)
        except SaccadeError as error:
            self.late_remarks.append(f"{error} The checkpoint is left out of the mean.")
            return False
        return True

    def _try_average(self) -> Iterator[Event]:
        steps = [path for path in self._to_average(self.progress.update) if self._is_whole(path)]
        if len(steps) < 2:
            return
        trained = {name: tensor.clone() for name, tensor in checkpoint.model_tensors(self.model).items()}
        checkpoint.restore_model(self.model, checkpoint.average(steps), "the mean of the last checkpoints")
        values = self._validate()
        better = is_better(values, self.progress.best, self.job.train.metric)
        if better:
            self.progress.best, self.progress.averaged = values, len(steps)
            yield from self.saver.publish(checkpoint.model_tensors(self.model))
        noted = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self.log.note(kind="averaged", update=self.progress.update, checkpoints=len(steps), best=better, **noted)
        yield Validated(self.progress.update, values, better, averaged=len(steps))
        # Saved once more, with the trained weights: whoever goes on from here knows that the mean is the best so far.
        checkpoint.restore_model(self.model, trained, "the last weights")
        self.progress.averaged_at = self.progress.update
        yield from self._save()
