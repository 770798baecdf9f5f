"""`explain`: where the model looks while it writes, as a picture, a page or arrays."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saccade.cli.options import Device, Run
from saccade.cli.streams import argument_text, check_place, say, tell
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.types import Trace

Kind = Literal["cross", "pooling", "encoder", "decoder"]
SUFFIXES = (".png", ".html", ".npz")


def explain(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The source.", show_default=False)],
    out: Annotated[Path, typer.Option("--output", "-o", help="A .png, .html or .npz file.", show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="Explain this output. Default: the model's own.", show_default=False)
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help=".png: which attention: from target to source, to what is pooled, or within one side. "
            "Default: the first that there is.",
            show_default=False,
        ),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help=".png: which layer, from 1. Default: the last.", min=1, show_default=False)
    ] = None,
    head: Annotated[
        int | None, typer.Option(help=".png: which head, from 1. Default: the mean.", min=1, show_default=False)
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help=".png: every layer and head side by side.")] = False,
    device: Device = "auto",
) -> None:
    """Show where the model looks while it writes, or what a label is made of.

    The page (.html) opens without a network and shows every layer and head; .npz holds the weights as float32 arrays
    (layer, head, target, source) beside the tokens.
    """
    if out.suffix not in SUFFIXES:
        raise UsageError(f"-o {out}: the name must end in one of {', '.join(SUFFIXES)}.")
    chosen = grid or layer is not None or head is not None or kind is not None
    if chosen and out.suffix != ".png":
        raise UsageError(f"--kind, --layer, --head and --grid choose what a .png shows; {out} holds everything.")
    if grid and (layer is not None or head is not None):
        raise UsageError("--grid shows every layer and head; leave out --layer and --head.")
    check_place(out, "-o")
    from saccade.api import load

    model = load(run, device)
    given = None if target is None else argument_text(target)
    trace = model.explain(argument_text(text), given)
    if trace.cut:
        tell("the text is longer than the model reads: the rest of it was not read, and is not shown.")
    match out.suffix:
        case ".png":
            from saccade.view.attention import save_grid_png, save_png
            from saccade.view.matrix import kinds_of

            shown = [*kinds_of(trace), "cross"][0] if kind is None else kind
            _check_place(trace, shown, layer, head)
            if grid:
                save_grid_png(trace, out, kind=shown)
            else:
                save_png(
                    trace,
                    out,
                    kind=shown,
                    layer=-1 if layer is None else layer - 1,
                    head="mean" if head is None else head - 1,
                )
        case ".html":
            from saccade.view.page import save_html

            save_html([trace], out, title=trace.title, note=str(run))
        case _:
            _save_npz(trace, out)
    say(f"wrote {out}: {trace.title}")


def _check_place(trace: "Trace", kind: str, layer: int | None, head: int | None) -> None:
    """Layers and heads are counted from 1 here, as the pictures do."""
    if kind not in trace.attention:
        return  # the picture itself says so
    layers, heads = trace.attention[kind].shape[:2]
    for name, asked, there in (("layer", layer, layers), ("head", head, heads)):
        if asked is not None and asked > there:
            raise UsageError(f"--{name} is {asked}; of {name}s there {'is' if there == 1 else 'are'} {there} here.")


def _save_npz(trace: "Trace", out: Path) -> None:
    import io

    import numpy as np

    from saccade.view.files import write_atomically

    content = io.BytesIO()
    arrays: dict[str, Any] = {"source": np.array(trace.source), "target": np.array(trace.target), **trace.attention}
    np.savez_compressed(content, **arrays)
    write_atomically(out, content.getvalue())
